// Pages look again by themselves: each region marked data-live is fetched and changed in place. The log's stream says when
// there is more to see; where it cannot be followed, the page looks as often as was chosen.
import { recall, remember } from "./store.js";
import { clockText, now, paintTimes, setServerTime } from "./times.js";

const listeners = [];
let timer = 0;
let busy = null;
let lastGood = Date.now();
let failures = 0;
let reason = "";
let lastLook = 0; // when it began
let complete = 0; // everything up to this instant, by the server's clock, is on the page
let wanted = 0; // there is something of this instant
let stream = null; // an EventSource, while it is not given up
let hearing = false;
let mayAsk = 0; // for a stream again

const IDLE_MS = 15000; // leases and pauses change without an event
const AGAIN_MS = 30000; // after a refused stream

export const onFresh = (call) => listeners.push(call);

const select = () => document.getElementById("interval");
const interval = () => Number(select()?.value ?? 2) * 1000;
const region = () => document.querySelector("[data-live-url]");
const source = () => region()?.dataset.liveUrl;

// Whether this page is to change by itself now.
export const isLooking = () => Boolean(interval() && !document.hidden && source());

function show() {
  const state = document.getElementById("live-state");
  const stale = document.getElementById("stale");
  if (!state) return;
  const is = failures ? "stale" : !source() ? "still" : !interval() ? "paused" : document.hidden ? "hidden" : "live";
  state.className = "live is-" + is;
  state.querySelector(".what").textContent = is;
  state.title = is !== "live" ? "" : hearing ? "This page changes as things happen" : "This page looks again by itself";
  stale.hidden = !failures;
  if (failures) {
    const since = new Date(lastGood);
    const text = `Stale since ${clockText(since)}: ${reason}. Trying again by itself; what is shown below may be old.`;
    if (stale.textContent !== text) stale.textContent = text;
    document.body.classList.add("is-stale");
  } else {
    document.body.classList.remove("is-stale");
  }
}

const callbacks = {
  // What the viewer opened, ticked or typed is theirs.
  beforeAttributeUpdated(name, node) {
    if (name === "open" && (node.tagName === "DETAILS" || node.tagName === "DIALOG")) return false;
    if (name === "checked" || name === "value") {
      if (node.type === "range") return !node.matches(":active"); // the end moves on, but not under a finger
      if (node.matches?.("input, textarea, select")) return false;
    }
    return undefined;
  },
  beforeNodeMorphed(old) {
    return old.dataset?.keep === undefined;
  },
};

function swap(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const expected = document.body.dataset.page;
  if (fresh.body.dataset.page !== expected) throw new Error("the server answers with another page");
  for (const old of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(old.id);
    if (next) window.Idiomorph.morph(old, next, { morphStyle: "outerHTML", callbacks });
  }
  for (const region of document.querySelectorAll("[data-live]")) window.htmx.process(region);
  paintTimes();
  for (const call of listeners) call(fresh);
}

export async function refresh() {
  const url = source();
  if (!url || busy) return;
  busy = new AbortController();
  const gives = setTimeout(() => busy?.abort(), 15000);
  const heard = wanted;
  lastLook = Date.now();
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" }, signal: busy.signal, cache: "no-store" });
    const through = Date.parse(answer.headers.get("X-Complete-Through") ?? "");
    complete = Number.isNaN(through) ? heard : through; // where nobody can tell, one look has to do
    if (answer.status === 204) { failures = 0; lastGood = Date.now(); document.dispatchEvent(new CustomEvent("jobevents:look")); return; }
    const text = await answer.text();
    if (answer.status === 401 || answer.status === 403) throw new Error("the server does not let you in any more");
    if (!answer.ok && !/data-page=/.test(text)) throw new Error("the server answers " + answer.status);
    setServerTime(answer.headers.get("Date"));
    swap(text);
    document.dispatchEvent(new CustomEvent("jobevents:look"));
    if (answer.ok) { failures = 0; lastGood = Date.now(); } else { failures += 1; reason = "the store cannot be read now"; }
  } catch (error) {
    failures += 1;
    reason = error.name === "TypeError" ? "the server cannot be reached" : error.name === "AbortError" ? "no answer in 15 s" : error.message;
  } finally {
    clearTimeout(gives);
    busy = null;
    show();
  }
}

// Another address of the same page, taken into this one; where that fails, the browser goes there itself.
export async function takePage(url, focus) {
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" }, cache: "no-store" });
    const text = await answer.text();
    if (!answer.ok) throw new Error(String(answer.status));
    history.pushState(null, "", url);
    swap(text);
    if (focus) document.querySelector(focus)?.focus();
    plan();
  } catch { location.assign(url); }
}

// How long until the next look, in milliseconds.
function pause() {
  if (failures) return Math.min(interval() * 2 ** Math.min(failures - 1, 4), 15000);
  if (!hearing || "liveClock" in region().dataset) return interval();
  if (complete < wanted) return Math.max(0, lastLook + interval() - Date.now());
  return Math.max(interval(), IDLE_MS);
}

function plan() {
  clearTimeout(timer);
  follow();
  show();
  if (!interval() || document.hidden || !source() || busy) return;
  timer = setTimeout(async () => { await refresh(); plan(); }, pause());
}

function hush() {
  stream?.close();
  stream = null;
  hearing = false;
}

// Follow the log while anybody looks: a browser has but a few connections to a server, and a hidden tab needs none.
function follow() {
  const url = region()?.dataset.stream;
  if (!url || !interval() || document.hidden) { hush(); return; }
  if (stream || Date.now() < mayAsk) return;
  stream = new EventSource(url);
  stream.onopen = () => {
    hearing = true;
    wanted = Math.max(wanted, complete + 1); // what came before it was open, nobody has told
    plan();
  };
  stream.addEventListener("more", (event) => {
    wanted = Math.max(wanted, Date.parse(JSON.parse(event.data).at));
    if (!busy) plan();
  });
  stream.onerror = () => {
    hearing = false;
    if (stream?.readyState === EventSource.CLOSED) { // refused; a lost connection it would try again itself
      hush();
      mayAsk = Date.now() + AGAIN_MS;
    }
    plan();
  };
}

export async function refreshNow(did = false) {
  clearTimeout(timer);
  if (did) wanted = Math.max(wanted, now() + 1000); // what somebody has just done is not all in the log
  await refresh();
  plan();
}

export function startLive() {
  const chosen = select();
  if (chosen) {
    chosen.value = recall("interval", "2");
    if (!chosen.value) chosen.value = "2";
    chosen.addEventListener("change", () => { remember("interval", chosen.value); plan(); });
  }
  document.addEventListener("visibilitychange", () => { if (document.hidden) plan(); else refreshNow(); });
  window.addEventListener("pageshow", (event) => { if (event.persisted) refreshNow(); });
  window.addEventListener("popstate", () => location.reload());
  window.addEventListener("pagehide", hush);
  plan();
}

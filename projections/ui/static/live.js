// Pages look again by themselves: each region marked data-live is fetched and changed in place.
import { recall, remember } from "./store.js";
import { paintTimes, setServerTime } from "./times.js";

const listeners = [];
let timer = 0;
let busy = null;
let lastGood = Date.now();
let failures = 0;
let reason = "";

export const onFresh = (call) => listeners.push(call);

const select = () => document.getElementById("interval");
const interval = () => Number(select()?.value ?? 2) * 1000;
const source = () => document.querySelector("[data-live-url]")?.dataset.liveUrl;

function show() {
  const state = document.getElementById("live-state");
  const stale = document.getElementById("stale");
  if (!state) return;
  const is = failures ? "stale" : !source() ? "still" : !interval() ? "paused" : document.hidden ? "hidden" : "live";
  state.className = "live is-" + is;
  state.querySelector(".what").textContent = is;
  stale.hidden = !failures;
  if (failures) {
    const since = new Date(lastGood);
    const text = `Stale since ${since.toLocaleTimeString(undefined, { hourCycle: "h23" })}: ${reason}. Trying again by itself; what is shown below may be old.`;
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
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" }, signal: busy.signal, cache: "no-store" });
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

function plan() {
  clearTimeout(timer);
  show();
  if (!interval() || document.hidden || !source()) return;
  const wait = failures ? Math.min(interval() * 2 ** Math.min(failures - 1, 4), 15000) : interval();
  timer = setTimeout(async () => { await refresh(); plan(); }, wait);
}

export async function refreshNow() {
  clearTimeout(timer);
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
  plan();
}

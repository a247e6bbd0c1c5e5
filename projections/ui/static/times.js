// Instants in the viewer's zone, with UTC on hover; lengths that go on counting.
import { recall, remember } from "./store.js";

const UNITS = [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]];
const own = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
const formats = {};

export const zone = () => (recall("zone", "own") === "UTC" ? "UTC" : own);

function format(zone) {
  const options = { timeZone: zone, hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  formats[zone] ??= {
    day: new Intl.DateTimeFormat(undefined, { timeZone: zone, year: "numeric", month: "short", day: "numeric" }),
    short: new Intl.DateTimeFormat(undefined, { timeZone: zone, month: "short", day: "numeric" }),
    minute: new Intl.DateTimeFormat(undefined, options),
    clock: new Intl.DateTimeFormat(undefined, { ...options, second: "2-digit" }),
    fine: new Intl.DateTimeFormat(undefined, { ...options, second: "2-digit", fractionalSecondDigits: 3 }),
  };
  return formats[zone];
}

export const dayText = (when) => format(zone()).short.format(when);
export const minuteText = (when) => format(zone()).minute.format(when);
export const clockText = (when) => format(zone()).clock.format(when);

// The server's clock may differ from this one's; each answer says by how much.
let ahead = 0;
export function setServerTime(header) {
  const there = Date.parse(header || "");
  if (!Number.isNaN(there) && Math.abs(there - Date.now()) > 2000) ahead = there - Date.now();
}
export const now = () => Date.now() + ahead;

export function span(ms) {
  if (ms < 1000) return ms < 1 ? "0 ms" : Math.round(ms) + " ms";
  const s = ms / 1000;
  if (s < 60) return (s < 10 ? s.toFixed(1) : Math.round(s)) + " s";
  const whole = Math.round(s);
  for (const [unit, size, part, partSize] of UNITS) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / partSize);
      return Math.floor(whole / size) + " " + unit + (rest ? " " + rest + " " + part : "");
    }
  }
  return whole + " s";
}

function ago(ms) {
  const length = Math.abs(ms);
  if (length < 1500) return "now";
  const text = length < 60000 ? Math.round(length / 1000) + " s" : length < 3600000 ? Math.round(length / 60000) + " min" : span(length);
  return ms > 0 ? text + " ago" : "in " + text;
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function paintTimes(within = document) {
  for (const node of within.querySelectorAll("time[datetime]")) {
    const when = new Date(node.getAttribute("datetime"));
    if (Number.isNaN(when.getTime())) continue;
    const { day, clock, fine } = format(zone());
    const utc = node.getAttribute("datetime").replace("T", " ").replace("Z", " UTC");
    const title = format(own).day.format(when) + " " + format(own).fine.format(when) + " " + own + "\n" + utc;
    if (node.title !== title) node.title = title;
    const today = day.format(when) === day.format(new Date(now()));
    switch (node.dataset.show) {
      case "clock": write(node, today ? fine.format(when) : day.format(when) + " " + fine.format(when)); break;
      case "full": write(node, day.format(when) + " " + clock.format(when)); break;
      default: write(node, ago(now() - when.getTime()));
    }
  }
  for (const node of within.querySelectorAll("[data-since]")) {
    write(node, span(Math.max(0, now() - Date.parse(node.dataset.since))));
  }
}

// What a field for a date and time says, as an instant: in the zone that times are shown in.
export const instantOf = (text) => (zone() === "UTC" ? new Date(text + "Z") : new Date(text)).toISOString();

function paintZone() {
  const shown = document.getElementById("zone");
  if (!shown) return;
  shown.hidden = false;
  shown.textContent = "Times in " + zone();
  shown.title = own === "UTC" ? "This browser is in UTC" : "Show them in " + (zone() === "UTC" ? own : "UTC") + " (z); both are shown on hover";
}

export function nextZone() {
  remember("zone", zone() === "UTC" ? "own" : "UTC");
  paintZone();
  paintTimes();
  document.dispatchEvent(new CustomEvent("jobevents:zone"));
}

export function startTimes() {
  paintZone();
  document.getElementById("zone")?.addEventListener("click", nextZone);
  paintTimes();
  setInterval(() => { if (!document.hidden) paintTimes(); }, 1000);
}

// The keyboard: / ? j k Enter x r t z Esc. Keys go to fields as ever.
import { refreshNow } from "./live.js";
import { recall, remember } from "./store.js";
import { nextZone } from "./times.js";

const THEMES = ["system", "dark", "light"];
const SIGNS = { system: "◐", dark: "●", light: "○" };

function theme() {
  const chosen = recall("theme", "system");
  return THEMES.includes(chosen) ? chosen : "system";
}

function paintTheme() {
  const chosen = theme();
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  const button = document.getElementById("theme");
  if (button) {
    button.textContent = SIGNS[chosen];
    button.setAttribute("aria-label", "Theme: " + chosen);
  }
  document.dispatchEvent(new CustomEvent("jobevents:theme"));
}

function nextTheme() {
  remember("theme", THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
  paintTheme();
}

const rows = () => [...document.querySelectorAll("[data-rows] tbody tr[data-id], [data-rows] tbody tr[data-row]")];
let current = "";

function mark(row) {
  for (const other of document.querySelectorAll("tr.current")) other.classList.remove("current");
  if (!row) return;
  current = row.id;
  row.classList.add("current");
  (row.querySelector("a, button, summary") ?? row).focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.id === current);
  mark(all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))]);
}

function isTyping(target) {
  return target.closest("input:not([type=checkbox]):not([type=radio]):not([type=range]), textarea, select, [contenteditable]") !== null;
}

const actions = {
  "/": () => { const field = document.querySelector("[data-search], #q"); field?.focus(); field?.select?.(); },
  "?": () => document.getElementById("keys")?.showModal(),
  j: () => step(1),
  k: () => step(-1),
  x: () => document.getElementById(current)?.querySelector(".pick-one")?.click(),
  r: () => refreshNow(),
  t: nextTheme,
  z: nextZone,
};

export function startKeys() {
  paintTheme();
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // where they do not all fit
  document.getElementById("theme")?.addEventListener("click", nextTheme);
  document.getElementById("help")?.addEventListener("click", actions["?"]);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.key === "Escape" && isTyping(event.target)) { event.target.blur(); return; }
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const act = actions[event.key];
    if (act) { event.preventDefault(); act(); }
  });
}

// The page of a job: the time slider, the log, and copying.
import { paintTimes } from "./times.js";
import { isLooking, takePage } from "./live.js";

export function copy(text) {
  if (navigator.clipboard && window.isSecureContext) return navigator.clipboard.writeText(text);
  const field = document.createElement("textarea"); // plain HTTP has no clipboard
  field.value = text;
  field.setAttribute("readonly", "");
  field.className = "sr";
  (document.querySelector("dialog[open]") ?? document.body).append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done ? Promise.resolve() : Promise.reject(new Error("not copied"));
}

function startCopy() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("[data-copy]");
    if (!button) return;
    event.preventDefault();
    const text = document.querySelector(button.dataset.copy)?.textContent ?? "";
    const before = "copy";
    try { await copy(text); button.textContent = "copied"; } catch { button.textContent = "select and copy it"; }
    setTimeout(() => { button.textContent = before; }, 1500);
  });
}

function startSlider() {
  document.addEventListener("input", (event) => {
    if (event.target.id !== "at") return;
    const output = document.querySelector("#slider output");
    if (output) output.textContent = "#" + event.target.value;
  });
  document.addEventListener("change", (event) => {
    if (event.target.id !== "at") return;
    const url = new URL(location.href);
    url.hash = "";
    url.searchParams.delete("at");
    if (event.target.value !== event.target.max) url.searchParams.set("at", event.target.value);
    takePage(url.href, "#at");
  });
  document.addEventListener("submit", (event) => { if (event.target.id === "slider") event.preventDefault(); });
}

function filterLog() {
  const wanted = document.getElementById("log-q")?.value.trim().toLowerCase() ?? "";
  let found = 0;
  for (const line of document.querySelectorAll(".log li[data-seq]")) {
    const is = !wanted || line.textContent.toLowerCase().includes(wanted);
    line.hidden = !is;
    found += is;
  }
  const told = document.getElementById("log-found");
  if (told) told.textContent = wanted ? found + (found === 1 ? " line" : " lines") : "";
}

function followLog() {
  const log = document.querySelector(".log");
  if (log && document.getElementById("follow")?.checked) log.scrollTop = log.scrollHeight;
}

// While the job is open its log is followed; what comes is shown as the server writes it.
let lines = null;
let look = 0;

function followLines() {
  const url = document.querySelector("[data-log-stream]")?.dataset.logStream;
  const after = document.querySelector("#lines .next")?.dataset.after;
  if (!url || !isLooking()) { lines?.close(); lines = null; return; }
  if (after === undefined || (lines && lines.readyState !== EventSource.CLOSED)) return;
  lines = new EventSource(url + after);
  lines.onmessage = () => {
    look ||= setTimeout(() => { look = 0; document.dispatchEvent(new CustomEvent("jobevents:look")); }, 100);
  };
}

function startLog() {
  document.addEventListener("input", (event) => { if (event.target.id === "log-q") filterLog(); });
  document.addEventListener("change", (event) => { if (event.target.id === "follow") followLog(); });
  document.addEventListener("scroll", (event) => {
    const log = event.target;
    if (!log.classList?.contains("log")) return;
    document.getElementById("follow").checked = log.scrollTop + log.clientHeight >= log.scrollHeight - 8;
  }, true);
  document.addEventListener("htmx:afterSettle", () => { paintTimes(); filterLog(); followLog(); followLines(); });
  document.addEventListener("visibilitychange", followLines);
  document.addEventListener("jobevents:look", followLines);
  addEventListener("pagehide", () => { lines?.close(); lines = null; });
}

export function startJob() {
  startCopy();
  startSlider();
  startLog();
}

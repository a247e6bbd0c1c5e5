// Rows that are selected stay so while the list looks again; what is done to them is counted before, and told after.
import { ask, say, send } from "./act.js";
import { onFresh } from "./live.js";

const picked = new Set();
let all = false; // every job that matches, shown or not

const boxes = () => [...document.querySelectorAll(".pick-one")];
const bar = () => document.getElementById("bulk");
const total = () => Number(document.querySelector("[data-total]")?.dataset.total ?? 0);
const jobs = (n) => n.toLocaleString() + (n === 1 ? " job" : " jobs");

function paint() {
  const shown = boxes();
  for (const box of shown) {
    box.checked = all || picked.has(box.value);
    box.closest("tr").classList.toggle("picked", box.checked);
  }
  const whole = document.getElementById("pick-all");
  if (whole) {
    const here = shown.filter((box) => box.checked).length;
    whole.checked = here > 0 && here === shown.length;
    whole.indeterminate = here > 0 && here < shown.length;
  }
  if (!bar()) return;
  bar().hidden = !all && !picked.size;
  document.getElementById("bulk-count").textContent = all ? "All " + jobs(total()) + " that match" : jobs(picked.size) + " selected";
  document.getElementById("bulk-all").textContent = "Select all " + jobs(total()) + " that match";
  document.getElementById("bulk-all").hidden = all || total() <= picked.size;
}

function clear() {
  picked.clear();
  all = false;
  paint();
}

const which = () => (all ? { filter: JSON.parse(bar().dataset.filter) } : { ids: [...picked] });

function skips(told) {
  if (!told.skipped) return "";
  const first = told.whys.slice(0, 3).map((one) => one.why).join("; ");
  return ` ${jobs(told.skipped)} skipped: ${first}${told.skipped > 3 ? "; …" : "."}`;
}

async function start(button) {
  const { bulk: action, label, appends } = button.dataset;
  const url = bar().dataset.url;
  const wanted = which();
  const subject = all ? "All " + jobs(total()) + " that match" : jobs(picked.size);
  ask({
    label,
    subject,
    appends,
    reason: label.toLowerCase() + " by " + bar().dataset.caller,
    danger: button.classList.contains("danger"),
    run: async (reason) => {
      let done = 0;
      let last;
      let left = Math.ceil(total() / 500) + 1; // a command takes so many at a time; what it did may match again
      do {
        last = await send("POST", url, { ...wanted, action, reason, dry_run: false });
        done += last.done;
        left -= 1;
        say(`${jobs(done)} done …`, "");
      } while (last.has_more && last.done && left > 0);
      clear();
      const more = last.has_more ? " There are more that match: narrow the search to those that it can be done to, and give it again." : "";
      return `${jobs(done)} done.${skips(last)}${more}`;
    },
  });
  try {
    const told = await send("POST", url, { ...wanted, action, reason: "", dry_run: true });
    say(`It would be done to ${jobs(told.done)}${told.has_more ? " and to more after them" : ""}.${skips(told)}`, "");
  } catch (error) { say(error.message, "bad"); }
}

export function startList() {
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (!box.classList?.contains("pick-one") && box.id !== "pick-all") return;
    if (all) { // no longer all: what is on the page, but for this one
      all = false;
      for (const one of boxes()) picked.add(one.value);
    }
    for (const one of box.id === "pick-all" ? boxes() : [box]) if (box.checked) picked.add(one.value); else picked.delete(one.value);
    paint();
  });
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("#bulk button");
    if (!button) return;
    if (button.id === "bulk-all") { all = true; paint(); }
    else if (button.id === "bulk-none") clear();
    else if (button.dataset.bulk) start(button);
  });
  if (location.hash === "#columns") document.getElementById("columns")?.setAttribute("open", "");
  document.addEventListener("click", (event) => { // a menu closes where somebody goes on elsewhere
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.removeAttribute("open");
  });
  document.addEventListener("keydown", (event) => {
    const menu = event.key === "Escape" && event.target.closest?.(".menu[open]");
    if (menu) { menu.removeAttribute("open"); menu.querySelector("summary").focus(); }
  });
  onFresh(paint);
}

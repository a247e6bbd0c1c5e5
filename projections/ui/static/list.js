// Rows that are selected stay so while the list looks again.
import { onFresh } from "./live.js";

const picked = new Set();

function boxes() {
  return [...document.querySelectorAll(".pick-one")];
}

function paint() {
  const all = boxes();
  for (const box of all) {
    box.checked = picked.has(box.value);
    box.closest("tr").classList.toggle("picked", box.checked);
  }
  const whole = document.getElementById("pick-all");
  if (whole) {
    const here = all.filter((box) => box.checked).length;
    whole.checked = here > 0 && here === all.length;
    whole.indeterminate = here > 0 && here < all.length;
  }
  document.dispatchEvent(new CustomEvent("jobevents:picked", { detail: [...picked] }));
}

export function startList() {
  document.addEventListener("change", (event) => {
    const box = event.target;
    if (box.classList?.contains("pick-one")) {
      if (box.checked) picked.add(box.value); else picked.delete(box.value);
      paint();
    } else if (box.id === "pick-all") {
      for (const one of boxes()) if (box.checked) picked.add(one.value); else picked.delete(one.value);
      paint();
    }
  });
  onFresh(paint);
}

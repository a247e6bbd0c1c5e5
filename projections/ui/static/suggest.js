// Suggestions under the search field: keys, then the values that there are.
export function startSuggestions() {
  const field = document.querySelector("[data-suggest]");
  if (!field) return;
  const list = document.getElementById(field.getAttribute("aria-controls"));
  let found = [];
  let at = -1;
  let asked = 0;

  function close() {
    asked += 1; // what is still to be answered comes too late
    list.hidden = true;
    at = -1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function take(one) {
    field.value = one.text;
    field.setSelectionRange(one.caret, one.caret);
    field.focus();
    if (one.more) ask(); else close();
  }

  function paint() {
    list.replaceChildren(...found.map((one, number) => {
      const item = document.createElement("li");
      item.id = "suggestion-" + number;
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(number === at));
      if (one.disabled) item.setAttribute("aria-disabled", "true");
      const label = document.createElement("b");
      label.textContent = one.label;
      const about = document.createElement("span");
      about.textContent = one.about;
      item.append(label, about);
      item.addEventListener("mousedown", (event) => { event.preventDefault(); if (!one.disabled) take(one); });
      return item;
    }));
    list.hidden = !found.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    if (at >= 0) {
      field.setAttribute("aria-activedescendant", "suggestion-" + at);
      list.children[at]?.scrollIntoView({ block: "nearest" });
    } else field.removeAttribute("aria-activedescendant");
  }

  async function ask() {
    const mine = ++asked;
    const query = new URLSearchParams({ text: field.value, caret: String(field.selectionStart ?? field.value.length) });
    try {
      const answer = await fetch(field.dataset.suggest + "?" + query);
      if (!answer.ok || mine !== asked || document.activeElement !== field) return;
      found = (await answer.json()).items;
      at = -1;
      paint();
    } catch { close(); }
  }

  field.addEventListener("input", ask);
  field.addEventListener("focus", ask);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const by = event.key === "ArrowDown" ? 1 : -1;
      at = (at + by + found.length + (at < 0 && by < 0 ? 1 : 0)) % found.length;
      paint();
    } else if (event.key === "Tab" && !event.shiftKey && found.some((one) => !one.disabled) && field.value) {
      event.preventDefault();
      take(found[at] && !found[at].disabled ? found[at] : found.find((one) => !one.disabled));
    } else if (event.key === "Enter" && at >= 0 && !found[at].disabled) {
      event.preventDefault();
      take(found[at]);
    } else if (event.key === "Escape") {
      event.preventDefault();
      close();
    }
  });
}

// The page for SQL: a query is sent, its rows are shown; queries are kept in this browser.
import { send } from "./act.js";
import { recall, remember } from "./store.js";

const by = (id) => document.getElementById(id);

function kept() {
  try { return JSON.parse(recall("queries", "{}")); } catch { return {}; }
}

function paintKept() {
  by("sql-own").replaceChildren(...Object.entries(kept()).map(([name, text]) => {
    const option = document.createElement("option");
    option.value = text;
    option.textContent = name;
    return option;
  }));
}

function cells(kind, values) {
  const row = document.createElement("tr");
  row.append(...values.map((value) => {
    const cell = document.createElement(kind);
    if (kind === "th") cell.scope = "col";
    cell.textContent = value ?? "NULL";
    if (value === null) cell.className = "none";
    else if (/^-?\d+(\.\d+)?$/.test(value)) cell.className = "num";
    return cell;
  }));
  return row;
}

async function run(event) {
  event.preventDefault();
  const began = Date.now();
  by("sql-run").disabled = true;
  by("sql-said").className = "soft";
  by("sql-said").textContent = "running …";
  try {
    const told = await send("POST", by("sql").dataset.url, { sql: by("query").value });
    const table = by("sql-found").querySelector("table");
    table.tHead.replaceChildren(cells("th", told.columns));
    table.tBodies[0].replaceChildren(...told.rows.map((row) => cells("td", row)));
    by("sql-found").hidden = false;
    const more = told.has_more ? ", and there are more" : "";
    const torn = told.unreadable ? `; ${told.unreadable} jobs are shown only as far as they can be read` : "";
    by("sql-said").textContent = `${told.rows.length} ${told.rows.length === 1 ? "row" : "rows"}${more} in ${((Date.now() - began) / 1000).toFixed(1)} s${torn}`;
    history.replaceState(null, "", "?q=" + encodeURIComponent(by("query").value));
  } catch (error) {
    by("sql-found").hidden = true;
    by("sql-said").className = "said bad";
    by("sql-said").textContent = error.message;
  } finally { by("sql-run").disabled = false; }
}

export function startSql() {
  if (!by("sql")) return;
  paintKept();
  by("sql").addEventListener("submit", run);
  by("query").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || by("sql-run").disabled) return;
    event.preventDefault();
    by("sql").requestSubmit();
  });
  by("sql-kept").addEventListener("change", () => {
    const chosen = by("sql-kept").selectedOptions[0];
    if (chosen.value) by("query").value = chosen.value;
    by("sql-forget").hidden = chosen.parentElement.id !== "sql-own";
  });
  by("sql-keep").addEventListener("click", () => {
    const text = by("query").value.trim();
    remember("queries", JSON.stringify({ ...kept(), [text.replace(/\s+/g, " ").slice(0, 60)]: text }));
    paintKept();
    by("sql-said").className = "soft";
    by("sql-said").textContent = "kept in this browser";
  });
  by("sql-forget").addEventListener("click", () => {
    const name = by("sql-kept").selectedOptions[0].textContent;
    remember("queries", JSON.stringify(Object.fromEntries(Object.entries(kept()).filter(([one]) => one !== name))));
    by("sql-forget").hidden = true;
    paintKept();
  });
}

// Commands: what is appended is said before, the reason is asked for, and what came of it is said after.
import { refreshNow } from "./live.js";
import { instantOf, zone } from "./times.js";

let pending = null;

const by = (id) => document.getElementById(id);

// What else a command may take: a time, as its button says by data-when, and params, which are sent as they are written,
// since a number here may be larger than any that a script holds.
function offer({ when, params }) {
  by("act-at-row").hidden = when === undefined;
  by("act-at").value = "";
  by("act-at-zone").textContent = "at once if empty; in " + zone();
  by("act-params-row").hidden = params === undefined;
  by("act-params").value = document.getElementById("raw-Params")?.textContent ?? "null";
  by("act-params").readOnly = Boolean(params);
  by("act-params-fixed").textContent = params ? params : "as JSON";
}

function extras({ when, params }) {
  const more = [];
  if (when !== undefined && by("act-at").value) more.push('"at":' + JSON.stringify(instantOf(by("act-at").value)));
  const text = by("act-params").value.trim();
  if (params === "" && text !== (document.getElementById("raw-Params")?.textContent ?? "null").trim()) {
    try { JSON.parse(text); } catch (error) { throw new Error("The params are no JSON: " + error.message); }
    more.push('"params":' + text);
  }
  return more;
}

export function ask({ label, subject, appends, reason, danger, run, takes = {} }) {
  pending = run;
  offer(takes);
  by("act-title").textContent = label;
  by("act-subject").textContent = subject;
  by("act-appends").textContent = appends ? "This will append " + appends + "." : "";
  by("act-reason").value = reason;
  by("act-said").textContent = "";
  by("act-said").className = "said";
  by("act-go").textContent = label;
  by("act-go").disabled = false;
  by("act-go").hidden = false;
  by("act-go").classList.toggle("danger", Boolean(danger));
  by("act").showModal();
  by("act-reason").focus();
  by("act-reason").select();
}

export function say(text, how = "good") {
  by("act-said").textContent = text;
  by("act-said").className = "said " + how;
}

export async function send(method, url, body) {
  const answer = await fetch(url, {
    method,
    headers: { "Content-Type": "application/json", Accept: "application/json", "X-Requested-With": "jobevents" },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  let told = {};
  try { told = text ? JSON.parse(text) : {}; } catch { told = { why: text }; }
  if (!answer.ok) throw new Error([told.why ?? "the server answers " + answer.status, told.remedy].filter(Boolean).join(": "));
  return told;
}

async function go(event) {
  event.preventDefault();
  if (!pending) return;
  const button = by("act-go");
  button.disabled = true;
  say("…", "");
  try {
    const done = await pending(by("act-reason").value.trim());
    pending = null;
    if (done === undefined) by("act").close();
    else { say(done); button.hidden = true; by("act-close").focus(); }
  } catch (error) {
    say(error.name === "TypeError" ? "The server cannot be reached: nothing is known of what came of it. Look at the job before you try again." : error.message, "bad");
    button.disabled = false;
  }
  refreshNow(true);
}

export function startActs() {
  by("act-form")?.addEventListener("submit", go);
  by("act-close")?.addEventListener("click", () => by("act").close());
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-act]");
    if (!button) return;
    const it = button.dataset;
    ask({
      label: it.label,
      subject: it.subject,
      appends: it.appends,
      reason: it.reason,
      danger: button.classList.contains("danger"),
      takes: it,
      run: async (reason) => {
        const said = JSON.stringify({ ...JSON.parse(it.body || "{}"), reason });
        const told = await send(it.method, it.url, [said.slice(0, -1), ...extras(it)].join(",") + "}");
        if (told.job_id && !it.url.includes(told.job_id)) return "It is job " + told.job_id;
        return undefined;
      },
    });
  });
}

// What every page does.
import { startActs } from "./act.js";
import { startChart } from "./chart.js";
import { startJob } from "./job.js";
import { startKeys } from "./keys.js";
import { startList } from "./list.js";
import { startLive } from "./live.js";
import { startSql } from "./sql.js";
import { startSuggestions } from "./suggest.js";
import { startTimes } from "./times.js";

startTimes();
startKeys();
startLive();
startList();
startJob();
startActs();
startChart();
startSuggestions();
startSql();
for (const field of document.querySelectorAll("[data-submit]")) {
  field.addEventListener("change", () => field.form.requestSubmit());
}
document.documentElement.dataset.ready = "yes";

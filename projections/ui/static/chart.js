// What ended, stacked by outcome: drawn from the table below it, which is there without this too.
import { onFresh } from "./live.js";
import { dayText, minuteText, zone } from "./times.js";

const COLOURS = { succeeded: "--succeeded", failed: "--failed", canceled: "--canceled", skipped: "--skipped" };
let plot = null;
let drawn = "";

const colour = (name) => {
  const probe = document.createElement("span"); // a token may be light-dark(…), which only a used colour resolves
  probe.className = "probe p" + name;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
};

function read(table) {
  const states = [...table.querySelectorAll("th[data-state]")].map((cell) => cell.dataset.state);
  const rows = [...table.querySelectorAll("tr[data-at]")];
  const at = rows.map((row) => Number(row.dataset.at));
  const counts = states.map((_, n) => rows.map((row) => Number(row.children[n + 1].textContent)));
  return { states, at, counts };
}

function draw(force = false) {
  const box = document.getElementById("chart");
  const table = document.getElementById("chart-data");
  if (!box || !table || !window.uPlot) return;
  const { states, at, counts } = read(table);
  const key = JSON.stringify([at, counts]);
  if (key === drawn && !force) return;
  drawn = key;
  const step = Number(table.dataset.step);
  // Each series is drawn over those below it: the last one in full height, the first one last.
  const stacked = counts.map((_, n) => at.map((__, i) => counts.slice(n).reduce((sum, one) => sum + one[i], 0)));
  const order = states.map((_, n) => n);
  const ink = colour("--soft");
  const line = colour("--line");
  const data = [at, ...order.map((n) => stacked[n])];
  plot?.destroy();
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "12px system-ui" };
  plot = new window.uPlot({
    width: box.clientWidth,
    height: 208,
    tzDate: (at) => window.uPlot.tzDate(new Date(at * 1000), zone()),
    padding: [8, 28, 0, 0],
    cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false } },
    scales: { x: { time: true, range: () => [at[0], at.at(-1) + step] }, y: { range: (_, __, max) => [0, Math.max(4, Math.ceil(max * 1.1))] } },
    axes: [{ ...axis, values: (_, splits) => splits.map((at) => (step >= 86400 || minuteText(at * 1000) === "00:00" ? dayText : minuteText)(at * 1000)) }, { ...axis, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6] }],
    series: [
      { label: "from", value: (_, at) => (at == null ? "–" : dayText(at * 1000) + " " + minuteText(at * 1000)) },
      ...order.map((n) => ({
        label: states[n],
        fill: colour(COLOURS[states[n]]),
        stroke: colour(COLOURS[states[n]]),
        width: 0,
        points: { show: false },
        value: (_, __, ___, i) => (i == null ? "–" : String(counts[n][i])),
        paths: window.uPlot.paths.bars({ align: 1, size: [0.86, 60] }),
      })),
    ],
    hooks: {
      setSelect: [(u) => {
        if (u.select.width < 6) return;
        const from = u.posToVal(u.select.left, "x");
        const to = u.posToVal(u.select.left + u.select.width, "x");
        const text = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 19) + "Z";
        location.href = table.dataset.list + "?q=" + encodeURIComponent(`after:${text(from)} before:${text(to)}`);
      }],
    },
  }, data, box);
}

export function startChart() {
  if (!document.getElementById("chart")) return;
  draw();
  onFresh(() => draw());
  document.addEventListener("jobevents:theme", () => draw(true));
  document.addEventListener("jobevents:zone", () => draw(true));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
  let last = window.innerWidth;
  addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; draw(true); } });
}

// The rows of the list and their order. The list is one stop of the Tab key; the arrow keys go from row to row.

import { bar, gpuHours, make, phaseOf, short, span } from "./elements.js";
import { keyOf } from "./requests.js";
import { formatTime } from "./times.js";

// Name of a column for the server, its heading, and whether the greatest value comes first at the first click.
const COLUMNS = [
  ["phase", "Phase"], ["name", "TrainJob"], ["cluster", "Cluster"], ["task", "Task"], ["run", "DAG run", true], ["progress", "Progress", true],
  ["loss", "Loss or reward"], ["created", "Created", true], ["duration", "Duration", true], ["gpu_hours", "GPU hours", true],
];
const rows = document.getElementById("rows"), heads = document.getElementById("heads");
let phases = new Map(); // of the rows, to announce their changes

/** Show the headings; `onSort` gets the new order. */
export function showHeads(sort = "", onSort) {
  const focused = heads.contains(document.activeElement) ? document.activeElement.dataset.column : undefined;
  heads.replaceChildren(...COLUMNS.map(([name, title, descendsFirst]) => {
    const isSorted = sort.replace("-", "") === name, descends = sort.startsWith("-");
    const button = make("button", { type: "button", class: "sort", "data-column": name }, `${title}${isSorted ? (descends ? " ▼" : " ▲") : ""}`);
    button.addEventListener("click", () => onSort(isSorted ? nextOrder(name, descends, descendsFirst) : `${descendsFirst ? "-" : ""}${name}`));
    return make("th", { role: "columnheader", "aria-sort": isSorted ? (descends ? "descending" : "ascending") : "none" }, button);
  }));
  if (focused) heads.querySelector(`[data-column=${focused}]`).focus();
}

/** Return the order after a click on a sorted column: the other direction, and then the order without a column. */
const nextOrder = (name, descends, descendsFirst) => (descends === Boolean(descendsFirst) ? `${descends ? "" : "-"}${name}` : "");

/**
 * Show the rows. `onSelect` gets the key of a TrainJob to open, `onChart` that of one to add to the chart or to remove. Returns
 * sentences about phases that have changed.
 */
export function showRows(jobs, { selected, charted, onSelect, onChart }) {
  const { activeElement } = document;
  const focused = rows.contains(activeElement) ? activeElement.dataset.key : "", inChart = activeElement.type === "checkbox";
  const keys = jobs.map(keyOf);
  const reachable = [focused, selected, keys[0]].find((key) => keys.includes(key));
  rows.replaceChildren(...jobs.map((job) => row(job, { selected, charted, reachable, onSelect, onChart })));
  if (focused) elementOf(focused, inChart ? "input" : "button.name")?.focus({ preventScroll: true });
  const changed = jobs.filter((job) => phases.has(keyOf(job)) && phases.get(keyOf(job)) !== job.phase);
  phases = new Map(jobs.map((job) => [keyOf(job), job.phase]));
  return changed.map((job) => `${job.name}: ${job.phase}`);
}

const elementOf = (key, selector) => [...rows.querySelectorAll(selector)].find((element) => element.dataset.key === key);

function row(job, { selected, charted, reachable, onSelect, onChart }) {
  const progress = job.progress ?? {}, key = keyOf(job);
  const name = make("button", { class: "name", type: "button", "data-key": key, tabindex: key === reachable ? 0 : -1 }, job.name || "(no name recorded)");
  const task = `${job.dag}.${job.task}${job.index >= 0 ? `[${job.index}]` : ""}`;
  const age = job.last_seen ? `last seen ${span(job.last_seen)} ago` : "";
  const cells = [
    [phaseOf(job), note(job.deleted ? "deleted from the cluster" : age), note(job.reason)],
    [job.deleted === undefined ? chartBox(job, key, charted, onChart) : "", name],
    [job.connection, note([job.namespace, job.queue && `queue ${job.queue}`].filter(Boolean).join(", "))],
    [task],
    [make("span", { title: job.run }, formatTime(job.run_date) || job.run), note(job.user && `by ${job.user}`)],
    [bar(job.phase === "Complete" ? 100 : progress.percent), note(progress.step ? `${progress.step} / ${progress.total ?? "?"}` : job.not_shown)],
    [progress.metrics?.reward === undefined ? short(progress.loss) : `reward ${short(progress.metrics.reward)}`],
    [formatTime(job.created)],
    [span(job.created, job.ended)],
    [gpuHours(job.usage).replace(" GPU h", "")],
  ];
  const classes = [key === selected ? "selected" : "", job.last_seen ? "away" : ""].join(" ").trim();
  const line = make("tr", { role: "row", class: classes }, ...cells.map((content, at) => cell(COLUMNS[at], content)));
  if (key === selected) line.setAttribute("aria-current", "true");
  line.addEventListener("click", () => onSelect(key));
  return line;
}

/** Return the box that adds a TrainJob to the chart. The arrow keys to the left and right go there and back. */
function chartBox(job, key, charted, onChart) {
  const box = make("input", { type: "checkbox", tabindex: -1, "data-key": key, "aria-label": `Chart ${job.name}`, title: "Show in the chart" });
  box.checked = charted.includes(key);
  box.addEventListener("click", (event) => event.stopPropagation());
  box.addEventListener("change", () => onChart(key));
  return box;
}

const note = (text) => (text ? make("small", {}, text) : "");

/** Return a cell; the narrow layout shows its heading, and no cell without content. */
const cell = ([name, title], content) => {
  const present = content.filter((each) => each !== "" && each !== undefined);
  return make("td", { role: "cell", class: `col-${name} ${present.length ? "" : "empty"}`.trim(), "data-title": title }, ...present);
};

/** Move the focus from row to row with the arrow keys, Home and End; Enter opens a row because it is a button. */
rows.addEventListener("keydown", (event) => {
  const { key } = document.activeElement.dataset, sideways = { ArrowLeft: "input", ArrowRight: "button.name" }[event.key];
  if (sideways) elementOf(key, sideways)?.focus();
  const buttons = [...rows.querySelectorAll("button.name")], at = buttons.findIndex((button) => button.dataset.key === key);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (at < 0 || next === undefined || !buttons[next]) return;
  event.preventDefault();
  for (const button of buttons) button.tabIndex = button === buttons[next] ? 0 : -1;
  buttons[next].focus();
});

// The comparison of a sweep: one table for each operator, with the parameters that differ and the metrics.

import { airflowLink, make, phaseOf, runPath, short } from "./elements.js";
import { keyOf } from "./requests.js";

const section = document.getElementById("comparison");
let sorting = { column: "", ascending: true }, shown = null, actions = null;

/** Show the comparison of a DAG run; `onSelect` gets the key of a TrainJob, `onClose` returns to the list, `onChart` gets keys. */
export function showComparison(found, scope, { onSelect, onClose, onChart }) {
  shown = { found, scope };
  actions = { onSelect, onClose, onChart };
  render();
}

function render() {
  const { found, scope } = shown;
  const back = make("button", { type: "button", id: "close-comparison" }, "Back to the list");
  back.addEventListener("click", actions.onClose);
  const title = scope.task ? `${scope.dag}.${scope.task}` : scope.dag;
  const groups = found.groups ?? [];
  const focused = section.contains(document.activeElement) ? document.activeElement.dataset.column : undefined;
  const nothing = found.problem || (found.loading?.length ? "Loading …" : "This DAG run has no two tasks with the same operator of this provider.");
  section.replaceChildren(
    make("header", {}, make("h1", {}, `Comparison of ${title}`), airflowLink(runPath(scope), scope.run), back),
    ...(groups.length ? groups.flatMap(groupParts) : [make("p", { class: "faint" }, nothing)]));
  if (focused !== undefined) [...section.querySelectorAll("button.sort")].find((button) => button.dataset.column === focused)?.focus();
}

function groupParts(group) {
  const columns = [
    { name: "Task", value: (row) => row.index >= 0 ? `${row.task}[${row.index}]` : row.task, order: (row) => row.index >= 0 ? row.index : row.task },
    { name: "Phase", value: (row) => phaseOf(row), order: (row) => row.phase },
    ...group.parameters.map((name) => ({ name, value: (row) => row.parameters[name] ?? "", order: (row) => orderOf(row.parameters[name]) })),
    ...group.metrics.map((metric) => ({ ...metric, value: (row) => metricOf(row, metric.name), order: (row) => row.metrics[metric.name] })),
  ];
  const sorted = columns.find((column) => column.name === sorting.column);
  const rows = sorted ? [...group.rows].sort((one, other) => compareValues(sorted.order(one), sorted.order(other))) : group.rows;
  const body = rows.map((row) => make("tr", {}, ...columns.map((column, at) => make("td", {}, at === 0 ? taskOf(row, column.value(row)) : column.value(row)))));
  const unknown = group.metrics.some((metric) => !metric.better) ? " Metrics without a mark have no known direction." : "";
  const keys = rows.filter((row) => row.job).map((row) => keyOf(row.job));
  const chart = make("button", { type: "button" }, "Chart");
  chart.addEventListener("click", () => actions.onChart(keys));
  return [
    make("header", {}, make("h2", {}, `${group.operator}: ${group.rows.length} tasks`), ...(keys.length ? [chart] : [])),
    make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...columns.map(head))), make("tbody", {}, ...body))),
    make("p", { class: "faint" }, `★ marks the best value of a metric.${unknown}`),
  ];
}

function taskOf(row, text) {
  if (!row.job) return text;
  const button = make("button", { class: "name", type: "button" }, text);
  button.addEventListener("click", () => actions.onSelect(keyOf(row.job)));
  return button;
}

function metricOf(row, name) {
  const text = short(row.metrics[name]);
  return row.best.includes(name) ? make("strong", { class: "best", title: "the best value" }, `${text} ★`) : text;
}

function head(column) {
  const isSorted = column.name === sorting.column;
  const arrow = isSorted ? (sorting.ascending ? " ▲" : " ▼") : "";
  const better = column.better ? `${column.better} is better` : "";
  const button = make("button", { type: "button", class: "sort", "data-column": column.name, title: better }, `${column.name}${arrow}`);
  button.addEventListener("click", () => {
    sorting = { column: column.name, ascending: isSorted ? !sorting.ascending : column.better !== "higher" };
    render();
  });
  return make("th", { "aria-sort": isSorted ? (sorting.ascending ? "ascending" : "descending") : "none" }, button);
}

const orderOf = (text) => (text !== undefined && text !== "" && !Number.isNaN(Number(text)) ? Number(text) : text);

/** Return the order of two values; rows without a value come last. */
function compareValues(one, other) {
  if (one === undefined || other === undefined) return (one === undefined) - (other === undefined);
  const order = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
  return sorting.ascending ? order : -order;
}

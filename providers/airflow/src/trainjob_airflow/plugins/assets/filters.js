// The filters above the list. A filter with one value is not shown, because it selects nothing.

import { make } from "./elements.js";
import { formatTime, toUtc } from "./times.js";

const HOURS = { "1h": 1, "7d": 168, "30d": 720 };
const MAX_OPTION_LENGTH = 48;
const FACETS = {
  dag: ["DAG", "All DAGs"], phase: ["Phase", "All phases"], run: ["DAG run", "All runs"], connection: ["Cluster", "All clusters"],
  namespace: ["Namespace", "All namespaces"], queue: ["Queue", "All queues"], owner: ["Owner of the DAG", "All owners"],
  user: ["User who started the run", "All users"],
};
const ALWAYS_SHOWN = ["dag", "phase"];
const TIMES = { "": "Any time", "1h": "Last hour", "7d": "Last 7 days", "30d": "Last 30 days", range: "From … to …" };
const STATES = { "": "Active and recent", active: "Active", ended: "Ended, also deleted", deleted: "Deleted from the cluster" };
const element = (id) => document.getElementById(id);

/** Names of the view's filters. */
export const FILTERS = [...Object.keys(FACETS), "text", "time", "since", "until", "state"];

/** Create the filters; `onChange` gets an object with the changed filters, and whether the user is typing. */
export function createFilters(onChange) {
  const selects = Object.entries(FACETS).map(([id, [label]]) => make("select", { id, "aria-label": label }));
  element("facets").replaceChildren(...selects);
  for (const select of selects) {
    // Another DAG has other runs.
    select.addEventListener("change", () => onChange({ [select.id]: select.value, ...(select.id === "dag" ? { run: "" } : {}) }));
  }
  for (const [id, texts] of Object.entries({ time: TIMES, state: STATES })) {
    element(id).replaceChildren(...Object.entries(texts).map(([value, text]) => make("option", { value }, text)));
  }
  element("state").addEventListener("change", () => onChange({ state: element("state").value }));
  element("time").addEventListener("change", () => {
    const time = element("time").value;
    onChange({ time, ...(time === "range" ? {} : { since: "", until: "" }) });
  });
  for (const id of ["since", "until"]) element(id).addEventListener("change", () => onChange({ [id]: element(id).value }));
  element("text").addEventListener("input", () => onChange({ text: element("text").value }, true));
}

/** Show the chosen values of a view, for example after Back. */
export function showChosen(view) {
  for (const id of Object.keys(FACETS)) {
    const chosen = view[id] ?? "";
    if (![...element(id).options].some((option) => option.value === chosen)) element(id).append(make("option", { value: chosen }, shorten(chosen)));
    element(id).value = chosen;
  }
  element("time").value = view.time ?? "";
  element("state").value = view.state ?? "";
  element("range").hidden = view.time !== "range";
  for (const id of ["since", "until", "text"]) if (element(id) !== document.activeElement) element(id).value = view[id] ?? "";
}

/** Show the values that the user can select, with their counts. `scope` has the filters of Airflow's tab. */
export function showCounts(found, view, scope) {
  const runs = found.runs.map(({ run, date, count }) => [run, `${formatTime(date) || run} (${count})`]);
  for (const [id, [, all]] of Object.entries(FACETS)) {
    const options = id === "run" ? runs : Object.entries(found.counts[id]).map(([value, count]) => [value, `${shorten(value)} (${count})`]);
    const chosen = view[id] ?? "";
    if (chosen && !options.some(([value]) => value === chosen)) options.push([chosen, `${shorten(chosen)} (0)`]);
    showOptions(element(id), [["", all], ...options], chosen);
    element(id).hidden = scope.has(id) || (!ALWAYS_SHOWN.includes(id) && options.length < 2 && !chosen);
  }
}

/** Replace the options of a selection if they have changed; a replaced list closes while the user selects. */
function showOptions(select, options, chosen) {
  const keyOf = (values) => values.map((value) => value.join("\t")).join("\n");
  if (keyOf([...select.options].map((option) => [option.value, option.textContent])) !== keyOf(options)) {
    select.replaceChildren(...options.map(([value, text]) => make("option", { value, title: value }, text)));
  }
  select.value = chosen;
}

/** Return the query for the filters of a view. */
export function filterQuery(view) {
  const names = [...Object.keys(FACETS), "text", "state"];
  const query = new URLSearchParams(names.filter((name) => view[name]).map((name) => [name, view[name]]));
  const hours = HOURS[view.time];
  const since = hours ? new Date(Date.now() - hours * 3600e3).toISOString() : toUtc(view.since);
  if (since) query.set("since", since);
  if (view.until) query.set("until", toUtc(view.until));
  return query;
}

/** Return a text without its middle if it is too long for an option. */
function shorten(text) {
  const half = (MAX_OPTION_LENGTH - 1) / 2;
  return text.length > MAX_OPTION_LENGTH ? `${text.slice(0, Math.ceil(half))}…${text.slice(-Math.floor(half))}` : text;
}

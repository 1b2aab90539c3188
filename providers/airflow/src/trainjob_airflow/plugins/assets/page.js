// The list of TrainJobs and the selection of one of them. Read-only; reloads every few seconds while the page is visible.

import { showComparison } from "./comparison.js";
import { clear, show, showTask } from "./detail.js";
import { bar, gpuHours, make, phaseOf, short, span } from "./elements.js";
import { keyOf, request, taskQuery } from "./requests.js";

const REFRESH_MILLISECONDS = 2500, INPUT_MILLISECONDS = 250, ROWS_PER_PAGE = 50;
const element = (id) => document.getElementById(id);
const list = element("rows");
// Airflow 3.1 does not encode the + of a run ID. It never stands for a space, which Airflow encodes as %20.
const query = new URLSearchParams(location.search.replaceAll("+", "%2B"));
// Airflow does not replace {MAP_INDEX} for a task that is not mapped.
const filters = new URLSearchParams([...query].filter(([name, value]) => (name === "index" ? /^\d+$/.test(value) : value)));
const ofTask = filters.has("task"); // the tab of a task instance
let jobs = [], selected = location.hash.slice(1), first = true, offset = 0, listRequests = 0;
let compared = null; // the DAG run that is compared; null while the list is shown

function showText(id, lines) {
  element(id).hidden = !lines.length;
  element(id).textContent = lines.join("\n");
}

const showProblems = (problems) => showText("problems", problems);
const showLoading = (sources) => showText("loading", sources.map((source) => `The TrainJobs of connection ${source} are being listed …`));

function row(job) {
  const progress = job.progress ?? {};
  const name = make("button", { class: "name", type: "button" }, job.name);
  const task = `${job.dag}.${job.task}${job.index >= 0 ? `[${job.index}]` : ""}`;
  const line = make("tr", { class: keyOf(job) === selected ? "selected" : "" },
    make("td", {}, phaseOf(job), make("small", {}, job.reason)),
    make("td", {}, name, make("small", {}, [job.namespace, job.queue].filter(Boolean).join(", queue "))),
    make("td", {}, task, make("small", {}, job.run)),
    make("td", {}, bar(job.phase === "Complete" ? 100 : progress.percent), make("small", {}, progress.step ? `${progress.step} / ${progress.total ?? "?"}` : "")),
    make("td", {}, progress.metrics?.reward === undefined ? short(progress.loss) : `reward ${short(progress.metrics.reward)}`),
    make("td", {}, span(job.created, job.ended), make("small", {}, gpuHours(job.usage))));
  line.addEventListener("click", () => select(keyOf(job)));
  return line;
}

function showRows() {
  const focused = list.contains(document.activeElement) ? document.activeElement.textContent : null;
  list.replaceChildren(...jobs.map(row));
  if (focused) [...list.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
}

/** Show the counts of a list: of all TrainJobs that match, and of each DAG and phase that the user can select. */
function showCounts(found) {
  const isFiltered = ["dag", "phase", "filter"].some((id) => element(id).value);
  const none = isFiltered ? "No TrainJob matches" : filters.size ? "No TrainJobs yet" : "No active TrainJobs, and none that ended within a day";
  const last = found.offset + found.trainjobs.length;
  element("count").textContent = found.total ? `${found.offset + 1} to ${last} of ${found.total}` : found.loading.length ? "" : none;
  element("pages").hidden = found.total <= ROWS_PER_PAGE;
  element("page").textContent = `Page ${found.offset / ROWS_PER_PAGE + 1} of ${Math.max(1, Math.ceil(found.total / ROWS_PER_PAGE))}`;
  element("previous").disabled = found.offset === 0;
  element("next").disabled = last >= found.total;
  showOptions(element("dag"), "All DAGs", found.dags);
  showOptions(element("phase"), "All phases", found.phases);
}

/** Replace the options of a selection if they have changed; a replaced list closes while the user selects. */
function showOptions(select, all, counts) {
  const chosen = select.value;
  const names = Object.keys(counts);
  if (chosen && !names.includes(chosen)) names.push(chosen);
  const texts = names.map((name) => `${name} (${counts[name] ?? 0})`);
  if ([...select.options].slice(1).map((option) => option.textContent).join("\n") === texts.join("\n") && select.options.length) return;
  select.replaceChildren(make("option", { value: "" }, all), ...names.map((name, at) => make("option", { value: name }, texts[at])));
  select.value = chosen;
}

function select(key) {
  selected = key;
  history.replaceState(null, "", `#${key}`);
  clear(jobs.find((job) => keyOf(job) === key) ?? { name: decodeURIComponent(key.split("/").pop()) });
  showRows();
  void loadDetails(key);
}

async function loadDetails(key) {
  const [detail, log] = await Promise.all([request(`trainjobs/${key}`), request(`trainjobs/${key}/log`)]);
  if (key !== selected) return;
  show(detail, log, openComparison);
  const job = detail.trainjob ?? jobs.find((each) => keyOf(each) === key);
  const task = job && await request(`task?${taskQuery(job)}`);
  if (task && key === selected) showTask(task, ofTask);
}

/** Show the task instance of the tab if none of its TrainJobs exists. Other tasks have only a state. */
async function loadTask() {
  const task = await request(`task?${filters}`);
  if (selected || task.problem || (task.summary.length < 2 && !task.failure)) return;
  if (document.querySelector("#detail [data-part=summary]") === null) clear({ name: filters.get("task") });
  showTask(task, true);
}

async function refreshList() {
  const number = ++listRequests, sent = new URLSearchParams(filters);
  for (const [name, id] of [["dag", "dag"], ["phase", "phase"], ["text", "filter"]]) if (element(id).value) sent.set(name, element(id).value);
  sent.set("offset", offset);
  sent.set("limit", ROWS_PER_PAGE);
  const found = await request(`trainjobs?${sent}`);
  if (number !== listRequests) return; // the user has selected another page or filter meanwhile
  ({ trainjobs: jobs, offset } = found);
  showProblems(found.problems);
  showLoading(found.loading);
  showRows();
  showCounts(found);
}

async function refreshComparison() {
  const scope = compared, found = await request(`comparison?${taskQuery(scope)}`);
  if (scope !== compared) return;
  showProblems(found.problems ?? []);
  showLoading(found.loading ?? []);
  showComparison(found, scope, { onSelect: select, onClose: () => openComparison(null) });
}

/** Show the comparison of a DAG run, or the list if it is null. */
function openComparison(scope) {
  // The tab of a mapped task instance compares only the instances of its task.
  compared = scope && { dag: scope.dag, run: scope.run, task: filters.has("index") ? filters.get("task") : "" };
  element("list").hidden = Boolean(scope);
  element("comparison").hidden = !scope;
  void refreshNow();
}

/** Show the task instance of the tab without a TrainJob if the selected one was deleted. */
function deselectDeleted() {
  if (!selected || compared || jobs.some((job) => keyOf(job) === selected)) return;
  selected = "";
  clear({ name: filters.get("task") });
}

async function refresh() {
  await (compared ? refreshComparison() : refreshList());
  if (ofTask) deselectDeleted();
  if (first) {
    first = false;
    if (!selected && ofTask && jobs.length) selected = keyOf(jobs[0]);
    if (selected) select(selected);
  } else if (selected) await loadDetails(selected);
  if (ofTask && !selected) {
    if (jobs.length) select(keyOf(jobs[0]));
    else await loadTask();
  }
}

async function refreshNow() {
  try {
    await refresh();
  } catch (error) {
    showProblems([error instanceof TypeError ? "Airflow's API server does not respond." : error.message]);
  }
}

async function refreshRepeatedly() {
  if (!document.hidden) await refreshNow();
  setTimeout(refreshRepeatedly, REFRESH_MILLISECONDS);
}

function goTo(newOffset) {
  offset = newOffset;
  void refreshNow();
}

/** Use Airflow's light or dark theme, or the system's if this page is not in Airflow's frame. */
function followTheme() {
  const ownClasses = document.documentElement.classList, system = matchMedia("(prefers-color-scheme: dark)");
  const airflowRoot = window.parent === window ? null : window.parent.document.documentElement;
  const apply = () => ownClasses.toggle("dark", airflowRoot ? airflowRoot.classList.contains("dark") : system.matches);
  if (airflowRoot) new MutationObserver(apply).observe(airflowRoot, { attributes: true, attributeFilter: ["class"] });
  system.addEventListener("change", apply);
  apply();
}

followTheme();
let typing;
element("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => goTo(0), INPUT_MILLISECONDS);
});
for (const id of ["dag", "phase"]) element(id).addEventListener("change", () => goTo(0));
element("previous").addEventListener("click", () => goTo(Math.max(0, offset - ROWS_PER_PAGE)));
element("next").addEventListener("click", () => goTo(offset + ROWS_PER_PAGE));
element("dag").hidden = filters.has("dag");
element("compare").hidden = !(filters.has("dag") && filters.has("run"));
element("compare").addEventListener("click", () => openComparison(Object.fromEntries(filters)));
void refreshRepeatedly();

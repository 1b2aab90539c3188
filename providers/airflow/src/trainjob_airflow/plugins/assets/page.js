// The list of TrainJobs and the selection of one of them. Read-only; reloads every few seconds while the page is visible.

import { onNavigation, readView, writeView } from "./address.js";
import { MAX_CURVES, showChart } from "./chart.js";
import { showComparison } from "./comparison.js";
import { clear, show, showTask } from "./detail.js";
import { createFilters, filterQuery, FILTERS, showChosen, showCounts } from "./filters.js";
import { showHeads, showRows } from "./list.js";
import { instanceOf, keyOf, request, taskQuery } from "./requests.js";

const REFRESH_MILLISECONDS = 2500, REFRESH_MILLISECONDS_OF_ENDED = 15000, INPUT_MILLISECONDS = 250, ROWS_PER_PAGE = 50;
const element = (id) => document.getElementById(id);
// Airflow 3.1 does not encode the + of a run ID. It never stands for a space, which Airflow encodes as %20.
const query = new URLSearchParams(location.search.replaceAll("+", "%2B"));
// The filters of Airflow's tab. Airflow does not replace {MAP_INDEX} for a task that is not mapped.
const scope = new URLSearchParams([...query].filter(([name, value]) => (name === "index" ? /^\d+$/.test(value) : value)));
const ofTask = scope.has("task"); // the tab of a task instance
let view = readView(); // filters, order, page and selection, as in the address
let jobs = [], first = true, listRequests = 0;

function showText(id, lines) {
  const text = lines.join("\n");
  element(id).hidden = !text;
  if (element(id).textContent !== text) element(id).textContent = text;
}

const showProblems = (problems) => showText("problems", problems);
const showLoading = (sources) => showText("loading", sources.map((source) => `The TrainJobs of connection ${source} are being listed …`));

/** Change the view and its address, and load what it shows. With `replace`, Back skips the view before. */
function change(changes, replace = false) {
  view = { ...view, ...changes };
  writeView(view, replace);
  void refreshNow();
}

function sortBy(sort) {
  change({ sort, page: "" });
  showHeads(sort, sortBy);
}

/** Show the page of the list and its count. */
function showPage(found) {
  const isFiltered = FILTERS.some((name) => view[name]);
  const none = isFiltered ? "No TrainJob matches" : scope.size ? "No TrainJobs yet" : "No active TrainJobs, and none that ended within a day";
  const last = found.offset + found.trainjobs.length;
  const count = found.total ? `${found.offset + 1} to ${last} of ${found.total}` : found.loading.length ? "" : none;
  if (element("count").textContent !== count) element("count").textContent = count;
  element("pages").hidden = found.total <= ROWS_PER_PAGE;
  element("page").textContent = `Page ${found.offset / ROWS_PER_PAGE + 1} of ${Math.max(1, Math.ceil(found.total / ROWS_PER_PAGE))}`;
  element("previous").disabled = found.offset === 0;
  element("next").disabled = last >= found.total;
  showCounts(found, view, scope);
  showHeads(view.sort, sortBy);
  const changed = showList();
  if (changed.length) element("changes").textContent = changed.join("; ");
}

const charted = () => (view.chart ? view.chart.split(",") : []);
const showList = () => showRows(jobs, { selected: view.job, charted: charted(), onSelect: select, onChart: toggleCurve });

/** Add a TrainJob to the chart, or remove it; without a key, remove all. */
function toggleCurve(key) {
  const before = charted(), others = before.filter((each) => each !== key);
  const added = key && others.length === before.length ? [key] : [];
  change({ chart: key ? [...others, ...added].slice(-MAX_CURVES).join(",") : "" });
  showList();
}

/** Show a TrainJob that the user has selected. */
function select(key) {
  view = { ...view, job: key };
  writeView(view);
  open(key);
  if (!matchMedia("(min-width: 1100px)").matches) element("detail").scrollIntoView();
}

function open(key) {
  const name = jobs.find((job) => keyOf(job) === key)?.name || (instanceOf(key)?.task ?? decodeURIComponent(key.split("/").pop()));
  clear({ name }, close);
  showList();
  void loadDetails(key);
}

/** Hide the details, and return the focus to the list. */
function close() {
  clear(null);
  change({ job: "" });
  document.querySelector("#rows button[tabindex='0']")?.focus();
}

async function loadDetails(key) {
  const recorded = instanceOf(key); // of a TrainJob that no cluster has: what its task has recorded
  if (recorded) {
    const task = await request(`task?${taskQuery(recorded)}`);
    if (key === view.job) showTask(task, true);
    return;
  }
  const [detail, log] = await Promise.all([request(`trainjobs/${key}`), request(`trainjobs/${key}/log`)]);
  if (key !== view.job) return;
  show(detail, log, (job) => compare(job));
  const job = detail.trainjob ?? jobs.find((each) => keyOf(each) === key);
  const task = job && await request(`task?${taskQuery(job)}`);
  if (task && key === view.job) showTask(task, ofTask);
}

/** Show the task instance of the tab if none of its TrainJobs exists. Other tasks have only a state. */
async function loadTask() {
  const task = await request(`task?${scope}`);
  if (view.job || task.problem || (task.summary.length < 2 && !task.failure)) return;
  if (document.querySelector("#detail [data-part=summary]") === null) clear({ name: scope.get("task") }, close);
  showTask(task, true);
}

async function refreshList() {
  const number = ++listRequests, sent = filterQuery(view);
  for (const [name, value] of scope) sent.set(name, value);
  if (view.sort) sent.set("sort", view.sort);
  sent.set("offset", Math.max(0, (Number(view.page) || 1) - 1) * ROWS_PER_PAGE);
  sent.set("limit", ROWS_PER_PAGE);
  const found = await request(`trainjobs?${sent}`);
  if (number !== listRequests) return; // the user has selected another page or filter meanwhile
  jobs = found.trainjobs;
  showProblems(found.problems);
  showLoading(found.loading);
  showPage(found);
}

/** Return the DAG run or the task that the view compares; null if the view is the list. */
function comparedScope() {
  if (!view.compare) return null;
  const [dag, run, task = ""] = view.compare.split("/").map(decodeURIComponent);
  return { dag, run, task };
}

async function refreshComparison() {
  const compared = view.compare, found = await request(`comparison?${taskQuery(comparedScope())}`);
  if (compared !== view.compare) return;
  showProblems(found.problems ?? []);
  showLoading(found.loading ?? []);
  showComparison(found, comparedScope(), { onSelect: select, onClose: () => change({ compare: "" }), onChart: chartAll });
}

/** Show the chart of the first TrainJobs of a comparison, above the list. */
const chartAll = (keys) => change({ compare: "", chart: keys.slice(0, MAX_CURVES).join(",") });

/** Show the comparison of the TrainJobs of a DAG run. */
function compare({ dag, run }) {
  // The tab of a mapped task instance compares only the instances of its task.
  const task = scope.has("index") ? [scope.get("task")] : [];
  change({ compare: [dag, run, ...task].map(encodeURIComponent).join("/") });
}

/** Show the task instance of the tab without a TrainJob if the selected one was deleted. */
function deselectDeleted() {
  if (!view.job || view.compare || jobs.some((job) => keyOf(job) === view.job)) return;
  view = { ...view, job: "" };
  writeView(view, true);
  clear({ name: scope.get("task") }, close);
}

async function refresh() {
  element("list").hidden = Boolean(view.compare);
  element("comparison").hidden = !view.compare;
  await (view.compare ? refreshComparison() : refreshList());
  void showChart(charted(), toggleCurve).catch(showError);
  if (ofTask) deselectDeleted();
  if (first) {
    first = false;
    if (!view.job && ofTask && jobs.length) view.job = keyOf(jobs[0]);
    if (view.job) open(view.job);
  } else if (view.job) await loadDetails(view.job);
  if (ofTask && !view.job) {
    if (jobs.length) {
      view.job = keyOf(jobs[0]);
      open(view.job);
    } else await loadTask();
  }
}

const showError = (error) => showProblems([error instanceof TypeError ? "Airflow's API server does not respond." : error.message]);

async function refreshNow() {
  try {
    await refresh();
  } catch (error) {
    showError(error);
  }
}

const isOfEnded = () => ["ended", "deleted"].includes(view.state);

async function refreshRepeatedly() {
  if (!document.hidden) await refreshNow();
  setTimeout(refreshRepeatedly, isOfEnded() ? REFRESH_MILLISECONDS_OF_ENDED : REFRESH_MILLISECONDS);
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
writeView(view, true);
let typing;
createFilters((changes, isTyping) => {
  clearTimeout(typing);
  const apply = () => {
    change({ ...changes, page: "" }, isTyping && Boolean(view.text));
    showChosen(view);
  };
  if (isTyping) typing = setTimeout(apply, INPUT_MILLISECONDS);
  else apply();
});
showChosen(view);
onNavigation(() => {
  const before = view.job;
  view = readView();
  writeView(view, true);
  showChosen(view);
  if (view.job && view.job !== before) open(view.job);
  else if (!view.job) clear(null);
  void refreshNow();
});
const goTo = (step) => change({ page: String(Math.max(1, (Number(view.page) || 1) + step)) });
element("previous").addEventListener("click", () => goTo(-1));
element("next").addEventListener("click", () => goTo(1));
element("compare").hidden = !(scope.has("dag") && scope.has("run"));
element("compare").addEventListener("click", () => compare(Object.fromEntries(scope)));
void refreshRepeatedly();

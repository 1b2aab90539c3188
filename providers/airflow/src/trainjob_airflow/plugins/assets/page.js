// The list of TrainJobs and the selection of one of them. Read-only; reloads every few seconds while the page is visible.

import { clear, show } from "./detail.js";
import { bar, gpuHours, make, phaseOf, short, span } from "./elements.js";

const REFRESH_MILLISECONDS = 2500;
const list = document.getElementById("rows"), filter = document.getElementById("filter");
const query = new URLSearchParams(location.search);
// Airflow does not replace {MAP_INDEX} for a task that is not mapped.
const filters = new URLSearchParams([...query].filter(([name, value]) => (name === "index" ? /^\d+$/.test(value) : value)));
let jobs = [], selected = location.hash.slice(1), first = true;

const keyOf = (job) => [job.connection, job.namespace, job.name].map(encodeURIComponent).join("/");

function showProblems(problems) {
  const element = document.getElementById("problems");
  element.hidden = !problems.length;
  element.textContent = problems.join("\n");
}

async function request(path) {
  const response = await fetch(`api/${path}`, { headers: { Accept: "application/json" } });
  if (response.status === 401) throw new Error("Your session has ended. Reload Airflow's page to log in again.");
  if (!response.ok && response.status !== 404) throw new Error(`Airflow's API server responded with status ${response.status}.`);
  return response.ok ? response.json() : { problem: (await response.json()).detail };
}

function row(job) {
  const progress = job.progress ?? {};
  const name = make("button", { class: "name", type: "button" }, job.name);
  const task = `${job.dag}.${job.task}${job.index >= 0 ? `[${job.index}]` : ""}`;
  const element = make("tr", { class: keyOf(job) === selected ? "selected" : "" },
    make("td", {}, phaseOf(job), make("small", {}, job.reason)),
    make("td", {}, name, make("small", {}, [job.namespace, job.queue].filter(Boolean).join(", queue "))),
    make("td", {}, task, make("small", {}, job.run)),
    make("td", {}, bar(job.phase === "Complete" ? 100 : progress.percent), make("small", {}, progress.step ? `${progress.step} / ${progress.total ?? "?"}` : "")),
    make("td", {}, progress.metrics?.reward === undefined ? short(progress.loss) : `reward ${short(progress.metrics.reward)}`),
    make("td", {}, span(job.created, job.ended), make("small", {}, gpuHours(job.usage))));
  element.addEventListener("click", () => select(keyOf(job)));
  return element;
}

function showList(total) {
  const words = filter.value.toLowerCase().split(/\s+/);
  const shown = jobs.filter((job) => words.every((word) => `${job.name} ${job.dag} ${job.task} ${job.run} ${job.phase} ${job.queue}`.toLowerCase().includes(word)));
  const focused = list.contains(document.activeElement) ? document.activeElement.textContent : null;
  list.replaceChildren(...shown.map(row));
  if (focused) [...list.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  const none = filters.size ? "No TrainJobs yet" : "No active TrainJobs, and none that ended within a day";
  document.getElementById("count").textContent = jobs.length ? `${shown.length} of ${total ?? jobs.length}` : none;
}

function select(key) {
  selected = key;
  history.replaceState(null, "", `#${key}`);
  clear(jobs.find((job) => keyOf(job) === key) ?? { name: decodeURIComponent(key.split("/").pop()) });
  showList();
  void loadDetails(key);
}

async function loadDetails(key) {
  const [detail, log] = await Promise.all([request(`trainjobs/${key}`), request(`trainjobs/${key}/log`)]);
  if (key === selected) show(detail, log);
}

async function refresh() {
  const found = await request(`trainjobs?${filters}`);
  jobs = found.trainjobs;
  showProblems(found.problems);
  showList(found.total);
  if (first) {
    first = false;
    if (!selected && filters.has("task") && jobs.length) selected = keyOf(jobs[0]);
    if (selected) select(selected);
  } else if (selected) await loadDetails(selected);
}

async function refreshRepeatedly() {
  try {
    if (!document.hidden) await refresh();
  } catch (error) {
    showProblems([error instanceof TypeError ? "Airflow's API server does not respond." : error.message]);
  }
  setTimeout(refreshRepeatedly, REFRESH_MILLISECONDS);
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
filter.addEventListener("input", () => showList());
void refreshRepeatedly();

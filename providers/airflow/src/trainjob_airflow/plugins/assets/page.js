// The list of TrainJobs, and which of them is looked at. Reads only; asks again every few seconds while it is seen.

import { clear, show } from "./detail.js";
import { bar, make, phaseOf, short, span } from "./elements.js";

const EVERY = 2500;
const list = document.getElementById("rows"), filter = document.getElementById("filter");
const given = new URLSearchParams(location.search);
// Airflow leaves {MAP_INDEX} as it is for a task that is not mapped.
const narrowed = new URLSearchParams([...given].filter(([name, value]) => (name === "index" ? /^\d+$/.test(value) : value)));
let jobs = [], chosen = location.hash.slice(1), first = true;

const keyOf = (job) => [job.connection, job.namespace, job.name].map(encodeURIComponent).join("/");

function tell(problems) {
  const told = document.getElementById("problems");
  told.hidden = !problems.length;
  told.textContent = problems.join("\n");
}

async function ask(path) {
  const answer = await fetch(`api/${path}`, { headers: { Accept: "application/json" } });
  if (answer.status === 401) throw new Error("You are not logged in any more: load Airflow's page again.");
  if (!answer.ok && answer.status !== 404) throw new Error(`Airflow's API server answers ${answer.status}.`);
  return answer.ok ? answer.json() : { problem: (await answer.json()).detail };
}

function row(job) {
  const progress = job.progress ?? {};
  const name = make("button", { class: "name", type: "button" }, job.name);
  const task = `${job.dag}.${job.task}${job.index >= 0 ? `[${job.index}]` : ""}`;
  const made = make("tr", { class: keyOf(job) === chosen ? "chosen" : "" },
    make("td", {}, phaseOf(job), make("small", {}, job.reason)),
    make("td", {}, name, make("small", {}, [job.namespace, job.queue].filter(Boolean).join(", queue "))),
    make("td", {}, task, make("small", {}, job.run)),
    make("td", {}, bar(job.phase === "Complete" ? 100 : progress.percent), make("small", {}, progress.step ? `${progress.step} / ${progress.total ?? "?"}` : "")),
    make("td", {}, short(progress.loss)),
    make("td", {}, span(job.created, job.ended)));
  made.addEventListener("click", () => choose(keyOf(job)));
  return made;
}

function showList(total) {
  const words = filter.value.toLowerCase().split(/\s+/);
  const shown = jobs.filter((job) => words.every((word) => `${job.name} ${job.dag} ${job.task} ${job.run} ${job.phase} ${job.queue}`.toLowerCase().includes(word)));
  const focused = list.contains(document.activeElement) ? document.activeElement.textContent : null;
  list.replaceChildren(...shown.map(row));
  if (focused) [...list.querySelectorAll("button")].find((button) => button.textContent === focused)?.focus();
  const none = narrowed.size ? "No TrainJob here yet." : "No TrainJob at work, and none that ended within a day.";
  document.getElementById("count").textContent = jobs.length ? `${shown.length} of ${total ?? jobs.length}` : none;
}

function choose(key) {
  chosen = key;
  history.replaceState(null, "", `#${key}`);
  clear(jobs.find((job) => keyOf(job) === key) ?? { name: decodeURIComponent(key.split("/").pop()) });
  showList();
  void lookAt(key);
}

async function lookAt(key) {
  const [detail, log] = await Promise.all([ask(`trainjobs/${key}`), ask(`trainjobs/${key}/log`)]);
  if (key === chosen) show(detail, log);
}

async function refresh() {
  const found = await ask(`trainjobs?${narrowed}`);
  jobs = found.trainjobs;
  tell(found.problems);
  showList(found.total);
  if (first) {
    first = false;
    if (!chosen && narrowed.has("task") && jobs.length) chosen = keyOf(jobs[0]);
    if (chosen) choose(chosen);
  } else if (chosen) await lookAt(chosen);
}

async function goOn() {
  try {
    if (!document.hidden) await refresh();
  } catch (error) {
    tell([error instanceof TypeError ? "Airflow's API server does not answer." : error.message]);
  }
  setTimeout(goOn, EVERY);
}

/** Light or dark as Airflow's own page is; the system's choice where this page stands alone. */
function followTheme() {
  const ours = document.documentElement.classList, system = matchMedia("(prefers-color-scheme: dark)");
  const theirs = window.parent === window ? null : window.parent.document.documentElement;
  const apply = () => ours.toggle("dark", theirs ? theirs.classList.contains("dark") : system.matches);
  if (theirs) new MutationObserver(apply).observe(theirs, { attributes: true, attributeFilter: ["class"] });
  system.addEventListener("change", apply);
  apply();
}

followTheme();
filter.addEventListener("input", () => showList());
void goOn();

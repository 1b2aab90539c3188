// The details of one TrainJob: phase, ranks, loss or reward, other metrics, events and log.

import { metricCurve } from "./curve.js";
import { airflowLink, bar, duration, gpuHours, hours, make, phaseOf, runPath, short, span, table } from "./elements.js";
import { showLog } from "./log.js";
import { keyOf } from "./requests.js";
import { attempts, failure, scores, summary } from "./task.js";

const panel = document.getElementById("detail");
const parts = ["head", "summary", "facts", "attempts", "failure", "scores", "curve", "metrics", "ranks", "events", "log"];

function part(name, ...children) {
  panel.querySelector(`[data-part=${name}]`).replaceChildren(...children);
}

/** Empty the panel for a newly selected TrainJob, or hide it if none is selected. */
export function clear(job, onClose) {
  panel.hidden = !job;
  document.querySelector("main").classList.toggle("split", Boolean(job));
  panel.replaceChildren(...(job ? [closeButton(onClose), ...parts.map((name) => make("div", { "data-part": name }))] : []));
  if (job) part("head", make("h1", {}, job.name));
}

function closeButton(onClose) {
  const button = make("button", { type: "button", class: "close", "aria-label": "Close the details" }, "×");
  button.addEventListener("click", onClose);
  return button;
}

const taskPath = (job) => `${runPath(job)}/tasks/${encodeURIComponent(job.task)}${job.index >= 0 ? `/mapped/${job.index}` : ""}`;

function facts(job, progress, onCompare) {
  const shown = progress ?? {};
  const lines = [
    ["Task", airflowLink(taskPath(job), `${job.dag}.${job.task}${job.index >= 0 ? `[${job.index}]` : ""}`)],
    ["DAG run", make("span", {}, airflowLink(runPath(job), job.run), " ", compareButton(job, onCompare))],
    ["TrainJob", `${job.namespace}/${job.name}, attempt ${job.attempt}`],
    ["Cluster", job.connection],
    ["Queue", job.queue],
    ["Step", job.step],
    ["Reason", job.reason],
    ["Duration", `${span(job.created, job.ended)}${job.finished ? "" : " so far"}`],
    ["Usage", usageText(job.usage)],
    ["Progress", progressText(shown)],
    ["Loss", short(shown.loss)],
  ];
  const present = lines.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return list(present);
}

function compareButton(job, onCompare) {
  const button = make("button", { type: "button", class: "compare" }, "Compare");
  button.addEventListener("click", () => onCompare(job));
  return button;
}

function list(rows) {
  return make("dl", {}, ...rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function metrics(progress) {
  const rows = Object.entries(progress?.metrics ?? {}).sort(([one], [other]) => one.localeCompare(other));
  return rows.length ? [make("h2", {}, "Metrics"), list(rows.map(([name, value]) => [name, short(value)]))] : [];
}

function usageText(usage) {
  return usage ? [gpuHours(usage), `${hours(usage, usage.pod_seconds)} pod h`].filter(Boolean).join(", ") : "";
}

function progressText(shown) {
  const step = shown.step ? `step ${shown.step} of ${shown.total ?? "?"}` : "";
  const epoch = shown.epoch ? `epoch ${shown.epoch} of ${shown.epochs ?? "?"}` : "";
  const percent = !step && typeof shown.percent === "number" ? `${short(shown.percent)} %` : "";
  const left = typeof shown.remaining === "number" ? `${duration(shown.remaining)} left` : "";
  const at = shown.reported_at ? ` (reported ${span(shown.reported_at)} ago)` : "";
  return [percent, step, epoch, left, shown.ranks].filter(Boolean).join(", ") + at;
}

/** Return the heading and the curve of the loss, or of the reward if the training reports it. */
function curve(log) {
  const title = { loss: "Loss", reward: "Reward" }[log.curve];
  const evaluated = log.evaluation_points.length > 1 ? " (dashed: evaluation)" : "";
  return [make("h2", {}, `${title}${evaluated}`), metricCurve(log.curve, log.points, log.evaluation_points)];
}

function ranks(detail) {
  const rows = detail.ranks.map((rank) => [
    `${rank.step} ${rank.rank}`, rank.phase, String(rank.restarts), rank.node, make("span", { class: rank.reason ? "bad" : "" }, rank.reason),
  ]);
  const more = detail.pods > rows.length ? `, ${rows.length} of ${detail.pods}` : "";
  return rows.length ? [make("h2", {}, `Ranks${more}`), table(["Rank", "Pod phase", "Restarts", "Node", "Reason"], rows)] : [];
}

function events(detail) {
  const rows = detail.events.map((event) => [
    `${span(event.time)} ago`, make("span", { class: event.type === "Warning" ? "bad" : "" }, event.reason), event.object,
    event.count > 1 ? `${event.message} (${event.count} times)` : event.message,
  ]);
  return rows.length ? [make("h2", {}, "Newest events"), make("div", { class: "scroll" }, table(["Last seen", "Reason", "Object", "Message"], rows))] : [];
}

/** Show the task instance of a TrainJob; the summary only on the tab of the task instance. */
export function showTask(task, withSummary) {
  if (task.problem) return;
  const withTrainJob = panel.querySelector("[data-part=facts]").childElementCount > 0;
  part("summary", ...(withSummary ? summary(task, withTrainJob) : []));
  part("attempts", ...attempts(task));
  part("failure", ...failure(task));
  part("scores", ...scores(task));
}

/**
 * Show a TrainJob's state. The progress in its log is newer than the progress in its task's XCom. `onCompare` gets the
 * TrainJob whose DAG run the user wants to compare.
 */
export function show(detail, log, onCompare) {
  if (detail.loading) {
    part("facts", make("p", { class: "faint" }, "Loading …"));
    return;
  }
  const job = detail.trainjob;
  if (detail.problem) {
    const seen = job ? [make("p", { class: "faint" }, `Last seen ${span(job.last_seen)} ago:`), phaseOf(job), facts(job, job.progress, onCompare)] : [];
    part("facts", make("p", { class: "bad" }, detail.problem), ...seen);
    return;
  }
  const progress = log.progress ?? job.progress;
  part("head", make("header", {}, make("h1", {}, job.name), phaseOf(job)), bar(job.phase === "Complete" ? 100 : progress?.percent));
  part("facts", facts(job, progress, onCompare));
  part("metrics", ...metrics(progress));
  part("ranks", ...ranks(detail));
  part("events", ...events(detail));
  if (log.points?.length > 1) part("curve", ...curve(log));
  if (!log.loading) showLog(panel.querySelector("[data-part=log]"), log, keyOf(job));
}

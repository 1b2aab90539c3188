// Parts of the details that belong to the task instance: summary, TrainJobs of all tries, and the stored failure.

import { drawCurves } from "./curve.js";
import { externalLink, make, phaseOf, span, table } from "./elements.js";

const SHOWN_OF_TRAINJOBS = ["TrainJob", "Phase", "Reason", "Step", "Loss"];

/** Return the summary of a task instance; without the lines that the details of a TrainJob have, too. */
export function summary(task, withTrainJob) {
  const shown = task.summary.filter(([name]) => !(withTrainJob && SHOWN_OF_TRAINJOBS.includes(name)));
  const lines = shown.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]);
  return [make("h2", {}, "Summary"), make("dl", {}, ...lines)];
}

/** Return the TrainJobs of all tries with their links; nothing if there is only one, without links. */
export function attempts(task) {
  if (task.attempts.length < 2 && !task.attempts.some((attempt) => attempt.links.length)) return [];
  const rows = task.attempts.map((attempt) => [
    attempt.try_number === null ? "" : String(attempt.try_number),
    `${attempt.namespace}/${attempt.name}, attempt ${attempt.attempt}`,
    attempt.phase ? phaseOf(attempt) : make("span", { class: "faint" }, "deleted"),
    attempt.created ? span(attempt.created, attempt.ended) : "",
    make("span", { class: "links" }, ...attempt.links.map((link) => externalLink(link.url, link.name))),
  ]);
  return [make("h2", {}, "All tries"), table(["Try", "TrainJob", "Phase", "Duration", "Links"], rows)];
}

/** Return the scores of the task's evaluations by run, and those of the champions. */
export function scores(task) {
  return task.scores.flatMap(({ metric, points, champion_points: championPoints }) => {
    const champion = championPoints.length > 1 ? [{ points: championPoints, class: "evaluation" }] : [];
    const title = `${metric}${champion.length ? " (dashed: champion)" : ""}`;
    return [make("h2", {}, title), drawCurves(`${metric} by run`, [{ points }, ...champion], "run")];
  });
}

/** Return the failure that the task stored, also after its TrainJob was deleted. */
export function failure(task) {
  const stored = task.failure;
  if (!stored) return [];
  const lines = [make("p", { class: "bad" }, [stored.kind, stored.reason, stored.trainjob && `TrainJob ${stored.trainjob}`].filter(Boolean).join(", "))];
  if (stored.description.length) lines.push(make("pre", { tabindex: 0 }, stored.description.join("\n")));
  if (stored.log.length) lines.push(make("h2", {}, "Last log lines"), make("pre", { tabindex: 0 }, stored.log.join("\n")));
  return [make("h2", {}, "Failure"), ...lines];
}

// The chart of several TrainJobs: the loss or the reward of each by step.

import { drawCurves } from "./curve.js";
import { make, short } from "./elements.js";
import { request } from "./requests.js";

/** Number of TrainJobs in a chart, because the API server follows the log of each. */
export const MAX_CURVES = 8;
const REFRESH_MILLISECONDS = 10000;
const section = document.getElementById("chart");
let shown = "", shownAt = 0;

/** Load and show the curves of some TrainJobs; `onRemove` gets a key, or nothing to remove all. */
export async function showChart(keys, onRemove) {
  section.hidden = !keys.length;
  const wanted = keys.join(",");
  if (!keys.length || (wanted === shown && Date.now() - shownAt < REFRESH_MILLISECONDS)) {
    if (!keys.length) shown = "";
    return;
  }
  [shown, shownAt] = [wanted, Date.now()];
  const logs = await Promise.all(keys.map((key) => request(`trainjobs/${key}/log?lines=false`)));
  if (wanted !== shown) return; // the user has selected others meanwhile
  const metric = logs.find((log) => log.points?.length)?.curve ?? "loss";
  const curves = logs.map((log, at) => ({ key: keys[at], class: `curve-${at}`, log, points: log.curve === metric ? log.points : [] }));
  const drawn = curves.filter((curve) => curve.points.length > 1);
  section.replaceChildren(
    make("header", {}, make("h1", {}, `${{ loss: "Loss", reward: "Reward" }[metric]} by step`), removeButton("Clear", () => onRemove())),
    drawn.length ? drawCurves(`${metric} of ${drawn.length} TrainJobs by step`, drawn) : make("p", { class: "faint" }, "No curve yet."),
    make("ul", { class: "legend" }, ...curves.map((curve) => legendOf(curve, metric, onRemove))));
}

function legendOf({ key, class: name, log, points }, metric, onRemove) {
  const title = decodeURIComponent(key.split("/").pop());
  const missing = log.problem || (log.loading ? "loading …" : `no ${metric} in the log`);
  const text = points.length ? `${short(points.at(-1)[1])} at step ${points.at(-1)[0]}` : missing;
  const button = removeButton("×", () => onRemove(key));
  button.setAttribute("aria-label", `Remove ${title} from the chart`);
  return make("li", {}, make("span", { class: `line ${name}` }), title, make("span", { class: "faint" }, text), button);
}

function removeButton(text, onClick) {
  const button = make("button", { type: "button" }, text);
  button.addEventListener("click", onClick);
  return button;
}

// Curves of the loss or the reward as an SVG.

const WIDTH = 600, HEIGHT = 150, LEFT = 52, BOTTOM = 20, TOP = 8, RIGHT = 8;

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Return the curve of `name` through `[[step, value], ...]`, and a second one for the evaluations if there are any. */
export const metricCurve = (name, points, evaluationPoints) =>
  drawCurves(`${name} by step`, [{ points }, ...(evaluationPoints.length > 1 ? [{ points: evaluationPoints, class: "evaluation" }] : [])]);

/** Return a picture of several curves, each with its `points` and the `class` of its line; `unit` is what their numbers count. */
export function drawCurves(label, curves, unit = "step") {
  const all = curves.flatMap((curve) => curve.points);
  const steps = all.map((point) => point[0]), values = all.map((point) => point[1]);
  const [first, last] = [least(steps), -least(steps.map((step) => -step))], [low, high] = [least(values), -least(values.map((value) => -value))];
  const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - BOTTOM - TOP);
  const picture = draw("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  for (const value of high > low ? [low, high] : [low]) {
    picture.append(
      draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      draw("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, Number(value.toPrecision(3))),
    );
  }
  const line = (curve) => draw("polyline", { class: curve.class ?? "", points: curve.points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ") });
  picture.append(
    draw("text", { x: LEFT, y: HEIGHT - 4 }, `${unit} ${first}`),
    draw("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, `${unit} ${last}`),
    ...curves.map(line),
  );
  return picture;
}

/** Return the least number; a call with thousands of arguments fails. */
const least = (numbers) => numbers.reduce((one, other) => Math.min(one, other), Infinity);

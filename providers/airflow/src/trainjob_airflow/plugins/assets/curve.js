// The curve of the loss or the reward as an SVG.

const WIDTH = 600, HEIGHT = 150, LEFT = 52, BOTTOM = 20, TOP = 8, RIGHT = 8;

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Return the curve of `name` through `[[step, value], ...]`, and a second one for the evaluations if there are any. */
export function metricCurve(name, points, evaluationPoints) {
  const all = [...points, ...evaluationPoints];
  const steps = all.map((point) => point[0]), values = all.map((point) => point[1]);
  const [first, last] = [Math.min(...steps), Math.max(...steps)], [low, high] = [Math.min(...values), Math.max(...values)];
  const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - BOTTOM - TOP);
  const picture = draw("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${name} by step` });
  for (const value of high > low ? [low, high] : [low]) {
    picture.append(
      draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      draw("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, Number(value.toPrecision(3))),
    );
  }
  const line = (shown, attributes) => draw("polyline", { ...attributes, points: shown.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ") });
  picture.append(
    draw("text", { x: LEFT, y: HEIGHT - 4 }, `step ${first}`),
    draw("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, `step ${last}`),
    line(points, {}),
  );
  if (evaluationPoints.length > 1) picture.append(line(evaluationPoints, { class: "evaluation" }));
  return picture;
}

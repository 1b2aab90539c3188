// The loss curve as an SVG.

const WIDTH = 600, HEIGHT = 150, LEFT = 52, BOTTOM = 20, TOP = 8, RIGHT = 8;

function draw(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Return the curve through `[[step, loss], ...]`. */
export function lossCurve(points) {
  const steps = points.map((point) => point[0]), losses = points.map((point) => point[1]);
  const [first, last] = [Math.min(...steps), Math.max(...steps)], [low, high] = [Math.min(...losses), Math.max(...losses)];
  const x = (step) => LEFT + ((step - first) / (last - first || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (loss) => HEIGHT - BOTTOM - ((loss - low) / (high - low || 1)) * (HEIGHT - BOTTOM - TOP);
  const picture = draw("svg", { class: "curve", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "loss by step" });
  for (const loss of high > low ? [low, high] : [low]) {
    picture.append(
      draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(loss), y2: y(loss) }),
      draw("text", { x: LEFT - 6, y: y(loss) + 4, "text-anchor": "end" }, Number(loss.toPrecision(3))),
    );
  }
  picture.append(
    draw("text", { x: LEFT, y: HEIGHT - 4 }, `step ${first}`),
    draw("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, `step ${last}`),
    draw("polyline", { points: points.map((point) => `${x(point[0]).toFixed(1)},${y(point[1]).toFixed(1)}`).join(" ") }),
  );
  return picture;
}

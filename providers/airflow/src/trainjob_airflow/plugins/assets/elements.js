// Builders of HTML elements. All data from the cluster becomes text, never markup.

/** Return an element with attributes and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Return the phase as a coloured word. */
export const phaseOf = (job) => make("span", { class: `phase ${job.phase}` }, job.phase);

/** Return a bar that is full at 100, or an empty string if the percentage is not known. */
export function bar(percent) {
  if (percent === null || percent === undefined) return "";
  return make("progress", { max: 100, value: percent, title: `${percent.toFixed(1)} %` });
}

/** Return a table of texts. */
export function table(heads, rows) {
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", {}, head)))), make("tbody", {}, ...body));
}

/** Return the time between two moments, or since the first one, such as `3 min`. */
export function span(from, to) {
  return from ? duration(Math.max(0, ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000)) : "";
}

/** Return a number of seconds, such as `3 min`. */
export function duration(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} d`;
}

/** Return the GPU hours of a usage, such as `1.5 GPU h`; an empty string if none are known. */
export const gpuHours = (usage) => (usage?.gpu_seconds ? `${hours(usage, usage.gpu_seconds)} GPU h` : "");

/** Return hours with `≥` before a lower bound. */
export const hours = (usage, seconds) => `${usage.complete ? "" : "≥ "}${(seconds / 3600).toFixed(2)}`;

/** Return a number with at most four digits; an empty string for any other value. */
export const short = (number) => (typeof number === "number" ? String(Number(number.toPrecision(4))) : "");

/** Return the path of a DAG run in Airflow. */
export const runPath = ({ dag, run }) => `dags/${encodeURIComponent(dag)}/runs/${encodeURIComponent(run)}`;

/**
 * Return a link that works in Airflow's frame, which may neither navigate the window nor open another one. A link in the
 * window's own document may do so.
 */
function linkOutside(address, text, attributes) {
  const link = make("a", { href: address, ...attributes }, text);
  link.addEventListener("click", (event) => {
    event.stopPropagation();
    if (window.parent === window) return;
    event.preventDefault();
    const outside = window.parent.document.createElement("a");
    for (const [name, value] of Object.entries({ href: address, ...attributes })) outside.setAttribute(name, value);
    window.parent.document.body.append(outside);
    outside.click();
    outside.remove();
  });
  return link;
}

/** Return a link to one of Airflow's own pages. */
export const airflowLink = (path, text) => linkOutside(new URL(`../${path}`, document.baseURI).href, text, {});

/** Return a link that downloads a file of this page. */
export const downloadLink = (path, text) => linkOutside(new URL(path, document.baseURI).href, text, { download: "" });

/** Return a link to a dashboard in a new tab; the plain text if the address is not http or https. */
export function externalLink(address, text) {
  const isWeb = URL.canParse(address) && /^https?:$/.test(new URL(address).protocol);
  return isWeb ? linkOutside(address, text, { target: "_blank", rel: "noopener noreferrer" }) : text;
}

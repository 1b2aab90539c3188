// Everything that comes from the cluster becomes text, never markup.

/** An element with attributes and children; strings become text. */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The phase as a coloured word. */
export const phaseOf = (job) => make("span", { class: `phase ${job.phase}` }, job.phase);

/** A bar that is full at 100; nothing while the percentage is not known. */
export function bar(percent) {
  if (percent === null || percent === undefined) return "";
  return make("progress", { max: 100, value: percent, title: `${percent.toFixed(1)} %` });
}

/** A table of texts. */
export function table(heads, rows) {
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", {}, head)))), make("tbody", {}, ...body));
}

/** How long something took, or has been: `3 min`. */
export function span(from, to) {
  if (!from) return "";
  const seconds = Math.max(0, ((to ? Date.parse(to) : Date.now()) - Date.parse(from)) / 1000);
  if (seconds < 100) return `${Math.round(seconds)} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${Math.round(seconds / 86400)} d`;
}

/** A number as short as it is told. */
export const short = (number) => (typeof number === "number" ? String(Number(number.toPrecision(4))) : "");

/**
 * A link into Airflow's own pages. The frame that Airflow puts this page in may neither navigate the window nor open
 * another, but a link that belongs to the window's own document may.
 */
export function airflowLink(path, text) {
  const address = new URL(`../${path}`, document.baseURI).href;
  const link = make("a", { href: address }, text);
  link.addEventListener("click", (event) => {
    event.stopPropagation();
    if (window.parent === window) return;
    event.preventDefault();
    const outside = window.parent.document.createElement("a");
    outside.href = address;
    window.parent.document.body.append(outside);
    outside.click();
    outside.remove();
  });
  return link;
}

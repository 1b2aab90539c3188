// The last log lines of one TrainJob, with a search and a download.

import { downloadLink, make } from "./elements.js";

let words = ""; // of the search, which stays when another TrainJob is selected

/** Show the log of a TrainJob in an element; what is there already is updated, so that the user can type and scroll. */
export function showLog(element, log, key) {
  if (log.problem) {
    element.replaceChildren(make("h2", {}, "Log"), make("p", { class: "faint" }, log.problem));
    return;
  }
  if (!element.querySelector("pre")) element.replaceChildren(...create(element, key));
  element.log = log.lines;
  render(element);
}

function create(element, key) {
  const search = make("input", { type: "search", placeholder: "Search", "aria-label": "Search in the log" });
  search.value = words;
  search.addEventListener("input", () => {
    words = search.value;
    render(element);
  });
  const count = make("span", { class: "faint", role: "status" });
  const heading = make("header", { class: "log" }, make("h2", {}, "Log"), search, count, downloadLink(`api/trainjobs/${key}/log.txt`, "Download"));
  return [heading, make("pre", { tabindex: 0, "aria-label": "Last log lines" })];
}

function render(element) {
  const lines = element.querySelector("pre"), sought = words.trim().toLowerCase();
  const found = element.log.filter((line) => line.toLowerCase().includes(sought));
  const count = sought ? `${found.length} of the last ${element.log.length} lines` : "";
  element.querySelector("[role=status]").textContent = count;
  const shown = `${sought}\n${found.join("\n")}`;
  if (lines.shown === shown) return;
  const atEnd = !lines.shown || lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 8, scrolled = lines.scrollTop;
  lines.shown = shown;
  lines.replaceChildren(...(sought ? found.flatMap((line) => [...mark(line, sought), "\n"]) : [found.join("\n")]));
  lines.scrollTop = atEnd ? lines.scrollHeight : scrolled;
}

/** Return a line as texts and marked texts. */
function mark(line, sought) {
  const parts = [];
  let at = 0;
  for (let next = line.toLowerCase().indexOf(sought); next >= 0; next = line.toLowerCase().indexOf(sought, at)) {
    parts.push(line.slice(at, next), make("mark", {}, line.slice(next, next + sought.length)));
    at = next + sought.length;
  }
  return [...parts, line.slice(at)];
}

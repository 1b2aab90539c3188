// The view in the address of the window: filters, order, page and selection. A view can be shared, reloaded, and reached
// with the browser's Back.

// In Airflow's frame, this is Airflow's window, because users see and copy its address. Airflow 3.3 writes the frame's
// address into its own after the frame's load, and into the frame after Back, so the frame's address has the view, too.
const shownWindow = window.parent;
const pathAtStart = shownWindow.location.pathname;
const NO_CHOICE = "page=1"; // a change to an address without a hash would reload the frame

/** Return the view in the address as an object of texts. */
export function readView() {
  const hash = (shownWindow.location.hash || location.hash).slice(1);
  // Addresses of earlier versions have only the TrainJob.
  return hash && !hash.includes("=") ? { job: hash } : Object.fromEntries(new URLSearchParams(hash));
}

/** Write the view into the address; with `replace`, Back does not return to the view before. */
export function writeView(view, replace = false) {
  const hash = new URLSearchParams(Object.entries(view).filter(([, value]) => value)).toString() || NO_CHOICE;
  const { pathname, search, hash: before } = shownWindow.location;
  if (before.slice(1) !== hash) {
    const shownHistory = shownWindow.history; // its state belongs to Airflow's router
    shownHistory[replace ? "replaceState" : "pushState"](shownHistory.state, "", `${pathname}${search}#${hash}`);
  }
  if (location.hash.slice(1) !== hash) history.replaceState(history.state, "", `${location.pathname}${location.search}#${hash}`);
}

/** Call the listener when the user goes back or forward, or edits the view in the address. */
export function onNavigation(listener) {
  const end = new AbortController();
  addEventListener("pagehide", () => end.abort());
  const onPopState = () => { if (shownWindow.location.pathname.startsWith(pathAtStart)) listener(); };
  shownWindow.addEventListener("popstate", onPopState, { signal: end.signal });
}

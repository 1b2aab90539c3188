// Times in the time zone that the user has selected in Airflow.

/** Return Airflow's time zone of this browser, or the browser's own one. */
function findTimeZone() {
  try {
    const zone = JSON.parse(localStorage.getItem("timezone")); // as Airflow's UI stores it (3.1 to 3.3)
    return new Intl.DateTimeFormat("en", { timeZone: zone ?? undefined }).resolvedOptions().timeZone;
  } catch {
    return undefined; // not stored, or a zone that this browser does not know
  }
}

const parts = new Intl.DateTimeFormat("en-CA", {
  timeZone: findTimeZone(), hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
});

/** Return a time such as `2026-03-01 13:00`; an empty string without a time. */
export const formatTime = (time) => (time ? parts.format(new Date(time)).replace(", ", " ") : "");

/** Return the UTC time of a time such as `2026-03-01T13:00` in the user's zone; an empty string without a time. */
export function toUtc(text) {
  if (!text) return "";
  const wanted = Date.parse(`${text}Z`);
  let time = wanted;
  // The second pass is for a change to or from daylight saving time in between.
  for (let pass = 0; pass < 2; pass += 1) time += wanted - Date.parse(`${formatTime(time).replace(" ", "T")}Z`);
  return new Date(time).toISOString();
}

// Requests to the page's JSON API.

/** Return the JSON of a path; `{ problem }` if the object does not exist. */
export async function request(path) {
  const response = await fetch(`api/${path}`, { headers: { Accept: "application/json" } });
  if (response.status === 401) throw new Error("Your session has ended. Reload Airflow's page to log in again.");
  if (!response.ok && response.status !== 404) throw new Error(`Airflow's API server responded with status ${response.status}.`);
  return response.ok ? response.json() : { problem: (await response.json()).detail };
}

/** Return the path of a TrainJob in the API. */
export const keyOf = (job) => [job.connection, job.namespace, job.name].map(encodeURIComponent).join("/");

/** Return the query that selects a task instance, or a DAG run if the task is empty. */
export function taskQuery({ dag, run, task, index }) {
  const query = new URLSearchParams({ dag, run });
  if (task) query.set("task", task);
  if (index >= 0) query.set("index", index);
  return query;
}

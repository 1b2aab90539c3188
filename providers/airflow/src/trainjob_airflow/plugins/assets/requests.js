// Requests to the page's JSON API.

/** Return the JSON of a path; `{ problem }` if the object does not exist. */
export async function request(path) {
  const response = await fetch(`api/${path}`, { headers: { Accept: "application/json" } });
  if (response.status === 401) throw new Error("Your session has ended. Reload Airflow's page to log in again.");
  if (!response.ok && response.status !== 404) throw new Error(`Airflow's API server responded with status ${response.status}.`);
  return response.ok ? response.json() : { problem: (await response.json()).detail };
}

/** Return the path of a TrainJob in the API; of one that no cluster has, the four parts of its task instance. */
export const keyOf = (job) => (job.deleted === undefined ? [job.connection, job.namespace, job.name] : [job.dag, job.run, job.task, job.index]).map(encodeURIComponent).join("/");

/** Return the task instance of the key of a TrainJob that no cluster has; null for any other key. */
export function instanceOf(key) {
  const [dag, run, task, index] = key.split("/").map(decodeURIComponent);
  return index === undefined ? null : { dag, run, task, index: Number(index) };
}

/** Return the query that selects a task instance, or a DAG run if the task is empty. */
export function taskQuery({ dag, run, task, index }) {
  const query = new URLSearchParams({ dag, run });
  if (task) query.set("task", task);
  if (index >= 0) query.set("index", index);
  return query;
}

"""The table of fields in docs/how-to/from-training-operator.md.

`python -m tests.unit.migrate.fields_page` generates it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.support.markdown import table
from tests.unit.migrate.v1_jobs import CONTAINER, ELASTIC, POD, RUN_POLICY, Job, pytorch_job, with_spec
from trainjob_migrate import FieldResult, convert

ROOT = Path(__file__).resolve().parents[3]


PAGE = ROOT / "docs" / "how-to" / "from-training-operator.md"
BEGIN, END = "<!-- fields: written by tests/unit/migrate/fields_page.py -->", "<!-- end of fields -->"
_WORKER = "spec.pytorchReplicaSpecs.Worker"
_POD = f"{_WORKER}.template.spec"
_CONTAINER = f"{_POD}.containers[0]"
_DESTINATIONS = {
    FieldResult.MOVED: "the generated TrainingRuntime",
    FieldResult.DROPPED: "dropped",
    FieldResult.REFUSED: "refused",
}


def _job_with_restart_policy(policy: str) -> Job:
    job = pytorch_job()
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = policy
    return job


def _field_jobs() -> Iterator[tuple[str, str, Job]]:
    """Yield the name of a field, its path, and a small job that has the field."""
    plain = pytorch_job()
    yield "`replicas`", f"{_WORKER}.replicas", plain
    yield "`nprocPerNode`", "spec.nprocPerNode", with_spec(plain, nprocPerNode="2")
    for policy in ("OnFailure", "Never", "ExitCode", "Always"):
        yield f"`restartPolicy: {policy}`", f"{_WORKER}.restartPolicy", _job_with_restart_policy(policy)
    for field, value in RUN_POLICY.items():
        if field != "schedulingPolicy":
            yield f"`runPolicy.{field}`", f"spec.runPolicy.{field}", with_spec(plain, runPolicy={field: value})
    for field, value in RUN_POLICY["schedulingPolicy"].items():
        run_policy = {"schedulingPolicy": {field: value}}
        path = f"spec.runPolicy.schedulingPolicy.{field}"
        yield f"`schedulingPolicy.{field}`", path, with_spec(plain, runPolicy=run_policy)
    for field, value in ELASTIC.items():
        yield f"`elasticPolicy.{field}`", f"spec.elasticPolicy.{field}", with_spec(plain, elasticPolicy={field: value})
    mounts = CONTAINER["volumeMounts"]
    volumes = {"volumes": POD["volumes"]}
    two_mounts = pytorch_job(pod=volumes, volumeMounts=mounts)
    yield "two `volumeMounts` of one volume", f"{_CONTAINER}.volumeMounts", two_mounts
    for field, value in {**CONTAINER, "volumeMounts": mounts[:1]}.items():
        yield f"`{field}`", f"{_CONTAINER}.{field}", pytorch_job(pod=volumes, **{field: value})
    yield "further containers", f"{_POD}.containers[0]", _job_with_sidecar()
    for field, value in POD.items():
        if field != "restartPolicy":
            yield f"pod `{field}`", f"{_POD}.{field}", pytorch_job(pod={field: value})
    path = "spec.pytorchReplicaSpecs.Master.template.spec.containers[0].workingDir"
    yield "a field that differs between Master and Worker", path, _job_with_differing_replicas()
    yield "pod labels and annotations", f"{_WORKER}.template.metadata", _job_with_pod_labels()


def _job_with_sidecar() -> Job:
    job = pytorch_job()
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["template"]["spec"]["containers"].insert(0, {"name": "metrics", "image": "example.com/metrics:1"})
    return job


def _job_with_differing_replicas() -> Job:
    job = pytorch_job()
    job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["workingDir"] = "/master"
    return job


def _job_with_pod_labels() -> Job:
    job = pytorch_job()
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["template"]["metadata"] = {"labels": {"team": "ml"}, "annotations": {"note": "x"}}
    return job


def fields_table() -> str:
    """Return the table, in which fields with the same result share a row."""
    rows: dict[tuple[str, str], dict[str, None]] = {}
    for name, path, job in _field_jobs():
        records = [
            record
            for record in convert(job).fields
            if record.path == path or record.path.startswith((f"{path}.", f"{path}["))
        ]
        assert records, f"no record of {path}"
        for record in records:
            reason = record.reason.replace(record.path, "the field")  # the whole path is wider than the page
            rows.setdefault((_destination(record.result, record.target), reason), {})[name] = None
    found = sorted(rows.items(), key=lambda row: _ORDER.index(row[0][0]) if row[0][0] in _ORDER else -1)
    return table(("Field", "New place", "Reason"), [(", ".join(names), *key) for key, names in found])


def _destination(result: FieldResult, target: str) -> str:
    if result is not FieldResult.CONVERTED:
        return _DESTINATIONS[result]
    return (
        _PATCHED
        if target.startswith("spec.runtimePatches")
        else f"`{'.'.join(target.partition('[')[0].split('.')[:3])}`"
    )


_PATCHED = "a patch of the stock runtime's pods"
_ORDER = (_PATCHED, *_DESTINATIONS.values())


def update_page(page: str) -> str:
    """Return the page with the current table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{fields_table()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(update_page(PAGE.read_text()))

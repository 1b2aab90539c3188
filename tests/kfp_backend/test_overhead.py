"""The time of a run beyond its TrainJob, part by part, from the logs of its pods."""

from __future__ import annotations

import re
from datetime import datetime

from tests.kfp_backend import pipelines

_TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6})")


def test_the_parts_of_a_step_are_measured(start, backend):
    """The parts are in order; their times are printed."""
    run = start(pipelines.one_second)
    workflow = run.wait_until_ended()
    assert workflow["status"]["phase"] == "Succeeded"
    logs = backend.control_plane.state / "kubelet" / "pods"
    [root], [driver], [launcher] = (
        [logs / pod["metadata"]["uid"] / "logs" for pod in run.list_pods(template)]
        for template in ("system-dag-driver", "system-container-driver", "system-container-impl")
    )
    main, created = launcher / "main.0.log", time_in_second(workflow["metadata"]["creationTimestamp"])
    times = [
        ("root driver's pod starts (Workflow's creation: {created})", first_time(root / "init.0.log")),
        ("root driver's pod has ended", last_time(root / "wait.0.log")),
        ("driver's pod starts", first_time(driver / "init.0.log")),
        ("driver's pod has ended", last_time(driver / "wait.0.log")),
        ("launcher's pod starts", first_time(launcher / "init.0.log")),
        ("KFP's launcher starts", first_time(main)),
        ("the component starts", first_time(main, "Loading KFP component")),
        ("the TrainJob is created", first_time(main, ": created, uid")),
        ("the TrainJob is complete", first_time(main, ": Complete")),
        ("the component has written its outputs", first_time(main, "Wrote executor output file")),
        ("KFP's launcher uploads the outputs", first_time(main, "Executing uploadOutputArtifacts")),
        ("launcher's pod has ended", last_time(launcher / "wait.0.log")),
    ]
    begin = times[0][1]
    for name, moment in times:
        print(f"{(moment - begin).total_seconds():6.2f} s {name.format(created=created.time())}")
    print(f"Workflow: {workflow['status']['startedAt']} to {workflow['status']['finishedAt']}")
    assert [moment for _, moment in times] == sorted(moment for _, moment in times)


def first_time(file, text: str = "") -> datetime:
    """Return the time of the first line that contains a text."""
    return next(parse_time(line) for line in file.read_text().splitlines() if text in line)


def last_time(file) -> datetime:
    return parse_time(file.read_text().splitlines()[-1])


def parse_time(line: str) -> datetime:
    found = _TIME.match(line)
    assert found, line
    return datetime.fromisoformat(found[1])


def time_in_second(text: str) -> datetime:
    return datetime.fromisoformat(text.removesuffix("Z"))

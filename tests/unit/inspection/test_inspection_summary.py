"""Tests of the summaries of TrainJobs, for objects with any content."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainjob.inspection.facts import build_timeline, event_facts, pod_facts, spec_facts, step_facts
from trainjob.inspection.summary import summarize
from trainjob.lifecycle import RunKey
from trainjob.manifest import labels
from trainjob.status import Phase, read_trainer_status

_NAMES = (
    "metadata spec status labels annotations conditions jobsStatus trainer image command args env numNodes name type "
    "status reason lastTransitionTime containerStatuses state terminated exitCode count involvedObject items "
    "trainerStatus metrics value current_step loss"
)
_TEXTS = st.sampled_from([*_NAMES.split(), "", "True", "Complete", "Failed", "2026-01-01T00:00:00Z", labels.RUN_KEY])
_PLAIN = st.none() | st.booleans() | st.integers(-3, 300) | _TEXTS
_ANYTHING = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=5), max_leaves=12
)
_OBJECTS = st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), _ANYTHING)


@given(_OBJECTS, st.lists(_OBJECTS, max_size=2))
def test_objects_with_any_content_are_summarized_without_an_exception(job, others):
    assert summarize(job, others).to_dict()["phase"] in [phase.value for phase in Phase]
    assert read_trainer_status(job) is None or read_trainer_status(job).step >= 0
    assert isinstance(spec_facts(job), dict)
    assert isinstance(step_facts(job), list)
    assert len(pod_facts(others)) == len(others)
    assert all(event["count"] > 0 for event in event_facts(others))
    assert all(entry["time"] and entry["what"] for entry in build_timeline(job, others))


def test_the_run_key_is_read_from_the_labels_if_its_annotation_is_invalid():
    own_labels = {labels.ENGINE: "kfp", labels.WORKFLOW: "tickets", labels.TASK: "train", labels.RUN: "r-1"}
    job = {"metadata": {"labels": own_labels, "annotations": {labels.RUN_KEY: "{"}}}
    assert summarize(job).run_key == RunKey("kfp", "tickets", "train", "r-1")
    assert str(summarize(job).run_key) == "kfp tickets.train r-1"
    assert summarize({"metadata": {}}).run_key is None


def test_equal_events_are_merged_with_their_counts_newest_first():
    def event(reason, time, count=1, name="pod-a"):
        about = {"kind": "Pod", "name": name}
        meta = {"uid": f"{reason}-{time}-{name}", "creationTimestamp": time}
        fields = {"reason": reason, "message": "m", "type": "Warning", "lastTimestamp": time, "count": count}
        return {"metadata": meta, "involvedObject": about, **fields}

    old, new = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
    found = event_facts([event("A", old, 2), event("A", new, 3), event("B", old), event("B", old)])
    assert [(fact["reason"], fact["count"], fact["time"]) for fact in found] == [("A", 5, new), ("B", 1, old)]


def test_the_timeline_is_in_the_order_of_time():
    conditions = [
        {"type": "Suspended", "status": "False", "reason": "Resumed", "lastTransitionTime": "2026-01-01T00:00:02Z"},
        {"type": "Complete", "status": "True", "reason": "Done", "lastTransitionTime": "2026-01-01T00:00:09Z"},
    ]
    job = {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"conditions": conditions}}
    labelled = {"labels": {"jobset.sigs.k8s.io/replicatedjob-name": "node"}}
    state = {"terminated": {"startedAt": "2026-01-01T00:00:09Z", "exitCode": 0}}
    pod = {"metadata": labelled, "status": {"containerStatuses": [{"name": "node", "state": state}]}}
    assert [entry["what"] for entry in build_timeline(job, [pod])] == [
        "created",
        "admitted, or resumed",
        "node: first container started",
        "complete (Done)",
    ]

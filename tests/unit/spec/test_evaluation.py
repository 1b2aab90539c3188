"""The step Evaluate: its rules, and the TrainJob that runs it."""

from __future__ import annotations

import base64
import inspect
import json
from pathlib import Path

import pytest
import yaml

from trainjob import Evaluate, InvalidSpec
from trainjob.manifest import build_trainjob
from trainjob.manifest.identity import spec_hash
from trainjob.manifest.request_parser import parse_documents
from trainjob.manifest.steps import to_trainjob
from trainjob.status import parse_step_result

BETTER = {"tickets/acc": {"better_than_champion": True}}


def score(model_path):
    from pathlib import Path

    return [{"files": len(list(Path(model_path).iterdir()))}]


def uses_its_module(model_path):
    return {"gates": len(BETTER), "path": len(model_path)}


def needs_more(model_path, rows):
    return {"rows": len(rows), "path": len(model_path)}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"tasks": []}, "tasks is required: name tasks of lm-evaluation-harness, or give held_out"),
        ({"tasks": ["held_out"], "held_out": "dataset/eval"}, "the metrics of held_out or of the function have this"),
        ({"tasks": ["score"], "function": score}, "the metrics of held_out or of the function have this name"),
        ({"function": lambda path: {}}, "function cannot be <lambda>"),
        ({"champion": {}}, "champion is required: give exactly one of uri, registry and service"),
        ({"champion": {"uri": "hf://a/b", "service": "tickets"}}, "give exactly one of uri, registry and service"),
        ({"champion": {"uri": "models/7"}}, "champion.uri cannot be 'models/7': it must be a URI"),
        ({"champion": {"uri": "oci://acme/tickets:7"}}, "it must be on the workspace's own PVC, or at an address"),
        ({"champion": {"uri": "pvc://other/models/7"}}, "it must be on the workspace's own PVC, or at an address"),
        ({"champion": {"service": "tickets"}, "champion_path": "champion"}, "only one of champion and champion_path"),
        ({"function": uses_its_module}, "function cannot be uses_its_module: it uses BETTER from its module"),
        (
            {"function": needs_more},
            "function cannot be 'needs_more': it must accept the path or address of a model",
        ),
        ({"function": "score"}, "function cannot be 'score': it must be the text of one function"),
        ({"function": score, "gates": {"scores/acc": {"minimum": 1}}}, "with one of the tasks: tickets, score"),
        ({"held_out": "/workspace/"}, "held_out cannot be '/workspace/': it must be a path below /workspace"),
        ({"gates": {"held_out/loss": {"maximum": 1}}}, "it must be TASK/METRIC with one of the tasks: tickets"),
        ({"validation_file": "x"}, "did you mean held_out?"),
        ({"tasks": ["arc_easy,mmlu"]}, "it must be the name of a task of lm-evaluation-harness, such as arc_easy"),
        ({"gates": {"other/acc": {"minimum": 1}}}, "it must be TASK/METRIC with one of the tasks: tickets"),
        ({"gates": {"tickets": {"minimum": 1}}}, "it must be TASK/METRIC with one of the tasks: tickets"),
        ({"gates": {"tickets/acc": {}}}, "gates.tickets/acc is required: give minimum, maximum, "),
        ({"gates": {"tickets/acc": {"minimum": float("nan")}}}, "gates.tickets/acc.minimum cannot be nan"),
        ({"gates": BETTER}, "champion_path is required: the gate of tickets/acc compares with it"),
        ({"gates": BETTER, "champion_path": "/workspace/export"}, "it must be another folder than model_path"),
        ({"allow_missing_champion": True}, "champion_path is required: allow_missing_champion is about it"),
        ({"model_path": "output/epoch_0"}, "export the training's checkpoint first"),
        ({"champion_path": "../x"}, "it must be a path below /workspace, without '..' and '='"),
        ({"model_path": "/workspace/"}, "it must be a path below /workspace, such as export"),
        ({"output_path": "dataset/results"}, "another step writes /workspace/dataset; name another folder"),
        ({"program": "image"}, "name one with trainjob"),
        ({"confidence": 1}, "confidence cannot be 1"),
        ({"model": "x"}, "did you mean model_path?"),
        ({"dtype": "bf16"}, "did you mean precision?"),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_allowed(fields, problem):
    with pytest.raises(InvalidSpec) as refused:
        Evaluate(**{"workspace": "tickets", "tasks": ["tickets"], **fields})
    assert problem in str(refused.value)


def test_held_out_rows_need_no_task():
    gates = {"held_out/loss": {"maximum": 2, "not_worse_than_champion": 0.1}}
    fields = {"held_out": "/workspace/dataset/eval", "champion_path": "champion", "gates": gates}
    arguments = to_trainjob(Evaluate(workspace="tickets", **fields)).trainer.args
    assert "--task" not in arguments
    assert arguments[arguments.index("--held-out") + 1] == "/workspace/dataset/eval"


def test_a_champion_elsewhere_needs_what_finds_and_fetches_it():
    def options(**champion):
        job = to_trainjob(Evaluate(workspace="tickets", tasks=["tickets"], champion=champion))
        words = list(job.trainer.args)
        return job, json.loads(words[words.index("--champion-source") + 1]), words[words.index("--claim") + 1]

    job, source, claim = options(service="tickets")
    assert (source["service"], source["service_kind"], claim) == ("tickets", "InferenceService", "tickets")
    assert job.placement.service_account_name == "trainjob-promotion"
    registry = {"server": "https://registry.example.org", "model": "tickets", "secret": "registry"}
    job, source, _ = options(registry=registry, alias="staging")
    assert source["registry"] == {"server": "https://registry.example.org", "model": "tickets"}
    assert (source["alias"], job.placement) == ("staging", None)
    assert job.trainer.env["REGISTRY_TOKEN"].name == "registry"
    job, source, _ = options(uri="s3://acme/models/7", endpoint="https://minio.example.org")
    assert (source["uri"], job.trainer.env["ENDPOINT"]) == ("s3://acme/models/7", "https://minio.example.org")
    assert max(len(word) for word in (*job.trainer.command, *job.trainer.args)) < 65_536


def test_a_tracker_is_no_part_of_the_request():
    plain = Evaluate(workspace="tickets", tasks=["tickets"], champion_path="champion")
    mlflow = {"backend": "mlflow", "tracking_uri": "https://mlflow.example.org", "parameters": {"night": "monday"}}
    tracked = Evaluate(workspace="tickets", tasks=["tickets"], champion_path="champion", tracking=mlflow)
    assert spec_hash(plain) == spec_hash(tracked)
    job = to_trainjob(tracked)
    assert job.tracking.parameters == {"model": "export", "champion": "champion", "night": "monday"}
    assert ("--tracked" in job.trainer.args, "--tracked" in to_trainjob(plain).trainer.args) == (True, False)


def test_a_function_is_sent_as_text_which_identifies_the_request():
    step = Evaluate(workspace="tickets", function=score, gates={"score/files": {"minimum": 3}})
    arguments = to_trainjob(step).trainer.args
    assert "--task" not in arguments
    name, _, source = arguments[arguments.index("--function") + 1].partition(":")
    namespace = {}
    exec(base64.b64decode(source), namespace)  # noqa: S102 - the text of the function above
    assert namespace[name](str(Path(__file__).parent))[0]["files"] > 3
    text = yaml.safe_dump({"step": "Evaluate", "workspace": "tickets", "function": inspect.getsource(score)})
    [parsed] = parse_documents(text, "file").requests
    sent = to_trainjob(parsed).trainer.args
    assert sent[sent.index("--function") + 1].startswith("score:")
    other = Evaluate(workspace="tickets", function=inspect.getsource(score).replace("len(", "2 * len("))
    plain = Evaluate(workspace="tickets", function=score)
    assert spec_hash(plain) == spec_hash(parsed) != spec_hash(other)


TEXT = """
step: Evaluate
workspace: tickets
tasks: [tickets, "gsm8k"]
model_path: /workspace/candidate
champion_path: champion
task_path: dataset/tasks
chat_template: true
limit: 100
num_fewshot: 0
generation: {max_gen_toks: 64}
resources: {gpu: 1}
gates:
  tickets/exact_match: {minimum: 0.9, not_worse_than_champion: 0}
  gsm8k/exact_match,strict-match: {better_than_champion: true}
"""


def test_the_pod_gets_all_fields_as_arguments():
    [step] = parse_documents(TEXT, "file").requests
    job = to_trainjob(step)
    arguments = [*job.trainer.args]
    assert arguments.count("--task") == 2
    assert arguments[-1] == "--chat-template"
    options = dict(zip(arguments[:-1:2], arguments[1:-1:2], strict=True))
    assert options == {
        "--model": "/workspace/candidate",
        "--champion": "/workspace/champion",
        "--task-folder": "/workspace/dataset/tasks",
        "--output": "/workspace/evaluation",
        "--workspace": "/workspace",
        "--limit": "100",
        "--num-fewshot": "0",
        "--generation": '{"max_gen_toks": 64}',
        "--batch-size": "8",
        "--precision": "auto",
        "--seed": "0",
        "--gates": '{"gsm8k/exact_match,strict-match": {"better_than_champion": true}, '
        '"tickets/exact_match": {"minimum": 0.9, "not_worse_than_champion": 0.0}}',
        "--confidence": "0.95",
        "--task": "gsm8k",
    }
    assert job.model_check.folders == ("/workspace/candidate",)  # the champion is of another run
    assert to_trainjob(step.model_copy(update={"any_run": True})).model_check is None
    [container] = [build_trainjob(job, name="e-1", namespace="team")["spec"]["trainer"]]
    assert container["numNodes"] == 1
    assert all(len(word) < 65_536 for word in [*container["command"], *container["args"]])


def test_the_last_line_is_the_result_of_the_step():
    assert parse_step_result('evaluate: done {"passed": false}') == {"passed": False}

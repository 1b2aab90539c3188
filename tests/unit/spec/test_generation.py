"""The step Generate: its rules, and the TrainJob that runs it."""

from __future__ import annotations

import pytest

from trainjob import Generate, InvalidSpec
from trainjob.manifest import build_trainjob
from trainjob.manifest.request_parser import parse_documents
from trainjob.manifest.steps import to_trainjob
from trainjob.status import parse_step_result


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"input_path": "/workspace/"}, "input_path cannot be '/workspace/': it must be a path below /workspace"),
        ({"input_path": "../x"}, "it must be a path below /workspace, without '..' and '='"),
        ({"model_path": "output/epoch_0"}, "export the training's checkpoint first"),
        ({"output_path": "dataset/answers"}, "another step writes /workspace/dataset; name another folder"),
        ({"input_path": "rows", "output_path": "rows/answers"}, "neither it nor input_path may contain the other"),
        ({"input_path": "answers/a.jsonl", "output_path": "answers"}, "neither it nor input_path may contain the"),
        ({"output_path": "export"}, "neither it nor model_path may contain the other"),
        ({"generation": {"num_return_sequences": 2}}, "each row has one answer: leave it out"),
        ({"engine": "vllm"}, "image is required: engine='vllm' needs an image with vLLM"),
        ({"engine": "tgi"}, "engine cannot be 'tgi'"),
        ({"num_nodes": 0}, "num_nodes cannot be 0"),
        ({"program": "image"}, "name one with trainjob"),
        ({"dataset_path": "x"}, "did you mean input_path?"),
        ({"sampling_params": {}}, "did you mean generation?"),
    ],
)
def test_a_wrong_request_is_refused_with_what_is_allowed(fields, problem):
    with pytest.raises(InvalidSpec) as refused:
        Generate(**{"workspace": "tickets", "input_path": "dataset/eval", **fields})
    assert problem in str(refused.value)


TEXT = """
step: Generate
workspace: tickets
input_path: /workspace/dataset/eval
model_path: candidate
output_path: rows/answers
generation: {max_new_tokens: 64}
chat_template: true
limit: 100
num_nodes: 4
resources: {gpu: 1}
"""


def test_the_pods_get_all_fields_as_arguments():
    [step] = parse_documents(TEXT, "file").requests
    job = to_trainjob(step)
    arguments = [*job.trainer.args]
    assert arguments[-1] == "--chat-template"
    assert dict(zip(arguments[:-1:2], arguments[1:-1:2], strict=True)) == {
        "--model": "/workspace/candidate",
        "--rows": "/workspace/dataset/eval",
        "--output": "/workspace/rows/answers",
        "--engine": "transformers",
        "--generation": '{"max_new_tokens": 64}',
        "--limit": "100",
        "--batch-size": "8",
        "--precision": "auto",
        "--seed": "0",
    }
    assert job.model_check.folders == ("/workspace/candidate",)
    assert to_trainjob(step.model_copy(update={"any_run": True})).model_check is None
    [container] = [build_trainjob(job, name="g-1", namespace="team")["spec"]["trainer"]]
    assert container["numNodes"] == 4
    assert all(len(word) < 65_536 for word in [*container["command"], *container["args"]])


def test_the_last_line_of_node_0_is_the_result_of_the_step():
    assert parse_step_result('generate: done {"rows": 3}') == {"rows": 3}
    assert parse_step_result("generate: all shards are finished") is None

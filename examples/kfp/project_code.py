"""Train with the code of a project on two nodes, without building an image.

    project_code.py compile OUT.yaml
    project_code.py run

The folder `line_fit` is the project. Its files are packed into the pipeline when it is compiled. `train` starts a
module of the project under torchrun. The function `check` imports another one. For GPUs, call
`set_accelerator_type("nvidia.com/gpu").set_accelerator_limit(8)` on the task, and replace `"gloo"` in
`line_fit/train.py` by `"nccl"`.
"""

from pathlib import Path
from typing import NamedTuple

from kfp import dsl
from tickets_llm import main

from trainjob_kfp import train
from trainjob_kfp.image import BASE_IMAGE

PROJECT = str(Path(__file__).resolve().parents[1] / "airflow" / "line_fit")


@dsl.component(base_image=BASE_IMAGE, install_kfp_package=False)
def read_line(result: str) -> NamedTuple("Line", [("weight", float), ("bias", float)]):
    """Return the values that the module printed, which the step has as JSON."""
    import json

    learned = json.loads(result)
    return learned["weight"], learned["bias"]


def check(weight: float, bias: float):
    from points import measure_error

    print(f"the learned line is at most {measure_error(weight, bias):.2g} away from the points")


@dsl.pipeline(name="project-code")
def project_code():
    trained = train(code=PROJECT, module="train", args=["--steps", "100"], num_nodes=2)
    line = read_line(result=trained.outputs["result"])
    given = {"weight": line.outputs["weight"], "bias": line.outputs["bias"]}
    train(function=check, function_args=given, code=PROJECT)


if __name__ == "__main__":
    main(project_code, __doc__)

"""A pipeline with a training whose last rank fails: pipeline.py FOLDER FAULT PROCESSES_PER_NODE."""

import sys

from kfp import dsl, local

from tests.support import gloo_faults
from trainjob_kfp import source, train


@dsl.pipeline  # type: ignore[untyped-decorator]
def failing(fault: str, per_node: int) -> None:
    train(
        function=source(gloo_faults.train),
        function_args={"fault": fault},
        num_nodes=2,
        num_proc_per_node=per_node,
        watchdog={"silence": "5s", "action": "fail"},
    )


if __name__ == "__main__":
    folder, fault, per_node = sys.argv[1:]
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=folder, raise_on_error=True)
    failing(fault=fault, per_node=int(per_node))

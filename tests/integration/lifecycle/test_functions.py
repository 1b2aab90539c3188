"""Tests of a Python function and a container as TrainJobs, with real torchrun on two nodes."""

from __future__ import annotations

import signal

import pytest

from trainjob import CustomTrainer, CustomTrainerContainer, RunKey, TrainJob, submit, wait
from trainjob.errors import InstallationFailed
from trainjob.lifecycle import Listener
from trainjob.status import Category, parse_step_result


def add_up_ranks(greeting):
    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    total = torch.tensor([torch.distributed.get_rank() + 1.0])
    torch.distributed.all_reduce(total)
    print(f"{greeting}: {int(total)} of {torch.distributed.get_world_size()}")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
def test_a_function_runs_with_torchrun_on_two_nodes(cluster, unique, evidence):
    trainer = CustomTrainer(
        func=add_up_ranks, func_args={"greeting": "$HOME `id` $(X)"}, num_nodes=2, num_proc_per_node=1
    )
    lines = []
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "functions", unique, "run-1"))
    outcome = wait(cluster, reference, listener=Listener(on_log=lines.append))
    outcome.raise_for_failure()
    assert {str(line) for line in lines} >= {f"[node-{rank}] $HOME `id` $(X): 3 of 2" for rank in (0, 1)}
    for row in ("Python function", "PyTorch DDP/FSDP"):
        evidence("features", row=row, cell="real run")


def lose_rank_1(exit_code):
    import os

    import torch
    import torch.distributed

    torch.distributed.init_process_group("gloo")
    if torch.distributed.get_rank() == 1:
        os.kill(os.getpid(), -exit_code) if exit_code < 0 else os._exit(exit_code)
    torch.distributed.all_reduce(torch.tensor([1.0]))  # fails, because rank 1 is gone


@pytest.mark.slow
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
@pytest.mark.parametrize(
    ("exit_code", "category", "reason"),
    [
        (-signal.SIGKILL, Category.OUT_OF_MEMORY, "rank 1 was ended by SIGKILL, as Linux ends a process if memory is"),
        (-signal.SIGSEGV, Category.APPLICATION, "rank 1 was ended by SIGSEGV"),
        (99, Category.APPLICATION, ""),
    ],
)
def test_a_lost_process_is_named_although_torchrun_ends_with_1(cluster, unique, exit_code, category, reason):
    trainer = CustomTrainer(func=lose_rank_1, func_args={"exit_code": int(exit_code)}, num_proc_per_node=2)
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "functions", unique, "run-1"))
    outcome = wait(cluster, reference)
    assert (outcome.rank, outcome.exit_code) == (0, 1)
    assert outcome.first_failure == (1, exit_code), outcome.explain()
    assert outcome.category is category
    assert f"step node, rank 1, exit code {exit_code}: {reason}" in outcome.explain()


ASCII = [chr(code) for code in range(1, 128)]
HOSTILE = [
    *(
        "$HOME",
        "$(HOME)",
        "$$(HOME)",
        "$$$(HOME)",
        "${HOME}",
        "`id`",
        "$(id)",
        "'",
        '"',
        "'\"'",
        '"""',
        "\\",
        "\\n",
        "a\nb",
    ),
    *(
        "{}",
        "{0}",
        "{name}",
        "%s",
        "!!",
        "~",
        "*",
        "# x",
        "; true",
        "&& true",
        "| cat",
        "--help",
        "-",
        " ",
        "",
        "\t \r",
    ),
    *("\u2028\u2029", "é ß 語 🜁", "null", "true", "1e400", "</script>", "".join(ASCII), "x" * 5_000),
]


def return_arguments(texts, table):
    import os

    return {"texts": texts, "table": table, "variables": [os.environ[f"HOSTILE_{i}"] for i in range(len(texts))]}


def test_the_function_gets_its_arguments_and_variables_unchanged(cluster, unique):
    """The values pass the API, the kubelet's expansion of $(NAME), and the log of rank 0."""
    table = {text: [index, {"": None}] for index, text in enumerate(HOSTILE)}
    env = {f"HOSTILE_{index}": text for index, text in enumerate(HOSTILE)}
    arguments = {"texts": HOSTILE, "table": table}
    trainer = CustomTrainer(func=return_arguments, func_args=arguments, env=env, num_nodes=2)
    lines = []
    job = TrainJob(
        trainer=trainer, runtime="jax-distributed"
    )  # this runtime runs the function with Python instead of torchrun
    reference = submit(cluster, job, RunKey("test", "functions", unique, "run-1"))
    wait(cluster, reference, listener=Listener(on_log=lines.append)).raise_for_failure()
    [result] = [found["result"] for line in lines if (found := parse_step_result(line.text))]
    assert result == {**arguments, "variables": HOSTILE}


PROGRAM = "import json, os, sys; print('trainjob result: ' + json.dumps([sys.argv[1:], os.environ['A']]))"


def test_a_container_gets_its_command_its_arguments_and_its_environment(cluster, unique, evidence):
    """Kubernetes expands only $(NAME) in a command and its arguments."""
    trainer = CustomTrainerContainer(
        image="python:3.12-slim",
        command=("python", "-c", PROGRAM),
        args=("$(A)", "$$(A)", "$A", "`id`", "a 'b' \"c\"", "$(NOBODY)"),
        env={"A": "the $(B) value"},
    )
    lines = []
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "containers", unique, "run-1"))
    wait(cluster, reference, listener=Listener(on_log=lines.append)).raise_for_failure()
    value = "the $(B) value"
    expected = [[value, "$(A)", "$A", "`id`", "a 'b' \"c\"", "$(NOBODY)"], value]
    assert [parse_step_result(line.text) for line in lines] == [{"result": expected}]
    evidence("features", row="container", cell="real run")


def test_packages_that_cannot_be_installed_are_an_error_of_their_own(cluster, unique):
    """The image's Python has no pip, and no index is at this address."""
    trainer = CustomTrainer(
        func=add_up_ranks,
        func_args={"greeting": "hello"},
        packages_to_install=("no-such-package",),
        pip_index_urls=("http://127.0.0.1:9/simple",),
    )
    outcome = wait(cluster, submit(cluster, TrainJob(trainer=trainer), RunKey("test", "functions", unique, "run-1")))
    assert outcome.category is Category.INSTALLATION
    with pytest.raises(InstallationFailed, match="packages could not be installed: pip ended with 1") as raised:
        outcome.raise_for_failure()
    assert raised.value.retryable

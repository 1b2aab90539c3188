"""Trainings whose request changes between two attempts, in fields that do not decide the weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.interrupted_trainings import assert_same_weights
from trainjob import Outcome, Placement
from trainjob.spec import FrameworkConfig

__all__ = ["CHANGES", "check_changes"]

SHM = {"name": "shm", "mount_path": "/dev/shm", "source": {"emptyDir": {"medium": "Memory"}}}
# Changes of the request before the second, third and fourth attempt; each attempt has those before it, too.
CHANGES: tuple[Mapping[str, Any], ...] = (
    {"deadline": timedelta(hours=1), "queue": "other", "labels": {"team": "b"}},
    {"env": {"NCCL_DEBUG": "INFO"}, "volumes": [SHM]},
    {"placement": Placement(tolerations=[{"key": "spot", "operator": "Exists"}]), "max_restarts": 1},
)


def check_changes(
    run_training: Callable[..., tuple[Outcome, list[str]]],
    workspace: Path,
    environment: Mapping[str, str],
    build_config: Callable[..., FrameworkConfig],
    attempts: Iterable[tuple[str, Mapping[str, Any], str]],
    compare: Callable[[Path, Path], None] = assert_same_weights,
    env: Mapping[str, str] | None = None,
    **next_fields: Any,
) -> None:
    """Kill a training after each of three saves, and change its request each time.

    The last attempt ends with the weights of an unbroken training.

    Args:
        run_training: the fixture.
        workspace: folder of the workspace.
        environment: the fixture `killing_environment`.
        build_config: function that returns the configuration, from fields that change.
        attempts: for each of the four attempts: the file at which it is killed, the changed fields of the
            configuration, and the start of the line that says from where it continues; empty for the first attempt.
        compare: function that compares the output folders of both trainings.
        env: variables of all attempts.
        **next_fields: further fields of the step that all attempts but the first have.
    """
    outcome, _ = run_training("unbroken", build_config(), env=env)
    outcome.raise_for_failure()
    changed: dict[str, Any] = {}
    config: dict[str, Any] = {}
    killed = Path(environment["KILLED"])
    for number, (kill_at, config_fields, start) in enumerate(attempts):
        changed |= {**CHANGES[number - 1], **next_fields} if number else {}
        config |= config_fields
        killed.unlink(missing_ok=True)
        variables = {**(env or {}), **environment, "KILL_AT": kill_at or "nothing", **changed.get("env", {})}
        outcome, lines = run_training("broken", build_config(**config), **{**changed, "env": variables})
        assert (outcome.succeeded, killed.exists()) == (not kill_at, bool(kill_at)), lines[-20:]
        starts = [line for line in lines if line.startswith(("continues from ", "starts from the beginning"))]
        assert [line.startswith(start) for line in starts] == [True] * bool(start), (number, starts)
    compare(workspace / "output" / "unbroken", workspace / "output" / "broken")

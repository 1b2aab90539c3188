"""`trainjob check`: report what works for TrainJobs in a namespace, and what to fix."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated, Any

import typer
from rich.markup import escape

from trainjob.cli import completion, terminal
from trainjob.errors import ClusterError, ExitCode
from trainjob.inspection.check import CheckResult, Grade, can_run_trainjobs, check_namespace
from trainjob.spec.job import STOCK_RUNTIME
from trainjob.status.permissions import build_roles
from trainjob.status.platform_facts import PlatformFacts

__all__ = ["check"]

_COLORS = {Grade.OK: "green", Grade.WARNING: "yellow", Grade.FAILED: "bold red", Grade.UNKNOWN: "cyan"}
_USER_PLACEHOLDER = "YOUR_NAME"


def check(
    namespace: Annotated[str, completion.NAMESPACE] = "",
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Say what works for TrainJobs in a namespace, and what to fix.

    Nothing is changed: TrainJobs are only tried (dryRun). The exit code is 0 when TrainJobs can run there, else 1.
    With `--json`: `server`, `namespace`, `can_run`, `rows`, each with `name`, `grade` (`ok`, `warning`, `failed`,
    `unknown`), `text` and `advice`, and `grants`, the Roles and bindings that are missing.

    Args:
        namespace: which; empty for the kubeconfig's own.
        as_json: for programs.

    Raises:
        ClusterError: the cluster can't be asked at all.
    """
    with terminal.open_cluster() as cluster:
        platform = cluster.platform.inspect(namespace or cluster.namespace, STOCK_RUNTIME)
    found = check_namespace(platform, datetime.now(timezone.utc))
    grants = _grants(platform)
    if as_json:
        told = {"server": platform.server, "namespace": platform.namespace, "can_run": can_run_trainjobs(found)}
        terminal.print_json({**told, "rows": [row.to_dict() for row in found], "grants": grants})
    else:
        _print_report(platform, found, grants)
    if not can_run_trainjobs(found):
        raise typer.Exit(ExitCode.FAILED)


def _grants(platform: PlatformFacts) -> list[dict[str, Any]]:
    if isinstance(platform.denied_permissions, ClusterError):
        return []
    return build_roles(platform.denied_permissions, platform.user or _USER_PLACEHOLDER, platform.namespace)


def _print_report(platform: PlatformFacts, rows: Sequence[CheckResult], grants: Sequence[dict[str, Any]]) -> None:
    console = terminal.console()
    width = max(len(row.name) for row in rows)
    for row in rows:
        grade = f"[{_COLORS[row.grade]}]{row.grade.value:<7}[/]"
        console.print(f"{grade}  {row.name:<{width}}  {escape(row.text)}")
        if row.advice:
            console.print(f"{'':<{width + 11}}-> {escape(row.advice)}")
    console.print()
    if can_run_trainjobs(rows):
        console.print(f"TrainJobs can run in namespace {escape(platform.namespace)}.")
    else:
        console.print(
            f"[bold red]TrainJobs can't run in namespace {escape(platform.namespace)}:[/] fix what has failed."
        )
    if grants:
        console.print("\n# What may be granted, by who may do so: kubectl apply -f FILE")
        terminal.print_yaml(*grants)

"""`trainjob check`: report what works for TrainJobs in a namespace, and what to fix."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated, Any

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.terminal import escape
from trainjob.errors import ClusterError, ExitCode
from trainjob.inspection.check import can_run_trainjobs, check_namespace
from trainjob.inspection.check_result import CheckResult, Grade
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
    """Check whether TrainJobs can run in a namespace, and report what to fix.

    The command changes nothing: it only tests whether the API server would accept a TrainJob (dryRun). The exit code is
    0 if TrainJobs can run in the namespace, otherwise 1.

    With --json: an object with server, namespace, can_run, rows (each with name, grade, text and advice) and grants.
    `grade` is "ok", "warning", "failed" or "unknown". `grants` has the missing Roles and bindings.
    """
    with terminal.open_cluster() as cluster:
        platform = cluster.inspect_platform(namespace or cluster.namespace, STOCK_RUNTIME)
    found = check_namespace(platform, datetime.now(timezone.utc))
    grants = _grants(platform)
    if as_json:
        report = {"server": platform.server, "namespace": platform.namespace, "can_run": can_run_trainjobs(found)}
        terminal.print_json({**report, "rows": [row.to_dict() for row in found], "grants": grants})
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
            f"[bold red]TrainJobs can't run in namespace {escape(platform.namespace)}:[/] fix the failed checks above."
        )
    if grants:
        console.print("\n# Missing permissions; an administrator can grant them with: kubectl apply -f FILE")
        terminal.print_yaml(*grants)

"""Generator of docs/evidence/sessions.md: real terminal output of the command and the demo.

Usage: record.py [FILE]

It runs the demo on a terminal of its own and runs commands on other terminals meanwhile, as a user would. Times, ages,
IDs and random names are replaced, so that two records differ only in measured values.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from tests.support.polling import wait_until
from tests.support.pseudo_terminal import PseudoTerminal
from tools.evidence.measurement import describe_measurement
from tools.sessions.screen import render

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "evidence" / "sessions.md"
OLD_JOB = Path("tests/unit/migrate/cases/pytorch/guide.yaml")
KUBECONFIG = ROOT / ".cache" / "demo" / "cluster-airflow" / "kubeconfig"
TRAINJOB = [str(Path(sys.executable).with_name("trainjob"))]
# As `make demo`.
DEMO_OPTIONS = [f"--state={ROOT / '.cache' / 'demo'}"] + [
    f"--environment={name}={ROOT / '.venv' / name}" for name in ("initializer", "torchtune", "airflow")
]
HEAD = """# Terminal sessions

See what the demo and the command `trainjob` print in a terminal. `make sessions` records it. An Airflow DAG
initializes, fine-tunes and exports a tiny model on a laptop cluster, while a user runs commands in other terminals.
Times, ages, IDs and random names are replaced.

Recorded: {measurement}.
"""
MIGRATE = (
    ("Convert a PyTorchJob", ["migrate", "convert", str(OLD_JOB)]),
    ("Compare a PyTorchJob with its TrainJob", ["migrate", "diff", str(OLD_JOB)]),
    ("Report the result for each field", ["migrate", "report", str(OLD_JOB)]),
)
_LOSS = re.compile(r"loss [0-9.]+")
_REPLACED: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)"), "2026-01-01T00:00:00Z"),
    (re.compile(r"(?<=[a-z0-9]-)[0-9a-f]{8}(?=[-\s:/]|$)", re.M), "1a2b3c4d"),
    (re.compile(r"(-node-0-\d+)-[a-z0-9]{5}\b"), r"\1-x7k2m"),
    (
        re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
        "00000000-0000-0000-0000-000000000000",
    ),
    (re.compile(r"\b[0-9a-f]{16}-[0-9a-f]{16}\b"), "1a2b3c4d5e6f7a8b-1a2b3c4d5e6f7a8b"),
    (re.compile(r"(?<=\s)\d+[smh](?=  )"), lambda age: "5s".ljust(len(age[0]))),  # in a table
    (re.compile(r"(?<=\s)\d+[smh](?=[\s,]|$)", re.M), "5s"),
    (re.compile(r"\b\d:\d\d:\d\d\b"), "0:00:05"),
    (re.compile(r"(?<=\s)\s*\d+\.\d s$", re.M), " 5.0 s"),
    (re.compile(r"(?<=127\.0\.0\.1:)\d+"), "40000"),
    (re.compile(r"(?<=-workspace-)[0-9a-f]{10}(?:_[0-9a-f]{8})?"), "1a2b3c4d5e"),
    (re.compile(re.escape(f"{ROOT}/")), ""),
)


def replace_varying(text: str) -> str:
    """Return a session without varying texts and trailing blanks."""
    for pattern, replacement in _REPLACED:
        text = pattern.sub(replacement, text)
    return re.sub(r" +$", "", text, flags=re.M)


def format_session(title: str, typed: str, text: str) -> str:
    """Format a session as a section of the page."""
    return f"\n## {title}\n\n```console\n$ {typed}\n{replace_varying(text).rstrip()}\n```\n"


def record_migrate() -> str:
    """Return the sessions of `trainjob migrate`, which need no cluster."""
    parts = []
    for title, arguments in MIGRATE:
        environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
        done = subprocess.run(
            [*TRAINJOB, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        parts.append(format_session(title, " ".join(["trainjob", *arguments]), done.stdout or done.stderr))
    return "".join(parts)


def open_terminal(*arguments: str) -> PseudoTerminal:
    """Run the command on a terminal of its own, with the demo's cluster."""
    return PseudoTerminal([*TRAINJOB, *arguments], {**os.environ, "KUBECONFIG": str(KUBECONFIG)})


def run_in_terminal(*arguments: str) -> str:
    """Run a command to its end, and return its terminal output."""
    terminal = open_terminal(*arguments)
    try:
        terminal.wait_for_exit(60)
        return render(terminal.output)
    finally:
        terminal.close()


def list_phases() -> dict[str, str]:
    """Return the phases of the demo's TrainJobs by name.

    The result is empty if the command fails.
    """
    environment = {**os.environ, "KUBECONFIG": str(KUBECONFIG)}
    done = subprocess.run([*TRAINJOB, "list", "--json"], env=environment, capture_output=True, text=True, check=False)
    return {job["name"]: job["phase"] for job in json.loads(done.stdout)} if done.returncode == 0 else {}


def wait_for_job(task: str, phases: Sequence[str]) -> str:
    """Wait at most 400 s until a task's TrainJob is in a phase, and return its name."""
    return wait_until(
        lambda: next((n for n, phase in list_phases().items() if n.startswith(task) and phase in phases), None), 400
    )


def record_demo() -> str:
    """Return the sessions of the demo and of the commands that observe it."""
    KUBECONFIG.unlink(missing_ok=True)  # of the previous demo
    demo = PseudoTerminal([*TRAINJOB, "demo", *DEMO_OPTIONS], dict(os.environ))
    try:
        tuning = wait_for_job("fine-tune", ("Running",))
        watch = open_terminal("watch")
        wait_until(lambda: len(set(_LOSS.findall(watch.output))) > 4, 120)  # wait for some progress of the training
        middle = render(watch.output)
        listed = run_in_terminal("list")
        wait_for_job("fine-tune", ("Complete",))
        described = run_in_terminal("describe", tuning)
        os.kill(watch.process.pid, signal.SIGINT)
        watch.close()
        checked = run_in_terminal("check")
        if demo.wait_for_exit(300):
            raise SystemExit(render(demo.output))
    finally:
        demo.close()
    parts = (
        ("The demo", "make demo", render(demo.output)),
        ("List TrainJobs", "trainjob list", listed),
        ("Watch active TrainJobs", "trainjob watch", middle),
        ("Describe a TrainJob", f"trainjob describe {tuning}", described),
        ("Check a namespace", "trainjob check", checked),
    )
    return "".join(format_session(title, replace_varying(what), text) for title, what, text in parts)


def main() -> None:
    page = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    page.write_text(
        HEAD.format(measurement=describe_measurement("make sessions")) + record_demo() + record_migrate(),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()

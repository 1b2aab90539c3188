"""Run each case that is marked flaky 20 times and print its failure rate: `python tests/flaky.py`.

A case is marked `@pytest.mark.flaky(reason="...", since="2026-11-22")` only if it can't be made reliable, for example
because two controllers that are not this project's race with each other. CI leaves such cases out.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 20
MAX_FLAKY_CASES = 5
_ENVIRONMENTS = {
    "airflow": (
        "tests/integration/airflow",
        "tests/e2e/airflow",
        "tests/chaos/airflow_kills",
        "tests/chaos/crash_points/airflow",
    ),
    "kfp": ("tests/integration/kfp", "tests/chaos/kfp_pods", "tests/chaos/crash_points/kfp"),
}


@dataclass(frozen=True)
class FlakyCase:
    """A test function that is marked flaky.

    Attributes:
        file: the test file, relative to the repository.
        name: the function, as `test_name`.
        reason: why it can't be made reliable.
        since: the day on which it was marked.
    """

    file: str
    name: str
    reason: str
    since: date


def find_flaky_cases(source: str, file: str) -> Iterator[FlakyCase]:
    """Yield the test functions of a file that are marked flaky.

    Args:
        source: the file's text.
        file: its path, for the result and for errors.

    Raises:
        ValueError: a mark lacks `reason` or `since`, `since` is not a date, or the mark is not a decorator of a test
            function.
    """
    found = 0
    for function in ast.walk(tree := ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in function.decorator_list:
            if ast.unparse(mark).startswith("pytest.mark.flaky"):
                given = {word.arg: ast.literal_eval(word.value) for word in getattr(mark, "keywords", [])}
                if not given.get("reason") or not given.get("since"):
                    raise ValueError(f"{file}::{function.name}: the flaky mark needs reason= and since=")
                found += 1
                yield FlakyCase(file, function.name, given["reason"], date.fromisoformat(given["since"]))
    if found != sum(isinstance(node, ast.Attribute) and node.attr == "flaky" for node in ast.walk(tree)):
        raise ValueError(f"{file}: mark the test function itself flaky, not the module or a parameter")


def find_all_flaky_cases() -> list[FlakyCase]:
    """Return the marked cases of all tests, in the order of their files."""
    sources = {file: file.read_text() for file in sorted((ROOT / "tests").rglob("test_*.py"))}
    marked = {file: text for file, text in sources.items() if "flaky" in text}  # parsing all files takes seconds
    return [case for file, text in marked.items() for case in find_flaky_cases(text, str(file.relative_to(ROOT)))]


def _environment(file: str) -> str:
    return next((name for name, folders in _ENVIRONMENTS.items() if file.startswith(folders)), "core")


def _count_failures(case: FlakyCase) -> int:
    """Run the case in a fresh process each time, and count the runs that failed."""
    pytest = ROOT / ".venv" / _environment(case.file) / "bin" / "pytest"
    backend = ["--backend", "controlplane-2.3"] if case.file.startswith("tests/conformance") else []
    command = [str(pytest), "-q", "--no-header", f"{case.file}::{case.name}", *backend]
    return sum(subprocess.run(command, cwd=ROOT).returncode != 0 for _ in range(RUNS))


def main() -> int:
    """Print a line for each case; the exit code is 1 if more cases are marked than allowed."""
    cases = find_all_flaky_cases()
    for case in cases:
        print(f"{case.file}::{case.name}: since {case.since}: {case.reason}", flush=True)
        print(f"{case.file}::{case.name}: failed in {_count_failures(case)} of {RUNS} runs", flush=True)
    print(f"{len(cases)} cases are marked flaky; at most {MAX_FLAKY_CASES} may be")
    return int(len(cases) > MAX_FLAKY_CASES)


if __name__ == "__main__":
    sys.exit(main())

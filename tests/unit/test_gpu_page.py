"""Tests of the generator of docs/evidence/gpu.md, and of the list of wheels for it."""

from __future__ import annotations

import ast

import pytest

from tests.support.code_blocks import ROOT
from tools.evidence.measurement import read_ages
from tools.gpu.page import CASES, NEVER_RUN, PAGE, RESULTS, count_failures, read_results, render_page
from tools.gpu.wheels import select_requirements

TEMPLATE = (ROOT / "tools/gpu/page.md").read_text(encoding="utf-8")
PASSED = [{"case": name, "result": "passed", "measured": "1 | 2", "seconds": 3.4, "memory": 2048} for name in CASES]


def results(*rows):
    environment = {"card": "NVIDIA X", "commit": "abcdef0", "date": "2026-11-29"}
    return {"environment": environment, "ratio": 0.9, "rows": [*rows]}


def test_the_page_has_the_recorded_results():
    assert PAGE.read_text(encoding="utf-8") == render_page(TEMPLATE, read_results(RESULTS))


def test_a_page_without_results_says_that_nothing_was_run():
    page = render_page(TEMPLATE, {})
    assert NEVER_RUN in page
    assert page.count("| not run | - | - | - |") == len(CASES)
    assert "passed" not in page


def test_the_page_shows_results_and_environment():
    page = render_page(TEMPLATE, results(*PASSED))
    assert NEVER_RUN not in page
    assert "All cases that were run passed. Measured: commit `abcdef0`, 2026-11-29." in page
    assert [age.record for age in read_ages(PAGE.name, page)] == ["commit `abcdef0`, 2026-11-29"]
    assert page.count("| passed | 1 \\| 2 | 3 s | 2,048 MiB |") == len(CASES)
    assert "| card | NVIDIA X |" in page


@pytest.mark.parametrize(
    ("row", "failures"),
    [
        ({"case": "lora", "result": "**failed**: exit code 1"}, 1),
        ({"case": "lora", "result": "not run: bitsandbytes is not installed"}, 0),
        (None, 1),
    ],
)
def test_a_failed_and_a_forgotten_case_count_as_failures(row, failures):
    rows = [row if each["case"] == "lora" else each for each in PASSED]
    found = results(*filter(None, rows))
    assert count_failures(found) == failures
    assert ("cases failed.**" in render_page(TEMPLATE, found)) == bool(failures)


def test_the_program_has_each_case_of_the_page():
    """The module of the cases imports what needs TRL's packages in other versions, so it is only parsed."""
    tree = ast.parse((ROOT / "tools/gpu/cases.py").read_text(encoding="utf-8"))
    [table] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "CASES"
    ]
    assert [ast.literal_eval(key) for key in table.keys] == list(CASES)


def test_the_wheels_are_those_of_the_machines_python():
    lines = [
        "numpy==2.4.6 ; python_full_version < '3.12' --hash=sha256:a",
        "numpy==2.5.5 ; python_full_version >= '3.12' --hash=sha256:b --hash=sha256:c",
        "trl==1.16.0 --hash=sha256:d",
    ]
    assert list(select_requirements(lines, "3.12", [])) == [
        "numpy==2.5.5 --hash=sha256:b --hash=sha256:c",
        "trl==1.16.0 --hash=sha256:d",
    ]
    assert list(select_requirements(lines, "3.11", ["trl"])) == ["numpy==2.4.6 --hash=sha256:a"]

"""Every code block of the pages is run by a test, or has the reason why it cannot run here."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from tests.support.code_blocks import ALL_BLOCKS, PAGES, ROOT
from tests.support.page_commands import PageCommand, page_steps
from tests.support.page_runs import COMMANDS_OF_OTHER_TESTS, PAGES_OF_OTHER_TESTS, find_runner

# What the machines that run the tests do not have. The reason may go on: `needs a container engine and a registry`.
MISSING = (
    "a GPU",
    "a cloud account",
    "a container engine",
    "access to GitHub",
    "NetworkPolicies",
    "a key file of a Google service account",
    "a cluster with several nodes",
    "an Airflow in a cluster",
    "a Kubeflow Pipelines back end",
    "Argo CD",
    "Flux",
    "the External Secrets Operator",
)


@pytest.mark.parametrize("block", ALL_BLOCKS, ids=str)
def test_a_test_runs_the_block(block):
    """A block that nothing runs needs a test, or the comment `<!-- not run: needs a GPU -->` before it."""
    assert find_runner(block), f"no test runs {block} ({block.language}); see tests/support/page_runs.py"


def test_the_tests_exist():
    runners = Counter(runner for block in ALL_BLOCKS for runner in find_runner(block))
    paths = {runner for runner in runners if runner.startswith("tests/")}
    assert paths | {*COMMANDS_OF_OTHER_TESTS.values()} >= {*PAGES_OF_OTHER_TESTS.values()}
    assert [path for path in sorted(paths) if not (ROOT / path).is_file()] == []
    print(*(f"{number:5} {runner}" for runner, number in runners.most_common()), sep="\n")


def test_the_tables_have_no_old_entries():
    pages = {path.relative_to(ROOT).as_posix() for path in PAGES}
    commands = {name: [one for one in page_steps(name) if isinstance(one, PageCommand)] for name in pages}
    assert [page for page in PAGES_OF_OTHER_TESTS if not commands.get(page)] == []
    others = [one.text for name in pages - {*PAGES_OF_OTHER_TESTS} for one in commands[name]]
    unused = [pattern for pattern in COMMANDS_OF_OTHER_TESTS if not any(re.match(pattern, one) for one in others)]
    assert unused == []


@pytest.mark.parametrize("block", [one for one in ALL_BLOCKS if one.skip_reason], ids=str)
def test_a_block_is_not_run_only_for_what_the_tests_do_not_have(block):
    assert block.skip_reason.startswith(tuple(f"needs {one}" for one in MISSING)), block.skip_reason


def test_the_pages_of_the_demo_show_the_same_commands():
    """tests/integration/packaging/test_installation_page.py runs those of the installation page."""
    ours, other = (
        [step.text for step in page_steps(page) if isinstance(step, PageCommand)]
        for page in ("demo/README.md", "docs/how-to/installation.md")
    )
    assert "\n".join(ours) in "\n".join(other)

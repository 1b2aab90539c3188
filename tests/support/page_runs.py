"""Which test runs each code block of the pages.

tests/integration/docs/test_page_runs.py checks that no block is left out.
"""

from __future__ import annotations

import re

from tests.support.code_blocks import ALL_BLOCKS, PAGES, ROOT, CodeBlock
from tests.support.page_commands import PageCommand, page_steps, parse_commands

__all__ = [
    "BLOCKS_OF_OTHER_TESTS",
    "COMMANDS_OF_OTHER_TESTS",
    "PAGES_OF_OTHER_TESTS",
    "PAGE_SESSIONS",
    "find_runner",
    "session_steps",
]

_SESSIONS = "tests/e2e/docs/test_page_commands.py"
_BLOCKS = "tests/integration/docs/test_pages.py"

PAGES_OF_OTHER_TESTS = {
    "docs/how-to/from-kubeflow-sdk.md": "tests/e2e/docs/test_kubeflow_sdk_page.py",
    "docs/how-to/installation.md": "tests/integration/packaging/test_installation_page.py",
    "docs/how-to/queues.md": "tests/e2e/controlplane/test_queues_page.py",
    "docs/tutorials/every-night.md": "tests/e2e/docs/test_tutorials.py",
    "docs/tutorials/laptop.md": "tests/e2e/docs/test_tutorials.py",
    "docs/tutorials/own-model.md": "tests/e2e/docs/test_tutorials.py",
    "demo/README.md": "tests/integration/packaging/test_installation_page.py",
}
"""Tests that run all commands of a page."""

COMMANDS_OF_OTHER_TESTS = {
    r"make demo(?: |$)": "tests/e2e/demo/test_demo.py",
    # They run the tests themselves. The named targets and files must exist.
    r"make [a-z]+(?: |$)": _BLOCKS,
    r"\.venv/\w+/bin/pytest ": _BLOCKS,
}
"""Tests that run or check single commands of the other pages, by a regular expression that the commands match."""

BLOCKS_OF_OTHER_TESTS = {
    "export_usage.py": "tests/integration/airflow/test_usage_records.py",
    **dict.fromkeys(("digits/model.py", "digits/train.py"), _SESSIONS),
    "digits/requirements.txt": _BLOCKS,
    **dict.fromkeys(
        ("src/line_framework/config.py", "src/line_framework/framework.py", "pyproject.toml"),
        "tests/integration/docs/test_framework_page.py",
    ),
}
"""Tests that run or check single blocks, by the blocks' titles."""

_PYTHON = {
    "core": _BLOCKS,
    "airflow": "tests/integration/airflow/test_pages.py",
    "kfp": "tests/integration/kfp/test_pages.py",
    "kubeflow": PAGES_OF_OTHER_TESTS["docs/how-to/from-kubeflow-sdk.md"],
    "trl": "tests/e2e/docs/test_tutorials.py",
}
_DATA = {"yaml", "json"}
_NOT_CODE = {"mermaid": "a diagram", "text": "output"}
_INSTALLATION = "docs/how-to/installation.md"
_CONTAINERFILES = {one.text for one in ALL_BLOCKS if (one.page, one.language) == (_INSTALLATION, "dockerfile")}


def find_runner(block: CodeBlock) -> set[str]:
    """Return the tests that run a block; an empty set if nothing runs it.

    For a block without code, it contains what the block is.
    """
    if block.skip_reason:
        return {"not run"}
    if block.language == "console":
        return {find_command_runner(command) for command in parse_commands(block)}
    if block.title in BLOCKS_OF_OTHER_TESTS:
        return {BLOCKS_OF_OTHER_TESTS[block.title]}
    if block.language == "python" and block.engine in _PYTHON:
        return {_PYTHON[block.engine]}
    if block.language in _DATA:
        return {_BLOCKS}
    if block.language == "dockerfile":
        return {PAGES_OF_OTHER_TESTS[_INSTALLATION]} if block.text in _CONTAINERFILES else set()
    if block.title:  # a command uses the file
        return {find_command_runner(one) for one in _commands_after(block) if _file_name(block) in one.text}
    return {_NOT_CODE[block.language]} if block.language in _NOT_CODE else set()


def find_command_runner(command: PageCommand) -> str:
    """Return the test that runs a command."""
    if command.page in PAGES_OF_OTHER_TESTS:
        return PAGES_OF_OTHER_TESTS[command.page]
    for pattern, test in COMMANDS_OF_OTHER_TESTS.items():
        if re.match(pattern, command.text):
            return test
    return _SESSIONS


def session_steps(page: str) -> list[CodeBlock | PageCommand]:
    """Return the files and the commands of a page that run in a session.

    tests/e2e/docs/test_page_commands.py runs it.
    """
    return [step for step in page_steps(page) if isinstance(step, CodeBlock) or find_command_runner(step) == _SESSIONS]


def _commands_after(block: CodeBlock) -> list[PageCommand]:
    return [step for step in page_steps(block.page) if isinstance(step, PageCommand) and step.line > block.line]


def _file_name(block: CodeBlock) -> str:
    return block.title.rpartition("/")[2]


PAGE_SESSIONS = [
    name
    for name in (path.relative_to(ROOT).as_posix() for path in PAGES)
    if any(isinstance(step, PageCommand) for step in session_steps(name))
]
"""Pages with commands that run in a session."""

"""Commands of the pages: what is a command, its output and its file, and which output is the same."""

from __future__ import annotations

import pytest

from tests.support.code_blocks import CodeBlock, parse_blocks
from tests.support.page_commands import PageCommand, find_missing_line, page_steps, parse_commands, shows_failure

PAGE = """
# A page

```yaml title="jobs/claim.yaml"
kind: PersistentVolumeClaim
```

<!-- not run: needs a GPU -->

```console
$ nvidia-smi
```
"""


def block(text):
    return CodeBlock("page.md", 10, "console", text)


def test_commands_have_their_lines_and_their_output():
    found = list(parse_commands(block("$ one\nfirst\n\nsecond\n$ two \\\n>   --more\nthird\n> fourth\n")))
    assert found == [
        PageCommand("page.md", 10, "one", ("first", "", "second")),
        PageCommand("page.md", 14, "two \\\n  --more", ("third", "> fourth")),
    ]
    assert str(found[0]) == "page.md:10: one"


def test_a_block_begins_with_a_command():
    with pytest.raises(ValueError, match=r"page\.md:10: a console block begins with a command"):
        list(parse_commands(block("output\n$ one\n")))


def test_a_title_is_a_file_and_a_comment_is_the_reason_for_not_running():
    claim, command = parse_blocks(PAGE, "page.md")
    assert (claim.language, claim.title, claim.skip_reason) == ("yaml", "jobs/claim.yaml", "")
    assert (command.language, command.title, command.skip_reason) == ("console", "", "needs a GPU")


def test_the_steps_of_a_page_are_its_files_and_commands_in_order(monkeypatch):
    claim = CodeBlock("page.md", 1, "yaml", "kind: X\n", title="claim.yaml")
    other = CodeBlock("other.md", 1, "console", "$ other\n")
    output = CodeBlock("page.md", 30, "text", "plain\n")
    monkeypatch.setattr("tests.support.page_commands.RUNNABLE_BLOCKS", [claim, other, block("$ one\n$ two\n"), output])
    assert page_steps("page.md") == [claim, PageCommand("page.md", 10, "one"), PageCommand("page.md", 11, "two")]


@pytest.mark.parametrize(
    ("line", "fails"),
    [
        ("error: tickets.yaml:17: epochs cannot be 0", True),
        ("Error from server (Forbidden): pods is forbidden", True),
        ("error: the server doesn't have a resource type", True),
        ("ok  permissions  error: none", False),
        ("TrainJob default/hello: created", False),
    ],
)
def test_an_error_message_as_output_means_that_the_command_fails(line, fails):
    assert shows_failure(PageCommand("page.md", 1, "one", ("...", line))) == fails


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("TrainJob default/hello-0a1b2c3d: created", "TrainJob default/hello-99fe0123: created"),
        ("is complete after 12 s", "is complete after 3.5 s"),
        ("NAME   STATUS", "  NAME STATUS  "),
        ("NAME ... GPUS", "NAME            GPUS"),
        ("the image has trl 1.16.0, ...", "the image has trl 1.17.2, torch 2.13"),
        ("a\n...\nb", "a\nb"),
        ("a\n\nb", "a\nx\ny\nb"),
        ("cost (in $): 1 [a-z]+", "cost (in $): 2 [a-z]+"),
    ],
)
def test_numbers_identifiers_and_blanks_may_differ(expected, printed):
    assert find_missing_line(tuple(expected.splitlines()), printed) is None


@pytest.mark.parametrize(
    ("expected", "printed", "missing"),
    [
        ("hello", "hello world", "hello"),
        ("b\na", "a\nb", "a"),
        ("a\na", "a", "a"),
        ("2 jobs", "two jobs", "2 jobs"),
        ("axb", "a.b", "axb"),
        ("hello", "", "hello"),
    ],
)
def test_the_first_line_that_was_not_printed_is_returned(expected, printed, missing):
    assert find_missing_line(tuple(expected.splitlines()), printed) == missing

"""The language check of `make lint` finds what it must find, and accepts what it must accept."""

from pathlib import Path

import pytest

from tools.language import check

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ('def f():\n    """What the API server knows."""', "'What' starts a fragment"),
        ('def f():\n    """While it runs."""', "'While' starts a fragment"),
        ('def f():\n    """Returns the pods."""', "'Returns' is not an imperative verb"),
        ('def f():\n    """Pods of the job."""', "'Pods' is not an imperative verb"),
        ('def f():\n    """Whether it runs."""', "'Whether' starts a fragment"),
        (f'def f():\n    """Return {"a" * 88}."""', "has 96 characters, 88 are allowed"),
        ('class C:\n    """How it starts."""', "'How' starts a fragment"),
        ('async def f():\n    """Of both."""', "'Of' starts a fragment"),
        ('def test_f():\n    """Who has no permission."""', "'Who' starts a fragment"),
    ],
)
def test_a_wrong_first_line_is_reported_with_its_line(source, problem):
    [(line, message)] = check.docstring_problems(source)
    assert line == 1
    assert problem in message


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return the pods."""',
        'def f():\n    """Return the pods that failed, oldest first.\n\n    What it lists is cached.\n    """',
        'class C:\n    """Pods of a job."""',
        'class C:\n    @property\n    def ready(self):\n        """Whether it is ready."""',
        'class C:\n    @functools.cached_property\n    def pods(self):\n        """Pods of the job."""',
        'def test_f():\n    """While a watch fails, the informer lists."""',
        "def f(): ...",
    ],
)
def test_a_correct_first_line_is_accepted(source):
    assert list(check.docstring_problems(source)) == []


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("The user is told.", "told"),  # quotation
        ("was_told = 1", "told"),  # quotation
        ("def tellOnce(): ...", "tell"),  # quotation
        ("class ToldOnce: ...", "told"),  # quotation
        ("jobs at work are kept", "at work"),  # quotation
        ("TAKEN_OVER = True", "taken over"),  # quotation
    ],
)
def test_a_retired_word_is_found_in_text_and_in_names(line, word):
    [(number, message)] = check.retired_word_problems("\n" + line)
    assert number == 2
    assert message.startswith(f"{word!r} is retired; write: ")


@pytest.mark.parametrize("line", ["a satellite", "a task", "the mask", "position = file.tell()"])
def test_other_words_are_accepted(line):
    assert list(check.retired_word_problems(line)) == []


@pytest.mark.parametrize("comment", ["# serialized name", "# quotation"])
def test_a_line_with_a_comment_about_it_is_exempt(comment):
    line = 'KEY = "told"'  # quotation
    assert list(check.retired_word_problems(f"{line}  {comment}")) == []


def test_every_given_file_and_folder_is_read(tmp_path, monkeypatch, capsys):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "one.py").write_text('"""Module."""\n\n\ndef f():\n    """Told."""\n')  # quotation
    (tmp_path / "package" / "page.md").write_text("# Page\n\nIt is told.\n")  # quotation
    (tmp_path / "package" / "data.json").write_text('"told"')  # quotation
    monkeypatch.setattr("sys.argv", ["check.py", str(tmp_path / "package")])
    assert check.main() == 1
    found = capsys.readouterr().out.splitlines()
    assert [line.removeprefix(f"{tmp_path}/package/").split(": ")[0] for line in found] == [
        "one.py:4",
        "one.py:5",
        "page.md:3",
    ]
    (tmp_path / "package" / "one.py").write_text('"""Module."""\n')
    monkeypatch.setattr("sys.argv", ["check.py", str(tmp_path / "package" / "one.py")])
    assert check.main() == 0


LONG = " ".join(["word"] * check.MAX_WORDS)


@pytest.mark.parametrize(
    ("page", "line", "problem"),
    [
        ("# Queues\n\nThis how-to is for authors.\n", 3, "begin with what the reader gets"),
        ("# Queues\n\n<!-- A comment. -->\n\nThis reference lists them.\n", 5, "begin with what the reader gets"),
        ("# Tests\n\nA how-to for contributors.\n", 3, "begin with what the reader gets"),
        (f"# Page\n\nShort. {LONG} word.\n", 3, "has 25 words, 24 are allowed: word word"),
        (f"# Page\n\nShort.\n{LONG}\nword.\n", 4, "has 25 words"),
        (f"# Page\n\nShort.\n\n* One.\n* {LONG} word: more.\n", 6, "has 26 words"),
        (f"# Page\n\n1. `a b c` {LONG}.\n", 3, "has 25 words"),
        (f"# Page\n\nShort (page.md). {LONG} [two words](page.md).\n", 3, "has 26 words"),
    ],
)
def test_a_sentence_of_a_page_that_breaks_a_rule_is_reported_with_its_line(page, line, problem):
    [(number, message)] = check.page_problems(page)
    assert number == line
    assert problem in message


@pytest.mark.parametrize(
    "page",
    [
        "# Queues\n\nShare GPUs between teams. This page has an example.\n",
        f"# Page\n\n{LONG}. {LONG}!\n",
        f"# Page\n\n{LONG}:\n\n* {LONG};\n* {LONG}\n",
        f"# Page\n\n| Column |\n|---|\n| {LONG} word |\n",
        f"# Page\n\n```text\nThis page.\n{LONG} word\n```\n",
        f"# {LONG} word\n\n<!-- {LONG}\nword -->\n",
        "# Page\n\n" + LONG.replace("word word", "word - word") + ".\n",
    ],
)
def test_other_sentences_of_a_page_are_accepted(page):
    assert list(check.page_problems(page)) == []


def test_a_page_with_results_may_have_long_sentences():
    page = f"# Benchmarks\n\n{LONG} word.\n"
    assert list(check.page_problems(page, has_results=True)) == []
    assert len(list(check.page_problems(page))) == 1

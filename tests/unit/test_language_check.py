"""The language check of `make lint` finds what it must find, and accepts what it must accept."""

import pytest

from tools.language import check


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

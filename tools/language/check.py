"""Check the language of sources and pages, for `make lint`. CONTRIBUTING.md has the rules in full.

* A function's docstring starts with an imperative verb, a property's and a class's with a noun phrase; a test's is a
  full sentence. ruff's D401 finds a verb in another form ("Returns"), but accepts unknown words. This check
  accepts only the verbs of `verbs.txt`, so that a fragment ("What the API server knows") is an error.
* The first line of a docstring has at most 88 characters, except in tests.
* No name, comment, message or page has a word of `retired_words.txt`.
* A page does not begin with its kind ("This how-to ..."), and its sentences have fewer than 25 words. Tables, code and
  the pages of results in `docs/evidence` may have longer ones.

Usage: python tools/language/check.py FILE_OR_FOLDER...
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent
VERBS = frozenset((_HERE / "verbs.txt").read_text(encoding="utf-8").split())
MAX_LENGTH = 88

# Words that start a fragment, or a sentence whose subject is in another line.
_FRAGMENT = re.compile(
    r"(And|As|At|But|By|Else|For|From|How|Its|Of|Or|So|That|Then|They|Those|Until|What|Whatever|Where|Whether|Which|Who|Whoever"
    r"|Whose|Why)\b"
)
# Words that start a clause; a comma separates it from the rest of a full sentence.
_CLAUSE = re.compile(r"(After|Before|If|In|On|Once|Through|Under|When|While|With|Without)\b[^,]*$")

SUFFIXES = (".md", ".py", ".yaml")
EXEMPT = ("# quotation", "# serialized name")

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def first_line_problem(node: _Function | ast.ClassDef, line: str) -> str:
    """Return the rule that the first line of a docstring breaks, or an empty string."""
    is_function = not isinstance(node, ast.ClassDef)
    is_test = node.name.startswith("test_")
    is_property = any(
        ast.unparse(each).rpartition(".")[2] in ("property", "cached_property") for each in node.decorator_list
    )
    if len(line) > MAX_LENGTH and not is_test:
        return f"the first line has {len(line)} characters, {MAX_LENGTH} are allowed"
    if is_property and line.startswith("Whether "):
        return ""
    first = re.split(r"[ ,.:]", line, maxsplit=1)[0]
    if _FRAGMENT.match(line) or _CLAUSE.match(line):
        return f"{first!r} starts a fragment; write a full sentence"
    if is_function and not is_test and not is_property and first not in VERBS:
        return f"{first!r} is not an imperative verb; add it to tools/language/verbs.txt if it is one"
    return ""


def docstring_problems(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the problem of each docstring in a Python file."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, _Function | ast.ClassDef) or not (docstring := ast.get_docstring(node)):
            continue
        if problem := first_line_problem(node, docstring.splitlines()[0]):
            yield node.lineno, f"docstring of {node.name}: {problem}"


def read_retired_words(text: str) -> dict[str, str]:
    """Return what to write instead of each retired word or phrase."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return dict(line.split(": ", 1) for line in lines)


RETIRED = read_retired_words((_HERE / "retired_words.txt").read_text(encoding="utf-8"))
_RETIRED = re.compile(r"(?<![a-z])(" + "|".join(sorted(map(re.escape, RETIRED), key=len, reverse=True)) + r")(?![a-z])")
_FILE_METHOD = re.compile(r"\.tell\(\)")  # quotation
_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def retired_word_problems(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the problem of each retired word; a name counts as its parts."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.rstrip().endswith(EXEMPT):
            words = _CAPITAL.sub(" ", _FILE_METHOD.sub("", line)).replace("_", " ").lower()
            for word in _RETIRED.findall(words):
                yield number, f"{word!r} is retired; write: {RETIRED[word]}"


MAX_WORDS = 24
# Pages with measured results: the programs that write them put long lists into one sentence.
_RESULTS = "docs/evidence/"

_KIND_OF_PAGE = re.compile(r"(?:A|This) (?:document|explanation|guide|how-to|package|page|record|reference|tutorial)\b")
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
_NO_PROSE = re.compile(r"\s*(?:[#|<]|!\[|!!!|$)")
_LIST_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.) +")
_SENTENCE = re.compile(r"\S.*?(?:(?<!\.\.)[.!?][)\"*_]*(?=\s|$)|\Z)", re.DOTALL)


def sentences(page: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each sentence of a page.

    Headings, tables, code blocks and comments are left out. A code span is one word, and a link is its text.
    """
    for first, paragraph in _paragraphs(_COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), page)):
        masked = _CODE_SPAN.sub(lambda span: "code" + "\n" * span[0].count("\n"), paragraph)
        prose = _LINK.sub(lambda link: link[1] + "\n" * (link[0].count("\n") - link[1].count("\n")), masked)
        for sentence in _SENTENCE.finditer(prose):
            yield first + prose.count("\n", 0, sentence.start()), sentence[0]


def _paragraphs(page: str) -> Iterator[tuple[int, str]]:
    """Yield the number of the first line and the text of each paragraph and each list item."""
    lines: list[str] = []
    first, fence = 1, ""
    for number, line in enumerate([*page.splitlines(), ""], 1):
        mark = _FENCE.match(line)
        ends_fence = bool(fence and mark and mark[1].startswith(fence) and not line.strip(" `~"))
        is_prose = not fence and not mark and not _NO_PROSE.match(line)
        item = _LIST_ITEM.match(line) if is_prose else None
        if lines and (item or not is_prose):
            yield first, "\n".join(lines)
            lines = []
        if is_prose:
            first = first if lines else number
            lines.append(line[item.end() :] if item else line)
        fence = "" if ends_fence else fence or (mark[1] if mark else "")


def page_problems(page: str, *, has_results: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the line number and the problem of each sentence of a page that breaks a rule.

    Args:
        page: text of the page.
        has_results: whether a program writes results into it, so that sentences may be long.
    """
    for index, (number, sentence) in enumerate(sentences(page)):
        if index == 0 and _KIND_OF_PAGE.match(sentence):
            yield number, "the first sentence names the kind of page; begin with what the reader gets"
        words = sum(bool(re.search(r"\w", word)) for word in sentence.split())
        if words > MAX_WORDS and not has_results:
            beginning = " ".join(sentence.split()[:8])
            yield number, f"the sentence has {words} words, {MAX_WORDS} are allowed: {beginning} ..."


def problems(path: Path) -> Iterator[str]:
    """Yield each problem of a file as `path:line: message`."""
    text = path.read_text(encoding="utf-8")
    found = list(retired_word_problems(text))
    if path.suffix == ".py":
        found += docstring_problems(text)
    if path.suffix == ".md":
        found += page_problems(text, has_results=_RESULTS in path.as_posix())
    for number, message in sorted(found):
        yield f"{path}:{number}: {message}"


def files(arguments: list[str]) -> Iterator[Path]:
    """Yield the given files and the sources and pages in the given folders."""
    for path in map(Path, arguments):
        if path.is_dir():
            yield from (each for each in sorted(path.rglob("*")) if each.suffix in SUFFIXES)
        else:
            yield path


def main() -> int:
    """Print all problems of the files given as arguments, and return the exit code."""
    found = [problem for path in files(sys.argv[1:]) for problem in problems(path)]
    if found:
        print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

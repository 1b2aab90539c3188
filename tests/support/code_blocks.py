"""Code blocks of README.md, docs/ and the other pages, for tests that run them unchanged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
# `make conformance`, `migration`, `reliability`, `bench`, `sessions` and `watchdog` write these.
GENERATED = {
    "benchmarks.md",
    "conformance.md",
    "features.md",
    "migration.md",
    "reliability.md",
    "sessions.md",
    "watchdog.md",
}
PAGES = sorted(
    path
    for pattern in (
        "README.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "core/README.md",
        "laptop/README.md",
        "migrate/README.md",
        "providers/airflow/README.md",
        "components/kfp/**/README.md",
        "demo/**/README.md",
        "manifests/**/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.name not in GENERATED
)
_TITLE = re.compile(r'\btitle="([^"]+)"')
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


@dataclass(frozen=True)
class CodeBlock:
    """A fenced code block of a page.

    Attributes:
        page: the page's path, relative to the repository's root.
        line: number of the block's first line in it.
        language: the word after the fence; empty without one.
        text: the code.
        title: name of the file that the page shows, from `title="NAME"` after the language; empty for other blocks.
        skip_reason: why no test runs it, from the comment `<!-- not run: reason -->` before it; empty if tests run it.
    """

    page: str
    line: int
    language: str
    text: str
    title: str = ""
    skip_reason: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def engine(self) -> str:
        """The environment that a Python block needs: airflow, kfp, core, trl or kubeflow.

        trl is for programs that import transformers, which the page's own commands run. kubeflow is the Kubeflow SDK.
        """
        imported = set(re.findall(r"^\s*(?:from|import) (\w+)", self.text, re.MULTILINE))
        if imported & {"airflow", "trainjob_airflow"}:
            return "airflow"
        if re.search(r"^from transformers import", self.text, re.MULTILINE):
            return "trl"
        if "kubeflow" in imported:
            return "kubeflow"
        return "kfp" if imported & {"kfp", "trainjob_kfp"} else "core"


def parse_blocks(text: str, page: str) -> list[CodeBlock]:
    """Return the fenced blocks of a page, in the page's order."""
    found = []
    tokens = MarkdownIt().parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type == "fence" and token.map:
            comment = _NOT_RUN.match(before.content) if before and before.type == "html_block" else None
            reason = comment[1] if comment else ""
            language, _, attributes = token.info.strip().partition(" ")
            title = _TITLE.search(attributes)
            name = title[1] if title else ""
            found.append(CodeBlock(page, token.map[0] + 2, language, token.content, name, reason))
    return found


def inline_code(text: str) -> list[str]:
    """Return the code spans of a page's running text, with single spaces."""
    tokens = [child for token in MarkdownIt().enable("table").parse(text) for child in token.children or ()]
    return [" ".join(token.content.split()) for token in tokens if token.type == "code_inline"]


ALL_BLOCKS = [
    block for path in PAGES for block in parse_blocks(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
]
RUNNABLE_BLOCKS = [block for block in ALL_BLOCKS if not block.skip_reason]


def python_blocks(engine: str) -> list[CodeBlock]:
    """Return the Python blocks that run in the environment of an engine."""
    return [block for block in RUNNABLE_BLOCKS if block.language == "python" and block.engine == engine]


def write_project(page: str, folder: Path) -> None:
    """Write the files of a page that are in folders, such as those of a project that travels."""
    for block in ALL_BLOCKS:
        if block.page == page and "/" in block.title:
            (folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.title).write_text(block.text, "utf-8")

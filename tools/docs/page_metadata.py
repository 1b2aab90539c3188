"""Descriptions of pages, the index page of each section, and what the search leaves out."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

EXCLUDED_FROM_SEARCH = ("evidence/", "reference/python/packages.md")
"""Pages for engineers who evaluate or extend the project; four of ten sections of the site are theirs."""

SECTIONS = {
    "Tutorials": "tutorials/index.md",
    "How-to guides": "how-to/index.md",
    "Reference": "reference/index.md",
    "Explanation": "explanation/index.md",
}
"""Sections of the navigation, and the pages that list their pages."""

_LONGEST_DESCRIPTION = 300
_SKIPPED = ("#", "|", "<", ">", "!", "* ", "- ", "1. ", "```", ":::")


@dataclass(frozen=True)
class Entry:
    """A page of the navigation, or a group of pages.

    Attributes:
        title: title in the navigation.
        page: path of the page below docs/; empty for a group.
        entries: the entries of a group.
    """

    title: str
    page: str = ""
    entries: list[Entry] = field(default_factory=list)

    def pages(self) -> Iterator[str]:
        """Yield the pages of this entry, in the navigation's order."""
        if self.page:
            yield self.page
        for entry in self.entries:
            yield from entry.pages()


def read_navigation(configuration: Mapping[str, Any]) -> list[Entry]:
    """Return the navigation of the site's configuration, without index pages."""

    def read(items: list[Any]) -> list[Entry]:
        named = [(title, value) for item in items if isinstance(item, dict) for title, value in item.items()]
        return [
            Entry(title, value) if isinstance(value, str) else Entry(title, "", read(value)) for title, value in named
        ]

    return read(configuration["project"]["nav"])


def describe(text: str) -> str:
    """Return the first sentence of a page as plain text; empty if the page has no paragraph."""
    paragraph: list[str] = []
    for line in text.splitlines():
        if paragraph and not line.strip():
            break
        if paragraph or (line.strip() and not line.startswith((*_SKIPPED, " "))):
            paragraph.append(line.strip())
    sentence = re.split(r"(?<=[.:!?])(?<!e\.g\.)\s+(?=[A-Z`*\[])", _plain(" ".join(paragraph)), maxsplit=1)[0]
    if sentence.endswith(":") and len(sentence) < 40:  # "Share GPUs: ..." needs the text after the colon
        sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", _plain(" ".join(paragraph)), maxsplit=1)[0]
    if len(sentence) > _LONGEST_DESCRIPTION:
        sentence = sentence[:_LONGEST_DESCRIPTION].rsplit(" ", 1)[0] + " ..."
    return sentence


def _plain(text: str) -> str:
    """Return Markdown text without links, code marks and emphasis."""
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\*\*|`|(?<!\w)_|_(?!\w)", "", text)


def front_matter(page: str, text: str) -> str:
    """Return the metadata that the site's generator reads at the start of a page.

    Args:
        page: path of the page below docs/.
        text: the page.
    """
    lines = []
    description = describe(text)
    if description:
        lines.append(f"description: {json.dumps(description, ensure_ascii=False)}")
    if page.startswith(EXCLUDED_FROM_SEARCH):
        lines += ["search:", "  exclude: true"]
    return "\n".join(["---", *lines, "---", "", ""]) if lines else ""


def index_pages(navigation: list[Entry], pages: Mapping[str, str]) -> dict[str, str]:
    """Return the index page of each section: its pages with their first sentences.

    Args:
        navigation: the navigation of the site.
        pages: text of each page, by path below docs/.
    """
    return {
        SECTIONS[entry.title]: _index_page(entry, SECTIONS[entry.title], pages)
        for entry in navigation
        if entry.title in SECTIONS
    }


def _index_page(section: Entry, path: str, pages: Mapping[str, str]) -> str:
    """Return the index page of a section."""

    def items(entries: list[Entry]) -> Iterator[str]:
        for entry in entries:
            if entry.page:
                target = posixpath.relpath(entry.page, posixpath.dirname(path))
                yield f"* [{entry.title}]({target}): {describe(pages[entry.page])}"

    # The repository has no such file, so the page has no button that edits it.
    lines = ["---", f"description: All pages of the section {section.title}", "search:", "  exclude: true", "---", ""]
    lines += ["<style>.md-content__button[rel=edit] { display: none }</style>", "", f"# {section.title}", ""]
    lines += items(section.entries)
    for group in section.entries:
        if group.entries:
            lines += ["", f"## {group.title}", "", *items(group.entries)]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)) + "\n"

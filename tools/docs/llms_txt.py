"""The site's file llms.txt: all pages with their addresses and first sentences, for language models (https://llmstxt.org)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.docs.page_metadata import Entry, describe, read_navigation

_OPTIONAL = ("Design decisions", "Evidence")
"""Parts of the navigation that a short context may leave out; llmstxt.org calls this section Optional."""


def render(configuration: Mapping[str, Any], pages: Mapping[str, str]) -> str:
    """Return the text of llms.txt.

    Args:
        configuration: the site's configuration, with its navigation.
        pages: text of each page, by path below docs/.
    """
    project = configuration["project"]
    sections: dict[str, list[Entry]] = {}

    def add(entry: Entry, section: str) -> None:
        name = "Optional" if entry.title in _OPTIONAL else section
        if entry.page:
            sections.setdefault(name, []).append(entry)
        for each in entry.entries:
            add(each, name)

    for entry in read_navigation(configuration):
        add(entry, entry.title if entry.entries else "Start")
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    for section in sorted(sections, key=lambda name: name == "Optional"):
        lines += [f"## {section}", "", *(_line(entry, project["site_url"], pages) for entry in sections[section]), ""]
    return "\n".join(lines)


def _line(entry: Entry, site: str, pages: Mapping[str, str]) -> str:
    path = entry.page.removesuffix(".md").removesuffix("index").rstrip("/")
    description = describe(pages[entry.page])
    return f"- [{entry.title}]({site}{path + '/' if path else ''})" + (f": {description}" if description else "")

"""Check the Markdown pages of the repository, and write the folder in which Zensical builds the site.

Usage: stage.py FOLDER [--versioned]. With --versioned the pages have a selector; see assemble_versions.py.

Links from docs/ to other files of the repository become addresses of the web page of the repository, because the site
contains only docs/. The program reports each link to a file or heading that does not exist, in all pages of the
repository, and each list that Python-Markdown, which the site uses, and GitHub would render differently. It writes
nothing if it finds a problem.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tools.docs import llms_txt, page_metadata
from tools.evidence import measurement

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/trainjob/trainjob"
_OWN_ADDRESS = re.compile(rf"{re.escape(REPOSITORY)}/(?:blob|tree)/main/([^#]+)(#.*)?$")
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_LINK = re.compile(r"(?<=\]\()(?P<target>[^()\s]+(?:\([^()\s]*\)[^()\s]*)*)(?=[)\s])")
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LIST_ITEM = re.compile(r"( *)(?:[-*+]|\d+\.) ")
# The theme reads ../versions.json.
_SELECTOR = '\n[project.extra.version]\nprovider = "mike"\ndefault = "latest"\n'
_HEADING = re.compile(r"#{1,6} +(.+?) *#* *$")


@dataclass(frozen=True)
class Problem:
    """A problem of a page.

    Attributes:
        page: path of the page, relative to the repository's root.
        line: number of the line.
        message: what is wrong, and what is allowed.
    """

    page: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.message}"


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines outside of code blocks, with blanks instead of code spans."""
    masked = _CODE_SPAN.sub(lambda span: re.sub(r"[^\n]", " ", span[0]), "\n".join(_mask_fences(text)))
    yield from enumerate(masked.split("\n"), 1)


def _mask_fences(text: str) -> list[str]:
    """Return the lines of a page without its code blocks.

    Empty lines replace the blocks, and a NUL replaces the first fence of each.
    """
    lines, fence = [], ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]) else fence
            lines.append("")
        elif mark:
            fence = mark[1]
            lines.append("\0")
        else:
            lines.append(line)
    return lines


def heading_anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found: list[str] = []
    for line in _mask_fences(text):
        heading = _HEADING.match(line)
        if heading:
            words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            found.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return {*found, *re.findall(r'<a id="([^"]+)"', text)}


def check_links(page: str, text: str, files: set[str], anchors: dict[str, set[str]]) -> Iterator[Problem]:
    """Yield the links of a page to files or headings that do not exist.

    Args:
        page: path of the page, relative to the repository's root.
        text: the page.
        files: paths of all files and folders of the repository.
        anchors: the anchors of each page.
    """
    for number, line in prose_lines(text):
        for link in _LINK.finditer(line):
            path, anchor = resolve(page, link["target"])
            if path is None:
                continue
            if path not in files:
                yield Problem(page, number, f"{link['target']}: the file {path} does not exist")
            elif anchor and path in anchors and anchor not in anchors[path]:
                yield Problem(page, number, f"{link['target']}: {path} has no heading with this anchor")


def resolve(page: str, target: str) -> tuple[str | None, str]:
    """Return the path, relative to the repository's root, and the anchor of a link target.

    The path is None if the target is an address outside of this repository.
    """
    own = _OWN_ADDRESS.match(target)
    if own:
        return own[1].rstrip("/"), (own[2] or "").removeprefix("#")
    if re.match(r"[a-z]+:", target):
        return None, ""
    path, _, anchor = target.partition("#")
    return (posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page), anchor


def check_lists(page: str, text: str) -> Iterator[Problem]:
    """Yield the list items that Python-Markdown would not render as list items."""
    before, in_list = "", False
    for number, line in prose_lines(text):
        item = _LIST_ITEM.match(line)
        if item and len(item[1]) % 4:
            yield Problem(page, number, "indent a nested list by 4 spaces")
        elif item and before.strip() and not in_list:
            yield Problem(page, number, "write a blank line before a list")
        in_list = bool(item) or (in_list and bool(line.strip()) and line != "\0") or (in_list and line.startswith(" "))
        before = line


def with_web_addresses(page: str, text: str) -> str:
    """Return a page of docs/ in which links to files outside of docs/ are web addresses."""

    def replace(link: re.Match[str]) -> str:
        target = link["target"]
        path, anchor = resolve(page, target)
        if path is None or path == "docs" or path.startswith("docs/") or target.startswith(REPOSITORY):
            return target
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{REPOSITORY}/{kind}/main/{path}" + (f"#{anchor}" if anchor else "")

    lines = [
        _LINK.sub(replace, line) if masked == line else line
        for line, masked in zip(text.splitlines(), _mask_fences(text), strict=True)
    ]
    return "\n".join(lines) + "\n"


def list_files() -> list[str]:
    """Return the files that git tracks or would track, relative to the repository's root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).exists())


def check_pages(pages: dict[str, str], names: Iterable[str]) -> list[Problem]:
    """Return the problems of all pages.

    Lists are checked in docs/ only, because the site has no other pages.
    """
    files = {posixpath.normpath(parent) for name in names for parent in (name, *map(str, Path(name).parents))}
    anchors = {page: heading_anchors(text) for page, text in pages.items()}
    found: list[Problem] = []
    for page, text in pages.items():
        found += check_links(page, text, files, anchors)
        if page.startswith("docs/"):
            found += check_lists(page, text)
    return found


def mermaid_script() -> Path:
    """Return the path of the script that draws the diagrams in the reader's browser.

    The package mermaidx 0.10.1 contains the file `dist/mermaid.min.js` of Mermaid 11.16.0, byte for byte. Its own
    renderer is not used, because it cuts words off.
    """
    package = find_spec("mermaidx")
    if package is None or package.origin is None:
        raise SystemExit("mermaidx is not installed: create the environment again, with `make docs`")
    return Path(package.origin).parent / "assets" / "mermaid.js"


def main() -> int:
    """Check the pages and write the folder for the generator; return the exit status."""
    import tomllib  # Python 3.11, which the site needs; the tests of this module run on 3.10, too

    folder = Path(sys.argv[1])
    names = list_files()
    pages = {
        name: (ROOT / name).read_text("utf-8")
        for name in names
        if name.endswith(".md") and not name.startswith("tools/evidence/")  # templates of pages in docs/evidence
    }
    problems = check_pages(pages, names)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    configuration = Path(__file__).with_name("zensical.toml")
    selector = _SELECTOR if "--versioned" in sys.argv else ""
    (folder / configuration.name).write_text(configuration.read_text("utf-8") + selector, "utf-8")
    shutil.copytree(Path(__file__).with_name("theme"), folder / "theme")
    shutil.copyfile(mermaid_script(), folder / "theme" / "assets" / "mermaid.min.js")
    for name in names:
        if name.startswith("docs/"):
            target = folder / "pages" / Path(name).relative_to("docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            if name in pages:
                matter = page_metadata.front_matter(name.removeprefix("docs/"), pages[name])
                text = with_web_addresses(name, pages[name])
                if name.startswith("docs/evidence/"):
                    heading, _, rest = text.partition("\n")
                    text = f"{heading}\n\n{measurement.age_note(Path(name).name, pages[name])}{rest}"
                target.write_text(matter + text, "utf-8")
            else:
                shutil.copyfile(ROOT / name, target)
    site_pages = {name.removeprefix("docs/"): text for name, text in pages.items() if name.startswith("docs/")}
    settings = tomllib.loads(configuration.read_text("utf-8"))
    (folder / "pages" / "llms.txt").write_text(llms_txt.render(settings, site_pages), "utf-8")
    navigation = page_metadata.read_navigation(settings)
    for name, text in page_metadata.index_pages(navigation, site_pages).items():
        (folder / "pages" / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Removal of code that no component calls from the sources that a component's YAML contains.

A container's command may have 128 KiB, and many modules have functions that only other programs use. A function, a
method or a class is unused if its name occurs nowhere else in the sources, not even in a text or as another attribute.
So the rule keeps too much rather than too little.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

_WORD = re.compile(r"[A-Za-z_]\w*")
# Decorators that do not pass the function to anybody who could call it.
_PLAIN_DECORATORS = ("property", "staticmethod", "classmethod", "contextlib.contextmanager")


def remove_unused_code(sources: Mapping[str, str], program: str, kept: Collection[str]) -> dict[str, str]:
    """Return the sources without functions, methods, classes and imports that are not used.

    Args:
        sources: texts of modules by path.
        program: source that uses them.
        kept: paths of modules that stay as they are, because a program sends them to another pod.
    """
    remaining = dict(sources)
    while True:
        counts = Counter[str]()
        for text in [*remaining.values(), program]:
            counts.update(_count_words(text))
        whole = {path for path in remaining if path in kept or path.endswith("__init__.py")}
        shorter = {
            path: text if path in whole else _remove_imports(_remove_definitions(text, counts))
            for path, text in remaining.items()
        }
        if shorter == remaining:
            return remaining
        remaining = shorter


@functools.cache  # most modules are part of every component, and do not change in most rounds
def _count_words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text))


def _remove_definitions(text: str, counts: Mapping[str, int]) -> str:
    unused = [each for each in _find_definitions(text) if counts[each.name] == each.own_count]
    if not unused:
        return text
    lines = text.splitlines(keepends=True)
    outer = [each for each in unused if not any(other.contains(each) for other in unused)]
    for each in reversed(outer):
        del lines[each.start : each.end]
    return "".join(lines)


class _Definition(NamedTuple):
    """A function, method or class that may be removed.

    Attributes:
        name: its name.
        start: index of its first line, which may be a decorator.
        end: index of the line after it.
        own_count: how often its own lines contain its name.
    """

    name: str
    start: int
    end: int
    own_count: int

    def contains(self, other: _Definition) -> bool:
        """Return whether the other definition is a member of this one."""
        return self.start < other.start and other.end <= self.end


@functools.cache
def _find_definitions(text: str) -> list[_Definition]:
    """Return the definitions that may be removed, in the order of their lines.

    A base class or a decorator may call a method whose name occurs nowhere in our sources. A class keeps one member.
    """
    found: list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef] = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            found += [] if node.bases or node.decorator_list else [node]
            members = [] if node.bases else node.body[1:]
        else:
            members = [node]
        found += [
            member
            for member in members
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            and not member.name.startswith("__")
            and all(ast.unparse(decorator) in _PLAIN_DECORATORS for decorator in member.decorator_list)
        ]
    lines, definitions = text.splitlines(keepends=True), []
    for each in found:
        start = min([each.lineno, *(decorator.lineno for decorator in each.decorator_list)]) - 1
        end = each.end_lineno or each.lineno
        own_count = _count_words("".join(lines[start:end]))[each.name]
        definitions.append(_Definition(each.name, start, end, own_count))
    return definitions


@functools.cache
def _remove_imports(text: str) -> str:
    """Return a module's source without the modules and names that it imports and does not use."""
    lines, counts = text.splitlines(keepends=True), _count_words(text)
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    for node in sorted(imports, key=lambda node: node.lineno, reverse=True):
        used = [alias for alias in node.names if "." in alias.name or counts[alias.asname or alias.name] > 1]
        if used == node.names or getattr(node, "module", "") == "__future__":
            continue
        first, end = node.lineno - 1, node.end_lineno
        if used:
            node.names = used
            lines[first:end] = [f"{' ' * node.col_offset}{ast.unparse(node)}\n"]
        else:  # a block must keep a statement
            lines[first:end] = [f"{' ' * node.col_offset}pass\n"] if node.col_offset else []
    return "".join(lines)

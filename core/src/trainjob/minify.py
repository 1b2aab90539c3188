"""Removal of docstrings and comments from Python source.

It is for programs that are part of a container's command. The module cuts text out of the source and does not use
`ast.unparse`. That function would write f-strings in the syntax of the Python that it runs in, which the Python in the
pod may not know. Its output also differs between versions.
"""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Iterator
from itertools import accumulate


@functools.cache
def minify(text: str) -> str:
    """Return the source of a module without the text that only readers need.

    It removes docstrings, comments, blank lines, `if TYPE_CHECKING` and annotations of functions. Names and the other
    lines stay, so that a traceback can be read. Annotations of classes stay, because pydantic and dataclasses read
    them.
    """
    lines = text.encode().splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    raw, kept, position = b"".join(lines), bytearray(), 0
    for start, end, replacement in sorted(
        [*_find_cuts(ast.parse(text), raw, starts), *_find_comment_cuts(text, lines, starts)]
    ):
        if start >= position:  # a cut within another cut has no effect
            kept += raw[position:start] + replacement
        position = max(position, end)
    return (bytes(kept) + raw[position:]).decode()


_Cut = tuple[int, int, bytes]  # start and end of the removed bytes, and their replacement


def _find_cuts(tree: ast.Module, raw: bytes, starts: list[int]) -> Iterator[_Cut]:
    """Yield the cuts that remove docstrings, `if TYPE_CHECKING` and annotations of functions.

    String literals below constants and fields count as docstrings.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            unused = [statement for statement in node.body if _is_documentation(statement)]
            for statement in unused:
                start, end = starts[statement.lineno - 1], starts[statement.end_lineno or 0]
                last = len(unused) == len(node.body) and statement is unused[-1]
                yield (start, end, b" " * statement.col_offset + b"pass\n" if last else b"")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
            start, end = _span(node.returns, starts)
            yield raw.rindex(b"->", 0, start), end, b""
        if isinstance(node, ast.arg) and node.annotation:
            start, end = _span(node, starts)
            yield start + len(node.arg.encode()), end, b""


def _is_documentation(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.If):
        return isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _span(node: ast.expr | ast.arg, starts: list[int]) -> tuple[int, int]:
    return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def _find_comment_cuts(text: str, lines: list[bytes], starts: list[int]) -> Iterator[_Cut]:
    """Yield the cuts that remove blank lines, and comments with the space before them.

    A `#` inside a string literal is not a comment.
    """
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        number = token.start[0] - 1
        if token.type == tokenize.NL and not token.line.partition("#")[0].strip():
            yield starts[number], starts[number + 1], b""
        elif token.type == tokenize.COMMENT:
            before = token.line[: token.start[1]]
            yield starts[number] + len(before.rstrip().encode()), starts[number] + len(lines[number].rstrip(b"\n")), b""

"""`trainjob.minify` on all modules of `trainjob` and `trainjob_kfp`: it removes text, and does not change programs."""

from __future__ import annotations

import ast
import tokenize
from io import StringIO
from pathlib import Path

import pytest

import trainjob
import trainjob_kfp
from trainjob.minify import minify

SOURCES = [
    path
    for package in (trainjob, trainjob_kfp)
    for path in sorted(Path(package.__file__).parent.rglob("*.py"))
    if path.parent.name != "cli"
]


class DocstringStripper(ast.NodeTransformer):
    """Remover of docstrings and annotations in a syntax tree, as `minify` does in the text."""

    def visit(self, node):
        self.generic_visit(node)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [child for child in node.body if not self.is_removable(child)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return node

    def is_removable(self, node):
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return text or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: "/".join(path.parts[-3:]))
def test_minify_does_not_change_the_program(path):
    text = path.read_text("utf-8")
    minified = minify(text)
    assert ast.dump(ast.parse(minified)) == ast.dump(DocstringStripper().visit(ast.parse(text)))
    assert not [
        token for token in tokenize.generate_tokens(StringIO(minified).readline) if token.type == tokenize.COMMENT
    ]


def test_minify_keeps_comment_like_lines_inside_strings():
    text = (
        'TEXT = """\n# not a comment\n\n"""\n\n\n'
        'def f(a: "int" = 1, *, ü: str = "ä") -> "x":  # gone\n    """Gone."""\n'
    )
    assert minify(text) == ('TEXT = """\n# not a comment\n\n"""\ndef f(a = 1, *, ü = "ä") :\n    pass\n')

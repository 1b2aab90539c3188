"""Tests that the messages of this project on the page about troubleshooting exist in the sources."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.support.code_blocks import ROOT

PAGE = ROOT / "docs/how-to/troubleshooting.md"
PACKAGES = ("core", "laptop", "demo", "providers/airflow", "components/kfp")
VARIABLE = "..."  # a part of a message that varies, on the page and in `format_string`


def list_messages():
    """Return the messages of this project on the page: rows with `trainjob` in `From`."""
    rows = [row.strip("|").split(" | ") for row in PAGE.read_text("utf-8").splitlines() if row.startswith("|")]
    cells = [row[0] for row in rows if len(row) == 3 and row[1].strip() == "trainjob"]
    return [message for cell in cells for message in re.findall("`([^`]+)`", cell)]


@functools.cache
def list_texts():
    """Return the texts in the sources; `...` replaces the values in them."""
    paths = [path for package in PACKAGES for path in (ROOT / package / "src").rglob("*.py")]
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text("utf-8"))))
    return [text for node in nodes if (text := format_string(node))]


def format_string(node):
    """Return the text of a string or an f-string, or an empty text for another node."""
    if isinstance(node, ast.JoinedStr):
        return "".join(format_string(part) or VARIABLE for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[sd]", VARIABLE, node.value)
    return ""


def test_the_page_quotes_messages():
    assert len(list_messages()) > 60


@pytest.mark.parametrize("message", list_messages())
def test_a_message_exists_in_the_sources(message):
    pattern = re.compile(".*".join(map(re.escape, message.split(VARIABLE))), re.DOTALL)
    assert any(pattern.search(text) for text in list_texts())

"""Tests of the notation of control characters, with any text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.control_characters import escape_control_characters

BIDIRECTIONAL = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
COLOR = re.compile(r"\x1b\[[0-9;:]*m")

sequences = st.sampled_from(
    [
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[m",
        "\x1b[38;5;9m",
        "\x1b[2J",
        "\x1b]52;c;aGk=\x07",
        "\x9b31m",
        "\x1b[>4;2m",
        "\r",
        "\x85",
    ]
)
texts = st.lists(st.text() | sequences | st.characters(max_codepoint=0x9F), max_size=20).map("".join)


def is_safe(character: str) -> bool:
    return character in "\t\n" or unicodedata.category(character) not in ("Cc", "Cs", "Zl", "Zp")


@given(texts)
def test_no_control_character_remains_and_a_second_pass_changes_nothing(text):
    escaped = escape_control_characters(text)
    assert all(map(is_safe, escaped))
    assert not set(BIDIRECTIONAL) & set(escaped)
    assert escape_control_characters(escaped) == escaped
    escaped.encode()


@given(texts)
def test_with_colors_only_color_sequences_remain_and_they_end_with_the_text(text):
    escaped = escape_control_characters(text, keep_colors=True)
    assert all(map(is_safe, COLOR.sub("", escaped)))
    assert escape_control_characters(escaped, keep_colors=True) == escaped
    assert COLOR.findall(escaped)[-1:] in ([], ["\x1b[0m"], ["\x1b[m"])


@given(st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(" \t\n")))
def test_printable_text_is_unchanged(text):
    assert escape_control_characters(text) == text
    assert escape_control_characters(text, keep_colors=True) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    {
        "clipboard": ("\x1b]52;c;aGk=\x07", "^[]52;c;aGk=^G"),
        "screen": ("\x1b[2J", "^[[2J"),
        "8-bit sequence": ("\x9b2J", "<U+009B>2J"),
        "carriage return": ("loss 1\rdone", "loss 1^Mdone"),
        "override": ("user\u202eadmin", "user<U+202E>admin"),
        "delete": ("a\x7f\x00", "a^?^@"),
        "words of other scripts": ("Modèle 模型 👩‍🔬 مرحبا", "Modèle 模型 👩‍🔬 مرحبا"),
    }.values(),
)
def test_notation(text, escaped):
    assert escape_control_characters(text) == escaped


def test_colors_stay_if_wanted_and_nothing_else():
    text = "\x1b[1;31mred\x1b[2J\x1b]8;;http://x\x1b\\ \x1b[>4;2m"
    assert escape_control_characters(text, keep_colors=True) == "\x1b[1;31mred^[[2J^[]8;;http://x^[\\ ^[[>4;2m\x1b[0m"
    assert escape_control_characters("\x1b[31mred\x1b[0m", keep_colors=True) == "\x1b[31mred\x1b[0m"

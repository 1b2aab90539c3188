"""The page of terminal sessions: commands without a cluster print what the page shows, and the others its structure."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[3] / "tools" / "sessions"))

from record import MIGRATE, PAGE, record_migrate, replace_varying
from screen import render

SESSION = re.compile(r"^```console\n\$ (?P<typed>.+)\n(?P<text>(?:.*\n)*?)```$", re.M)


@pytest.fixture(scope="module")
def sessions():
    return {session["typed"]: session["text"] for session in SESSION.finditer(PAGE.read_text(encoding="utf-8"))}


def test_commands_without_a_cluster_print_what_the_page_shows(sessions):
    again = {session["typed"]: session["text"] for session in SESSION.finditer(record_migrate())}
    assert len(again) == len(MIGRATE)
    assert {typed: sessions[typed] for typed in again} == again


def test_the_page_shows_the_commands_that_observe_jobs(sessions):
    described = next(text for typed, text in sessions.items() if typed.startswith("trainjob describe "))
    for words in ("run key     airflow ", "\nSteps\n", "\nPods\n", "\nTimeline\n"):
        assert words in described
    assert sessions["trainjob list"].split()[:5] == ["NAME", "PHASE", "STEP", "QUEUE", "PROGRESS"]
    bar = r"Running +- +━[━╸╺]* +step \d+/\d+ \(\d+ %\), epoch \d+/\d+, loss [0-9.]+ +1/1"
    assert re.search(bar, sessions["trainjob watch"])
    assert "exact match: " in sessions["make demo"]


def test_a_table_that_is_drawn_again_is_rendered_once():
    drawn = "\x1b[?25la  \x1b[1mold\x1b[0m\r\nb\r\n\x1b[1A\x1b[2K\x1b[1A\x1b[2Ka  new\r\nb\r\n\x1b[?25h"
    assert render(drawn) == "a  new\nb\n"


def test_varying_texts_are_replaced_and_columns_stay_aligned():
    output = "fine-tune-0f3c9a11-node-0-0-x7x2p  12s  2026-11-22T03:38:46Z  12s, after 12s"
    assert replace_varying(output) == "fine-tune-1a2b3c4d-node-0-0-x7k2m  5s   2026-01-01T00:00:00Z  5s, after 5s"

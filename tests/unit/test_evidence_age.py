"""Tests of the measurements that pages of docs/evidence name, and of their ages."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.support.code_blocks import ROOT
from tools.evidence import check_age, measurement
from tools.evidence.features import check_rows
from tools.evidence.measurement import MEASURED, PAGES, UNRECORDED, WITHOUT_MEASUREMENT, describe_measurement, read_ages


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Return a function that commits a change of a file in a repository of its own."""

    def run(*command):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command], cwd=tmp_path, check=True)

    def commit(path="core/src/a.py"):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.read_text() + "1\n" if file.exists() else "")
        run("add", "-A")
        run("commit", "-q", "-m", "change")

    run("init", "-q")
    commit()
    monkeypatch.setattr(measurement, "ROOT", tmp_path)
    return commit


def test_each_page_has_measured_code_or_a_reason():
    assert {page.name for page in PAGES.glob("*.md")} == {*MEASURED, *WITHOUT_MEASUREMENT}
    paths = {path for paths in MEASURED.values() for path in paths}
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_the_age_counts_changes_of_the_measured_code_only(repository):
    text = describe_measurement("make reliability")
    assert re.match(
        r"commit `[0-9a-f]{10}`, \d{4}-\d\d-\d\d, \d+ cores \(.+\), Python [\d.]+, `make reliability`$", text
    )
    repository()
    repository("docs/page.md")
    [age] = read_ages("reliability.md", text)
    assert (age.commits, age.has_commit) == (1, True)
    assert str(age).endswith(": 1 commits have changed the measured code since")


def test_a_changed_work_tree_is_named(repository):
    (measurement.ROOT / "core/src/a.py").write_text("changed")
    assert " with changes, " in describe_measurement("make bench")


def test_an_old_measurement_is_refused(repository, monkeypatch):
    monkeypatch.setattr(check_age, "LIMIT", 1)
    text = describe_measurement("make reliability")
    repository()
    assert [is_error for _, is_error in check_age.check_page("reliability.md", text)] == [False]
    repository()
    [(message, is_error)] = check_age.check_page("reliability.md", text)
    assert is_error
    assert message.endswith("2 commits have changed the measured code since, 1 are allowed; measure again")


@pytest.mark.parametrize("page, text", [("reliability.md", "A table without a measurement"), ("new.md", "A new page")])
def test_a_page_without_a_measurement_is_refused(page, text):
    assert [is_error for _, is_error in check_age.check_page(page, text)] == [True]


def test_an_unknown_history_is_reported_and_not_refused(tmp_path, monkeypatch):
    """A shallow clone, or a folder without git, does not have the commits since a measurement."""
    monkeypatch.setattr(measurement, "ROOT", tmp_path)
    [(message, is_error)] = check_age.check_page("airflow.md", "Measured: commit `0123456789`, 2026-11-22, 2 cores.")
    assert not is_error
    assert "its age is not known" in message


def test_a_framework_or_a_tracker_without_a_row_is_refused():
    with pytest.raises(SystemExit, match=r"correct the rows of tools/evidence/features\.py: axolotl"):
        check_rows(["torchtune", "trl", "llamafactory", "unsloth", "axolotl"], ["mlflow", "wandb", "tensorboard"])
    with pytest.raises(SystemExit, match="wandb"):
        check_rows(["torchtune", "trl", "llamafactory", "unsloth"], ["mlflow", "tensorboard"])


def test_a_measurement_without_a_commit_is_refused():
    text = f"Measured: {UNRECORDED}, 2026-11-29, 2 cores."
    [(message, is_error)] = check_age.check_page("conformance.md", text)
    assert is_error
    assert "generate the page again" in message

"""Rows as JSON Lines, and the selection of rows: nothing is lost, and no value changes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal

import datasets
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus.datasets import CASES
from tests.integration.programs.fetch.conftest import ROOT
from trainjob.errors import FetchError
from trainjob.frameworks.fine_tuning.dataset_files import list_row_files
from trainjob.frameworks.fine_tuning.rows import load_rows
from trainjob.frameworks.trl.pod.run_arguments import parse_run_arguments
from trainjob.programs.fetch.preparation import WORK_FOLDER, Preparation
from trainjob.programs.fetch.rows import prepare_rows
from trainjob.programs.fetch.rows.json_lines import format_row, is_representable, write_rows
from trainjob.programs.fetch.rows.splits import hold_out, select_rows

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
VALUES = (
    TEXTS,
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.fixed_dictionaries({"role": TEXTS, "content": st.none() | TEXTS}), max_size=3),
)


@st.composite
def tables(draw):
    """Return rows whose columns have one type each, with nulls."""
    columns = [st.none() | kind for kind in draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))]
    names = draw(st.lists(NAMES, min_size=len(columns), max_size=len(columns), unique=True))
    row = st.fixed_dictionaries(dict(zip(names, columns, strict=True)))
    return draw(st.lists(row, min_size=1, max_size=8))


def write(rows):
    target = io.BytesIO()
    write_rows(rows, target)
    return [json.loads(line) for line in target.getvalue().split(b"\n")[:-1]]


@given(tables())
def test_rows_are_written_without_a_change(rows):
    assert write(datasets.Dataset.from_list(rows)) == rows


def test_more_rows_than_a_batch_are_written_in_their_order():
    rows = [{"number": number} for number in range(2500)]
    assert write(datasets.Dataset.from_list(rows)) == rows


def test_a_refused_row_of_a_later_batch_is_named():
    rows = datasets.Dataset.from_list(
        [{"x": {"y": [float(number)]}} for number in range(1500)] + [{"x": {"y": [float("inf")]}}]
    )
    with pytest.raises(FetchError, match="row 1501, column x: it has NaN or an infinite number"):
        write(rows)


def test_dates_and_decimal_numbers_become_texts():
    zone = timezone(timedelta(hours=2))
    row = {"a": datetime(2024, 1, 2, 3, 4, 5, 6, zone), "b": date(2024, 1, 2), "c": time(3, 4), "d": Decimal("1.50")}
    assert json.loads(format_row(row)) == {
        "a": "2024-01-02T03:04:05.000006+02:00",
        "b": "2024-01-02",
        "c": "03:04:00",
        "d": "1.50",
    }


@pytest.mark.parametrize(
    ("kind", "representable"),
    [
        (pyarrow.string(), True),
        (pyarrow.list_(pyarrow.struct({"a": pyarrow.large_string(), "b": pyarrow.float16()})), True),
        (pyarrow.timestamp("ns", "UTC"), True),
        (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), True),
        (datasets.Array2D((2, 2), "int8")(), True),
        (pyarrow.binary(), False),
        (pyarrow.list_(pyarrow.large_binary(), 2), False),
        (pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()}), False),
        (pyarrow.map_(pyarrow.string(), pyarrow.string()), False),
        (pyarrow.duration("s"), False),
    ],
    ids=str,
)
def test_types_that_json_does_not_have_are_known(kind, representable):
    assert is_representable(kind) == representable


@given(st.integers(1, 30), st.integers(-40, 40) | st.none(), st.integers(-40, 40) | st.none())
def test_a_slice_is_that_of_a_list(count, first, end):
    rows = datasets.Dataset.from_dict({"number": list(range(count))})
    notation = f"train[{'' if first is None else first}:{'' if end is None else end}]"
    expected = list(range(count))[first:end]
    try:
        found = select_rows({"train": rows}, "split", notation)["number"]
    except ValueError as error:
        assert "it means no rows: train has" in str(error)
        found = []
    assert list(found) == expected


@given(st.integers(2, 60), st.floats(0.01, 0.99))
def test_every_row_is_for_training_or_for_evaluation(count, fraction):
    rows = datasets.Dataset.from_dict({"number": list(range(count))})
    try:
        train, held_out = hold_out(rows, fraction)
    except ValueError as error:
        assert "rows would be left for training" in str(error)
        return
    assert sorted([*train["number"], *held_out["number"]]) == list(range(count))
    assert train.num_rows
    assert abs(held_out.num_rows - count * fraction) < 1
    assert [list(part["number"]) for part in hold_out(rows, fraction)] == [
        list(train["number"]),
        list(held_out["number"]),
    ]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.rows and not case.path])
def test_a_training_reads_the_same_rows_from_a_prepared_dataset(name, tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    CASES[name].write(tmp_path / "source")
    for file in prepare_rows(tmp_path, Preparation(), [], lambda _: None):
        (tmp_path / file.path).parent.mkdir()
        (tmp_path / WORK_FOLDER / file.path).rename(tmp_path / file.path)
    as_they_are, prepared = (load(tmp_path / folder, CASES[name].method) for folder in ("source", "data"))
    assert list_row_files(tmp_path / "data")[0].path == tmp_path / "data/train.jsonl"
    assert prepared.to_list() == as_they_are.to_list()


def load(folder, method):
    words = ("--model", "m", "--dataset", str(folder), "--output", "o", "--trl-version", "1.16.0", method)
    return load_rows(parse_run_arguments(words))["train"]


@pytest.mark.slow
def test_an_image_without_datasets_installs_it(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source/train.csv").write_text("number\n1\n2\n3\n4\n")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    script = """
import pathlib, sys
from trainjob.programs.fetch.preparation import WORK_FOLDER, Preparation
from trainjob.programs.fetch.rows import prepare_rows
root = pathlib.Path(sys.argv[1])
for file in prepare_rows(root, Preparation(eval_fraction=0.5, columns={"count": "number"}), [], print):
    print((root / ".trainjob-fetch/rows" / file.path).read_text(), end="")
"""
    done = subprocess.run(
        [tmp_path / "venv/bin/python", "-c", script, tmp_path],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "core/src"), "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line)["count"] for line in done.stdout.splitlines() if line.startswith("{")]
    assert sorted(lines) == [1, 2, 3, 4]

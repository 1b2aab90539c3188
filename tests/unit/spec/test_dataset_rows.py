"""Fields of `InitializeDataset` that prepare rows: what is accepted, and what is refused before anything is sent."""

from __future__ import annotations

import pytest
from datasets import ReadInstruction
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import InvalidSpec
from trainjob.spec import InitializeDataset

ROWS, SHARES = st.integers(-999, 999).map(str), st.integers(-100, 100).map(lambda share: f"{share}%")
BOUNDARIES = st.sampled_from([ROWS, SHARES]).flatmap(lambda kind: st.tuples(*[st.just("") | kind] * 2))
SLICES = st.builds(
    lambda name, slices: name + (f"[{slices[0]}:{slices[1]}]" if slices else ""),
    st.sampled_from(["train", "test", "a.b", "validation_2"]),
    st.none() | BOUNDARIES,
)


def build(**fields):
    return InitializeDataset(storage_uri="hf://o/n", workspace="w", **fields)


@given(st.lists(SLICES, min_size=1, max_size=3), st.sampled_from(["+", " + "]))
def test_the_notation_of_datasets_is_accepted(slices, separator):
    notation = separator.join(slices)
    ReadInstruction.from_spec(notation)
    assert build(split=notation, eval_split=notation).split == notation


@given(st.text(alphabet="train[]:%+-_0123456789 ().", max_size=12))
def test_what_is_accepted_is_understood_by_datasets(notation):
    try:
        build(split=notation)
    except InvalidSpec:
        return
    parts = ReadInstruction.from_spec(notation).to_absolute(dict.fromkeys(notation_names(notation), 1000))
    assert all(0 <= part.from_ <= 1000 and 0 <= part.to <= 1000 for part in parts)


def notation_names(notation):
    return [part.partition("[")[0].strip() for part in notation.split("+")]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"split": ""}, "split cannot be ''"),
        (
            {"split": "train[:5000"},
            "split cannot be 'train[:5000': it must be a split or a part of one, such as train, ",
        ),
        ({"split": "train[5000]"}, "split cannot be 'train[5000]'"),
        ({"split": "train[:101%]"}, "split cannot be 'train[:101%]'"),
        ({"eval_split": "train,test"}, "eval_split cannot be 'train,test'"),
        ({"eval_split": "-x"}, "eval_split cannot be '-x'"),
        (
            {"subset": "a/b"},
            "subset cannot be 'a/b': it must be the name of a configuration in the dataset's README.md",
        ),
        ({"subset": "--split"}, "subset cannot be '--split'"),
        ({"eval_fraction": 0}, "eval_fraction cannot be 0: "),
        ({"eval_fraction": 1}, "eval_fraction cannot be 1: "),
        ({"eval_fraction": float("nan")}, "eval_fraction cannot be nan: "),
        (
            {"eval_split": "test", "eval_fraction": 0.1},
            "eval_fraction cannot be 0.1: the rows for evaluation are those of",
        ),
        ({"columns": {"a": "c", "b": "c"}}, "columns cannot be 'c': several names mean the same column"),
        ({"columns": {"a\n": "c"}}, "a column's name has 1 to 256 characters without control characters"),
    ],
)
def test_a_wrong_field_is_refused(fields, message):
    with pytest.raises(InvalidSpec) as refused:
        build(**fields)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "path"),
    [({}, ""), ({"split": "train"}, ""), ({"eval_split": "test"}, "eval"), ({"eval_fraction": 0.1}, "eval")],
)
def test_the_path_of_the_rows_for_evaluation_is_known_before_the_step_runs(fields, path):
    assert build(**fields).eval_dataset_path == path

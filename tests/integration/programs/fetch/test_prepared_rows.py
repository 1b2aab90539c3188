"""Preparation of rows by the fetch program: splits, columns and formats, and the record of the folder."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from tests.integration.programs.fetch.fetch_results import failure_message, is_complete, read_contents, read_receipt
from tests.support.object_server import StoredObject
from tests.support.s3_server import S3Server
from trainjob.frameworks.input_identity import identify_inputs
from trainjob.programs.fetch.preparation import EVAL_FILE, TRAIN_FILE
from trainjob.programs.fetch.record import RECORD_FOLDER, read_record

URI = "s3://models/tickets"
ROWS = [
    {"question": f"Frage {number} für 東京?", "answer": f'"{number}", a\nb', "number": number} for number in range(20)
]
TYPED_ROWS = [
    {
        "messages": [{"role": "user", "content": "hé"}, {"role": "assistant", "content": None}],
        "score": 0.1 + 0.2,
        "count": 2**60 + number,
        "good": number % 2 == 0,
        "note": None if number else "only one",
    }
    for number in range(10)
]
README = """---
configs:
- config_name: main
  data_files: [{split: train, path: main/train.jsonl}, {split: test, path: main/test.jsonl}]
- config_name: socratic
  data_files: [{split: train, path: socratic/train.jsonl}]
---
"""

OUTSIDE = b"---\nconfigs: [{config_name: default, data_files: ../.trainjob-fetch/record.jsonl}]\n---\n"


def to_lines(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def to_csv(rows, delimiter=","):
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode("utf-8-sig")  # as Excel's "CSV UTF-8"


def to_parquet(rows):
    written = io.BytesIO()
    pyarrow.parquet.write_table(rows if isinstance(rows, pyarrow.Table) else pyarrow.Table.from_pylist(rows), written)
    return written.getvalue()


SPLITS = {"train.jsonl": to_lines(ROWS), "test.jsonl": to_lines(ROWS[:4])}


@pytest.fixture
def store():
    with S3Server() as server:
        yield server


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return tmp_path / "workspace" / "dataset"


@pytest.fixture
def start(start_fetch, store):
    """Return a function that starts the program with files in the store."""

    def run(files, *options):
        for key in [key for key in store.objects if key.startswith("models/tickets/")]:
            del store.objects[key]
        store.objects |= {f"models/tickets/{name}": StoredObject(data, {}) for name, data in files.items()}
        store.requests.clear()
        return start_fetch("dataset", URI, *options, ENDPOINT=store.url, **store.environment)

    return run


@pytest.fixture
def prepare(start):
    """Return a function that runs the program with files in the store, and returns its result."""

    def run(files, *options):
        process = start(files, *options)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run


def read_rows(dataset, path=TRAIN_FILE):
    return [json.loads(line) for line in (dataset / path).read_bytes().split(b"\n")[:-1]]


def list_fetched(store):
    return [key for method, key in store.requests if method == "GET" and key != "models"]


@pytest.mark.parametrize(
    "files",
    [
        {"rows.csv": to_csv(ROWS)},
        {"rows.tsv": to_csv(ROWS, "\t")},
        {"rows.jsonl": to_lines(ROWS)},
        {"rows.json": json.dumps(ROWS).encode()},
        {"rows.json.gz": gzip.compress(to_lines(ROWS))},
        {
            "data/train-00000-of-00002.parquet": to_parquet(ROWS[:7]),
            "data/train-00001-of-00002.parquet": to_parquet(ROWS[7:]),
        },
        {"train.csv": to_csv(ROWS), "test.csv": to_csv([{"other": 1}])},
    ],
    ids=["Excel", "tsv", "jsonl", "json", "json.gz", "parquet", "other columns in another split"],
)
def test_every_row_of_a_format_is_written(prepare, dataset, files):
    done = prepare(files, "--split", "train")
    read_receipt(done)
    assert read_rows(dataset) == ROWS
    assert sorted(read_contents(dataset)) == sorted([TRAIN_FILE, *(f"source/{name}" for name in files)])
    assert "fetch: the split train has 20 rows, columns question, answer, number" in done.stdout
    assert f"fetch: 20 rows for training in {dataset / TRAIN_FILE}" in done.stdout
    assert is_complete(dataset)


def test_a_comma_at_the_end_of_each_line_moves_no_value(prepare, dataset):
    read_receipt(prepare({"train.csv": b"a,b\n1,2,\n3,4,\n"}, "--split", "train"))
    assert read_rows(dataset) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_values_are_not_changed(prepare, dataset, name):
    data = to_lines(TYPED_ROWS) if name == "rows.jsonl" else to_parquet(TYPED_ROWS)
    read_receipt(prepare({name: data}, "--split", "train"))
    assert read_rows(dataset) == TYPED_ROWS


def test_texts_that_are_read_as_dates_are_reported(prepare, dataset):
    rows = [{"day": f"2024-01-0{number}", "at": [{"when": "2024-01-01T10:00:00Z"}], "text": "a"} for number in (1, 2)]
    done = prepare({"train.jsonl": to_lines(rows)}, "--split", "train")
    read_receipt(done)
    days = [f"2024-01-0{number}T00:00:00" for number in (1, 2)]
    assert [row["day"] for row in read_rows(dataset)] == days
    assert "fetch: the dates and times in day, at are written as datasets reads them, in ISO 8601" in done.stdout


def test_splits_and_columns_are_those_of_the_request(prepare, dataset):
    options = ("--split", "train[:5]+train[-2:]", "--eval-split", "test[50%:]", "--columns", '{"prompt": "question"}')
    read_receipt(prepare(SPLITS, *options))
    renamed = [{"prompt": row["question"], **{name: row[name] for name in ("answer", "number")}} for row in ROWS]
    assert read_rows(dataset) == [*renamed[:5], *renamed[-2:]]
    assert read_rows(dataset, EVAL_FILE) == renamed[2:4]


def test_columns_may_exchange_their_names(prepare, dataset):
    read_receipt(prepare(SPLITS, "--columns", '{"answer": "question", "question": "answer"}'))
    assert [row["answer"] for row in read_rows(dataset)] == [row["question"] for row in ROWS]


def test_a_fraction_is_held_out_the_same_in_each_run(prepare, dataset):
    found = []
    for files in (SPLITS, {"train.csv": to_csv(ROWS)}):
        read_receipt(prepare(files, "--eval-fraction", "0.25"))
        found.append((read_rows(dataset), read_rows(dataset, EVAL_FILE)))
    assert found[0] == found[1]
    train, held_out = found[0]
    assert (len(train), len(held_out)) == (15, 5)
    assert sorted([*train, *held_out], key=lambda row: row["number"]) == ROWS


def test_files_of_another_format_are_reported(prepare, dataset):
    """`datasets` 5.0.1 reads the format of most files."""
    files = {f"data/train-{number}.csv": to_csv(ROWS[number : number + 1]) for number in (0, 1)}
    done = prepare({**files, "data/more.jsonl": to_lines(ROWS[2:3]), "LICENSE": b"mine"}, "--split", "train")
    read_receipt(done)
    assert read_rows(dataset) == ROWS[:2]
    assert "fetch: not read, because datasets reads one format of a dataset: data/more.jsonl\n" in done.stdout


def test_a_subset_is_a_configuration_of_the_readme(prepare, dataset):
    files = {"README.md": README.encode(), "socratic/train.jsonl": to_lines(ROWS[:3])}
    files |= {f"main/{name}": data for name, data in SPLITS.items()}
    read_receipt(prepare(files, "--subset", "socratic"))
    assert read_rows(dataset) == ROWS[:3]
    read_receipt(prepare(files, "--subset", "main", "--split", "test"))
    assert read_rows(dataset) == ROWS[:4]
    assert "subset cannot be 'socratics': there is no such subset: the dataset has main, socratic" in failure_message(
        prepare(files, "--subset", "socratics")
    )
    assert "subset is required: name one of the dataset's subsets: main, socratic" in failure_message(
        prepare(files, "--split", "train")
    )


def test_the_types_in_the_readme_are_used(prepare, dataset):
    readme = b"---\ndataset_info:\n  features:\n  - {name: code, dtype: string}\n---\n"
    read_receipt(prepare({"README.md": readme, "train.csv": b"code\n00123\n"}, "--split", "train"))
    assert read_rows(dataset) == [{"code": "00123"}]


def test_a_saved_dataset_is_read(prepare, dataset, tmp_path):
    import datasets

    splits = {"train": datasets.Dataset.from_list(ROWS), "test": datasets.Dataset.from_list(ROWS[:2])}
    datasets.DatasetDict(splits).save_to_disk(tmp_path / "saved")
    files = {
        path.relative_to(tmp_path / "saved").as_posix(): path.read_bytes() for path in (tmp_path / "saved").rglob("*.*")
    }
    read_receipt(prepare(files, "--split", "train[5:]", "--eval-split", "test"))
    assert (read_rows(dataset), read_rows(dataset, EVAL_FILE)) == (ROWS[5:], ROWS[:2])


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        (
            SPLITS,
            ("--split", "training"),
            "split cannot be 'training': there is no such split: the dataset has train, test",
        ),
        (
            SPLITS,
            ("--eval-split", "dev[:3]"),
            "eval_split cannot be 'dev[:3]': there is no such split: the dataset has",
        ),
        (SPLITS, ("--split", "train[30:]"), "split cannot be 'train[30:]': it means no rows: train has 20 rows"),
        (
            {"test.jsonl": to_lines(ROWS), "validation.jsonl": to_lines(ROWS)},
            ("--eval-fraction", "0.1"),
            "split is required: name one, because none is train: the dataset has the splits validation, test",
        ),
        (
            SPLITS,
            ("--columns", '{"prompt": "text"}'),
            "columns cannot be 'text': there is no such column: the dataset has the columns question, answer, number",
        ),
        (
            SPLITS,
            ("--columns", '{"answer": "question"}'),
            "columns.answer cannot be 'question': there is another column answer, which is kept: the dataset has",
        ),
        (
            {"train.jsonl": to_lines(ROWS[:1])},
            ("--eval-fraction", "0.5"),
            "eval_fraction cannot be 0.5: none of the 1 rows would be left for training",
        ),
        (
            {"train.csv": to_csv([{"question": "a", "answer": "b"}], ";")},
            ("--split", "train"),
            "source are separated by ';': question;answer\n  -> separate them by commas",
        ),
        (
            {"train.csv": to_csv(ROWS, ";")},  # with commas in texts
            ("--split", "train"),
            "source can't be prepared: ParserWarning: Length of header or names does not match length of data",
        ),
        ({"train.jsonl": b'{"a": 1}\n{"a": '}, ("--split", "train"), "source can't be prepared: "),
        ({"notes.bin": b"x"}, ("--split", "train"), "source can't be prepared: "),
        # docs/how-to/own-data.md has what Excel writes.
        (
            {"rows.csv": "text,n\r\nMüller,1\r\n".encode("cp1252")},
            ("--split", "train"),
            "'utf-8' codec can't decode byte",
        ),
        (
            {"rows.txt": "text\tn\r\nMüller\t1\r\n".encode("utf-16")},
            ("--split", "train"),
            "'utf-8' codec can't decode byte",
        ),
        ({"rows.xlsx": b"PK\x03\x04"}, ("--split", "train"), "No (supported) data files found"),
        (
            {"README.md": OUTSIDE, "train.jsonl": to_lines(ROWS)},
            ("--split", "train"),
            "source can't be prepared: ValueError: ",
        ),
        (
            {"train.parquet": to_parquet([{"text": "a", "image": {"bytes": b"\x89PNG", "path": None}}])},
            ("--split", "train"),
            "the column image of ",
        ),
        (
            {"train.parquet": to_parquet([{"text": "a", "score": 1.0}, {"text": "b", "score": float("nan")}])},
            ("--split", "train"),
            "row 2, column score: it has NaN or an infinite number, which JSON does not have",
        ),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(prepare, dataset, files, options, message):
    failed = prepare(files, *options)
    assert failed.returncode in (1, 2), failed.stdout
    assert message in failed.stderr  # after the line in which datasets names a damaged file
    assert not is_complete(dataset)
    assert not (dataset / TRAIN_FILE).exists()
    assert not (dataset / RECORD_FOLDER / "rows").exists()


def test_datasets_infers_types_and_missing_values_of_csv(prepare, dataset):
    """docs/how-to/own-data.md says so."""
    read_receipt(prepare({"train.csv": b"code,text\r\n00123,NA\r\n7,null\r\n8,\r\n9,a\r\n"}, "--split", "train"))
    rows = [json.loads(line) for line in (dataset / TRAIN_FILE).read_text("utf-8").splitlines()]
    assert rows == [{"code": code, "text": text} for code, text in ((123, None), (7, None), (8, None), (9, "a"))]


def test_files_of_a_rarer_format_are_left_out(prepare, dataset):
    files = {"a.jsonl": to_lines(ROWS), "b.jsonl": to_lines(ROWS), "c.csv": to_csv(ROWS)}
    read_receipt(prepare(files, "--split", "train"))
    assert len((dataset / TRAIN_FILE).read_text("utf-8").splitlines()) == 2 * len(ROWS)


def test_the_same_request_does_nothing_and_another_one_fetches_nothing(prepare, store, dataset):
    prepare(SPLITS, "--split", "train[:5]", "--eval-split", "test")
    first = {path: (dataset / path).stat().st_mtime_ns for path in (TRAIN_FILE, EVAL_FILE)}
    same = prepare(SPLITS, "--split", "train[:5]", "--eval-split", "test")
    assert read_receipt(same)["fetched"] == 0
    assert "fetch: all files are in the folder already, prepared" in same.stdout
    assert {path: (dataset / path).stat().st_mtime_ns for path in first} == first
    other = prepare(SPLITS, "--split", "train[:6]")
    assert read_receipt(other)["fetched"] == 0
    assert list_fetched(store) == []
    assert read_rows(dataset) == ROWS[:6]
    assert not (dataset / "eval").exists()


def test_changed_sources_and_a_damaged_file_are_prepared_again(prepare, dataset):
    prepare(SPLITS, "--split", "train")
    (dataset / TRAIN_FILE).write_text("{}\n")
    read_receipt(prepare(SPLITS, "--split", "train"))
    assert read_rows(dataset) == ROWS
    read_receipt(prepare({**SPLITS, "train.jsonl": to_lines(ROWS[::-1])}, "--split", "train"))
    assert read_rows(dataset) == ROWS[::-1]


def test_a_folder_changes_between_files_as_they_are_and_prepared_rows(prepare, dataset):
    files = {"data/train.jsonl": to_lines(ROWS), "data/more.jsonl": to_lines(ROWS[:3])}
    for _ in range(2):
        read_receipt(prepare(files))
        assert read_contents(dataset) == files
        read_receipt(prepare(files, "--split", "train[:3]", "--eval-fraction", "0.5"))
        assert sorted(read_contents(dataset)) == [TRAIN_FILE, EVAL_FILE, *(f"source/{name}" for name in sorted(files))]
        assert set(read_record(dataset).files) == set(read_contents(dataset))
        assert is_complete(dataset)


def test_rows_beside_the_prepared_ones_are_refused(prepare, dataset):
    (dataset / "data").mkdir(parents=True)
    (dataset / "data/own.jsonl").write_bytes(to_lines(ROWS))
    assert "dataset/data has files that this step has not written: own.jsonl" in failure_message(
        prepare(SPLITS, "--split", "train")
    )
    assert (dataset / "data/own.jsonl").read_bytes() == to_lines(ROWS)


def test_a_linked_folder_is_not_followed(prepare, dataset, tmp_path):
    (tmp_path / "outside").mkdir()
    dataset.mkdir(parents=True)
    (dataset / "data").symlink_to(tmp_path / "outside")
    assert "dataset/data is a symbolic link" in failure_message(prepare(SPLITS, "--split", "train"))
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("options", [("--split", "train"), ()], ids=["prepared", "as they are"])
def test_files_of_a_killed_preparation_are_removed(prepare, dataset, options):
    left = dataset / RECORD_FOLDER / "rows/json/default/cache.arrow"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * 1000)
    read_receipt(prepare(SPLITS, *options))
    assert [path.name for path in (dataset / RECORD_FOLDER).iterdir()] == ["lock", "record.jsonl"]


def test_the_identity_of_a_trainings_inputs_has_the_prepared_rows(prepare, dataset, tmp_path):
    found = []
    for split in ("train[:5]", "train[:6]", "train[:5]"):
        prepare(SPLITS, "--split", split)
        found.append(identify_inputs([dataset / "data"], tmp_path / f"output-{len(found)}"))
        recorded = read_record(dataset).files[TRAIN_FILE].sha256
        digests = json.loads((tmp_path / f"output-{len(found) - 1}" / "trainjob_inputs.json").read_text())
        assert [entry[2] for entry in digests.values()] == [recorded]
    assert found[0] == found[2] != found[1]

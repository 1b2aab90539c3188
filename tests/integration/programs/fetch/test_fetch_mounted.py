"""Fetches from a mounted PersistentVolumeClaim or image, by the program as a process."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess

import pytest

from tests.integration.programs.fetch.conftest import PYTHON, ROOT
from tests.integration.programs.fetch.fetch_results import failure_message, is_complete, read_contents, read_receipt
from tests.support.killed_calls import kill_at_file_access
from trainjob.programs.fetch import Fetch
from trainjob.programs.fetch import fetch as fetch_files

SNAPSHOT = "hub/models--acme--tiny/snapshots/0a1b"
FILES = {"config.json": b"{}", "model.safetensors": b"weights" * 999, "original/tokenizer.model": b"tokens"}
DIGEST = f"sha256:{'0' * 64}"


@pytest.fixture
def claim(tmp_path):
    """Return the folder of a claim with a cache of huggingface_hub and a plain folder."""
    folder = tmp_path / "claim"
    blobs = folder / "hub/models--acme--tiny/blobs"
    blobs.mkdir(parents=True)
    for number, (name, data) in enumerate(FILES.items()):
        (blobs / f"{number}").write_bytes(data)
        link = folder / SNAPSHOT / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blobs / f"{number}", link.parent))
    (folder / "rows/more").mkdir(parents=True)
    (folder / "rows/train.jsonl").write_bytes(b"rows" * 9)
    (folder / "rows/more/test.jsonl").write_bytes(b"more rows")
    return folder


@pytest.fixture
def fetch(run_fetch, claim):
    def run(path, kind="dataset", **variables):
        return run_fetch(kind, path if "://" in path else f"pvc://data/{path}", *("--source", str(claim)), **variables)

    return run


@pytest.fixture
def dataset(tmp_path):
    return tmp_path / "workspace" / "dataset"


def identify(path):
    """Return what changes if a file is written or replaced."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def test_a_snapshot_of_a_cache_is_copied_as_files(fetch, tmp_path):
    first = read_receipt(fetch(SNAPSHOT, "model"))
    model = tmp_path / "workspace/model"
    assert read_contents(model) == FILES
    assert not any(path.is_symlink() for path in model.rglob("*"))
    assert (first["files"], first["fetched"]) == (3, 3)
    assert is_complete(model)
    assert read_receipt(fetch(SNAPSHOT, "model")) == {**first, "fetched": 0}


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("rows", {"train.jsonl": b"rows" * 9, "more/test.jsonl": b"more rows"}),
        ("rows/", {"train.jsonl": b"rows" * 9, "more/test.jsonl": b"more rows"}),
        ("rows/train.jsonl", {"train.jsonl": b"rows" * 9}),
        (f"{SNAPSHOT}/config.json", {"config.json": b"{}"}),
    ],
)
def test_a_folder_or_a_file(fetch, dataset, path, files):
    read_receipt(fetch(path))
    assert read_contents(dataset) == files


def test_only_a_changed_file_is_copied_again(fetch, claim, dataset):
    read_receipt(fetch("rows"))
    before = identify(dataset / "more/test.jsonl")
    found = (claim / "rows/train.jsonl").stat()
    (claim / "rows/train.jsonl").write_bytes(b"ROWS" * 9)
    os.utime(claim / "rows/train.jsonl", ns=(found.st_atime_ns, found.st_mtime_ns))  # as rsync -t
    assert read_receipt(fetch("rows"))["fetched"] == 1
    assert (dataset / "train.jsonl").read_bytes() == b"ROWS" * 9
    assert identify(dataset / "more/test.jsonl") == before


def test_a_touched_file_is_compared_and_not_copied(fetch, claim, dataset):
    read_receipt(fetch("rows"))
    before = identify(dataset / "train.jsonl")
    os.utime(claim / "rows/train.jsonl")
    assert read_receipt(fetch("rows"))["fetched"] == 0
    assert identify(dataset / "train.jsonl") == before


def test_the_folder_of_an_earlier_fetch_is_a_source(run_fetch, fetch, claim, tmp_path, dataset):
    read_receipt(fetch("rows"))
    dataset.rename(claim / "fetched")
    read_receipt(fetch("fetched"))
    assert read_contents(dataset) == read_contents(claim / "rows")


def test_a_killed_copy_is_continued(fetch, claim, dataset):
    content = os.urandom(1 << 20) * 64
    (claim / "rows/train.jsonl").write_bytes(content)
    program = (
        "import os, signal\n"
        "from trainjob.programs.fetch import main\n"
        "from trainjob.programs.fetch.part_file import PartFile\n"
        "complete, blocks = PartFile.complete, []\n"
        "def complete_some(part, number):\n"
        "    complete(part, number)\n"
        "    blocks.append(number)\n"
        "    if len(blocks) == 4:\n"
        "        part.sync()\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "PartFile.complete = complete_some\n"
        "main()\n"
    )
    arguments = ("--kind", "dataset", "--folder", str(dataset), "--source", str(claim))
    environment = {"PYTHONPATH": str(ROOT / "core/src"), "STORAGE_URI": "pvc://data/rows/train.jsonl"}
    killed = subprocess.run([PYTHON, "-c", program, *arguments], env=environment, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    part, done = sorted((dataset / ".trainjob-fetch/parts").iterdir())
    assert 4 <= done.read_bytes().count(1) < 8
    inode = part.stat().st_ino
    read_receipt(fetch("rows/train.jsonl"))
    assert read_contents(dataset) == {"train.jsonl": content}
    assert (dataset / "train.jsonl").stat().st_ino == inode


def test_a_copy_that_is_killed_at_any_file_access_is_completed_by_the_next(claim, dataset):
    request = Fetch("dataset", dataset, "pvc://data/rows/more", source=claim)
    points = itertools.count(step=3)
    while kill_at_file_access(lambda: fetch_files(request), next(points)):
        fetch_files(request, report=lambda line: None)
        assert read_contents(dataset) == read_contents(claim / "rows/more")
        assert is_complete(dataset)
        assert not [*(dataset / ".trainjob-fetch/parts").glob("*")]
        shutil.rmtree(dataset)
    assert next(points) > 50


LINKS = {
    "a link out": ("out", "../..", "the symbolic link rows/out -> ../.. leads out of what is mounted"),
    "an absolute link": ("out", "/etc/passwd", "the symbolic link rows/out -> /etc/passwd leads out"),
    "a broken link": ("gone", "nowhere", "the symbolic link rows/gone -> nowhere is broken"),
    "a link to itself": ("self", "self", "the symbolic link rows/self -> self is broken"),
    "a link to its folder": ("up", "..", "the symbolic link rows/up -> .. leads to a folder that contains it"),
}


@pytest.mark.parametrize("case", LINKS)
def test_a_link_that_is_not_followed_is_named(fetch, claim, dataset, case):
    name, target, text = LINKS[case]
    (claim / "rows" / name).symlink_to(target)
    path = "" if case == "a link to its folder" else "rows"
    message = failure_message(fetch(path))
    assert f"pvc://data/{path}: {text}" in message
    assert not dataset.exists()


def test_a_path_through_a_link_out_is_refused(fetch, claim, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("of another pod")
    (claim / "out").symlink_to(tmp_path / "outside")
    for path in ("out/secret", "out/none"):
        message = failure_message(fetch(path))
        assert f"the symbolic link {'out' if path == 'out/none' else path}" in message
        assert "leads out of what is mounted" in message


def test_links_within_the_claim_and_special_files(fetch, claim, dataset):
    (claim / "rows/linked").symlink_to("../hub/models--acme--tiny/blobs")
    (claim / "rows/again").symlink_to("linked")
    os.mkfifo(claim / "rows/pipe")
    (claim / "lost+found").mkdir(mode=0)
    read_receipt(fetch("rows"))
    blobs = {str(number): data for number, data in enumerate(FILES.values())}
    expected = {f"{folder}/{name}": data for folder in ("linked", "again") for name, data in blobs.items()}
    assert read_contents(dataset) == {"train.jsonl": b"rows" * 9, "more/test.jsonl": b"more rows", **expected}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("rowz", "pvc://data/rowz does not exist; . has hub, rows"),
        ("rows/more/x/y", "pvc://data/rows/more/x/y does not exist; rows/more has test.jsonl"),
    ],
)
def test_a_path_that_does_not_exist(fetch, path, text):
    assert text in failure_message(fetch(path))


@pytest.mark.parametrize("reference", [":v1", f"@{DIGEST}", ""])
def test_the_models_of_an_image(fetch, claim, tmp_path, reference):
    """A modelcar of KServe has its files in /models; another image is fetched as a whole."""
    uri = f"oci://registry.example/acme/tiny{reference}"
    read_receipt(fetch(uri))
    assert "rows/train.jsonl" in read_contents(tmp_path / "workspace/dataset")
    (claim / SNAPSHOT).rename(claim / "models")
    for name, data in FILES.items():
        (claim / "models" / name).unlink()
        (claim / "models" / name).write_bytes(data)
    first = read_receipt(fetch(uri, "model"))
    assert read_contents(tmp_path / "workspace/model") == FILES
    assert json.dumps(uri) in json.dumps(first)


def test_a_new_image_with_the_same_times_is_copied(fetch, claim, tmp_path):
    """Reproducible builds give all files of all versions one time."""
    (claim / "models").mkdir()
    for content in (b"weights of v1", b"weights of v2"):
        new = claim / "new"
        new.write_bytes(content)
        os.utime(new, ns=(0, 0))
        new.replace(claim / "models/model.safetensors")
        assert read_receipt(fetch("oci://registry.example/acme/tiny:latest", "model"))["fetched"] == 1
        assert read_contents(tmp_path / "workspace/model") == {"model.safetensors": content}


def test_an_image_that_is_not_mounted(run_fetch, tmp_path):
    message = failure_message(run_fetch("model", "oci://registry.example/a/b:1", "--source", str(tmp_path / "none")))
    assert "oci://registry.example/a/b:1 is not mounted in this pod" in message
    assert "image volumes need Kubernetes 1.35" in message
    message = failure_message(run_fetch("model", "oci://registry.example/a/b:1"))
    assert "--source is required: name the folder at which oci://registry.example/a/b:1 is mounted" in message

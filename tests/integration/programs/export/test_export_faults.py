"""Exports while the store or its network fails: one fault in one request, and kills at random times."""

from __future__ import annotations

import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import RunExport, StartExport, read_receipt
from tests.integration.programs.export.hub_uploads import Uploads, upload_hub
from tests.support.azure_server import AzureServer
from tests.support.export_runs import make_epoch, read_tree
from tests.support.faulty_server import Fault, with_upload_faults
from tests.support.gcs_server import GcsServer
from tests.support.s3_server import S3Server

MB = 1 << 20
FAULTS = {
    "reset in the middle": Fault(sent=MB, is_reset=True),
    "closed in the middle": Fault(sent=MB),
    "response lost": Fault(is_reset=True),
    "408": Fault(408),
    "429 with a time": Fault(429, "1"),
    "500": Fault(500),
    "503": Fault(503),
}
HUB_REQUESTS = {"upload": "PUT /lfs/", "batch": "POST .*/objects/batch", "commit": "POST .*/commit/"}
S3_REQUESTS = {
    "part": "PUT .*partNumber=2",
    "begin of an upload": r"POST .*\?uploads",
    "end of an upload": r"POST .*\?uploadId",
    "small object": "PUT .*config.json",
}


@pytest.fixture
def expected(workspace: Path, run_export: RunExport) -> dict[str, bytes]:
    """Return the files of the export, with weights of two parts."""
    make_epoch(workspace / "output", 1, size=17 * MB)
    read_receipt(run_export(workspace / "export"))
    return read_tree(workspace / "export")


@pytest.mark.parametrize("request_name", HUB_REQUESTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_hub_that_passes_costs_only_time(
    tmp_path: Path, run_export: RunExport, expected: dict[str, bytes], fault: str, request_name: str
) -> None:
    (tmp_path / "hub" / "models").mkdir(parents=True)
    uploads, faults = Uploads("token"), [FAULTS[fault]]
    with upload_hub(tmp_path / "hub", uploads, re.compile(HUB_REQUESTS[request_name]), faults) as hub:
        done = read_receipt(run_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN="token"))
    assert not faults
    assert read_tree(tmp_path / "hub" / "models" / "org" / "name") == expected
    assert (len(uploads.commits), len(done["revision"])) == (1, 40)


# opendal repeats a request after half a second or more.
@pytest.mark.parametrize(
    ("server_class", "request_name"),
    [
        *((S3Server, name) for name in S3_REQUESTS),
        pytest.param(GcsServer, "part", marks=pytest.mark.slow),
        pytest.param(AzureServer, "small object", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_an_object_store_that_passes_costs_only_time(
    run_export: RunExport, expected: dict[str, bytes], server_class: type[S3Server], request_name: str, fault: str
) -> None:
    faults = [FAULTS[fault]]
    handler = with_upload_faults(server_class.handler, re.compile(S3_REQUESTS[request_name]), faults)
    with type("Faulty", (server_class,), {"handler": handler})() as store:
        destination = f"{store.scheme}://models/v1"
        read_receipt(run_export(destination, "--endpoint", store.url, **store.environment))
        assert not faults
        assert store.read_prefix("models/v1") == expected
        assert not store.uploaded_parts or store.scheme == "gs"  # only a lifecycle rule ends those


Check = Callable[[bool], None]


def check_folder(target: Path, expected: dict[str, bytes]) -> Check:
    def check(is_complete: bool) -> None:
        assert read_tree(target) in ([expected] if is_complete else [{}, expected])
        if is_complete:
            assert [path.name for path in target.parent.iterdir()] == [target.name]
            shutil.rmtree(target)

    return check


def check_store(store: S3Server, expected: dict[str, bytes]) -> Check:
    def check(is_complete: bool) -> None:
        found = store.read_prefix("models/v1")
        if is_complete or "manifest.json" in found:
            found.pop("manifest.pending.json", None)
            assert found == expected
        if is_complete:
            assert not store.uploaded_parts
            store.objects.clear()

    return check


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_kills_at_random_times(
    workspace: Path, tmp_path: Path, start_export: StartExport, expected: dict[str, bytes], kind: str
) -> None:
    """After each of 100 kills, the export is whole or absent; the next export completes it and leaves nothing else."""
    chance, killed = random.Random(52), 0  # noqa: S311 - no secret
    with S3Server() as store:
        target = tmp_path / "exports" / "model"
        (workspace / "export").rename(tmp_path / "expected")
        check = check_folder(target, expected) if kind == "folder" else check_store(store, expected)
        arguments = [target] if kind == "folder" else ["s3://models/v1", "--endpoint", store.url]
        environment = {} if kind == "folder" else store.environment
        began = time.monotonic()
        start_export(*arguments, **environment).communicate()
        usual = time.monotonic() - began
        check(True)
        while killed < 100:
            process = start_export(*arguments, **environment)
            time.sleep(chance.uniform(0.3, 1.0) * usual)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += process.returncode != 0
            check(process.returncode == 0)
            if process.returncode:
                completing = start_export(*arguments, **environment)
                _, errors = completing.communicate()
                assert completing.returncode == 0, errors
                check(True)

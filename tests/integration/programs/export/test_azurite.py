"""An export to Azurite, Microsoft's emulator of Azure Blob Storage, and a fetch of it, with a shared key."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.integration.programs.export.export_program import PYTHON, ROOT, RunExport, export_environment
from tests.support.export_runs import read_tree

AZURITE = ROOT / ".cache" / "azurite"
VERSION = "3.37.0"
ACCOUNT = "account"
KEY = base64.b64encode(hashlib.sha512(b"key of the test").digest()).decode()

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("npm"), reason="Azurite needs Node.js and npm")]


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[str]:
    """Run Azurite, and return the URL of an account with the container `models`."""
    if not (AZURITE / "node_modules" / "azurite").exists():
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(AZURITE), f"azurite@{VERSION}"]
        subprocess.run(install, check=True, capture_output=True)
    program = [str(AZURITE / "node_modules" / ".bin" / "azurite-blob"), "--blobHost", "127.0.0.1", "--blobPort", "0"]
    options = ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    env = {**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}
    with subprocess.Popen([*program, *options], env=env, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            url = next(line.split()[-1] for line in server.stdout if "successfully listens" in line)
            yield create_container(f"{url}/{ACCOUNT}", "models")
        finally:
            server.terminate()


def create_container(url: str, name: str) -> str:
    """Create a container, which opendal can't, and return the account's URL."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2022-11-02"}
    lines = [f"{header}:{value}" for header, value in headers.items()]
    signed = "\n".join(["PUT", *[""] * 11, *lines, f"/{ACCOUNT}/{ACCOUNT}/{name}", "restype:container"])
    digest = hmac.digest(base64.b64decode(KEY), signed.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = Request(f"{url}/{name}?restype=container", method="PUT", headers=headers)  # noqa: S310 - on loopback
    urlopen(request, timeout=60).close()  # noqa: S310
    return url


def test_an_exported_model_is_fetched_unchanged(
    endpoint: str, tmp_path: Path, workspace: Path, run_export: RunExport
) -> None:
    run_export(workspace / "export")
    connection = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint};"
    env = {"AZURE_STORAGE_CONNECTION_STRING": connection}
    exported = run_export("az://models/v1", **env)
    assert (exported.returncode, exported.stderr) == (0, "")
    assert '"sent": 0' in run_export("az://models/v1", **env).stdout
    separate = {"AZURE_STORAGE_ACCOUNT": ACCOUNT, "AZURE_STORAGE_KEY": KEY, "ENDPOINT": endpoint}
    address = f"abfss://models@{ACCOUNT}.dfs.core.windows.net/v1"
    fetched = subprocess.run(
        [PYTHON, "-m", "trainjob.programs.fetch", "--kind", "model", "--folder", tmp_path / "next"],
        env=export_environment(tmp_path, STORAGE_URI=address, **separate),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (fetched.returncode, fetched.stderr) == (0, "")
    found = read_tree(tmp_path / "next")
    assert {path: found[path] for path in found if not path.startswith(".trainjob")} == read_tree(workspace / "export")
    other = base64.b64encode(hashlib.sha512(b"another").digest()).decode()
    refused = run_export("az://models/v1", AZURE_STORAGE_CONNECTION_STRING=connection.replace(KEY, other))
    assert "access denied (AuthorizationFailure: " in refused.stderr
    assert not any(key in exported.stdout + refused.stdout + refused.stderr for key in (KEY, other))

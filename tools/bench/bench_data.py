"""Time, CPU time and memory of fetches from the Hub, compared with huggingface_hub and aria2c."""

import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from tests.support.markdown import table
from tools.bench.child_process import measure_program
from tools.bench.data_server import COMMIT, serve, write_repository
from tools.bench.sizes import size

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON = _ROOT / ".venv" / "initializer" / "bin" / "python"
_ROUNDS = size(3, 1)
_REPOSITORIES = {
    "shards": ("8 files of 128 MiB", (8, size(128 << 20, 5 << 20), ".safetensors")),
    "one": ("one file of 512 MiB", (1, size(512 << 20, 9 << 20), ".safetensors")),
    "small": (f"{size(10_000, 20):,} files of 20 kB", (size(10_000, 20), 20_000, ".json")),
}
_LIMIT = "20m"
_CONNECTIONS = {
    "plain": "no limit",
    "tls": "TLS",
    "limited": "20 MiB/s for each connection",
    "limited tls": "TLS, 20 MiB/s for each connection",
}
_CASES = [
    *(("shards", connection) for connection in _CONNECTIONS),
    ("one", "limited"),
    ("small", "plain"),
]
_CLIENTS = {"trainjob": "trainjob", "snapshot": "`snapshot_download`", "aria2c": "aria2c"}
_MAX_MEMORY = 300  # MiB
_GOALS = {"small": ("snapshot", 1.25)}  # the others are compared with the fastest client


def measure():
    """Return the median wall time, CPU time and memory of each client in each case."""
    if not (shutil.which("aria2c") and (shutil.which("nginx") or Path("/usr/sbin/nginx").exists())):
        sys.exit("this part needs Debian's packages nginx-light and aria2")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)  # nginx reads as another user
        for name, (_, arguments) in _REPOSITORIES.items():
            write_repository(root, name, *arguments)
        return {"cases": [_measure_case(root, *case) for case in _CASES]}


def section(found):
    """Return the section of the page."""
    rows = [
        (_describe(case), _CLIENTS[client], f"{values['wall']:.1f}", f"{values['cpu']:.1f}", f"{values['memory']:.0f}")
        for case in found["cases"]
        for client, values in case["clients"].items()
    ]
    return (
        "## Data\n\n"
        "A fetch from a Hub on the loopback interface: nginx that redirects large files to another nginx, its CDN. The "
        f"clients alternate; the values are medians of {_ROUNDS}. Only trainjob checks a SHA-256 and waits until the "
        f"files are on disk.\n\n{table(('Files', 'Client', 's', 'CPU s', 'MiB'), rows)}"
    )


def goals(found):
    """Yield the goals, whether each is met, and the measured values."""
    for case in found["cases"]:
        name, clients = case["repository"], case["clients"]
        peers = {client: values["wall"] for client, values in clients.items() if client != "trainjob"}
        peer, factor = _GOALS.get(name, (min(peers, key=peers.__getitem__), 1.25))
        ratio = clients["trainjob"]["wall"] / peers[peer]
        goal = f"a fetch ({_describe(case)}) takes at most {factor} times the time of {_CLIENTS[peer]}"
        yield goal, ratio <= factor, f"{ratio:.2f} times"
    memory = max(case["clients"]["trainjob"]["memory"] for case in found["cases"])
    yield f"a fetch needs at most {_MAX_MEMORY} MiB", memory <= _MAX_MEMORY, f"{memory:.0f} MiB"


def _describe(case):
    return f"{_REPOSITORIES[case['repository']][0]}, {_CONNECTIONS[case['connection']]}"


def _measure_case(root, repository, connection):
    with serve(root, tls="tls" in connection, limit=_LIMIT if "limited" in connection else "") as server:
        rounds = [{client: _run(client, server, repository) for client in _CLIENTS} for _ in range(_ROUNDS)]
    clients = {
        client: {value: statistics.median(one[client][value] for one in rounds) for value in ("wall", "cpu", "memory")}
        for client in _CLIENTS
    }
    return {"repository": repository, "connection": connection, "clients": clients}


def _run(client, server, repository):
    """Return the wall time, CPU time and memory of one fetch, whose result is checked."""
    with tempfile.TemporaryDirectory() as folder:
        command, environment = _COMMANDS[client](server, repository, folder)
        certificates = {name: str(server.authority) for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")}
        environment = {"PATH": os.environ["PATH"], "HOME": folder, **certificates, **environment}
        found = measure_program(command, environment)
        missing = [path for path in server.paths[repository] if not (Path(folder) / "files" / path).is_file()]
        if missing:
            raise RuntimeError(f"{client} has not fetched {missing[0]}")
    return found


def _kind(repository):
    return "dataset" if repository == "small" else "model"


def _fetch(server, repository, folder):
    command = [_PYTHON, "-m", "trainjob.programs.fetch", "--kind", _kind(repository), "--folder", f"{folder}/files"]
    environment = {"HF_ENDPOINT": server.url, "STORAGE_URI": f"hf://bench/{repository}"}
    return command, {**environment, "PYTHONPATH": str(_ROOT / "core" / "src")}


def _snapshot(server, repository, folder):
    arguments = f"repo_type='{_kind(repository)}', local_dir='{folder}/files'"
    code = f"import huggingface_hub; huggingface_hub.snapshot_download('bench/{repository}', {arguments})"
    # The server has no Xet.
    return [_PYTHON, "-c", code], {
        "HF_ENDPOINT": server.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }


def _aria2c(server, repository, folder):
    prefix = "/datasets" if _kind(repository) == "dataset" else ""
    address = f"{server.url}{prefix}/bench/{repository}/resolve/{COMMIT}"
    addresses = Path(folder) / "addresses"
    addresses.write_text("".join(f"{address}/{path}\n out={path}\n" for path in server.paths[repository]))
    parallel = ["-j16"] if repository == "small" else ["-j4", "-x16", "-s16", "-k1M"]
    options = ["-q", "--file-allocation=none", "--ca-certificate", str(server.authority), *parallel]
    return ["aria2c", *options, "-i", str(addresses), "-d", f"{folder}/files"], {}


_COMMANDS = {"trainjob": _fetch, "snapshot": _snapshot, "aria2c": _aria2c}

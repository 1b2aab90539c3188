"""Time, CPU time and memory of exports, and of fetches from S3, compared with the programs of the field."""

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.support.export_runs import make_run
from tests.support.markdown import table
from tools.bench.child_process import measure_program
from tools.bench.peer_programs import find_program
from tools.bench.sizes import size
from tools.bench.upload_server import TOKEN

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON = _ROOT / ".venv" / "initializer" / "bin" / "python"
_ROUNDS, _FILES, _FILE_BYTES = size(3, 1), size(8, 2), size(128 << 20, 9 << 20)
_LIMIT = 50_000_000  # bytes per second
_KEYS = {"access": "benchmark", "secret": "of-the-benchmark"}
_CASES = {
    "folder": (f"export to a folder, {_FILES} files of {_FILE_BYTES >> 20} MiB", ("trainjob", "cp", "cp checked")),
    "hub": ("export to the Hub", ("trainjob", "upload_folder")),
    "limited hub": ("export to the Hub, 50 MB/s for each connection", ("trainjob", "upload_folder")),
    "s3": ("export to S3", ("trainjob", "aws", "s5cmd")),
    "s3 fetch": ("fetch from S3", ("trainjob", "aws", "s5cmd", "s5cmd checked")),
}
_CLIENTS = {
    "trainjob": "trainjob",
    "cp": "`cp` and `sync`",
    "cp checked": "`cp`, `sync` and `openssl sha256`",
    "upload_folder": "`upload_folder`",
    "aws": "AWS CLI",
    "s5cmd": "s5cmd",
    "s5cmd checked": "s5cmd, `sync` and `openssl sha256`",
}
_GOALS = {
    "folder": {"cp": 1.25, "cp checked": 1.25},
    "hub": {"upload_folder": 1.25},
    "limited hub": {"upload_folder": 1.25},
    "s3": {"aws": 1.25},
    "s3 fetch": {"s5cmd": 1.5, "s5cmd checked": 1.25},
}
_MAX_MEMORY = 300  # MiB


def measure():
    """Return the medians of each client in each case."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _write_run(root / "workspace")
        return {"cases": {name: _measure_case(root, name, clients) for name, (_, clients) in _CASES.items()}}


def section(found):
    """Return the section of the page."""
    rows = [
        (_CASES[name][0], _CLIENTS[client], *(f"{values[key]:.1f}" for key in ("wall", "cpu", "memory", "written")))
        for name, clients in found["cases"].items()
        for client, values in clients.items()
    ]
    return (
        "## Exports, and fetches from S3\n\n"
        f"A model of {_FILES} files of {_FILE_BYTES >> 20} MiB. S3 is versitygw, the Hub a server of the tests without "
        "Xet, both on the loopback interface; cached files cost no read from the disk. The clients alternate; the "
        f"values are medians of {_ROUNDS}. trainjob also checks all weights and every SHA-256, and its results are "
        f"complete or absent.\n\n{table(('What', 'Client', 's', 'CPU s', 'MiB', 'GB written'), rows)}"
    )


def goals(found):
    """Yield the goals, whether each is met, and the measured values."""
    for name, clients in found["cases"].items():
        for peer, factor in _GOALS[name].items():
            ratio = clients["trainjob"]["wall"] / clients[peer]["wall"]
            goal = f"{_CASES[name][0]}: at most {factor} times the time of {_CLIENTS[peer]}"
            yield goal, ratio <= factor, f"{ratio:.2f} times"
    memory = max(clients["trainjob"]["memory"] for clients in found["cases"].values())
    yield f"an export needs at most {_MAX_MEMORY} MiB", memory <= _MAX_MEMORY, f"{memory:.0f} MiB"


def _write_run(workspace):
    """Write the output of a finished training, with weights of random bytes."""
    make_run(workspace / "output", epochs=1, shards=_FILES)
    (workspace / "model").mkdir()
    for number in range(1, _FILES + 1):
        tensor = {"dtype": "I8", "shape": [_FILE_BYTES], "data_offsets": [0, _FILE_BYTES]}
        head = json.dumps({"__metadata__": {"format": "pt"}, f"layer{number}": tensor}).encode()
        name = f"model-{number:05}-of-{_FILES:05}.safetensors"
        (workspace / "output" / "epoch_0" / name).write_bytes(
            len(head).to_bytes(8, "little") + head + os.urandom(_FILE_BYTES)
        )


def _measure_case(root, name, clients):
    rounds = [{client: _serve_and_run(root, name, client) for client in clients} for _ in range(_ROUNDS)]
    return {
        client: {value: statistics.median(one[client][value] for one in rounds) for value in rounds[0][client]}
        for client in clients
    }


def _serve_and_run(root, name, client):
    with _SERVERS[name](root) as address:  # a new hub, because it knows the files of earlier uploads
        return _run(root, name, client, address)


def _run(root, name, client, address):
    """Return what one run has cost; its result is checked by size."""
    target = root / "results" / uuid.uuid4().hex[:8]
    command, environment = _COMMANDS[name.split()[-1], client](root, target, address)
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), "PYTHONPATH": str(_ROOT / "core/src"), **environment}
    target.mkdir(parents=True)
    try:
        found = measure_program(command, environment)
        if name in ("folder", "s3 fetch") and _size(target) < _FILES * _FILE_BYTES:
            raise RuntimeError(f"{client} has left out files")
    finally:
        shutil.rmtree(target)
        shutil.rmtree(root / "s3/models" / target.name, ignore_errors=True)
    return found


def _size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


@contextlib.contextmanager
def _serve_nothing(_):
    yield ""


@contextlib.contextmanager
def _serve_hub(root, rate=0):
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}:{_ROOT / 'core/src'}:{_ROOT / 'laptop/src'}"}
    command = [sys.executable, _ROOT / "tools/bench/upload_server.py", root / "hub", str(rate)]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdin and server.stdout
            yield server.stdout.readline().strip()
        finally:
            server.communicate()


@contextlib.contextmanager
def _serve_s3(root):
    """Serve a bucket `models`, which has the model below `source`."""
    (root / "s3").mkdir(exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {"ROOT_ACCESS_KEY": _KEYS["access"], "ROOT_SECRET_KEY": _KEYS["secret"]}
    command = [find_program("versitygw"), "--port", address, "--quiet", "posix", root / "s3"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(address)
            (root / "s3" / "models").mkdir(exist_ok=True)
            if not (root / "s3/models/source").exists():
                shutil.copytree(root / "workspace/output/epoch_0", root / "s3/models/source")
            yield f"http://{address}"
        finally:
            server.terminate()
            server.wait()


def _wait_for(address):
    host, _, port = address.partition(":")
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(ConnectionError), socket.create_connection((host, int(port))):
            return
        if time.monotonic() > deadline:
            raise RuntimeError("versitygw does not start")
        time.sleep(0.1)


def _export(root, destination, *options):
    folders = ["--output", root / "workspace/output", "--model", root / "workspace/model"]
    program = [_PYTHON, "-m", "trainjob.programs.export", *folders, "--any-run"]
    return [*program, "--destination", destination, *options]


def _export_to_folder(root, target, _):
    return _export(root, target), {}


def _copy(root, target, _):
    return ["sh", "-c", f"cp -r {root}/workspace/output/epoch_0/. {target} && sync {target}/*"], {}


def _checked(run):
    """Return the command of a program whose files are then written to disk and hashed.

    OpenSSL is used, because it needs a quarter of the CPU time of `sha256sum` (coreutils 9.1).
    """

    def command(root, target, address):
        words, environment = run(root, target, address)
        after = f"sync {target}/* && find {target} -type f -print0 | xargs -0 -n 1 -P {os.cpu_count()} openssl sha256"
        return ["sh", "-c", f'"$@" && {after}', "sh", *words], environment

    return command


def _export_to_hub(root, target, address):
    return _export(root, f"hf://bench/{target.name}", "--endpoint", address), {"HF_TOKEN": TOKEN, **_NO_XET}


def _upload_folder(root, target, address):
    code = (
        "import huggingface_hub as h; api = h.HfApi(); "
        f"api.create_repo('bench/{target.name}'); "
        f"api.upload_folder(repo_id='bench/{target.name}', folder_path='{root}/workspace/output/epoch_0')"
    )
    return [_PYTHON, "-c", code], {"HF_ENDPOINT": address, "HF_TOKEN": TOKEN, **_NO_XET}


def _export_to_s3(root, target, address):
    return _export(root, f"s3://models/{target.name}", "--endpoint", address, "--region", "us-east-1"), _S3_KEYS


def _upload(tool):
    def command(root, target, address):
        source = f"{root}/workspace/output/epoch_0/"
        return [*_tool(tool, address), source, f"s3://models/{target.name}/"], _AWS_KEYS

    return command


def _fetch_from_s3(_, target, address):
    environment = {"STORAGE_URI": "s3://models/source", "ENDPOINT": address, "REGION": "us-east-1", **_S3_KEYS}
    return [_PYTHON, "-m", "trainjob.programs.fetch", "--kind", "model", "--folder", target], environment


def _download(tool):
    def command(_, target, address):
        source = "s3://models/source/" + ("*" if tool == "s5cmd" else "")
        return [*_tool(tool, address), source, f"{target}/"], _AWS_KEYS

    return command


def _tool(tool, address):
    program = [find_program(tool), "--endpoint-url", address]
    return [*program, "cp"] if tool == "s5cmd" else [*program, "s3", "cp", "--recursive", "--quiet"]


_NO_XET = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
_S3_KEYS = {"ACCESS_KEY_ID": _KEYS["access"], "SECRET_ACCESS_KEY": _KEYS["secret"]}
_AWS_KEYS = {
    "AWS_ACCESS_KEY_ID": _KEYS["access"],
    "AWS_SECRET_ACCESS_KEY": _KEYS["secret"],
    "AWS_REGION": "us-east-1",
}
_SERVERS: dict[str, Callable[[Path], contextlib.AbstractContextManager[str]]] = {
    "folder": _serve_nothing,
    "hub": _serve_hub,
    "limited hub": lambda root: _serve_hub(root, _LIMIT),
    "s3": _serve_s3,
    "s3 fetch": _serve_s3,
}
_COMMANDS = {
    ("folder", "trainjob"): _export_to_folder,
    ("folder", "cp"): _copy,
    ("folder", "cp checked"): _checked(_copy),
    ("hub", "trainjob"): _export_to_hub,
    ("hub", "upload_folder"): _upload_folder,
    ("s3", "trainjob"): _export_to_s3,
    ("s3", "aws"): _upload("aws"),
    ("s3", "s5cmd"): _upload("s5cmd"),
    ("fetch", "trainjob"): _fetch_from_s3,
    ("fetch", "aws"): _download("aws"),
    ("fetch", "s5cmd"): _download("s5cmd"),
    ("fetch", "s5cmd checked"): _checked(_download("s5cmd")),
}

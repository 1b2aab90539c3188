"""Run a chain of TrainJobs on a laptop cluster, from an Airflow DAG or a KFP pipeline.

    demo.py airflow|kfp [--framework torchtune|trl]

The demo creates a tiny model and a data set of support tickets, and serves them from a Hugging Face stub on loopback.
It starts a laptop cluster, and the workflow engine in its own environment. It shows the progress of the TrainJobs. Then
it scores the base model and the export. At its end, also after Ctrl-C, it stops every process that it started.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from demo_view import ChainView

from trainjob.client import Cluster, Connection
from trainjob.local import LocalCluster
from trainjob_local.demo.hub import HubServer

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "demo"
ENVIRONMENTS = {name: ROOT / ".venv" / name for name in ("torchtune", "initializer")}
TRL_ENVIRONMENTS = {**ENVIRONMENTS, "trl": ROOT / ".venv" / "trl"}
EXAMPLES = {"torchtune": "tickets_llm", "trl": "trl_sft"}  # the DAG and the pipeline of each framework
TICKETS = ROOT / "examples" / "tickets"
RUN = "demo"


def python_path(environment: str) -> str:
    return str(ROOT / ".venv" / environment / "bin" / "python")


def make_hub(folder: Path) -> None:
    """Write the model and the data set in the layout that the stub serves."""
    for script in ("make_model.py", "make_data.py"):
        subprocess.run([python_path("torchtune"), TICKETS / script, folder], check=True, stdout=subprocess.DEVNULL)


class Scorer:
    """Scorer of models on the held-out tickets.

    Its process imports transformers while the chain runs.
    """

    def __init__(self, hub: Path) -> None:
        [held_out] = (hub / "datasets" / "demo" / "tickets" / "heldout").glob("*.parquet")
        command = ["nice", python_path("torchtune"), str(TICKETS / "evaluate.py"), "-", str(held_out)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, bufsize=1
        )

    def exact_match(self, model: Path) -> str:
        """Return how many answers match exactly, such as `59/60`."""
        print(model, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            self._errors.seek(0)
            raise SystemExit(f"scoring {model} failed:\n{self._errors.read()}")
        return str(json.loads(line)["exact_match"])

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def airflow_command(dag: str, kubeconfig: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command `airflow dags test` and its environment, with a separate database."""
    home = CACHE / "airflow"
    extra = {"kube_config_path": str(kubeconfig), "namespace": "default"}
    environment = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "examples" / "airflow"),
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "0",  # no timeout, because the first file imports everything
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
    }
    program = str(ROOT / ".venv" / "airflow" / "bin" / "airflow")
    if not (home / "ready").exists():
        print("creating Airflow's database", flush=True)
        log = subprocess.run(
            [program, "db", "migrate"], env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        if log.returncode:
            raise SystemExit(f"airflow db migrate failed:\n{log.stdout}{log.stderr}")
        (home / "ready").touch()
    return [program, "dags", "test", dag], environment


def kfp_command(pipeline: str, kubeconfig: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs the pipeline under `kfp.local`, and its environment."""
    environment = {"KUBECONFIG": str(kubeconfig), "TRAINJOB_RUN_ID": RUN}
    return [python_path("kfp"), str(ROOT / "examples" / "kfp" / f"{pipeline}.py"), "run"], environment


def create_claim(cluster: Cluster) -> None:
    """Create the claim, because the pipeline needs an existing one."""
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "tickets", "namespace": "default"}
    cluster.create_claim({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})


@contextlib.contextmanager
def run_process(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in its own process group, and kill the group at the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env={**os.environ, **environment}, cwd=CACHE, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_chain(engine: str, example: str, cluster: Cluster, kubeconfig: Path) -> ChainView:
    """Run the workflow to its end, and show its TrainJobs meanwhile.

    Args:
        engine: `airflow` or `kfp`.
        example: name of the DAG or the pipeline.
        cluster: client of the laptop cluster.
        kubeconfig: the cluster's kubeconfig.
    """
    if engine == "kfp":
        create_claim(cluster)
    command, environment = (airflow_command if engine == "airflow" else kfp_command)(example, kubeconfig)
    log = CACHE / f"{engine}.log"
    print(f"running {' '.join(Path(word).name for word in command)} (its log: {log.relative_to(ROOT)})", flush=True)
    with ChainView(cluster, "default") as view, run_process(command, environment, log) as process:
        code = process.wait()
    if code:
        print(log.read_text(errors="replace")[-6000:], file=sys.stderr)
        raise SystemExit(f"the {engine} run failed with exit code {code}")
    return view


def find_export_folder(cluster: Cluster, view: ChainView, state: Path) -> Path:
    """Return the export folder on the volume that the steps shared."""
    claim = cluster.get_claim(view.find_claim(), "default") or {}
    [volume] = state.glob(f"**/volumes/*{claim['metadata']['uid'][:8]}*")
    return volume / "export"


@contextlib.contextmanager
def exclusive_lock(lock: Path) -> Iterator[None]:
    """Allow only one demo of an engine at a time.

    Each demo starts by deleting the files of the last one.
    """
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(
                f"another process is already running this demo: it holds the lock {lock.relative_to(ROOT)}"
            ) from None
        yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["airflow", "kfp"])
    parser.add_argument("--framework", choices=list(EXAMPLES), default="torchtune", help="Default: torchtune.")
    given = parser.parse_args()
    engine, framework = given.engine, given.framework
    environments = TRL_ENVIRONMENTS if framework == "trl" else ENVIRONMENTS
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes of a shell ignore SIGINT
    CACHE.mkdir(parents=True, exist_ok=True)
    state = CACHE / f"cluster-{engine}"
    with (
        exclusive_lock(CACHE / f"{engine}.lock"),
        tempfile.TemporaryDirectory(prefix="demo-hub-") as folder,
        contextlib.ExitStack() as stack,
    ):
        shutil.rmtree(state, ignore_errors=True)
        hub = Path(folder)
        print("creating the tiny model and the tickets", flush=True)
        make_hub(hub)
        scorer = Scorer(hub)
        stack.callback(scorer.stop)
        server = stack.enter_context(HubServer(hub))
        laptop = stack.enter_context(
            LocalCluster(state, environments=environments, pod_env={"HF_ENDPOINT": server.url})
        )
        cluster = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)))
        stack.callback(cluster.close)
        begun = time.monotonic()
        view = run_chain(engine, EXAMPLES[framework], cluster, Path(laptop.kubeconfig))
        seconds = time.monotonic() - begun
        export = find_export_folder(cluster, view, state)
        for name, taken in view.wall_times():
            print(f"{name:<18} {taken:5.1f} s")
        print(f"{'chain':<18} {seconds:5.1f} s")
        print(f"export: {export.relative_to(ROOT)}")
        before = scorer.exact_match(hub / "models" / "demo" / "tiny-llama")
        print(f"exact match: {before} -> {scorer.exact_match(export)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)

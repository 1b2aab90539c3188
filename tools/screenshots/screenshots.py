"""Generator of docs/images: screenshots of Airflow, a loss curve and terminals, from real runs on a laptop cluster.

Usage: screenshots.py [NAME ...]

NAME is one of the groups `airflow`, `pipeline` and `demo`; all are generated without a name. Each run trains the demo's
model with TorchTune. A training is stopped with SIGSTOP while the pictures of a running task are taken.

If KFP_SOURCE names the sources of Kubeflow Pipelines 2.17.0 with a built front end, the group `pipeline` also shows the
graph of the compiled pipeline. It was built with Node.js 20: `npm ci --ignore-scripts` in frontend/ and in
frontend/server/, then tailwindcss as in its package.json, and `npx vite build`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.append(str(Path(__file__).resolve().parents[2]))

import trainjob_demo
from tests.support.browser import MISSING, Browser, open_browser
from tests.support.pseudo_terminal import PseudoTerminal
from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow
from tools.screenshots.kfp_ui import open_pipeline
from tools.screenshots.terminal_page import render_page
from tools.sessions.screen import render_with_colors
from trainjob.client import Cluster, Connection
from trainjob.local import LocalCluster
from trainjob_demo.tickets_hub import make_hub
from trainjob_local.demo.hub import HubServer

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
ENVIRONMENTS = ROOT / ".venv"
DAG = "tickets_llm"
SIZE = (1440, 960)  # CSS pixels; a picture has twice as many in each direction
COLUMNS = 118
_TRAINJOB = str(ENVIRONMENTS / "core" / "bin" / "trainjob")
_STEP = re.compile(r"step (\d+)/(\d+)")


class Terminal:
    """Commands on pseudo terminals with one kubeconfig."""

    def __init__(self, browser: Browser, folder: Path, kubeconfig: Path | None = None) -> None:
        self._browser, self._folder = browser, folder
        self._environment = {**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}

    def open(self, *arguments: str) -> PseudoTerminal:
        """Start `trainjob` on a terminal of its own."""
        return PseudoTerminal([_TRAINJOB, *arguments], self._environment, COLUMNS)

    def run(self, *arguments: str) -> str:
        """Run `trainjob` to its end, and return what it wrote."""
        terminal = self.open(*arguments)
        try:
            assert terminal.wait_for_exit(900) == 0, terminal.output
            return terminal.output
        finally:
            terminal.close()

    def save_picture(self, name: str, command: str, written: str) -> None:
        """Write the picture of a terminal after a command has written to it."""
        page = self._folder / f"{name}.html"
        page.write_text(render_page("Terminal", command, render_with_colors(written), COLUMNS), "utf-8")
        self._browser.driver.get(page.as_uri())
        save_picture(self._browser, name, "main")


def save_picture(browser: Browser, name: str, selector: str = "") -> None:
    """Write a picture of the window, or of one element."""
    target = IMAGES / f"{name}.png"
    if selector:
        browser.find(selector)[0].screenshot(str(target))
    else:
        browser.driver.save_screenshot(str(target))
    python = ENVIRONMENTS / "torchtune" / "bin" / "python"
    subprocess.run([python, Path(__file__).with_name("reduce_colors.py"), target], check=True)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1000} kB", flush=True)


@contextlib.contextmanager
def open_cluster(folder: Path) -> Iterator[LocalCluster]:
    """Start the laptop cluster and the hub with the demo's model and data."""
    make_hub(folder / "hub", ENVIRONMENTS / "torchtune")
    images = {name: ENVIRONMENTS / name for name in ("initializer", "torchtune")}
    with (
        HubServer(folder / "hub") as hub,
        LocalCluster(folder / "cluster", environments=images, pod_env={"HF_ENDPOINT": hub.url}) as cluster,
    ):
        yield cluster


def find_training(cluster_folder: Path) -> list[int]:
    """Return the IDs of the training's processes that this cluster has started."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            if b"full_finetune" in command and str(cluster_folder).encode() in environment + command:
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def paused_training(watch: PseudoTerminal, folder: Path) -> Iterator[None]:
    """Stop the training after half of its steps, and continue it at the end."""
    wait_for_airflow(lambda: any(2 * int(step) > int(total) for step, total in _STEP.findall(watch.output)), 300)
    processes = find_training(folder / "cluster")
    assert processes, "the training has no process"
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)


def save_airflow_pictures(browser: Browser, folder: Path) -> None:
    """Run the demo's DAG three times in a complete Airflow, and show the third run."""
    with open_cluster(folder) as cluster:
        extra = {"kube_config_path": str(cluster.kubeconfig), "namespace": "default"}
        connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
        dags = Path(trainjob_demo.__file__).parent / "dags"
        home = folder / "airflow"
        home.mkdir()
        terminal = Terminal(browser, folder, cluster.kubeconfig)
        settings: dict[str, Any] = {"AIRFLOW_CONN_KUBERNETES_DEFAULT": connection, **SHORT_INTERVALS}
        with Standalone(home, dags, **settings) as airflow:
            for _ in range(2):
                _wait_for_success(airflow, airflow.start_run(DAG))
            base = airflow.url
            watch = terminal.open("watch")
            run = airflow.start_run(DAG)
            name = quote(run.rpartition("/")[2], safe="")
            with paused_training(watch, folder):
                written = watch.output
                save_grid(browser, base)
                save_list(browser, base)
                terminal.save_picture("terminal-watch", "trainjob watch", written)
            watch.close()
            _wait_for_success(airflow, run)
            save_log(browser, f"{base}/dags/{DAG}/runs/{name}/tasks/fine_tune")
        job = next(j["name"] for j in json.loads(terminal.run("list", "--json")) if j["name"].startswith("fine-tune"))
        terminal.save_picture("terminal-describe", f"trainjob describe {job}", terminal.run("describe", job))


def _wait_for_success(airflow: Standalone, run: str) -> None:
    wait_for_airflow(lambda: airflow.get_state(run) == "success", 400)


def save_grid(browser: Browser, base: str) -> None:
    """Write the picture of the DAG's grid, in which `fine_tune` of the newest run is deferred."""
    browser.driver.get(f"{base}/dags/{DAG}")
    browser.wait_for("a[href*='fine_tune']")
    widen_grid(browser)
    pause(3)
    save_picture(browser, "airflow-grid")


def widen_grid(browser: Browser) -> None:
    """Make the grid wider, because it hides the runs that do not fit."""
    from selenium.webdriver import ActionChains

    border = browser.wait_for("[data-panel-resize-handle-id]")
    # A button in the middle of the border closes the details.
    start = ActionChains(browser.driver).move_to_element_with_offset(border, 0, 200)
    start.click_and_hold().move_by_offset(60, 0).move_by_offset(30, 0).release().perform()


def save_list(browser: Browser, base: str) -> None:
    """Write the picture of the page TrainJobs with the running TrainJob."""
    browser.driver.get(f"{base}/plugin/trainjobs")
    browser.driver.switch_to.frame(browser.wait_for("iframe"))
    browser.wait_for("#rows .phase.Running")
    browser.find("#rows button")[0].click()
    browser.wait_for("svg.curve polyline")
    browser.wait_for("[data-part=ranks] td")
    pause(3)
    browser.driver.switch_to.default_content()
    save_picture(browser, "airflow-page")


def save_log(browser: Browser, address: str) -> None:
    """Write the picture of a task's log."""
    browser.driver.get(address)
    wait_for_airflow(lambda: "Complete" in browser.driver.page_source, 60)
    pause(3)
    save_picture(browser, "airflow-log")


def pause(seconds: float) -> None:
    """Wait until a page has drawn what it has received."""
    time.sleep(seconds)


def save_loss_curve(browser: Browser, folder: Path) -> None:
    """Run the demo's pipeline with `kfp.local`, and show the loss curve of `fine_tune`."""
    with open_cluster(folder) as cluster:
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "tickets", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        client = Cluster(Connection(kubeconfig=str(cluster.kubeconfig)))
        client.create_claim(claim)
        client.close()
        programs = ENVIRONMENTS / "kfp" / "bin"
        environment = {
            **os.environ,
            "KUBECONFIG": str(cluster.kubeconfig),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        command = [programs / "python", Path(__file__).with_name("run_pipeline.py"), folder / "run"]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    [curve] = (path for path in folder.glob("run/outputs/**/*") if path.is_file() and "<svg" in read_head(path))
    page = folder / "loss.html"
    page.write_bytes(curve.read_bytes())
    browser.driver.get(page.as_uri())
    browser.evaluate("document.body.style.cssText += 'display: inline-block; padding: 8px'")
    save_picture(browser, "kfp-loss-curve", "body")
    save_graph(browser, folder / "run" / "pipeline.yaml")


def save_graph(browser: Browser, compiled: Path) -> None:
    """Write the picture of the pipeline's graph in KFP's front end, if KFP_SOURCE is set."""
    if not (source := os.environ.get("KFP_SOURCE")):
        print("kfp-graph.png is skipped, because KFP_SOURCE does not name the sources of Kubeflow Pipelines")
        return
    with open_pipeline(Path(source) / "frontend" / "build", compiled) as address:
        browser.driver.get(address)
        wait_for_airflow(lambda: len(browser.find(".react-flow__node")) >= 4, 60)
        pause(3)
        save_picture(browser, "kfp-graph")


def read_head(path: Path) -> str:
    """Return the beginning of a file as text."""
    return path.read_bytes()[:4096].decode(errors="replace")


def save_demo(browser: Browser, folder: Path) -> None:
    """Run the demo on a terminal, and show the terminal at its end."""
    options = [f"--state={ROOT / '.cache' / 'demo'}"] + [
        f"--environment={name}={ENVIRONMENTS / name}" for name in ("initializer", "torchtune", "airflow")
    ]
    terminal = Terminal(browser, folder)
    terminal.save_picture("terminal-demo", "make demo", terminal.run("demo", *options))


GROUPS = {"airflow": save_airflow_pictures, "pipeline": save_loss_curve, "demo": save_demo}


def main() -> None:
    if MISSING:
        raise SystemExit(f"make screenshots {MISSING}")
    for name in sys.argv[1:] or GROUPS:
        with (
            tempfile.TemporaryDirectory(prefix="trainjob-screenshots-") as folder,
            open_browser(Path(folder) / "profile", SIZE, scale=2) as browser,
        ):
            GROUPS[name](browser, Path(folder))


if __name__ == "__main__":
    main()

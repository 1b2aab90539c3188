"""Run the kubelet of a real control plane: `python tests/controlplane/run_kubelet.py --server URL --pki DIR …`."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from process_kubelet.http_api import HttpApi, client_tls
from process_kubelet.isolation import Namespaces
from process_kubelet.log_server import LogServer
from process_kubelet.provisioner import Provisioner
from trainjob_local.images import images_from_json
from trainjob_local.kubelet.kubelet import Kubelet
from trainjob_local.kubelet.settings import KubeletSettings

__all__ = ["main", "settings_from"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--server", required=True)
    add(
        "--pki",
        required=True,
        type=Path,
        help="folder with ca.crt, kubelet.crt/key (serving), process-kubelet.crt/key (client)",
    )
    add("--state", required=True, type=Path, help="folder for pods, logs and volumes")
    add("--port", type=int, required=True, help="port of the log endpoint")
    add("--node", default="process-node")
    add("--cpus", type=int, default=64)
    add("--memory", default="256Gi")
    add("--gpus", type=int, default=8, help="number of nvidia.com/gpu that the Node reports")
    add("--backoff", type=float, default=1, help="first restart back-off in seconds (a real kubelet: 10)")
    add("--backoff-max", type=float, default=4, help="longest back-off in seconds (a real kubelet: 300)")
    add("--images", type=Path, help="JSON file with the local environments that replace images")
    add("--missing-image", default="does-not-exist", help="regular expression of images that cannot be pulled")
    add("--path", action="append", default=[], help="folder that comes first in every pod's PATH")
    add("--pass-env", action="append", default=[], help="environment variable of this process that every pod gets")
    add("--isolate", action="store_true", help="give containers their own mounts and process IDs (Linux, as root)")
    add("--hosts", type=Path, help="file that isolated containers see as /etc/hosts")
    add("--exec-socket", type=Path, help="socket of a program that runs commands in isolated containers")
    return parser


def settings_from(options: argparse.Namespace) -> KubeletSettings:
    """Return the settings for these command line options."""
    return KubeletSettings(
        state=options.state,
        node=options.node,
        port=options.port,
        cpus=options.cpus,
        memory=options.memory,
        gpus=options.gpus,
        backoff=options.backoff,
        backoff_max=options.backoff_max,
        images=images_from_json(options.images.read_text()) if options.images else (),
        missing_image=options.missing_image,
        path=tuple(options.path),
        pod_env={name: os.environ[name] for name in options.pass_env if name in os.environ},
        isolation=Namespaces(hosts=options.hosts) if options.isolate else None,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the kubelet until SIGTERM or SIGINT."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    settings = settings_from(options)
    api = HttpApi(options.server, tls=client_tls(options.pki, "process-kubelet"))
    kubelet = Kubelet(api, settings)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    LogServer(kubelet, options.port, options.pki, exec_socket=options.exec_socket).start()
    kubelet.start()
    Provisioner(api, settings).start()
    stopped.wait()
    kubelet.stop()
    os._exit(0)  # do not wait for the watch threads, because the API server ends too


if __name__ == "__main__":
    main()

"""Run a laptop cluster in this process: `python -m trainjob_local up --state DIR`.

Users run `trainjob local up` instead. `LocalCluster` starts this program with `--supervised` and sends the settings as
one line of JSON on standard input. They may contain secrets, which a command line would show in the list of processes.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from trainjob.errors import ClusterError
from trainjob.installation import INSTALLATION_PAGE
from trainjob_local.settings import ClusterSettings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainjob_local", description=__doc__)
    up = parser.add_subparsers(dest="command", required=True).add_parser("up", help="run until SIGTERM")
    up.add_argument("--state", type=Path, help="state folder with the cluster's objects, volumes, logs and kubeconfig")
    up.add_argument(
        "--port",
        type=int,
        default=0,
        help="port on 127.0.0.1; default: the state folder's earlier port, or a free port",
    )
    up.add_argument(
        "--supervised",
        type=int,
        default=0,
        metavar="PID",
        help="read the settings from standard input, and stop when the process PID ends",
    )
    return parser


def _settings(options: argparse.Namespace) -> ClusterSettings:
    if options.supervised:
        return ClusterSettings.from_json(sys.stdin.readline())
    if options.state is None:
        raise ClusterError("--state is required", hint="pass a folder; the cluster creates it if it does not exist")
    return ClusterSettings(state=options.state.absolute(), port=options.port)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster until it ends; return the exit code, which is 1 if it cannot start."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from trainjob_local.process import serve

        serve(_settings(options), parent=options.supervised)
    except ImportError as error:
        sys.stderr.write(f"{error}\n  -> install all packages of trainjob-local: {INSTALLATION_PAGE}\n")
        return 1
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

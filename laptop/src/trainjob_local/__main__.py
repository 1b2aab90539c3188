"""Runs a laptop cluster in this process: `python -m trainjob_local up --state DIR`.

For people there is `trainjob local up`; `LocalCluster` starts this with `--supervised`, and sends its settings as one
line
of JSON on standard input: they may hold what no list of processes should show.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from trainjob.errors import ClusterError
from trainjob_local.settings import ClusterSettings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainjob_local", description=__doc__)
    up = parser.add_subparsers(dest="command", required=True).add_parser("up", help="run until SIGTERM")
    up.add_argument("--state", type=Path, help="folder of everything the cluster keeps")
    up.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; the one it had, or a free one, by default")
    up.add_argument(
        "--supervised", type=int, default=0, metavar="PID", help="settings come on standard input; end with PID"
    )
    return parser


def _settings(options: argparse.Namespace) -> ClusterSettings:
    if options.supervised:
        return ClusterSettings.from_json(sys.stdin.readline())
    if options.state is None:
        raise ClusterError("--state is needed", hint="name a folder; it is made when it is missing")
    return ClusterSettings(state=options.state.absolute(), port=options.port)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cluster until it ends; return the exit code, which is 1 if it cannot start."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        from trainjob_local.process import serve

        serve(_settings(options), parent=options.supervised)
    except ImportError as error:
        sys.stderr.write(f"{error}\n  -> install what the laptop cluster needs: pip install trainjob-local\n")
        return 1
    except ClusterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The demo's model and data set, and the score of a model on held-out tickets.

The programs in the folder `tickets` need torch, so they run in the environment of the training.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trainjob_demo.errors import DemoError
from trainjob_demo.processes import run_to_end
from trainjob_local.demo.hub import HubServer

__all__ = ["BASE_MODEL", "Scorer", "make_hub", "serve_hub"]

BASE_MODEL = Path("models", "demo", "tiny-llama")
"""Folder of the base model below the folder of `make_hub`."""

_TICKETS = Path(__file__).parent / "tickets"
_HELD_OUT = Path("datasets", "demo", "tickets", "heldout")


def make_hub(folder: Path, environment: Path) -> None:
    """Write the model and the data set in the layout that the loopback hub serves.

    Args:
        folder: folder for `models` and `datasets`.
        environment: Python environment with torch, transformers and pyarrow.

    Raises:
        DemoError: a program failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for program in ("make_model.py", "make_data.py"):
        command = [str(environment / "bin" / "python"), str(_TICKETS / program), str(folder)]
        run_to_end(program, command, folder / f"{program}.log")


@contextlib.contextmanager
def serve_hub(environment: Path) -> Iterator[tuple[Path, str]]:
    """Serve the model and the data set in the block.

    Args:
        environment: Python environment with torch, transformers and pyarrow.

    Yields:
        The folder of `make_hub`, and the address.

    Raises:
        DemoError: a program failed.
    """
    with tempfile.TemporaryDirectory(prefix="demo-hub-") as name:
        folder = Path(name)
        print("creating the tiny model and the tickets", flush=True)
        make_hub(folder, environment)
        with HubServer(folder) as server:
            yield folder, server.url


class Scorer:
    """Scorer of models on the held-out tickets.

    Its process imports transformers while the chain runs.

    Args:
        hub: folder that `make_hub` wrote.
        environment: Python environment with torch, transformers and pyarrow.
    """

    def __init__(self, hub: Path, environment: Path) -> None:
        [held_out] = (hub / _HELD_OUT).glob("*.parquet")
        command = ["nice", str(environment / "bin" / "python"), str(_TICKETS / "evaluate.py"), "-", str(held_out)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C must reach only the demo, which then stops the process
        )

    def exact_match(self, model: Path) -> str:
        """Return how many answers match exactly, such as `59/60`.

        Args:
            model: folder of the model and its tokenizer.

        Raises:
            DemoError: the model could not be scored.
        """
        try:
            print(model, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline() if self._process.stdout else ""
        except BrokenPipeError:  # the process has ended
            line = ""
        if not line:
            self._errors.seek(0)
            raise DemoError(f"the model in {model} could not be scored:\n{self._errors.read()}")
        return str(json.loads(line)["exact_match"])

    def stop(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

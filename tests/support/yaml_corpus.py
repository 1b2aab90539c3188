"""Unusual YAML, and the values that kubectl reads from it.

`yaml_corpus.json` has the texts, each with kubectl's answer. To add a text, add it with the answer `null`, and run
`PYTHONPATH=tests/controlplane python -m tests.support.yaml_corpus`, which updates all answers. It needs the kubectl
that `tests/controlplane/build.py --kubectl` builds.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

_ANSWERS = Path(__file__).with_suffix(".json")
_SECONDS = 60.0  # for one start of kubectl


@functools.cache
def recorded_answers() -> dict[str, dict[str, Any]]:
    """Return kubectl's answer to each text: `{"spec": ...}`, or `{"error": ...}`."""
    found: dict[str, dict[str, Any]] = json.loads(_ANSWERS.read_text("utf-8"), parse_int=_parse_int)
    return found


def to_document(text: str) -> str:
    """Return an object whose `spec` is a text of the corpus; it is JSON if the text is JSON."""
    if text.startswith(("{", "[")):
        head = '{"apiVersion": "example.com/v1", "kind": "Sample", "metadata": {"name": "sample"}, "spec": '
        return f"{head}{text}}}"
    return f"apiVersion: example.com/v1\nkind: Sample\nmetadata: {{name: sample}}\nspec:\n{indent(text, '  ')}\n"


def read_with_kubectl(kubectl: Path, texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return kubectl's answers to texts of the corpus.

    The documents are sent together, because each start of kubectl takes a tenth of a second. kubectl stops at a
    document that it refuses; the following ones are then sent together again. JSON is sent alone, because kubectl
    treats a stream that begins with JSON differently.
    """
    answers: dict[str, dict[str, Any]] = {}
    remaining = list(texts)
    while remaining:
        batch = list(itertools.takewhile(lambda each: not each.startswith("{"), remaining)) or remaining[:1]
        objects, error = _run_kubectl(kubectl, "---\n".join(map(to_document, batch)))
        answers |= {text: {"spec": found.get("spec")} for text, found in zip(batch, objects, strict=False)}
        if len(objects) < len(batch):
            answers[batch[len(objects)]] = {"error": error}
        remaining = [each for each in remaining if each not in answers]
    return answers


def _run_kubectl(kubectl: Path, documents: str) -> tuple[list[Any], str]:
    """Return the objects that kubectl has read, and its error.

    `kubectl label --local` reads objects of any kind and needs no server.
    """
    command = [str(kubectl), "label", "--local", "--filename", "-", "--output", "json", "corpus=yes"]
    environment = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run(
        command, input=documents.encode(), capture_output=True, env=environment, timeout=_SECONDS, check=False
    )
    decoder = json.JSONDecoder(parse_int=_parse_int)
    printed = done.stdout.decode()
    objects = []
    while printed := printed.lstrip():
        found, end = decoder.raw_decode(printed)
        objects.append(found)
        printed = printed[end:]
    return objects, done.stderr.decode().strip()


def _parse_int(digits: str) -> int | float:
    """Return a whole number as the API server reads it: float if it needs more than 64 bits."""
    return int(digits) if -(1 << 63) <= int(digits) < 1 << 63 else float(digits)


if __name__ == "__main__":
    from programs import KUBECTL

    answers = read_with_kubectl(KUBECTL.folder / "kubectl", list(recorded_answers()))
    _ANSWERS.write_text(json.dumps(answers, indent=0) + "\n", "utf-8")
    print(f"kubectl read {sum('spec' in each for each in answers.values())} of {len(answers)} texts", file=sys.stderr)

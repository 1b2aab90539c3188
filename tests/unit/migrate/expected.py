"""What becomes of each case in tests/unit/migrate/cases, for the newest Trainer.

Run as a program, it writes NAME.expected.yaml beside each NAME.yaml anew: look at the difference before you keep it.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from trainjob_migrate import Fate, convert

FOLDER = Path(__file__).resolve().parent / "cases"
SUFFIX = ".expected.yaml"
CASES = {
    f"{path.parent.name}/{path.stem}": path
    for path in sorted(FOLDER.glob("*/*.yaml"))
    if not path.name.endswith(SUFFIX)
}


@functools.cache
def _parsed(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(CASES[name].read_text("utf-8"))
    return loaded


def source(name: str) -> dict[str, Any]:
    """A case's v1 document."""
    return copy.deepcopy(_parsed(name))


def told(name: str) -> dict[str, Any]:
    """What a person is told of a case, and what is made of it."""
    conversion = convert(source(name))
    made = {"runtime": conversion.runtime, "train_job": conversion.train_job}
    return {
        "readiness": conversion.readiness.value,
        "refused": {line.path: line.reason for line in conversion.blockers},
        "dropped": {line.path: line.reason for line in conversion.lines if line.fate is Fate.DROPPED},
        "findings": [finding.topic for finding in conversion.findings],
        **{what: item for what, item in made.items() if item is not None},
    }


def expected(name: str) -> Path:
    """The file of what is expected."""
    return CASES[name].with_name(CASES[name].stem + SUFFIX)


class _Whole(yaml.SafeDumper):
    """YAML without references, as two equal parts are no one part here."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def main() -> None:
    for name in CASES:
        text = yaml.dump(told(name), Dumper=_Whole, sort_keys=False, width=120, allow_unicode=True)
        expected(name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()

"""What becomes of each case in tests/unit/migrate/cases, for the newest Trainer.

Run as a program, it writes NAME.expected.yaml beside each NAME.yaml anew: look at the difference before you keep it.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from trainjob_migrate import FieldResult, convert

FOLDER = Path(__file__).resolve().parent / "cases"
SUFFIX = ".expected.yaml"
CASES = {
    f"{path.parent.name}/{path.stem}": path
    for path in sorted(FOLDER.glob("*/*.yaml"))
    if not path.name.endswith(SUFFIX)
}


@functools.cache
def _parse(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(CASES[name].read_text("utf-8"))
    return loaded


def load_source(name: str) -> dict[str, Any]:
    """A case's v1 document."""
    return copy.deepcopy(_parse(name))


def summarize(name: str) -> dict[str, Any]:
    """What a person is told of a case, and what is made of it."""
    conversion = convert(load_source(name))
    made = {"runtime": conversion.runtime, "train_job": conversion.train_job}
    return {
        "readiness": conversion.readiness.value,
        "refused": {line.path: line.reason for line in conversion.blockers},
        "dropped": {line.path: line.reason for line in conversion.lines if line.fate is FieldResult.DROPPED},
        "findings": [finding.topic for finding in conversion.findings],
        **{what: item for what, item in made.items() if item is not None},
    }


def expected_path(name: str) -> Path:
    """The file of what is expected."""
    return CASES[name].with_name(CASES[name].stem + SUFFIX)


class _NoAliasDumper(yaml.SafeDumper):
    """YAML without references, as two equal parts are no one part here."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def main() -> None:
    for name in CASES:
        text = yaml.dump(summarize(name), Dumper=_NoAliasDumper, sort_keys=False, width=120, allow_unicode=True)
        expected_path(name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()

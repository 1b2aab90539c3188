"""Results of the conversion of each case in tests/unit/migrate/cases, for the newest Trainer.

As a program, this module rewrites NAME.expected.yaml beside each NAME.yaml. Review the difference before you commit it.
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
    """Return the v1 document of a case."""
    return copy.deepcopy(_parse(name))


def summarize(case: str) -> dict[str, Any]:
    """Return the parts of a case's conversion that its expected result contains."""
    conversion = convert(load_source(case))
    objects = {"runtime": conversion.runtime, "train_job": conversion.train_job}
    return {
        "readiness": conversion.readiness.value,
        "refused": {record.path: record.reason for record in conversion.blockers},
        "dropped": {record.path: record.reason for record in conversion.fields if record.result is FieldResult.DROPPED},
        "findings": [finding.topic for finding in conversion.findings],
        **{name: item for name, item in objects.items() if item is not None},
    }


def expected_path(name: str) -> Path:
    """Return the path of the expected result of a case."""
    return CASES[name].with_name(CASES[name].stem + SUFFIX)


class _NoAliasDumper(yaml.SafeDumper):
    """YAML dumper without aliases, because equal parts are independent of each other."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def main() -> None:
    """Rewrite the expected results of all cases."""
    for name in CASES:
        text = yaml.dump(summarize(name), Dumper=_NoAliasDumper, sort_keys=False, width=120, allow_unicode=True)
        expected_path(name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()

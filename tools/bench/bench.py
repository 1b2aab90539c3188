"""Benchmarks that compare this project with other clients.

They print tables. With --write, they also write docs/evidence/benchmarks.md.

Each part compares values of one run. Parts that are not named keep the values in tools/bench/results.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.metadata import version
from pathlib import Path

from tools.bench import (
    bench_calls,
    bench_creation,
    bench_data,
    bench_dev,
    bench_flood,
    bench_imports,
    bench_laptop,
    bench_logs,
    bench_resumption,
    bench_start,
    bench_stores,
    bench_training,
    bench_waiting,
    bench_watchdog,
    bench_yaml,
)
from tools.evidence.measurement import describe_measurement

_ROOT = Path(__file__).resolve().parents[2]
_PAGE, _RESULTS = _ROOT / "docs" / "evidence" / "benchmarks.md", _ROOT / "tools" / "bench" / "results"
_PARTS = {
    "waiting": bench_waiting,
    "watchdog": bench_watchdog,
    "start": bench_start,
    "calls": bench_calls,
    "laptop": bench_laptop,
    "logs": bench_logs,
    "flood": bench_flood,
    "resumption": bench_resumption,
    "training": bench_training,
    "dev": bench_dev,
    "imports": bench_imports,
    "creation": bench_creation,
    "yaml": bench_yaml,
    "data": bench_data,
    "stores": bench_stores,
}
_INTRODUCTION = """# Benchmarks

Compare what waiting for jobs, reading their logs and submitting them cost with this project and with other clients.
`make bench` writes this page, with Airflow {airflow} and the Kubernetes provider {provider}. Each part names its
measurement."""


def _measure_parts(names, folder):
    """Measure the named parts, and yield each part with its newest values in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in _PARTS.items():
        kept = folder / f"{name}.json"
        if name in names:
            environment = dict(os.environ)
            found = part.measure()
            os.environ.clear()  # a part sets variables for the processes that it starts
            os.environ.update(environment)
            print(name, json.dumps(found), file=sys.stderr, flush=True)
            stored = {"measured": describe_measurement(f"make bench: {name}"), "values": found}
            kept.write_text(json.dumps(stored, indent=1) + "\n")
        if kept.exists():
            stored = json.loads(kept.read_text())
            yield part, stored["values"], stored["measured"]


def _with_measurement(section, measured):
    """Return a section with its measurement after its heading."""
    heading, _, text = section.partition("\n")
    return f"{heading}\n\nMeasured: {measured}.\n{text}"


def _render_page(found):
    head = _INTRODUCTION.format(
        airflow=version("apache-airflow"),
        provider=version("apache-airflow-providers-cncf-kubernetes"),
    )
    sections = [_with_measurement(part.section(values), measured) for part, values, measured in found]
    goals = [goal for part, values, _ in found for goal in part.goals(values)]
    verdicts = [f"- {goal}: {'met' if met else '**missed**'}, {value}" for goal, met, value in goals]
    return "\n\n".join([head, *sections, "## Goals", "\n".join(verdicts)]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"parts to measure, of {', '.join(_PARTS)}; default: all")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="folder of the measured values")
    parser.add_argument("--write", action="store_true", help="write the page docs/evidence/benchmarks.md")
    options = parser.parse_args()
    text = _render_page(list(_measure_parts(options.parts or list(_PARTS), options.results)))
    print(text)
    if options.write:
        _PAGE.write_text(text)

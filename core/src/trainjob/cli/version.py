"""The option `--version`: installed distributions of this project, for bug reports."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

__all__ = ["format_versions"]

_DISTRIBUTIONS = (
    "trainjob",
    "trainjob-local",
    "trainjob-migrate",
    "trainjob-demo",
    "airflow-provider-trainjob",
    "kfp-trainjob",
)


def format_versions() -> str:
    """Return one line for each installed distribution of this project, `trainjob` first."""
    lines = []
    for distribution in _DISTRIBUTIONS:
        try:
            lines.append(f"{distribution} {version(distribution)}")
        except PackageNotFoundError:
            continue
    return "\n".join(lines)

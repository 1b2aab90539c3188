"""Reasons why a text that may contain v1 jobs cannot be read.

Most of these texts are templates: of a Helm chart, of Katib or Argo, or of a program of the user.
"""

from __future__ import annotations

import re

from trainjob.errors import InvalidSpec
from trainjob_migrate.identity import KINDS

_GROUP = "kubeflow.org/v"
# Also in a text of JSON or YAML that is a quoted value of another one, with \n and \".
_KIND = re.compile(rf"(?:\b|\\n)kind(?:\\?[\"'])?:\s*(?:\\?[\"'])?({'|'.join(KINDS)})\b")
_PLACEHOLDER = re.compile(r"\{\{|\{%")
_HELM = re.compile(r"\{\{[^\n{}]{0,200}?(?:\.Values\b|\.Release\b|\.Chart\b|\binclude\b)")
_POSITION = re.compile(r"(?:at the end, )?in line \d+(?:, column \d+)?$")
_RENDER_CHART = "render the chart first, `helm template . | trainjob migrate report -`"
_REPLACE = "replace its placeholders with values before the conversion"


def find_job_kind(text: str) -> str:
    """Return the kind of the first v1 job in a text; empty if there is none."""
    found = _KIND.search(text) if _GROUP in text else None
    return found[1] if found else ""


def describe_read_error(text: str, error: InvalidSpec, *, first_line: int, source: str) -> str:
    """Return the reason why a text cannot be read, with the kind of the job in it.

    Args:
        text: the text that cannot be read.
        error: the error of its reader.
        first_line: number of the text's first line.
        source: the complete source of the text, which may have further documents.
    """
    reason, kind = error.problems[0].allowed, find_job_kind(text)
    position, placeholder = _POSITION.search(reason), _PLACEHOLDER.search(text)
    if not (position and placeholder):
        return f"{reason}; it seems to contain a job of kind {kind}" if kind else reason
    is_chart = _HELM.search(source) is not None
    name = f"{'Helm ' if is_chart else ''}template{f' of kind {kind}' if kind else ''}"
    line = first_line + text.count("\n", 0, placeholder.start())
    return (
        f"it seems to be a {name}, with placeholders from line {line} on: "
        f"{_RENDER_CHART if is_chart else _REPLACE} (no YAML {position[0]})"
    )

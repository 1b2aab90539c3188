"""Generator of docs/reference/errors.md from the error classes and the rules about failures.

The docstring of each error class has a paragraph `Cause: ...` and a paragraph `Remedy: ...`. The remedies of failed
TrainJobs are those of `trainjob.status.failure_rules`, which the messages also show.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from trainjob import errors
from trainjob.errors import ClusterError, Interrupted, JobFailed, TrainJobError
from trainjob.status import Category
from trainjob.status import failure_rules as rules
from trainjob_demo.errors import DemoError
from trainjob_local.environments.errors import EnvironmentInUse, EnvironmentNotCreated

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "errors.md"
_WIDTH = 120
_OWN_PAGE = re.compile(r"https://github\.com/trainjob/trainjob/blob/main/docs/(\S+\.md)")
_NOT_IN_TABLE = (
    errors.FetchError,
    errors.OutputInUse,
    errors.MergeError,
    errors.ExportError,
    errors.PromotionError,
    EnvironmentNotCreated,
    EnvironmentInUse,
    DemoError,
)
_GROUPS = {
    "Requests": (errors.InvalidSpec, errors.OwnershipConflict),
    "The cluster": tuple(
        each
        for name in errors.__all__
        if inspect.isclass(each := getattr(errors, name)) and issubclass(each, ClusterError)
    ),
    "TrainJobs": tuple(
        each
        for name in errors.__all__
        if inspect.isclass(each := getattr(errors, name)) and issubclass(each, JobFailed)
    ),
    "Waiting": (errors.WaitTimeout, errors.IncompatibleVersion),
    "Programs in the pods": (
        errors.FetchError,
        errors.OutputInUse,
        errors.MergeError,
        errors.ExportError,
        errors.PromotionError,
    ),
    "The laptop cluster and the demo": (EnvironmentNotCreated, EnvironmentInUse, DemoError),
}
_INTRODUCTION = """# Errors

<!-- Written by tools/reference/errors.py: run `make reference`. -->

Look up the cause and the remedy of each error, and whether a retry helps.
[Troubleshooting](../how-to/troubleshooting.md) starts from the text of a message. [The error classes](python/errors.md)
are in `trainjob.errors`.

A message says what happened. The text after `->` says what to do:

```text
no permission to create trainjobs in namespace team: trainjobs.trainer.kubeflow.org is forbidden: ...
  -> run `trainjob check` to list the missing permissions; the Roles in manifests/ grant them
```

The error of a failed TrainJob also has the step, the rank, the exit code, the reason, the events and the last log
lines.

## Exit codes and retries

The exit code is that of the command `trainjob` and of the launcher of a Kubeflow pipeline. Kubeflow Pipelines 2.17
replaces each of them with 1 for the pod; `kfp.local` and plain pods keep them.

* **Airflow**: "No retry" means that the task fails at once, without a retry. "Retry" means that the try fails, and that
  `retries` or a retry policy decides.
* **Kubeflow Pipelines**: every error fails the step; with `attempts`, a failed TrainJob is replaced first. With the
  default manifests of 2.17, `set_retry` repeats only a launcher that was lost, not one that failed. RetryRun repeats
  it; a failed TrainJob gets another attempt.

The errors of the laptop cluster and of the demo have the exit code 1.

| Error | Exit code | Airflow | Before the error |
|---|---|---|---|
"""
_BEFORE: dict[type[TrainJobError], str] = {
    Interrupted: "Airflow, Kubeflow Pipelines and `trainjob run` start up to `interruption_retries` further attempts.",
    errors.WaitTimeout: "The TrainJob is deleted, suspended or kept, as the message says.",
    **dict.fromkeys(
        (errors.ClusterUnreachable, errors.InvalidResponse, errors.QuotaExceeded, errors.ServerUnavailable),
        "The request is repeated for 1 to 2 minutes.",
    ),
    errors.Expired: "The list and the watch begin again; the error is not reported.",
}


def render_page() -> str:
    """Return the page.

    Raises:
        ValueError: the docstring of an error has no cause or no remedy.
    """
    lines = [_INTRODUCTION.rstrip("\n")]
    lines += [_format_row(each) for group in _GROUPS.values() for each in group if each not in _NOT_IN_TABLE]
    for title, group in _GROUPS.items():
        lines += ["", f"## {title}"]
        for each in group:
            lines += ["", *_render_error(each)]
    lines += ["", *_render_reasons()]
    return "\n".join(lines) + "\n"


def _format_row(error: type[TrainJobError]) -> str:
    retry = "No retry" if not (error.was_tried or error.retryable) else "Retry"
    link = f"[`{error.__name__}`](#{error.__name__.lower()})"
    return f"| {link} | {error.exit_code.value} | {retry} | {_BEFORE.get(error, '')} |"


def _render_error(error: type[TrainJobError]) -> Iterator[str]:
    """Yield the lines of an error's section."""
    found = _parse_docstring(error)
    yield f"### {error.__name__}"
    yield ""
    yield textwrap.fill(found["Meaning"], _WIDTH)
    yield ""
    for label in ("Cause", "Remedy"):
        yield textwrap.fill(f"* **{label}**: {found[label]}", _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _parse_docstring(error: type[TrainJobError]) -> dict[str, str]:
    """Return the meaning, the cause and the remedy in the docstring of an error.

    Raises:
        ValueError: the docstring has no cause or no remedy.
    """
    text = re.split(r"\n\n(?:Attributes|Args):\n", inspect.cleandoc(error.__doc__ or ""))[0]
    found: dict[str, str] = {}
    for paragraph in re.split(r"\n\n+", text):
        line = " ".join(paragraph.split())
        label, colon, rest = line.partition(": ")
        if colon and label in ("Cause", "Remedy"):
            found[label] = rest
        else:
            found["Meaning"] = f"{found.get('Meaning', '')} {line}".strip()
    if missing := {"Meaning", "Cause", "Remedy"} - set(found):
        raise ValueError(f"the docstring of {error.__name__} has no {', no '.join(sorted(missing))}")
    found["Meaning"] = re.sub(r"\[([\w.]*)\]\[\]", r"`\1`", found["Meaning"])
    return found


def _render_reasons() -> Iterator[str]:
    """Yield the section with the rules about failed and pending TrainJobs."""
    meanings = _category_docstrings()
    yield "## Reasons of failed and pending TrainJobs"
    yield ""
    yield textwrap.fill(
        "A TrainJob that does not start or that failed has one of these reasons. The task log, `trainjob describe` and "
        "the message of the error show the advice. While a TrainJob does not start, the wait continues, unless the "
        "last column has a time.",
        _WIDTH,
    )
    yield ""
    yield "| Reason | Cause | Error | Advice | The TrainJob is ended |"
    yield "|---|---|---|---|---|"
    for category, rule in rules.RULES.items():
        if category is Category.SUCCEEDED:
            continue
        ended = {None: "", 0.0: "at once"}.get(rule.grace, f"after {rule.grace or 0:g} s")
        error = f"[`{rule.error.__name__}`](#{rule.error.__name__.lower()})"
        advice = _OWN_PAGE.sub(r"[this page](../\1)", _capitalize(rule.advice))
        yield f"| `{category.value}` | {meanings[category.name]} | {error} | {advice}. | {ended} |"


def _category_docstrings() -> dict[str, str]:
    """Return the text below each member of `Category`, which is not kept at run time."""
    [body] = [
        node.body
        for node in ast.parse(inspect.getsource(rules)).body
        if isinstance(node, ast.ClassDef) and node.name == "Category"
    ]
    found = {}
    for member, text in itertools.pairwise(body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(member.targets[0])] = str(text.value.value)
    return found


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    PAGE.write_text(render_page(), "utf-8")

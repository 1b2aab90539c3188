"""Generator of each component's README.md from its code and metadata.

Run it with `python -m trainjob_kfp.component_readme`. Sections and tables are those of kubeflow/pipelines-components
(scripts/generate_readme). The difference is that outputs have a table of their own; there, output artifacts are listed
among the inputs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

import trainjob_kfp

# Inputs of the example besides the required ones.
_EXAMPLE_INPUTS = {"fine_tune": ("framework", "method", "workspace")}
_TYPE_NAMES = {"String": "str", "Integer": "int", "Float": "float", "Boolean": "bool"}
_SET_BY_KFP = {"task_config", "status"}  # set by Kubeflow Pipelines, never by the author of a pipeline
_ENTRY = re.compile(r"(\w+): (.+)")


def render_readme(component: Any) -> str:
    """Return the README of a component.

    Raises:
        ValueError: the docstring does not describe an input or output.
    """
    function = component.python_func
    text, arguments, returned = _parse_docstring(inspect.getdoc(function) or "")
    inputs = {name: spec for name, spec in component.component_spec.inputs.items() if name not in _SET_BY_KFP}
    described = {**arguments, **returned}
    sections = {
        "Overview": text,
        "Inputs": _format_table(
            ("Parameter", "Type", "Default", "Description"),
            [
                (f"`{name}`", _format_type(spec), _format_default(spec), _get_description(arguments, name))
                for name, spec in inputs.items()
            ],
        ),
        "Outputs": _format_table(
            ("Name", "Type", "Description"),
            [
                (f"`{name}`", _format_type(spec), _get_description(described, name))
                for name, spec in (component.component_spec.outputs or {}).items()
            ],
        ),
        "Usage Example": _format_example(
            function.__name__, inputs, is_exit_task="status" in (component.component_spec.inputs or {})
        ),
        "Metadata": _format_metadata(component_folder(component)),
    }
    body = "\n\n".join(f"## {title}\n\n{section}" for title, section in sections.items() if section)
    return f"# {function.__name__.replace('_', ' ').capitalize()}\n\n{body}\n"


def component_folder(component: Any) -> Path:
    """Return the folder of a component, which also has its metadata and README."""
    return Path(inspect.getfile(component.python_func)).parent


def _parse_docstring(text: str) -> tuple[str, dict[str, str], dict[str, str]]:
    """Return the text, the arguments and the return values of a Google docstring."""
    text, _, returns = text.partition("\n\nReturns:\n")
    text, _, arguments = text.partition("\n\nArgs:\n")
    return text, _parse_entries(arguments), _parse_entries(returns.partition("\n\n")[0])


def _parse_entries(section: str) -> dict[str, str]:
    """Return the texts of a section by their names; the further lines of a text are indented."""
    section = re.sub(r"\n {8,}", " ", section)
    return {found[1]: found[2] for line in section.splitlines() if (found := _ENTRY.fullmatch(line.strip()))}


def _get_description(described: Mapping[str, str], name: str) -> str:
    if name not in described:
        raise ValueError(f"{name} is not described in the docstring")
    return described[name].replace("|", "\\|")


def _format_table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def _format_type(spec: Any) -> str:
    name = spec.type.partition("@")[0].replace("typing.", "").replace("system.", "dsl.")
    return f"`{_TYPE_NAMES.get(name, name)}`"


def _format_default(spec: Any) -> str:
    return f"`{spec.default!r}`" if spec.optional else "required"


def _format_example(name: str, inputs: Mapping[str, Any], *, is_exit_task: bool) -> str:
    """Return the smallest pipeline with this component.

    The pipeline's parameters are the component's required inputs, and those without which no request is complete.
    """
    further = _EXAMPLE_INPUTS.get(name, ())
    shown = {parameter: spec for parameter, spec in inputs.items() if not spec.optional or parameter in further}
    required = {parameter: _format_type(spec).strip("`") for parameter, spec in shown.items()}
    signature = ", ".join(f"{parameter}: {kind}" for parameter, kind in required.items())
    call = ", ".join(f"{parameter}={parameter}" for parameter in required)
    body = [f"    {name}({call})"]
    if is_exit_task:
        body = [f"    with dsl.ExitHandler({name}({call})):", '        train(command=["python", "train.py"])']
    return "\n".join(
        [
            "```python",
            "from kfp import dsl",
            f"from trainjob_kfp import {name}{', train' if is_exit_task else ''}",
            "",
            "",
            "@dsl.pipeline",
            f"def example({signature}):",
            *body,
            "```",
        ]
    )


def _format_metadata(folder: Path) -> str:
    known = yaml.safe_load((folder / "metadata.yaml").read_text("utf-8"))
    services = [*known["dependencies"].get("kubeflow", ()), *known["dependencies"].get("external_services", ())]
    needed = ", ".join(f"{service['name']} {service['version']}" for service in services)
    return "\n".join(
        [
            f"- **Name**: {known['name']}",
            f"- **Stability**: {known['stability']}",
            f"- **Dependencies**: {needed}",
            f"- **Tags**: {', '.join(known['tags'])}",
            f"- **Last verified**: {known['lastVerified']:%Y-%m-%d}",
        ]
    )


def main() -> None:
    """Write the README of every component."""
    for name in trainjob_kfp.__all__:
        component = getattr(trainjob_kfp, name)
        (component_folder(component) / "README.md").write_text(render_readme(component), "utf-8")


if __name__ == "__main__":
    main()

"""Generator of the README.md of each component.

Sections and tables are those of kubeflow/pipelines-components (scripts/generate_readme), except that output artifacts
are in the table of outputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import yaml

from tools.parameters import components
from tools.parameters.components import Component
from tools.parameters.fields import Field

_ROOT = Path(__file__).resolve().parents[2]
# Inputs of the example besides the required ones.
_EXAMPLE_INPUTS = {
    "evaluate_model": ("tasks",),
    "fine_tune": ("framework", "method", "workspace"),
    "initialize_dataset": ("storage_uri",),
    "promote_model": ("service",),
    "rollback_model": ("service",),
}


def render_readmes() -> dict[Path, str]:
    """Return the README of each component by its path."""
    return {components.FOLDER / each.folder / "README.md": _render_readme(each) for each in components.COMPONENTS}


def _render_readme(component: Component) -> str:
    inputs = [
        (f"`{each.name}`", f"`{components.get_type(each)}`", _format_default(each), each.full_description)
        for each in components.list_component_fields(component)
    ]
    inputs += [(f"`{name}`", f"`{kind}`", "`None`", text) for name, kind, text in component.input_artifacts]
    artifacts = [(f"`{name}`", f"`{kind}`", text) for name, kind, text in component.artifacts]
    outputs = [(f"`{name}`", f"`{kind}`", text) for name, kind, text in components.list_outputs(component)]
    sections = {
        "Overview": components.render_overview(component),
        "Inputs": _format_table(("Parameter", "Type", "Default", "Description"), inputs),
        "Outputs": _format_table(("Name", "Type", "Description"), [*artifacts, *outputs]),
        "Usage Example": _format_example(component),
        "Metadata": _format_metadata(_ROOT / components.FOLDER / component.folder),
    }
    body = "\n\n".join(f"## {title}\n\n{section}" for title, section in sections.items())
    return f"# {component.name.replace('_', ' ').capitalize()}\n\n{body}\n"


def _format_default(field: Field) -> str:
    return "required" if field.required else f"`{components.render_default(field)}`"


def _format_table(titles: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [titles, ("---",) * len(titles)]
    lines += [(*row[:-1], row[-1][:1].upper() + row[-1][1:].replace("|", "\\|")) for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _format_example(component: Component) -> str:
    """Return the smallest pipeline with the component; its parameters are the inputs."""
    further = _EXAMPLE_INPUTS.get(component.name, ())
    fields = components.list_component_fields(component)
    shown = {each.name: components.get_type(each) for each in fields if each.required or each.name in further}
    shown = {name: kind.partition("[")[0].lower() if "[" in kind else kind for name, kind in shown.items()}  # List[str]
    signature = ", ".join(f"{name}: {kind}" for name, kind in shown.items())
    call = ", ".join(f"{name}={name}" for name in shown)
    lines = (
        "```python",
        "from kfp import dsl",
        f"from trainjob_kfp import {component.name}",
        "\n",
        "@dsl.pipeline",
        f"def example({signature}):",
        f"    {component.name}({call})",
        "```",
    )
    return "\n".join(lines)


def _format_metadata(folder: Path) -> str:
    known = yaml.safe_load((folder / "metadata.yaml").read_text("utf-8"))
    needed = ", ".join(f"{service['name']} {service['version']}" for service in known["dependencies"]["kubeflow"])
    return "\n".join(
        [
            f"- **Name**: {known['name']}",
            f"- **Stability**: {known['stability']}",
            f"- **Dependencies**: {needed}",
            f"- **Tags**: {', '.join(known['tags'])}",
            f"- **Last verified**: {known['lastVerified']:%Y-%m-%d}",
        ]
    )

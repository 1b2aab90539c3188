"""The README of a component, from its signature and docstring: tables as in kubeflow/pipelines-components.

Run as a program, it writes them all anew.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import trainjob_kfp

_TYPES = {"String": "str", "Integer": "int", "Float": "float", "Boolean": "bool"}
_OUTPUTS = {
    "job": "Name of the TrainJob.",
    "namespace": "Its namespace.",
    "uid": "Its uid.",
    "status": "`Complete`; a step that fails has no outputs.",
}


def render(component) -> str:
    """The README's text."""
    document = inspect.getdoc(component.python_func)
    summary, _, rest = document.partition("\n\nArgs:\n")
    arguments, _, returned = rest.partition("\n\nReturns:\n")
    described = dict(line.strip().split(": ", 1) for line in arguments.splitlines())
    outputs = {**_OUTPUTS, "output_path": f"Where the result is: {returned.rpartition('path: ')[2]}"}
    described_outputs = {**described, **outputs}
    inputs = {name: spec for name, spec in component.component_spec.inputs.items() if name != "task_config"}
    lines = [
        f"# {component.python_func.__name__.replace('_', ' ').capitalize()}",
        "",
        summary,
        "",
        "## Inputs",
        "",
        "| Parameter | Type | Default | Description |",
        "| --- | --- | --- | --- |",
        *(f"| `{name}` | `{_type(spec)}` | {_default(spec)} | {described[name]} |" for name, spec in inputs.items()),
        "",
        "## Outputs",
        "",
        "| Name | Type | Description |",
        "| --- | --- | --- |",
        *(
            f"| `{name}` | `{_type(spec)}` | {described_outputs[name]} |"
            for name, spec in component.component_spec.outputs.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _type(spec) -> str:
    name = spec.type.partition("@")[0].replace("typing.", "")
    return _TYPES.get(name, name)


def _default(spec) -> str:
    return f"`{spec.default!r}`" if spec.optional else "required"


def main() -> None:
    for name in trainjob_kfp.__all__:
        component = getattr(trainjob_kfp, name)
        (Path(inspect.getfile(component.python_func)).parent / "README.md").write_text(render(component))


if __name__ == "__main__":
    main()

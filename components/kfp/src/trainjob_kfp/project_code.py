"""Code of a project in the argument of a component, packed when a pipeline is compiled.

A small project is contained in the argument. Argo stores an argument about twelve times for each task and iteration,
in a Workflow of 1 MiB. Therefore all projects in the arguments of one pipeline share the size of one argument. A
project that does not fit comes from a ConfigMap, which the author creates before the run.

The same files give the same argument on every machine, because it is part of Kubeflow Pipelines' cache key. The path
and the commit are not in it.
"""

from __future__ import annotations

import json
import math
import shlex
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from kfp.dsl.pipeline_channel import extract_pipeline_channels_from_any
from kfp.dsl.pipeline_context import Pipeline
from kfp.dsl.tasks_group import ParallelFor

from trainjob.errors import InvalidSpec
from trainjob.manifest.shared_code import (
    check_shared_size,
    describe_creation,
    name_shared_config_map,
    remove_origin,
)
from trainjob.project_code import pack
from trainjob.spec import Code, PackedCode
from trainjob_kfp.function_text import MAX_ARGUMENT_BYTES

# They are the same on every machine and in every commit with these files.
_FIELDS = {"sha256", "requirements", "uri", "secret", "endpoint", "region"}


def pack_argument(value: Any) -> tuple[Any, PackedCode | None]:
    """Return the argument with the code of a project, and the code with its commit.

    A value of the run, an empty value and code that is packed are returned unchanged, without code.

    Args:
        value: the dict of the fields of a `Code`. A relative path starts at the working directory.

    Raises:
        InvalidSpec: the code cannot be packed, or is too large.
    """
    if not isinstance(value, Mapping) or not value or "sha256" in value or extract_pipeline_channels_from_any(value):
        return value, None
    try:
        code = Code.from_object(value)
    except InvalidSpec as error:
        problems = [replace(problem, field=f"code.{problem.field}") for problem in error.problems]
        raise InvalidSpec(problems, hint=error.hint) from None
    pipeline = Pipeline.get_default_pipeline()
    if pipeline is None:  # `kfp.local` runs the component at once, or the author looks at the task
        return _PipelineCode().add(code, 1)
    return _pipelines.setdefault(pipeline, _PipelineCode()).add(code, _count_iterations(pipeline))


class _PipelineCode:
    """Projects of one pipeline, each of which is packed once."""

    def __init__(self) -> None:
        self._packed: dict[str, PackedCode] = {}  # by the JSON of the code
        self._referenced: set[str] = set()
        self._contained: dict[str, list[dict[str, Any]]] = {}
        self._sizes: dict[str, int] = {}

    def add(self, code: Code, iterations: int) -> tuple[dict[str, Any], PackedCode]:
        """Return the argument of a task that is run this number of times, and the code.

        If the projects in arguments become too large, this project is taken out of all of them.
        """
        packed = self._packed.get(key := code.model_dump_json())
        if packed is None:
            packed = self._packed[key] = pack(code, Path.cwd())
        digest = packed.sha256
        argument = packed.model_dump(mode="json", exclude_defaults=True, include=_FIELDS)
        if not packed.size:  # the archive is in a store
            return argument, packed
        if digest not in self._referenced:
            check_shared_size(packed)
            argument["archive"] = remove_origin(packed.archive)
            self._contained.setdefault(digest, []).append(argument)
            size = len(json.dumps(argument)) * iterations
            self._sizes[digest] = self._sizes.get(digest, 0) + size
            if sum(self._sizes.values()) > MAX_ARGUMENT_BYTES:
                self._reference(code, digest)
        if digest in self._referenced:
            argument["config_map"] = name_shared_config_map(digest)
        return argument, packed

    def _reference(self, code: Code, digest: str) -> None:
        """Replace the code by the name of its ConfigMap in all arguments that have it."""
        size = self._sizes.pop(digest)
        for argument in self._contained.pop(digest):
            del argument["archive"]
            argument["config_map"] = name_shared_config_map(digest)
        self._referenced.add(digest)
        warnings.warn(
            f"the project {code.path} comes from a ConfigMap, because it has {size} bytes in the arguments of this "
            f"pipeline, and {MAX_ARGUMENT_BYTES} are allowed for all projects. Create the ConfigMap in the namespace "
            f"of its TrainJobs before a run: {describe_creation(folder=shlex.quote(code.path))}",
            stacklevel=7,  # the line that calls the component
        )


_pipelines: WeakKeyDictionary[Pipeline, _PipelineCode] = WeakKeyDictionary()


def _count_iterations(pipeline: Pipeline) -> int:
    """Return how often a task at this place of a pipeline is run.

    A loop over a value of the run counts once.
    """
    loops = [group for group in pipeline.groups if isinstance(group, ParallelFor)]
    items = [loop.loop_argument.items_or_pipeline_channel for loop in loops if not loop.items_is_pipeline_channel]
    return math.prod(map(len, items))

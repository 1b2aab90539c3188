"""`trainjob submit`: create TrainJobs without waiting for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer

from trainjob.cli import request_file, terminal
from trainjob.cli.follow import describe_submission, print_notice
from trainjob.cli.request_file import FileContent
from trainjob.cli.runtime_files import APPLY_RUNTIMES, create_runtimes
from trainjob.lifecycle import submit as submit_one
from trainjob.lifecycle.prepared_job import preview_manifest
from trainjob.manifest import Dialect, adapt_manifest, build_trainjob
from trainjob.manifest.code import preview_config_map
from trainjob.manifest.review import summarize_manifest
from trainjob.manifest.runtime_documents import set_namespace

__all__ = ["DIALECT", "OUTPUT", "Output", "preview_file", "print_manifests", "submit"]


class Output(str, Enum):
    """Format of printed TrainJobs: complete, or with packed code replaced by its digest."""

    YAML = "yaml"
    SUMMARY = "summary"


OUTPUT = typer.Option(
    "--output",
    "-o",
    help="Print the TrainJobs instead of creating them: yaml for kubectl, summary for reviewers.",
    show_default=False,
)
DIALECT = typer.Option(
    help="With -o: Trainer version of the printed TrainJobs, so that no cluster is needed; 2.2 means 2.2 or later.",
    show_default=False,
)


def submit(
    file: Annotated[str, request_file.FILE],
    namespace: Annotated[str, request_file.NAMESPACE] = "",
    name: Annotated[str, request_file.NAME] = "",
    run_id: Annotated[str, request_file.RUN_ID] = "",
    apply_runtimes: Annotated[bool, APPLY_RUNTIMES] = False,
    output: Annotated[Output | None, OUTPUT] = None,
    dialect: Annotated[Dialect | None, DIALECT] = None,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Create the TrainJobs of a file, and print their names.

    The command creates all TrainJobs at once and does not wait for them. Training runtimes of the file are created
    first; one that exists stays unchanged if it is equal. It adopts an active TrainJob with the same
    content, and with --run-id also one that has succeeded. Otherwise it creates a new one. Use the printed names with
    `trainjob wait`, `logs` and `cancel`.

    With --json: a list of objects with name, namespace, uid, attempt, adopted and adopted_at.

    Example: name=$(trainjob submit tune.yaml)
    """
    content = request_file.read_file(file, name, run_id)
    if output or dialect:
        print_manifests([*content.runtimes, *preview_file(content, namespace, dialect)], output)
        return
    references = []
    try:
        with terminal.open_cluster() as cluster:
            create_runtimes(cluster, content.runtimes, namespace, file, replace=apply_runtimes)
            for one in content.requests:
                with one.locate_errors():
                    reference = submit_one(
                        cluster,
                        one.request,
                        one.key,
                        namespace=namespace,
                        renewal=one.renewal,
                        on_notice=print_notice,
                    )
                references.append(reference)
                print_notice(describe_submission(reference))
                if not as_json:
                    terminal.print_line(reference.name)
    finally:  # report the TrainJobs that were created before another one was refused
        if as_json:
            terminal.print_json([reference.to_dict() for reference in references])


def print_manifests(manifests: Sequence[Mapping[str, Any]], output: Output | None) -> None:
    """Print TrainJobs in a format, by default as YAML."""
    if output is Output.SUMMARY:
        terminal.print_line("# For reviewers. Print the TrainJobs with -o yaml to apply them.")
        manifests = [summarize_manifest(each) for each in manifests]
    terminal.print_yaml(*manifests)


def preview_file(content: FileContent, namespace: str, dialect: Dialect | None) -> list[dict[str, Any]]:
    """Return the TrainJobs that would be sent to the cluster in its current state.

    The ConfigMaps with their code come first.

    They are checked against the runtimes of the file, otherwise against those of the cluster. With a dialect, no
    cluster is contacted.

    Raises:
        InvalidSpec: a request cannot be expressed.
        ClusterError: the cluster cannot be reached or refuses.
    """
    if dialect:
        prepared = [one.prepare(namespace) for one in content.requests]
        built = [build_trainjob(each.job, **each.build_metadata(1), dialect=dialect) for each in prepared]
        manifests = [adapt_manifest(each, dialect) for each in built]
    else:
        with terminal.open_cluster() as cluster:
            for runtime in content.runtimes:
                cluster.runtimes.assume(set_namespace(runtime, namespace, cluster.namespace))
            prepared = [one.prepare(namespace, cluster.namespace) for one in content.requests]
            manifests = [preview_manifest(cluster, each) for each in prepared]
    pairs = zip(prepared, manifests, strict=True)
    return [*filter(None, (preview_config_map(each.job, manifest) for each, manifest in pairs)), *manifests]

"""`trainjob export`: send the model of a fine-tuning to a destination."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.follow import follow
from trainjob.cli.interruption import Interrupted
from trainjob.cli.job_lookup import get_trainjobs
from trainjob.cli.request_file import FileContent, to_user_request
from trainjob.cli.submit import OUTPUT, Output, preview_file, print_manifests
from trainjob.errors import InvalidSpec, Problem
from trainjob.inspection.model_location import find_model
from trainjob.spec import ExportModel, WorkspaceVolume
from trainjob.status.nested_fields import get_str

__all__ = ["export"]


class Adapter(str, Enum):
    """Part of a LoRA training to export."""

    MERGE = "merge"
    KEEP = "keep"


class Program(str, Enum):
    """Place of the code of the export."""

    PACKED = "packed"
    IMAGE = "image"


_JOB_AND_DESTINATION = typer.Argument(
    metavar="[NAME] DESTINATION",
    help="TrainJob of the fine-tuning, and s3://bucket/path, hf://organization/name, or a path below /workspace.",
    autocompletion=completion.complete_trainjobs,
)
_WORKSPACE = typer.Option(metavar="CLAIM", help="Instead of NAME: PersistentVolumeClaim that has the model.")
_OUTPUT_PATH = typer.Option(help="With --workspace: folder of the checkpoints, below /workspace/output.")
_ADAPTER = typer.Option(help="Of a LoRA training: merge for the merged model, keep for the adapter alone.")
_SECRET = typer.Option(help="Secret with the credentials for the destination.")
_ENDPOINT = typer.Option(help="URL of the object store, if it is not AWS.")
_REGION = typer.Option(help="Region of the bucket.")
_IMAGE = typer.Option(help="Image with Python, huggingface_hub and opendal. Default: the Trainer's initializer.")
_PROGRAM = typer.Option(help="Code of the export: packed into the TrainJob, or the trainjob in --image.")


def export(
    places: Annotated[list[str], _JOB_AND_DESTINATION],  # recorded in tests/unit/recorded/values.json
    workspace: Annotated[str, _WORKSPACE] = "",
    output_path: Annotated[str, _OUTPUT_PATH] = "",
    adapter: Annotated[Adapter, _ADAPTER] = Adapter.MERGE,
    secret: Annotated[str, _SECRET] = "",
    endpoint: Annotated[str, _ENDPOINT] = "",
    region: Annotated[str, _REGION] = "",
    image: Annotated[str, _IMAGE] = "",
    program: Annotated[Program, _PROGRAM] = Program.PACKED,
    namespace: Annotated[str, completion.NAMESPACE] = "",
    output: Annotated[Output | None, OUTPUT] = None,
    keep_colors: Annotated[bool, terminal.KEEP_COLORS] = False,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Export the model of a fine-tuning to a bucket, the Hugging Face Hub or a folder.

    The exported folder is a complete Hugging Face model, made from the last checkpoint. The export is a TrainJob of its
    own, which the command follows until it has ended. The command resumes an earlier, unfinished export of the same
    model. Ctrl-C deletes the export's TrainJob, but not the model.

    With --json: the outcome; progress is on standard error.

    Example: trainjob export tune-1a2b3c4d s3://models/tickets --secret s3
    """
    *names, destination = places
    if len(names) != (0 if workspace else 1):
        rule = "give a TrainJob and a destination, or --workspace and a destination"
        raise InvalidSpec(Problem("[NAME] DESTINATION", repr(" ".join(places)), rule))
    console = terminal.error_console() if as_json else terminal.console()
    try:
        with terminal.open_cluster() as cluster:
            if workspace:
                place, path, where = WorkspaceVolume(claim=workspace), output_path, namespace or cluster.namespace
                after_jobs: tuple[str, ...] = ()
            else:
                [job] = get_trainjobs(cluster, names, namespace)
                (place, path), where = find_model(cluster, job), get_str(job, "metadata", "namespace")
                after_jobs = (get_str(job, "metadata", "name"),)
            given = {"secret": secret, "endpoint": endpoint, "region": region, "image": image}
            request = to_user_request(
                ExportModel(
                    workspace=place,
                    output_path=path,
                    destination=destination,
                    adapter=adapter.value,
                    program=program.value,
                    after_jobs=after_jobs,
                    **{name: value for name, value in given.items() if value},
                )
            )
            if output:
                print_manifests(preview_file(FileContent([request], []), where, None), output)
                return
            outcome = follow(cluster, request, where, console, keep_colors=keep_colors)
    except Interrupted as stopped:
        raise typer.Exit(stopped.exit_code) from None
    if as_json:
        terminal.print_json(outcome.to_dict())
    outcome.raise_for_failure()

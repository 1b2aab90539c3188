"""`trainjob export`: send the model of a fine-tuning to a destination."""

from __future__ import annotations

from typing import Annotated

import typer

from trainjob.cli import completion, terminal
from trainjob.cli.follow import follow
from trainjob.cli.interruption import Interrupted
from trainjob.cli.job_lookup import get_trainjobs
from trainjob.cli.request_file import to_user_request
from trainjob.cli.submit import OUTPUT, Output, preview_requests
from trainjob.errors import InvalidSpec, Problem
from trainjob.inspection.model_location import find_model
from trainjob.spec import ExportModel, Workspace
from trainjob.status.nested_fields import get_str

__all__ = ["export"]

_JOB_AND_DESTINATION = typer.Argument(
    metavar="[NAME] DESTINATION",
    help="The fine-tuning's TrainJob, and s3://bucket/path, hf://organization/name, or a path below /workspace.",
    autocompletion=completion.complete_trainjobs,
)
_WORKSPACE = typer.Option(metavar="CLAIM", help="In place of a NAME: the claim that the model is on.")
_OUTPUT_PATH = typer.Option(help="With --workspace: where the checkpoints are below /workspace/output.")
_SECRET = typer.Option(help="The Secret with the destination's credentials.")
_ENDPOINT = typer.Option(help="The object store's URL, where it is not AWS.")
_REGION = typer.Option(help="The bucket's region.")


def export(
    job_and_destination: Annotated[list[str], _JOB_AND_DESTINATION],
    workspace: Annotated[str, _WORKSPACE] = "",
    output_path: Annotated[str, _OUTPUT_PATH] = "",
    secret: Annotated[str, _SECRET] = "",
    endpoint: Annotated[str, _ENDPOINT] = "",
    region: Annotated[str, _REGION] = "",
    namespace: Annotated[str, completion.NAMESPACE] = "",
    output: Annotated[Output | None, OUTPUT] = None,
    as_json: Annotated[bool, terminal.JSON] = False,
) -> None:
    """Make one clean Hugging Face folder of a fine-tuning's final checkpoint, send it, and follow that to its end.

    What an earlier export of the same has begun is gone on with. Ctrl-C deletes the export's TrainJob; the model stays.

    `--json` prints the outcome, and tells the rest on standard error.

    Args:
        places: the fine-tuning's TrainJob, where no workspace is named, and the destination.
        workspace: the claim that the model is on.
        output_path: where on it.
        secret: the destination's credentials.
        endpoint: of the object store.
        region: of the bucket.
        namespace: where; empty for the kubeconfig's own.
        output: print what would be sent, and send nothing.
        as_json: print the outcome.

    Raises:
        InvalidSpec: there is no model there, or the destination is none.
        JobFailed: the export failed.
        ClusterError: the cluster can't be asked.
    """
    *names, destination = job_and_destination
    if len(names) != (0 if workspace else 1):
        rule = "give a TrainJob and a destination, or --workspace and a destination"
        raise InvalidSpec(Problem("[NAME] DESTINATION", repr(" ".join(job_and_destination)), rule))
    console = terminal.error_console() if as_json else terminal.console()
    try:
        with terminal.open_cluster() as cluster:
            if workspace:
                place, path, where = Workspace(claim=workspace), output_path, namespace or cluster.namespace
            else:
                [job] = get_trainjobs(cluster, names, namespace)
                (place, path), where = find_model(cluster, job), get_str(job, "metadata", "namespace")
            given = {"secret": secret, "endpoint": endpoint, "region": region}
            asked = to_user_request(
                ExportModel(
                    workspace=place,
                    output_path=path,
                    destination=destination,
                    **{name: value for name, value in given.items() if value},
                )
            )
            if output:
                terminal.print_yaml(*preview_requests([asked], where, None))
                return
            outcome = follow(cluster, asked, where, console)
    except Interrupted as stopped:
        raise typer.Exit(stopped.exit_code) from None
    if as_json:
        terminal.print_json(outcome.to_dict())
    outcome.raise_for_failure()

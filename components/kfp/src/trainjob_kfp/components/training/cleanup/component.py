"""Component `cleanup`.

Kubeflow Pipelines sends only the function's source, and evaluates its annotations immediately. The annotations are
therefore not postponed, and the body uses no name of this module. An empty default means that the argument is
not given.
"""
# ruff: noqa: UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import List, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def cleanup(status: dsl.PipelineTaskFinalStatus, namespace: str = "", finished: bool = False) -> NamedTuple(
    "Outputs", [("deleted", List[str])]
):
    """Delete this run's active TrainJobs, as the exit task of a `dsl.ExitHandler`.

    A step deletes its TrainJob itself if its run is terminated; in a pipeline with this exit task, also with
    `on_kill="keep"`. This component deletes the other active ones, for example of steps whose pods were lost. Argo may
    stop it after a termination. Kubernetes then deletes the TrainJobs along with the run's Workflow, if they are in the
    namespace of the run. TrainJobs of other runs or of other software are not changed.

    Args:
        status: Final status of the tasks in the exit handler; Kubeflow Pipelines sets this value.
        namespace: Namespace of the TrainJobs; by default the pipeline's own.
        finished: Whether to delete finished TrainJobs, too. Export their results first.

    Returns:
        deleted: Names of the TrainJobs that were deleted.
    """
    from trainjob_kfp import launcher

    # `status` contains the run's name and is part of the cache key, so that the cached result of another run is never
    # used (KFP 2.17, backend/src/v2/driver).
    print(f"Run {status.pipeline_job_resource_name} has the state {status.state}", flush=True)
    with launcher.ExitOnError():
        return (launcher.clean_up(namespace=namespace, finished=finished),)

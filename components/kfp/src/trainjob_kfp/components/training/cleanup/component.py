"""Cleanup, as a pipeline step.

Kubeflow Pipelines ships the function's source alone and reads its annotations at once: so these are not postponed, and
the body uses no name of this module. Defaults that are empty stand for "not given".
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
    """Delete the TrainJobs of this pipeline run that are still there, as the exit task of a `dsl.ExitHandler`.

    Steps that are terminated delete their TrainJobs themselves; this is for those whose pods were lost meanwhile, or
    that were told to keep them. TrainJobs of other runs, and those that no step of ours made, are left alone.

    Args:
        status: How what is inside the exit handler ended; Kubeflow Pipelines fills it in.
        namespace: Where the TrainJobs are; by default the pipeline's own.
        finished: Delete those that have ended, too; not before what they made is elsewhere.

    Returns:
        deleted: Names of the TrainJobs that were deleted.
    """
    from trainjob_kfp import launcher

    # It names the run, so that no cache takes another run's cleanup for this one's (KFP 2.17 backend/src/v2/driver).
    print(f"The run {status.pipeline_job_resource_name}: {status.state}", flush=True)
    with launcher.ExitOnError():
        return (launcher.clean_up(namespace=namespace, finished=finished),)

"""Check that a TrainJob that was not found belongs to the cluster of this process."""

from __future__ import annotations

from trainjob.client import Cluster, ClusterIdentity
from trainjob.errors import WrongCluster
from trainjob.lifecycle.identity import JobReference


def check_cluster_of_missing(cluster: Cluster, reference: JobReference, *, may_be_deleted: bool = False) -> None:
    """Raise an error if a TrainJob may be missing because it belongs to another cluster.

    Call it wherever a TrainJob is not found by its uid, before that counts as its deletion. It sends no request.

    Args:
        cluster: the cluster in which the TrainJob was not found.
        reference: the TrainJob.
        may_be_deleted: whether the caller may just have deleted it, so that only a certain difference counts.

    Raises:
        WrongCluster: the reference was recorded with another cluster. Unless `may_be_deleted` is set, also if it was
            recorded with another address and the authorities cannot be compared.
    """
    recorded = reference.cluster
    if recorded is None:
        return
    if recorded.differs(cluster.identity) if may_be_deleted else recorded.may_differ(cluster.identity):
        raise _wrong_cluster(cluster, reference)


def check_same_cluster(cluster: Cluster, recorded: ClusterIdentity | None) -> None:
    """Raise an error if this process certainly reaches another cluster than the recorded one.

    Raises:
        WrongCluster: both address and certificate authority differ.
    """
    if recorded is not None and recorded.differs(cluster.identity):
        raise WrongCluster(
            f"the worker of this task reaches the cluster at {recorded.server}, and this process reaches "
            f"{cluster.server}; nothing was decided about the TrainJob",
            hint="give the workers and the triggerer the same connection, and start the step again",
        )


def _wrong_cluster(cluster: Cluster, reference: JobReference) -> WrongCluster:
    """Return the error for a TrainJob that was recorded with another cluster."""
    recorded = reference.cluster.server if reference.cluster else "an unknown address"
    return WrongCluster(
        f"TrainJob {reference} was submitted to the cluster at {recorded}, and this process reaches "
        f"{_describe_difference(cluster, recorded)}, which does not have it; nothing was decided about it",
        hint="give the workers and the triggerer the same connection, and start the step again; it adopts the TrainJob",
    )


def _describe_difference(cluster: Cluster, recorded: str) -> str:
    if cluster.server != recorded:
        return cluster.server
    return f"{cluster.server}, whose certificate authority is another one"

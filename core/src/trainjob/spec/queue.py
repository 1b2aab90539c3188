"""The Kueue queue of a step, and what Kueue reads from a TrainJob."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.spec.base import Spec, invalid_field

QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
"""Labels that Kueue reads from the TrainJob itself (Kueue 0.17 pkg/controller/constants)."""
KUEUE_PREFIX = "kueue.x-k8s.io/"
PODSET_PREFIX = f"{KUEUE_PREFIX}podset-"
"""Beginning of annotations that Kueue reads from the pod template alone (Kueue 0.17 apis/kueue/v1beta2).

In other places it ignores them, without an error.
"""
_PARTIAL_ADMISSION = f"{KUEUE_PREFIX}job-min-parallelism"
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
# A label's key (Kueue 0.17 apis/kueue/v1beta2/topology_types.go).
_NODE_LABEL = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


class Queue(Spec):
    """A Kueue LocalQueue; a plain string means its name.

    Attributes:
        name: name of the LocalQueue, in the TrainJob's namespace.
        priority_class: name of a WorkloadPriorityClass, which determines the order of admission and preemption.
        topology: label of nodes that is a level of the queue's Topology, such as `cloud.provider.com/topology-rack`:
            the pods of the training run on nodes with the same value. Trainer 2.1 and later.
        topology_mode: `required`: the TrainJob waits until all pods fit into one value of `topology`; `preferred`:
            Kueue also admits it to several values if it does not fit into one; `unconstrained`: the pods may run
            anywhere in the Topology, and `topology` is left out.
    """

    name: str = Field(min_length=1)
    priority_class: str = ""
    topology: str = Field(default="", max_length=316)
    topology_mode: Literal["required", "preferred", "unconstrained"] = "required"

    @field_validator("name", "priority_class")
    @classmethod
    def _validate_name(cls, name: str) -> str:
        if name and (len(name) > 63 or not _DNS_NAME.fullmatch(name)):
            raise invalid_field("", name, "it must be a Kubernetes name of at most 63 characters")
        return name

    @field_validator("topology")
    @classmethod
    def _validate_topology(cls, label: str) -> str:
        if label and not _NODE_LABEL.fullmatch(label):
            raise invalid_field("", label, "it must be a label of nodes, such as cloud.provider.com/topology-rack")
        return label

    @model_validator(mode="after")
    def _validate_mode(self) -> Self:
        if self.topology and self.topology_mode == "unconstrained":
            raise invalid_field("topology", self.topology, "leave it out: the pods may run anywhere (unconstrained)")
        if self.topology_mode == "preferred" and not self.topology:
            raise invalid_field("topology", None, "give the label of nodes whose value the pods prefer to share")
        return self

    @property
    def pod_annotations(self) -> dict[str, str]:
        """The annotations of the pods by which Kueue places them."""
        if self.topology_mode == "unconstrained":
            return {f"{PODSET_PREFIX}unconstrained-topology": "true"}
        return {f"{PODSET_PREFIX}{self.topology_mode}-topology": self.topology} if self.topology else {}


def check_partial_admission(texts: Mapping[str, str], field: str) -> None:
    """Refuse the request for fewer pods than a TrainJob has, which Kueue ignores.

    Kueue admits a part of a batch Job only, none of a TrainJob (0.17 pkg/controller/jobs).

    Args:
        texts: labels or annotations of a TrainJob.
        field: path of their field.

    Raises:
        InvalidSpec: they have the request.
    """
    if value := texts.get(_PARTIAL_ADMISSION):
        rule = "Kueue admits no part of a TrainJob (0.17): give a range, such as num_nodes=(2, 8)"
        raise invalid_field(f"{field}.{_PARTIAL_ADMISSION}".lstrip("."), value, rule)


QueueField = Annotated[Queue, BeforeValidator(lambda given: {"name": given} if isinstance(given, str) else given)]

"""Number of training nodes: fixed, or a range from which each attempt gets as many as are free."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError, model_validator
from typing_extensions import Self

from trainjob.spec.base import MAX_NODES, Spec, invalid_field
from trainjob.spec.durations import Duration
from trainjob.spec.resources import Resources

DEFAULT_SHRINK_AFTER = timedelta(minutes=10)
_RULE = "it is a number of nodes from 1, or a range (minimum, maximum) such as (2, 8)"
_INTEGER = TypeAdapter(int)


def _parse_num_nodes(value: object) -> object:
    is_range = isinstance(value, list | tuple)
    try:
        counts = [_INTEGER.validate_python(each) for each in (value if is_range else (value,))]  # type: ignore[attr-defined]
    except ValidationError:
        raise invalid_field("", value, _RULE) from None
    least, *more = counts or [0]
    is_allowed = len(more) == 1 and least < more[0] if is_range else True
    if not (is_allowed and 1 <= least <= max(counts) <= MAX_NODES):
        raise invalid_field("", value, _RULE)
    return tuple(counts) if is_range else least


class TrainingNodes(Spec):
    """Base class of everything that runs on training nodes.

    Attributes:
        num_nodes: number of training nodes; by default the runtime's number. With a range `(minimum, maximum)`, an
            attempt requests the maximum first, and fewer nodes if they are not free.
        shrink_after: only with a range: time without a reservation after which the next attempt requests fewer nodes;
            by default 10 minutes. The reservation is that of the Kueue queue, or of the scheduler.
        num_proc_per_node: number of processes on each node; by default one for each GPU, or one without GPUs.
        resources_per_node: resources of each node, such as `{"gpu": 2, "memory": "64Gi"}`.
    """

    num_nodes: Annotated[int | tuple[int, int], BeforeValidator(_parse_num_nodes)] | None = None
    shrink_after: Duration | None = Field(default=None, gt=timedelta())
    resources_per_node: Resources | None = None
    num_proc_per_node: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _validate_shrink_after(self) -> Self:
        if self.shrink_after is not None and not isinstance(self.num_nodes, tuple):
            rule = "it needs a range of nodes, such as num_nodes=(2, 8)"
            raise invalid_field("shrink_after", self.shrink_after, rule)
        return self

    @property
    def max_nodes(self) -> int | None:
        """The number of nodes, of a range the maximum; None means the runtime's number."""
        return self.num_nodes[1] if isinstance(self.num_nodes, tuple) else self.num_nodes

    @property
    def node_counts(self) -> tuple[int, ...]:
        """Numbers of nodes that the attempts may request, the first one first.

        Each is at most half of the one before, or the minimum. It is empty if the number is the runtime's.
        """
        if not isinstance(self.num_nodes, tuple):
            return () if self.num_nodes is None else (self.num_nodes,)
        least, most = self.num_nodes
        counts = [most]
        while counts[-1] > least:
            half = max(least, counts[-1] // 2)
            counts.append(next(count for count in range(half, least - 1, -1) if self.allows_nodes(count)))
        return tuple(counts)

    def allows_nodes(self, count: int) -> bool:  # noqa: ARG002 - for a subclass
        """Return whether an attempt may have this number of nodes of the range."""
        return True

    def with_nodes(self, count: int) -> Self:
        """Return the same training on a fixed number of nodes."""
        return self.model_copy(update={"num_nodes": count, "shrink_after": None})

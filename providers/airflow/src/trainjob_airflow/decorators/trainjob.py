"""`@task.trainjob`: a Python function that runs under torchrun on the nodes of a TrainJob."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import CustomTrainer
from trainjob_airflow.operators.steps import TrainJobOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

_TRAINER_FIELDS = tuple(name for name in CustomTrainer.model_fields if name not in ("func", "func_args"))


class TrainJobDecoratedOperator(DecoratedOperator, TrainJobOperator):
    """Run the decorated function as a `CustomTrainer` on the nodes of a TrainJob.

    Only the function's source and its arguments are sent to the pods. The function has to import what it needs, and
    must not use names of its module. Its arguments are JSON values: constants, templates, or results of earlier tasks.

    If rank 0 returns a JSON value, it is `result` in the XCom. The value is written to the log.
    """

    custom_operator_name: ClassVar[str] = "@task.trainjob"
    template_fields: Sequence[str] = (
        *DecoratedOperator.template_fields,
        *(field for field in TrainJobOperator.template_fields if field != "trainer"),
        "trainer_fields",
    )
    template_ext: Sequence[str] = ()  # an argument of the function that ends in .json does not name a template file

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **arguments: Any,
    ) -> None:
        """Create the operator; `TrainJobOperator` describes further arguments.

        Args:
            python_callable: the decorated function.
            op_args: positional arguments of the call.
            op_kwargs: keyword arguments of the call.
            **arguments: arguments of `CustomTrainer` except `func` and `func_args`, and of `TrainJobOperator` except
                `trainer`.

        Raises:
            InvalidSpec: an argument has a wrong value, or the function cannot be sent.
        """
        for name in ("trainer", "manifest"):
            if name in arguments:
                raise InvalidSpec(Problem(name, "given", "the decorated function is the trainer"))
        self.trainer_fields = {name: arguments.pop(name) for name in _TRAINER_FIELDS if name in arguments}
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **arguments)

    def _build_step(self, claim: str) -> Any:
        # When the DAG is parsed, the function's arguments are not known, and the trainer's fields may be templates.
        self.trainer = self.trainer or CustomTrainer(func=self.python_callable)
        return super()._build_step(claim)

    def rendered_step(self, context: Context) -> Any:
        """Return the step to submit, with the function and the arguments of its call."""
        given = inspect.signature(self.python_callable).bind(*self.op_args, **self.op_kwargs).arguments
        self.trainer = CustomTrainer(func=self.python_callable, func_args=given, **self.trainer_fields)
        return super().rendered_step(context)


def trainjob_task(python_callable: Callable[..., Any] | None = None, **arguments: Any) -> TaskDecorator:
    """Turn a function into a task that runs it on the nodes of a TrainJob.

        @task.trainjob(num_nodes=2, resources_per_node={"gpu": 8}, queue_name="gpu-team")
        def train(learning_rate: float):
            import torch
            ...

    Args:
        python_callable: the function, if the decorator is used without arguments.
        **arguments: see `TrainJobDecoratedOperator`.
    """
    return task_decorator_factory(
        python_callable=python_callable, decorated_operator_class=TrainJobDecoratedOperator, **arguments
    )

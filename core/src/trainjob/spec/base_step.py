"""Base class of the steps, and the place of their programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field, model_validator
from typing_extensions import Self

from trainjob.spec.base import invalid_field
from trainjob.spec.job import STEP_ALIASES, Deadline, EndAction, JobName, Program, TimeToLive, check_end_actions
from trainjob.spec.metadata import Annotations, Labels
from trainjob.spec.resources import Placement, QueueField
from trainjob.spec.secrets import CredentialFreeSpec, Env, Secret
from trainjob.spec.volumes import Volumes, check_workspace_is_free
from trainjob.version import VERSION


class BaseStep(CredentialFreeSpec):
    """Base class of the steps.

    Attributes:
        name: start of the TrainJob's name; by default the task's name.
        placement: nodes, service account and image pull secrets of its pods.
        volumes: volumes that its pods mount besides the workspace.
        queue: Kueue queue in which the TrainJob waits for quota.
        deadline: limit on the time for which it may be active.
        ttl_after_success: time for which its TrainJob is retained after it is complete; see `TrainJob`.
        ttl_after_failure: the same time after it has failed.
        on_kill: action on its TrainJob when its caller is stopped; see `TrainJob`.
        on_failure: action on its TrainJob when it is ended because of its restarts; see `TrainJob`.
        labels: labels of its TrainJob and of the pods; see `TrainJob`.
        annotations: annotations of its TrainJob and of the pods.
        env: additional environment variables; secrets as `SecretKeyReference`.
        secret: Secret with its credentials.
        program: where the code of the step's program comes from. `packed` sends it in the command of the pods, so that
            any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments.
    """

    field_aliases: ClassVar[Mapping[str, str]] = STEP_ALIASES

    name: JobName | None = None
    placement: Placement | None = None
    volumes: Volumes = ()
    queue: QueueField | None = None
    deadline: Deadline | None = None
    ttl_after_success: TimeToLive | None = None
    ttl_after_failure: TimeToLive | None = None
    on_kill: EndAction = "delete"
    on_failure: EndAction = "delete"
    labels: Labels = Field(default_factory=dict)
    annotations: Annotations = Field(default_factory=dict)
    env: Env | None = None
    secret: Secret | None = None
    program: Program = "packed"

    @model_validator(mode="after")
    def _validate_shared_fields(self) -> Self:
        check_workspace_is_free(self.volumes, taken_by="the step's workspace")
        check_end_actions(self.on_kill, self.on_failure, self.queue, None)
        return self


def check_program_image(program: Program, image: str | None, packages: str) -> None:
    """Refuse `program="image"` without an image.

    The Trainer's images contain no `trainjob`.

    Args:
        program: the step's field.
        image: the step's image.
        packages: other content that the image needs, for the error.

    Raises:
        InvalidSpec: the step has no image.
    """
    if program == "image" and image is None:
        needed = f"trainjob {VERSION}, {packages}"
        raise invalid_field("image", None, f"program='image' runs the code of the image: name one with {needed}")

"""Configuration of a training."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from trainjob.spec import FrameworkConfig


class LineConfig(FrameworkConfig):
    """Configuration of a line's fit.

    Attributes:
        steps: number of steps of the gradient descent.
        learning_rate: factor of the gradient.
    """

    framework: ClassVar[str] = "line"

    steps: int = Field(default=200, ge=1)
    learning_rate: float = Field(default=0.1, gt=0)

"""A training framework that fits a line to points by gradient descent."""

from line_framework.config import LineConfig

__all__ = ["LineConfig"]

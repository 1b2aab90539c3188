"""The wheel of the environments that tests create."""

from __future__ import annotations

from tests.support.package_index import Wheel

TINY = Wheel("tiny", "1.0")

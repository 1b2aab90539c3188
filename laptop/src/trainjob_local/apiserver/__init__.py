"""The API server of the laptop cluster, for unmodified `kubernetes` clients.

`Registry` holds the objects and applies the rules for writes; controllers in the same process use it directly.
`ApiServer` serves a registry over HTTP. `ApiServer` is imported on first use, because it needs a web server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainjob_local.apiserver.faults import Faults
from trainjob_local.apiserver.log_stream import LogRequest, LogSource
from trainjob_local.apiserver.registry import ObjectEvent, Registry, Subscription, WriteOptions
from trainjob_local.apiserver.resources import RESOURCES, Resource
from trainjob_local.apiserver.status_errors import StatusError
from trainjob_local.apiserver.write_rules import Admission, Operation, Reader, Stage

if TYPE_CHECKING:
    from trainjob_local.apiserver.server import ApiServer

__all__ = [
    "RESOURCES",
    "Admission",
    "ApiServer",
    "Faults",
    "LogRequest",
    "LogSource",
    "ObjectEvent",
    "Operation",
    "Reader",
    "Registry",
    "Resource",
    "Stage",
    "StatusError",
    "Subscription",
    "WriteOptions",
]


def __getattr__(name: str) -> Any:
    if name != "ApiServer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainjob_local.apiserver.server import ApiServer

    return ApiServer


def __dir__() -> list[str]:
    return __all__.copy()

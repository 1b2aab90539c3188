"""Import of the laptop cluster in the distribution `trainjob-local` as `trainjob.local`."""

from __future__ import annotations

try:
    from trainjob_local import Image, LocalCluster
except ModuleNotFoundError as error:
    if error.name != "trainjob_local":
        raise
    message = "trainjob.local needs the package trainjob-local: pip install 'trainjob[local]'"
    raise ModuleNotFoundError(message, name=error.name) from error

__all__ = ["Image", "LocalCluster"]

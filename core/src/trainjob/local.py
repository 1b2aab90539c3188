"""Import of the laptop cluster in the distribution `trainjob-local` as `trainjob.local`."""

from __future__ import annotations

from trainjob.installation import INSTALLATION_PAGE

try:
    from trainjob_local import Image, LocalCluster
except ModuleNotFoundError as error:
    if error.name != "trainjob_local":
        raise
    message = f"trainjob.local needs the package trainjob-local: {INSTALLATION_PAGE}"
    raise ModuleNotFoundError(message, name=error.name) from error

__all__ = ["Image", "LocalCluster"]

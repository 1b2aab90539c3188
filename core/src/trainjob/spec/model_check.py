"""Check of the origin of models, before the program of a TrainJob reads them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from trainjob.spec.base import Spec, invalid_field

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _validate_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise invalid_field("", name, "it must be the name of a TrainJob, such as the output `job` of its step")
    return name


JobNames = tuple[Annotated[str, AfterValidator(_validate_name)], ...]


class ModelCheck(Spec):
    """Folders of which no one may have a model of another workflow run.

    A folder without a record of a TrainJob is accepted.

    Attributes:
        folders: folders below `/workspace`.
        after_jobs: names of TrainJobs that may have trained the model, also in another workflow run.
    """

    folders: tuple[str, ...]
    after_jobs: JobNames = ()

"""The champion, if it is no folder of the workspace: its address, and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.programs.promotion.aliases import create_alias
from trainjob.programs.promotion.cluster_api import connect
from trainjob.programs.promotion.program import create_service
from trainjob.programs.promotion.record import PromotionRecord, get_record_name
from trainjob.programs.store_fetch import fetch

__all__ = ["ChampionSource", "find_champion"]


@dataclass(frozen=True)
class ChampionSource:
    """Place of the champion, and what is needed to get it.

    Attributes:
        fields: the fields of a [trainjob.spec.Champion][] that are given.
        claim: PersistentVolumeClaim of the workspace, with the folder that is mounted; empty if there is none.
        api_folder: folder with the token for the API server.
        fetch: command of the fetch's program, without its arguments.
    """

    fields: Mapping[str, Any]
    claim: str = ""
    api_folder: Path = Path()
    fetch: Sequence[str] = ()

    def __str__(self) -> str:
        fields = self.fields
        if "registry" in fields:
            return f"{fields['registry']['model']}@{fields['alias']}"
        return str(fields.get("uri") or f"{fields['service_kind']} {fields['service']}")


def find_champion(source: ChampionSource, workspace: Path, folder: Path) -> Path | None:
    """Return the folder of the champion; fetch its files if they are not on the workspace.

    Args:
        source: where it is.
        workspace: folder of the workspace.
        folder: folder into which its files are fetched.

    Returns:
        The folder; None if no version has the alias, or the service has no model yet.

    Raises:
        InvalidSpec: the files are on another PersistentVolumeClaim or on a node.
        PromotionError: the service cannot be read.
        ExportError: the registry cannot be read.
        RuntimeError: the files cannot be fetched.
    """
    uri = _find_uri(source)
    if not uri:
        return None
    print(f"evaluate: the champion is {uri}", flush=True)
    if source.claim and uri.startswith(f"pvc://{source.claim}/"):
        return workspace / uri.removeprefix(f"pvc://{source.claim}/")
    if uri.startswith(("pvc://", "file://")):
        rule = "its files must be on the workspace or at an address from which they can be fetched"
        raise InvalidSpec(Problem("champion", uri, rule))
    try:
        fetch(uri, source.fetch, folder, "evaluate: champion")
    except RuntimeError as error:
        raise RuntimeError(f"the champion {error}") from None
    return folder


def _find_uri(source: ChampionSource) -> str:
    fields = source.fields
    if "uri" in fields:
        return str(fields["uri"])
    if "registry" in fields:
        return create_alias(fields["registry"], fields["alias"]).find_uri()
    api = connect(source.api_folder)
    record = PromotionRecord(api, get_record_name(fields["service_kind"], fields["service"]))
    record.read()
    service = create_service(api, fields["service_kind"], fields["service"], record)
    return service.read().model if service.exists() else ""

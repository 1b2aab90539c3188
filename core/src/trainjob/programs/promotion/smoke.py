"""Send a request to a served model to verify that it answers."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from trainjob.programs.promotion.kserve import RolloutFailed

__all__ = ["SmokeRequest", "send"]

_TIMEOUT = 60.0  # seconds for one request; a first answer of a large model takes long
_TRIES = 5  # a route may need some seconds after the model is ready
_PAUSE = 2.0  # seconds


@dataclass(frozen=True)
class SmokeRequest:
    """The request.

    Attributes:
        url: path below the service's URL, or a whole URL.
        body: JSON body of a POST; None for a GET.
        contains: text that the response must contain; may be empty.
    """

    url: str
    body: Mapping[str, Any] | None = None
    contains: str = ""


def send(request: SmokeRequest, url: str) -> None:
    """Send a request until the model answers it.

    Args:
        request: the request.
        url: its whole URL.

    Raises:
        RolloutFailed: the model does not answer any try with 200, or the response lacks the text.
    """
    content = None if request.body is None else json.dumps(request.body).encode()
    reason = ""
    for number in range(_TRIES):
        if number:
            time.sleep(_PAUSE)
        try:
            with urlopen(Request(url, content, {"Content-Type": "application/json"}), timeout=_TIMEOUT) as answer:  # noqa: S310 - http(s)
                text = answer.read().decode(errors="replace")
        except HTTPError as refusal:
            with refusal:
                reason = f"it answers {refusal.code}: {' '.join(refusal.read().decode(errors='replace').split())[:200]}"
            continue
        except (OSError, http.client.HTTPException) as failure:
            reason = f"no response: {getattr(failure, 'reason', failure) or type(failure).__name__}"
            continue
        if request.contains in text:
            return
        reason = f"its response lacks {request.contains!r}: {' '.join(text.split())[:200]}"
        break
    raise RolloutFailed(f"the smoke request to {url} failed: {reason}")

"""Result of a step's program: one line of JSON in its log, after a fixed prefix.

No other line starts with that prefix.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

# The starts of the last lines of the programs export, fetch, evaluation, generation and promotion; JSON follows.
_RECEIPTS = tuple(f"{name}: done " for name in ("export", "fetch", "evaluate", "generate", "promote", "rollback"))
_MAX_BYTES = 256 * 1024 - 4  # of a line, which the log reader cuts there, before a character (client/log_reader.py)
_MAX_DEPTH = 100  # Airflow's messages are nested at most about 1,000 deep
_TOO_DEEP = f"it is nested more than {_MAX_DEPTH} deep"
# PostgreSQL refuses NUL in JSON, and UTF-8 has no surrogates, which code that reads with `surrogateescape` returns.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_RESULT = "trainjob result: "  # the function's return value as JSON follows (trainjob.manifest.function)


def parse_step_result(line: str) -> dict[str, Any] | None:
    """Return the result in a log line, or None if the line has no result.

    The result is the receipt of one of these programs, or `{"result": ...}` with the value that the training's code
    returned or printed. It has only values that Airflow, PostgreSQL and Kubeflow Pipelines can store:
    characters that they refuse are replaced with U+FFFD. A line of the training that cannot be used gives
    `{"result_error": ...}` with the reason, so that the result does not vanish silently.
    """
    if line.startswith(_RESULT):
        try:
            if len(line.encode(errors="surrogatepass")) > _MAX_BYTES:
                raise ValueError("it is longer than 256 KiB; write large values to the workspace or to an object store")
            return {"result": _parse(line.removeprefix(_RESULT))}
        except ValueError as error:
            return {"result_error": f"the line `trainjob result: ...` of the training can't be used: {error}"}
    if line.startswith(_RECEIPTS):
        try:
            receipt = _parse(line.partition(" done ")[2])
        except ValueError:
            return None
        return receipt if isinstance(receipt, dict) else None
    return None


def _parse(text: str) -> Any:
    """Return a JSON value that can be stored everywhere.

    Raises:
        ValueError: the text is not JSON, or has a value that cannot be stored.
    """
    try:
        return _make_storable(json.loads(text, parse_constant=_reject_constant))
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def _make_storable(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_make_storable(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_UNSTORABLE.sub("\ufffd", name): _make_storable(item, depth + 1) for name, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("it has a number that is not finite")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ValueError("it has an integer of more than 64 bits")
    return value


def get_model_facts(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the model from an export's receipt.

    The facts are the digest and, if the receipt has them: kind, epoch, step, files, bytes, revision, metrics and
    registration. The result is empty if the receipt has no digest.
    """
    if "manifest_sha256" not in receipt:
        return {}
    optional = ("kind", "epoch", "step", "files", "bytes", "revision", "metrics", "registered")
    facts = {name: receipt[name] for name in optional if receipt.get(name) not in (None, "", {})}
    return {"digest": f"sha256:{receipt['manifest_sha256']}", **facts}


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not a finite number")

"""Result of a step's program: one line of JSON in its log, after a fixed prefix.

No other line starts with that prefix.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

# The starts of the last lines of `python -m trainjob.programs.export` and `trainjob.programs.fetch`; JSON follows.
_RECEIPTS = ("export: done ", "fetch: done ")
_RESULT = "trainjob result: "  # the function's return value as JSON follows (trainjob.manifest.function)


def parse_step_result(line: str) -> dict[str, Any] | None:
    """Return the result in a log line, or None if the line has no result.

    The result is the receipt of an export or a fetch, or `{"result": ...}` of a training's function. A line that only
    starts like a result has none.
    """
    try:
        if line.startswith(_RESULT):
            return {"result": json.loads(line.removeprefix(_RESULT), parse_constant=_reject_constant)}
        if line.startswith(_RECEIPTS):
            receipt = json.loads(line.partition(" done ")[2], parse_constant=_reject_constant)
            return receipt if isinstance(receipt, dict) else None
    except (ValueError, RecursionError):
        pass
    return None


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
    raise ValueError(f"{constant} is not JSON")

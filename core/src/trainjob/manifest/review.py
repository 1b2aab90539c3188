"""TrainJobs for reviewers: readable, with packed code replaced by its digest."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.packing import read_packed_code
from trainjob.status.nested_fields import get_mapping

__all__ = ["shorten_command", "summarize_manifest"]

_BASE64 = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
_LONGEST_SHOWN_PROGRAM = 80  # characters of a Python program in one line


def summarize_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a TrainJob for reviewers; it cannot be applied.

    In the trainer's command and arguments, packed code is replaced by its name, version, length and
    digest, and an encoded Python function by its source. Everything else is unchanged.

    The digest is the SHA-256 of the uncompressed zip file with the code. It is the same for all TrainJobs of a version,
    whichever zlib compressed the code.
    """
    trainer = dict(get_mapping(manifest, "spec", "trainer"))
    for field in ("command", "args"):
        if isinstance(words := trainer.get(field), list | tuple):
            trainer[field] = [_summarize_word(str(word)) for word in words]
    return {**manifest, "spec": {**get_mapping(manifest, "spec"), **({"trainer": trainer} if trainer else {})}}


def shorten_command(words: Sequence[str]) -> list[str]:
    """Return a command for one line of a report.

    A packed program is shown as it would run from an image, and another long Python program is left out.
    """
    match words:
        case [python, "-c", _, packed, program, *arguments] if read_packed_code(packed):
            return [python, "-m", program, *map(_shorten_packed_code, arguments)]
        case [python, "-c", program, *arguments] if len(program) > _LONGEST_SHOWN_PROGRAM:
            return [python, "-c", "…", *map(_summarize_word, arguments)]
    return list(words)


def _summarize_word(word: str) -> str:
    return _shorten_packed_code(_decode_function(word))


def _shorten_packed_code(word: str) -> str:
    return _BASE64.sub(lambda found: _describe_packed_code(found[0]), word)


def _decode_function(word: str) -> str:
    """Return a word with the source of the function that is encoded in it.

    A word without a function is unchanged. A reward function is `NAME:SOURCE`, and keeps its name.
    """
    name, colon, encoded = word.rpartition(":")
    try:
        source = base64.b64decode(encoded, validate=True).decode() if _BASE64.fullmatch(encoded) else ""
    except ValueError:
        return word
    return f"{name}{colon}{source}" if "def " in source else word


def _describe_packed_code(text: str) -> str:
    """Return name, version, length and digest of packed code; another text is unchanged."""
    if code := read_packed_code(text):
        return f"<{code.name}, packed, {len(text):,} characters, sha256:{hashlib.sha256(code.archive).hexdigest()}>"
    return text

"""Redaction of documents: everything that may be a credential is replaced by `***`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.credentials import redact_credentials
from trainjob.spec.credential_checks import is_credential as is_refused
from trainjob.spec.credential_rules import denotes_within, redact_tokens
from trainjob.spec.literal_credentials import SEPARATOR, redact_literals
from trainjob.spec.problems import REDACTED

_MAX_EXCERPT_LENGTH = 80
_SECRET_NAME = re.compile(
    r"token(?!i[sz]|s(?![a-z]))|pass(?:wd|word|phrase)?(?![a-z])|pwd|secret|credential|bearer|authorization|cookie"
    r"|(?:api|access|private)-?key|[-_]key(?![a-z])",
    re.IGNORECASE,
)
# Names whose value is the name of a Secret, a path or a switch, and not a credential.
_REFERENCE_NAME = re.compile(r"\w*(?:Name|Ref|Path|File|Namespace|ServiceAccountToken)", re.ASCII)
_NAME_BEFORE_VALUE = re.compile(r"(?<![\w-])([\w-]+)(?:[\"']?\s*[=:]\s*|\s+)")
_VALUE = re.compile(r"(?:(?:basic|bearer|digest|token)\s+)?(?:\"[^\"]*\"?|'[^']*'?|[^\s;&|]+)", re.IGNORECASE)
# Tokens with a known prefix: Hugging Face, GitHub, OpenAI and similar ones, Slack, AWS.
_KNOWN_TOKEN = re.compile(r"\b(?:hf_|gh[pousr]_|github_pat_|sk-|xox[a-z]-)[\w-]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation that contains the whole document again."""


def redact(value: Any, name: str = "") -> Any:
    """Return a copy in which `***` replaces every value that may be a credential.

    The value's name, its place or the value itself shows this.

    Args:
        value: texts, lists and mappings.
        name: name of the value, which the names within it complete: `key` of `wandb` is a secret.
    """
    if isinstance(value, Mapping):
        return {key: _redact_item(value, key, inner, name) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [
            REDACTED
            if number and isinstance(inner, str) and _is_secret_option(value[number - 1])
            else redact(inner, name)
            for number, inner in enumerate(_redact_words(value))
        ]
    return _redact_text(value) if isinstance(value, str) else value


def excerpt(redacted: Any, path: tuple[str | int, ...]) -> str:
    """Return the value at a path of a redacted copy, as one line of at most 80 characters."""
    for part in path:
        if redacted == REDACTED:
            return REDACTED
        try:
            redacted = redacted[part]
        except (KeyError, IndexError, TypeError):
            return "nothing"
    text = redacted if isinstance(redacted, str) else json.dumps(redacted, default=str, ensure_ascii=False)
    return text if len(text) <= _MAX_EXCERPT_LENGTH else f"{text[: _MAX_EXCERPT_LENGTH - 1]}…"


def is_credential(name: str, value: str) -> bool:
    """Return whether the plain value of a variable is a credential.

    The variable's name shows this, a URL with a password, or the prefix of a known kind of token.
    """
    return is_refused(name, value) or bool(_KNOWN_TOKEN.search(value))


def _redact_item(mapping: Mapping[Any, Any], key: Any, value: Any, parent: str) -> Any:
    if key == LAST_APPLIED:
        return REDACTED
    name = str(mapping["name"] if key == "value" and isinstance(mapping.get("name"), str) else key)
    if not isinstance(value, str):
        return redact(value, name)
    is_secret = _SECRET_NAME.search(name) and not _REFERENCE_NAME.fullmatch(name)
    is_refused = is_credential(name, value) or denotes_within(parent, name)
    return REDACTED if value and (is_secret or is_refused) else _redact_text(value)


def _redact_words(words: Sequence[Any]) -> Sequence[Any]:
    """Return the words of a command without the credentials that the words before them show."""
    if not all(isinstance(word, str) and SEPARATOR not in word for word in words):
        return words
    return redact_literals(SEPARATOR.join(words)).split(SEPARATOR)


def _is_secret_option(word: Any) -> bool:
    return isinstance(word, str) and word.startswith("-") and "=" not in word and bool(_SECRET_NAME.search(word))


def _redact_text(text: str) -> str:
    """Return a text in which `***` replaces credentials.

    These are values in `password=…` or `--token …`, known tokens, and passwords in URLs.
    """
    parts, position = [], 0
    for found in _NAME_BEFORE_VALUE.finditer(text):
        is_assigned = not found[0].removeprefix(found[1]).isspace() or found[1].startswith("-")
        if found.start() < position or not is_assigned or not _SECRET_NAME.search(found[1]):
            continue
        if value := _VALUE.match(text, found.end()):
            parts += [text[position : found.end()], REDACTED]
            position = value.end()
    rest = "".join([*parts, text[position:]])
    return redact_credentials(redact_literals(redact_tokens(_KNOWN_TOKEN.sub(REDACTED, rest))))

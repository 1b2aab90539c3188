"""Credentials in a program's environment: cleaned once at its start, and removed from each text that it shows.

Only the standard library is used, because the programs in the pods import this module.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, MutableMapping
from urllib.parse import quote, quote_plus

# User, password or token in a URL or in an address without a scheme; the container in an address of Azure is none.
_AZURE_CONTAINER = r"(?!(?:(?<=abfs://)|(?<=abfss://))[^/\s@:]+@\w+\.(?:dfs|blob)\.core\.)"
_IN_URL = re.compile(rf"(?<=://){_AZURE_CONTAINER}[^/\s@]+@|(?<![^/\s@])[^/\s@:]+:[^/\s@]+@")
_NAMES = (
    "(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIALS?|API_?KEY|CONNECTION_?STRING"
    "|(?:ACCESS|SECRET|PRIVATE|ACCOUNT|STORAGE)_?KEY(?:_ID)?)"
)
_SECRET_NAME = re.compile(f"{_NAMES}$", re.IGNORECASE)
_IN_QUERY = re.compile(rf"([?&][\w.-]{{0,40}}(?:{_NAMES}|SIG|SIGNATURE)=)[^&#\s\"'*]+", re.IGNORECASE)
_IN_HEADER = re.compile(r"(?:TOKEN|API_?KEY)$", re.IGNORECASE)
_NO_HEADER_CHARACTER = re.compile(r"[^\x20-\x7e]")  # of a token, RFC 9110 section 5.5 without obs-text
_SHORTEST_SECRET = 6  # characters; a shorter value would also redact ordinary words


def clean_environment(environment: MutableMapping[str, str] = os.environ) -> str:
    """Remove white space around each credential, and check those that headers have.

    A line end after a credential is the most common mistake with Secrets, and no store has one in its credentials.

    Args:
        environment: the variables of this process.

    Returns:
        What is wrong with the first variable that cannot be sent, without its value; empty if there is nothing.
    """
    for name in [name for name in environment if _SECRET_NAME.search(name)]:
        environment[name] = environment[name].strip()
        if _IN_HEADER.search(name) and (position := find_wrong_character(environment[name])):
            return f"the value of {name} can't be sent: its character {position} is not printable ASCII"
    return ""


def find_wrong_character(credential: str) -> int:
    """Return the position, from 1, of the first character that no header can have, or 0."""
    found = _NO_HEADER_CHARACTER.search(credential)
    return found.start() + 1 if found else 0


def redact_credentials(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return a text with `***` in place of credentials.

    These are user, password, token and query parameters in its URLs, and the values of variables whose names denote
    secrets, also without white space around them, as Python shows them, and as in a URL.

    Args:
        text: any text, such as that of an exception.
        environment: variables of the process that has written it.
    """
    values = [value for name, value in environment.items() if _SECRET_NAME.search(name)]
    forms = {form for value in values for form in _find_forms(value) if len(form) >= _SHORTEST_SECRET}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "***")
    return _IN_QUERY.sub(r"\1***", _IN_URL.sub("***@", text))


def _find_forms(value: str) -> set[str]:
    """Return a value as texts, errors, JSON and URLs show it, also each of its lines."""
    found = set()
    for text in {value, value.strip(), *value.split("\n")}:
        data = text.encode(errors="surrogateescape")
        found |= {text, repr(text)[1:-1], repr(data)[2:-1], json.dumps(text)[1:-1]}
        found |= {quote(data), quote(data, ""), quote_plus(data)}
    return found

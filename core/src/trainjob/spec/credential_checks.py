"""Checks of the parts of a request that everybody who may get the TrainJob can read.

A credential there is refused, and a value that may be one causes a warning. No message shows the value.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trainjob.errors import InvalidSpec
from trainjob.spec.base import invalid_field, iterate_texts
from trainjob.spec.credential_rules import (
    contains_credentials,
    denotes_secret,
    denotes_within,
    find_token,
    has_secret_parameter,
    has_url_with_password,
    is_literal,
    is_variable_name,
    may_denote_secret,
)
from trainjob.spec.literal_credentials import SEPARATOR, find_literal
from trainjob.spec.problems import REDACTED

SECRETS_PAGE = "https://github.com/trainjob/trainjob/blob/main/docs/explanation/security.md#secrets-passed-as-values"
_ADVICE = (
    "put it into a Secret and pass it as an environment variable: "
    f"env={{'NAME': SecretKeyReference(name='SECRET', key='KEY')}}; see {SECRETS_PAGE}"
)
_ADVICE_FOR_COMMAND = f"{_ADVICE}; a command refers to the variable as $(NAME)"
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_OPTION = re.compile(r"--?[A-Za-z][\w.-]+")
_DOLLAR = re.compile(r"\$(?!\()")
# In a script: --option=value, --option value, and NAME=value.
_IN_SCRIPT = re.compile(
    r"(?<![\w.$-])(?:(--[A-Za-z][\w.-]*)(?:=| +)|([A-Z][A-Z0-9_]*)=)"
    r"(\"[^\"\n]*\"|'[^'\n]*'|[^\s;&|\"'()\[\]]+)(?=[\s;&|]|$)"
)


def check_text(text: str, field: str) -> None:
    """Refuse a text that contains a credential: its format or its place shows it.

    Raises:
        InvalidSpec: the text contains one.
    """
    has_url = has_url_with_password(text) or has_secret_parameter(text)
    if kind := find_token(text) or ("a URL with a credential" if has_url else find_literal(text)):
        raise invalid_field(field, REDACTED, f"it contains {kind}: {_ADVICE}")


def check_source(source: str, field: str) -> None:
    """Refuse the source of a function that contains a token of a known format.

    Raises:
        InvalidSpec: the source contains one.
    """
    if kind := find_token(source):
        raise invalid_field(field, REDACTED, f"its source contains {kind}: {_ADVICE}")


def check_command(words: Sequence[str], field: str) -> None:
    """Refuse a command or arguments that contain a credential; warn if they may contain one.

    An option's name shows that its value is a credential, as in `--password=...` or `--hf-token ...`, or the value
    itself. References, such as `$(NAME)`, paths and the names of variables are allowed.

    Raises:
        InvalidSpec: the command contains a credential.
    """
    for number, word in enumerate(words):
        place = f"{field}[{number}]"
        check_text(word, place)
        for name, value in _options(word, words[number + 1 : number + 2]):
            if not is_literal(value) or is_variable_name(value):
                continue
            if denotes_secret(name):
                raise invalid_field(place, REDACTED, f"{name} must not have a literal value: {_ADVICE_FOR_COMMAND}")
            if (name.startswith("-") or name.isupper()) and _may_denote_secret(name):
                _warn(f"{name} in a command", _ADVICE_FOR_COMMAND)
    if kind := find_literal(SEPARATOR.join(words)):
        raise invalid_field(field, REDACTED, f"it contains {kind}: {_ADVICE_FOR_COMMAND}")


def check_values(value: Any, field: str = "") -> None:
    """Refuse arguments that contain a credential; warn if they may contain one.

    Args:
        value: texts, lists and mappings; in mappings, the names count, too.
        field: path of the value.

    Raises:
        InvalidSpec: the value contains a credential.
    """
    for path, name, text in iterate_texts(value, field):
        check_text(text, path)
        if not name or not is_literal(text) or is_variable_name(text):
            continue
        if denotes_within(_find_parent(path), name):
            raise invalid_field(path, REDACTED, f"the name denotes a secret: {_ADVICE}")
        if _may_denote_secret(name):
            _warn(f"the value {name!r}", _ADVICE)


def check_document(value: Any, field: str = "") -> None:
    """Refuse a part of a manifest that contains a credential.

    Raises:
        InvalidSpec: a text, an environment variable, a command or arguments contain a credential.
    """
    if isinstance(value, str):
        check_text(value, field)
    elif isinstance(value, Mapping):
        name, text = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(text, str | int | float):
            check_variable(name, str(text), field, f"valueFrom: {{secretKeyRef: {{name: NAME, key: {name}}}}}")
        for key, inner in value.items():
            path = f"{field}.{key}" if field else str(key)
            is_command = key in ("command", "args") and isinstance(inner, list)
            if is_command and all(isinstance(word, str) for word in inner):
                check_command(inner, path)
            else:
                check_document(inner, path)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            check_document(inner, f"{field}[{number}]")


def check_variable(name: str, value: str, field: str, suggested_reference: str) -> None:
    """Refuse an environment variable whose plain value is a credential.

    Args:
        name: name of the variable.
        value: its plain value.
        field: path of the field, for the error.
        suggested_reference: the text that the error suggests instead.

    Raises:
        InvalidSpec: the name denotes a secret and the value is literal, or the value contains a credential.
    """
    # A shell's $NAME is not expanded here, so a value that begins with $ may be a password.
    has_secret_name = may_denote_secret(name) and (is_literal(value) or _DOLLAR.match(value))
    is_url = contains_credentials(value) or has_secret_parameter(value)
    if has_secret_name or is_url or find_token(value) or find_literal(value):
        rule = f"a credential must be a reference, such as {suggested_reference}; see {SECRETS_PAGE}"
        raise invalid_field(field, REDACTED, rule)


def is_credential(name: str, value: str) -> bool:
    """Return whether the plain value of a variable is refused as a credential."""
    try:
        check_variable(name, value, name, "")
    except InvalidSpec:
        return True
    return False


def _find_parent(path: str) -> str:
    """Return the name around the one at this path: `wandb` for `x.wandb[0].key`."""
    return re.sub(r"\[\d+\]", "", path).rpartition(".")[0].rpartition(".")[2]


def _options(word: str, next_words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options and assignments in a word of a command, which may be a script."""
    is_script = not word.startswith("-") and (" " in word or "\n" in word)
    if not is_script and (found := _ASSIGNMENT.fullmatch(word)):
        yield found[1], found[2]
    elif _OPTION.fullmatch(word):
        if next_words and not next_words[0].startswith("-"):
            yield word, next_words[0]
    elif is_script:
        for found in _IN_SCRIPT.finditer(word):
            if not found[3].startswith("-"):
                yield found[1] or found[2], found[3].strip("\"'")


def _may_denote_secret(name: str) -> bool:
    # `secret` alone is often the name of a Kubernetes Secret, as in this project's own requests.
    return name.lstrip("-").lower() != "secret" and may_denote_secret(name)


def _warn(what: str, advice: str) -> None:
    text = f"{what} may be a credential, which everybody who may get the TrainJob can read. If it is one, {advice}"
    warnings.warn(text, stacklevel=2)

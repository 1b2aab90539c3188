"""Values of YAML scalars, as kubectl reads them.

kubectl 1.36 reads files with sigs.k8s.io/yaml 1.6, and that with go.yaml.in/yaml/v2: YAML 1.1 with Go's numbers,
without times and without numbers to the base 60. `tests/support/yaml_corpus.json` has kubectl's answers.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from datetime import datetime
from decimal import Decimal
from typing import Any

__all__ = ["MERGE_TAG", "format_key", "resolve_scalar", "to_json_number"]

_PREFIX = "tag:yaml.org,2002:"
MERGE_TAG = f"{_PREFIX}merge"
_BINARY_TAG, _FLOAT_TAG = f"{_PREFIX}binary", f"{_PREFIX}float"
_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
_MAX_DIGITS = len(str(_UINT64_MAX))
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_NUMBER_START = frozenset("+-.0123456789")
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_SIGNED_BINARY = re.compile(r"0b([-+][01]+)")  # an oddity of go.yaml.in/yaml/v2: 0b-101 is -5
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_FLOAT_WITH_POINT_FIRST = re.compile(r"\.[0-9](_?[0-9])*([eE][-+]?[0-9](_?[0-9])*)?")
_TIME = re.compile(
    r"([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})(?:[Tt ]([0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2})(?:[.,][0-9]+)?(?:Z|[-+][0-9:]{5})?)?"
)
_TAG_TYPES: dict[str, tuple[type, ...]] = {
    f"{_PREFIX}bool": (bool,),
    f"{_PREFIX}int": (int,),
    _FLOAT_TAG: (float,),
    f"{_PREFIX}null": (type(None),),
}


def resolve_scalar(text: str, tag: str | None, *, plain: bool) -> Any:
    """Return the value of a scalar: a text, int, float, bool or None.

    Args:
        text: the scalar without its quotes.
        tag: the complete tag; None without one. Tags of other kinds of values are ignored.
        plain: whether the scalar has no quotes and is not a block.

    Raises:
        ValueError: the text is not a value of its tag.
    """
    if tag is None:
        return _resolve_plain(text) if plain else text
    if tag == _BINARY_TAG:
        return _decode_binary(text)
    if tag == f"{_PREFIX}timestamp":
        return _check_time(text)
    if tag not in _TAG_TYPES:
        return text
    value = _resolve_plain(text)
    if tag == _FLOAT_TAG and type(value) is int and _INT64_MIN <= value <= _INT64_MAX:
        value = float(value)
    if type(value) not in _TAG_TYPES[tag]:
        raise ValueError(f"the value is not of the type !!{tag.removeprefix(_PREFIX)}")
    return value


def to_json_number(value: float) -> int | float:
    """Return a number as kubectl sends it: int if it is whole and has 64 bits, else float.

    Raises:
        ValueError: the number is infinite or NaN.
    """
    if isinstance(value, int):
        return value if _INT64_MIN <= value <= _INT64_MAX else float(value)
    if not math.isfinite(value):
        raise ValueError("a number must be finite: write .inf and .nan in quotes")
    # Go writes the shortest digits, filled with zeros: 4611686018427388000.
    whole = int(Decimal(repr(value))) if value.is_integer() and abs(value) <= _INT64_MAX else None
    return value if whole is None or not _INT64_MIN <= whole <= _INT64_MAX else whole


def format_key(value: Any) -> str:
    """Return a key's value as the text that JSON requires.

    Raises:
        ValueError: the key is null, a list, a mapping, or a whole number from 2^63 to 2^64.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value <= _INT64_MAX:
        return str(value)
    if isinstance(value, float):
        return _format_float32(value)
    raise ValueError("a key must be a text: write it in quotes")


def _resolve_plain(text: str) -> Any:
    """Return the value of a scalar without quotes and tag.

    `resolve` in resolve.go of go.yaml.in/yaml/v2 2.4 has the same order of rules.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBER_START:
        return text
    if text[0] == ".":
        number = float(text) if _FLOAT_WITH_POINT_FIRST.fullmatch(text) else math.inf
        return number if math.isfinite(number) else text
    plain = text.replace("_", "")
    whole = _parse_int(plain)
    if whole is not None:
        return whole
    if _FLOAT.fullmatch(plain) and math.isfinite(number := float(plain)):
        return number
    if (signed := _SIGNED_BINARY.fullmatch(plain)) and _INT64_MIN <= (whole := int(signed[1], 2)) <= _INT64_MAX:
        return whole
    return text


def _parse_int(text: str) -> int | None:
    """Return the whole number that a text states in Go's syntax; None if it states none.

    It has at most 64 bits. A positive one of 64 bits has no sign in the text.
    """
    found = _INTEGER.fullmatch(text)
    if found is None:
        return None
    sign, digits = found.groups()
    if digits[0] == "0" and digits[1:2].isdigit():
        digits = f"0o{digits}"
    elif digits[0] != "0" and len(digits) > _MAX_DIGITS:  # int() refuses more than 4300
        return None
    number = int(digits, 0)
    if sign == "-":
        return -number if number <= -_INT64_MIN else None
    return number if number <= (_INT64_MAX if sign else _UINT64_MAX) else None


def _decode_binary(text: str) -> str:
    try:
        return base64.b64decode(text.replace("\r", "").replace("\n", ""), validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise ValueError(
            "!!binary must be a text in UTF-8 in base64: without !!binary the value is not decoded"
        ) from None


def _check_time(text: str) -> str:
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        datetime.strptime(f"{found[1]} {found[2] or '0:0:0'}", "%Y-%m-%d %H:%M:%S")  # noqa: DTZ007 - only checked
    except ValueError:
        raise ValueError("the value is not of the type !!timestamp") from None
    return text


def _format_float32(value: float) -> str:
    """Return a number rounded to 32 bits as sigs.k8s.io/yaml writes it in a key.

    It is `strconv.FormatFloat(value, 'g', -1, 32)` of Go.
    """
    single = _round_to_float32(value)
    if not math.isfinite(single):
        return ".nan" if math.isnan(single) else ".inf" if single > 0 else "-.inf"
    candidates = (f"{single:.{digits}e}" for digits in range(9))  # 9 digits distinguish all numbers of 32 bits
    shortest = next(text for text in candidates if _round_to_float32(float(text)) == single)
    exponent = int(shortest.partition("e")[2])
    return f"{Decimal(shortest):f}" if -5 < exponent < 6 else shortest


def _round_to_float32(value: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)

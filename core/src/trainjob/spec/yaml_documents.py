"""Safe and fast parser for YAML as users write it for kubectl.

It reads the same values as kubectl 1.36 (see [trainjob.spec.yaml_scalars][]), and refuses what kubectl changes without
a message: a key that occurs twice, and a second document in the same text. The size is limited to that of a TrainJob.
The limit includes expanded references (`*name`, `<<`), which can turn a few lines into gigabytes.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import yaml

from trainjob.errors import InvalidSpec
from trainjob.spec.base import invalid_field, is_deeper
from trainjob.spec.yaml_scalars import MERGE_TAG, format_key, resolve_scalar, to_json_number

# Characters; etcd accepts 1.5 MiB for one object (etcd 3.6, --max-request-bytes).
MAX_LENGTH = 1 << 20
_MAX_DEPTH = 300  # nested levels; each needs two frames of Python's 1000
_TOO_DEEP = "its values are nested too deeply"
_TOO_LARGE = "it is too large after its references are expanded"
# In YAML 1.2 (9.1.2) such a line always begins a document, even inside a block scalar.
_DOCUMENT_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_EMPTY_DOCUMENT = re.compile(r"(\s|#[^\n]*|---(?=\s|$)|\.\.\.(?=\s|$)|%[^\n]*)*")
_NOT_PRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# libyaml's C parser needs a tenth of the time; PyYAML has it if it was built with libyaml.
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def split_documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield each non-empty document of a text, with the number of its first line.

    The text is split before it is parsed, so an error in one document does not affect the others.
    """
    begins = [0, *(match.start() for match in _DOCUMENT_START.finditer(text)), len(text)]
    line = 1
    for begin, end in pairwise(begins):
        document = text[begin:end]
        if not _EMPTY_DOCUMENT.fullmatch(document):
            yield line, document
        line += document.count("\n")


def parse_yaml(text: str, *, first_line: int = 1, max_length: int = MAX_LENGTH) -> Any:
    """Return the value of a text in YAML or JSON, as kubectl reads it.

    Args:
        text: one document.
        first_line: number of its first line, if it is a part of a longer text.
        max_length: limit in characters, also after references are expanded.

    Raises:
        InvalidSpec: the text is neither YAML nor JSON, or too large. The error has the line, but does not show the
            text, because it may contain credentials.
    """
    if len(text) > max_length:
        raise invalid_field("", _describe_length(text), f"it may have at most {max_length}")
    if text.lstrip().startswith(("{", "[")):
        try:
            return _parse_json(text)
        except InvalidSpec:
            raise
        except (ValueError, RecursionError):
            pass  # the YAML parser reports the line, and reads what only resembles JSON
    return _read(text, first_line, max_length).value


@functools.lru_cache(maxsize=1)  # several errors of one document; a List may have thousands of jobs
def find_lines(text: str, *, first_line: int = 1) -> Mapping[str, int]:
    """Return the lines of a document's fields by their paths.

    A path is such as `spec.trainer.env[0].name`. The line of a field is that of its key; an element of a list has the
    line of its value. Fields that come from a reference (`*name`) are missing.

    Args:
        text: one document.
        first_line: number of its first line.

    Returns:
        The lines; empty if the text cannot be read.
    """
    try:
        return {path: line + first_line for path, line in _read(text, first_line, len(text)).lines.items()}
    except InvalidSpec:
        return {}


@dataclass(frozen=True)
class SourceDocument:
    """A document of a file, or an object in a document, for errors that name file and line.

    Attributes:
        file: name of the file in errors.
        line: number of the document's first line.
        text: the document.
        place: path of the object in the document, such as `items[2]`; empty if it is the document.
    """

    file: str
    line: int
    text: str
    place: str = ""

    def locate(self, *paths: str) -> str:
        """Return the file, and the line of the first of these fields that is in the document.

        Of a field that is missing, the line is that of the nearest field that contains it.

        Args:
            paths: paths of fields in the object.

        Returns:
            `FILE:LINE`; the line is the document's first one if no part of a path is in the document.
        """
        lines = find_lines(self.text, first_line=self.line)
        complete = [f"{self.place}.{path}".strip(".") for path in paths]
        found = next((lines[path] for path in complete if path in lines), None)
        nearest = filter(None, (_find_nearest_line(lines, path) for path in complete))
        return f"{self.file}:{found or next(nearest, self.line)}"


def _find_nearest_line(lines: Mapping[str, int], path: str) -> int | None:
    while path and path not in lines:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return lines.get(path)


def _parse_json(text: str) -> Any:
    """Parse a text with Python's JSON parser, which is faster than the YAML parser.

    Raises:
        InvalidSpec: a number is too large.
        ValueError: the text is not JSON, repeats a key, is nested too deeply, or has half of a surrogate pair.
    """
    value = json.loads(
        text,
        object_pairs_hook=_to_dict,
        parse_int=lambda digits: to_json_number(int(digits)),
        parse_float=_parse_json_float,
        parse_constant=_refuse_constant,
    )
    if is_deeper(value, _MAX_DEPTH):
        raise ValueError(_TOO_DEEP)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(value, ensure_ascii=False).encode()  # raises if half of a surrogate pair is missing
    return value


def _to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _parse_json_float(digits: str) -> int | float:
    number = float(digits)
    if math.isinf(number):  # kubectl refuses it in JSON; in YAML it is a text
        raise invalid_field("", digits, "it is too large for a number: write it in quotes")
    return to_json_number(number)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")  # in YAML, NaN is a text


def _read(text: str, first_line: int, max_length: int) -> _Reader:
    try:
        if found := _NOT_PRINTABLE.search(text):
            line = first_line + text.count("\n", 0, found.start())
            raise ValueError(f"the character U+{ord(found[0]):04X} is not allowed in line {line}")
        return _Reader(text, max_length)
    except RecursionError:
        reason = _TOO_DEEP
    except yaml.YAMLError as error:
        reason = _describe_error(error, text, first_line)
    except ValueError as error:
        reason = str(error)
    raise invalid_field("", _describe_length(text), f"it must be YAML or JSON: {reason}")


class _Reader:
    """Reader of one document.

    Attributes:
        value: the value.
        lines: lines of the fields by their paths, counted from 0.
    """

    def __init__(self, text: str, max_length: int) -> None:
        """Read a text.

        Raises:
            yaml.YAMLError: the text cannot be read.
        """
        self.lines: dict[str, int] = {}
        self._max_length, self._size = max_length, 0  # characters and values, with all references expanded
        self._anchors: dict[str, tuple[Any, int] | None] = {}  # value and size; None while the value is being read
        parser = _PARSER(text)
        self._next: Callable[[], Any] = parser.get_event
        try:
            self.value = self._read_document()
        finally:
            parser.dispose()

    def _read_document(self) -> Any:
        self._next()  # StreamStartEvent
        if type(self._next()) is yaml.StreamEndEvent:
            return None
        value = self._read_value(self._next(), "", 0)
        self._next()  # DocumentEndEvent
        following = self._next()
        if type(following) is not yaml.StreamEndEvent:
            raise _error("it must be a single document", following)
        return value

    def _read_value(self, event: Any, path: str, depth: int) -> Any:
        """Return a value of JSON."""
        value = self._read_node(event, path, depth)
        if type(value) is not int and type(value) is not float:
            return value
        try:
            return to_json_number(value)
        except ValueError as error:
            raise _error(str(error), event) from None

    def _read_node(self, event: Any, path: str, depth: int) -> Any:
        """Return the value of a node; numbers may be such that JSON does not have.

        Each anchor belongs to the value that follows it, and a later one of the same name replaces it.
        """
        if type(event) is yaml.AliasEvent:
            return self._expand(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        before = self._size
        if type(event) is yaml.ScalarEvent:
            value = _resolve(event)
            self._size += 1 + len(event.value)
        elif depth >= _MAX_DEPTH:
            raise _error(_TOO_DEEP, event)
        else:
            read = self._read_mapping if type(event) is yaml.MappingStartEvent else self._read_sequence
            value = read(path, depth + 1)
            self._size += 1
        if event.anchor is not None and self._anchors[event.anchor] is None:
            self._anchors[event.anchor] = value, self._size - before
        return value

    def _expand(self, alias: yaml.AliasEvent) -> Any:
        if alias.anchor not in self._anchors:
            raise _error("there is no such anchor before it", alias)
        known = self._anchors[alias.anchor]
        if known is None:
            raise _error("a value contains itself", alias)
        value, size = known
        self._size += size
        if self._size > self._max_length:
            raise _error(_TOO_LARGE, alias)
        return value

    def _read_sequence(self, path: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while type(event := self._next()) is not yaml.SequenceEndEvent:
            where = f"{path}[{len(values)}]"
            self.lines[where] = event.start_mark.line
            values.append(self._read_value(event, where, depth))
        return values

    def _read_mapping(self, path: str, depth: int) -> dict[str, Any]:
        """Return a mapping.

        As in kubectl, the keys of a `<<` replace those before it, and are replaced by those after it.
        """
        values: dict[str, Any] = {}
        own: set[str] = set()
        while type(event := self._next()) is not yaml.MappingEndEvent:
            if _is_merge(event):
                values.update(self._read_merged(path, depth))
                continue
            try:
                key = format_key(self._read_node(event, "", depth))
            except ValueError as error:
                raise _error(str(error), event) from None
            if key in own:
                raise _error(f"the key {key} occurs twice", event)
            own.add(key)
            where = f"{path}.{key}" if path else key
            self.lines[where] = event.start_mark.line
            values[key] = self._read_value(self._next(), where, depth)
        return values

    def _read_merged(self, path: str, depth: int) -> dict[str, Any]:
        """Return the keys that a `<<` adds.

        They are those of a mapping, or of several mappings, of which the first has precedence.
        """
        event = self._next()
        found = self._read_node(event, path, depth)
        mappings = found if type(event) is yaml.SequenceStartEvent else [found]
        if not all(isinstance(each, dict) for each in mappings):
            raise _error("the value of << must be a mapping or a list of mappings", event)
        return {key: value for mapping in reversed(mappings) for key, value in mapping.items()}


def _resolve(event: yaml.ScalarEvent) -> Any:
    try:
        if event.style == '"' and _SURROGATE.search(event.value):  # only PyYAML's Python parser accepts it
            raise ValueError("a text has half of a surrogate pair")
        return resolve_scalar(event.value, event.tag, plain=event.implicit[0])
    except ValueError as error:
        raise _error(str(error), event) from None


def _is_merge(event: Any) -> bool:
    return type(event) is yaml.ScalarEvent and event.value == "<<" and (event.implicit[0] or event.tag == MERGE_TAG)


def _error(problem: str, event: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _describe_length(text: str) -> str:
    return f"a text of {len(text)} characters"


def _describe_error(error: yaml.YAMLError, text: str, first_line: int) -> str:
    """Return the problem and its position, without the surrounding text."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "it can't be read"
    if mark is None:
        return str(problem)
    last_line = text.rstrip().count("\n")
    if mark.line > last_line:
        return f"{problem} at the end, in line {last_line + first_line}"
    return f"{problem} in line {mark.line + first_line}, column {mark.column + 1}"

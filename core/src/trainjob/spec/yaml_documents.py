"""Safe parser for YAML as users write it for kubectl.

It accepts plain data only, refuses duplicate keys, and limits the size to that of a TrainJob. The limit includes
expanded references (`*name`, `<<`), which can turn a few lines into gigabytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import yaml

from trainjob.spec.base import invalid_field

# Characters; etcd accepts 1.5 MiB for one object (etcd 3.6, --max-request-bytes).
_MAX_LENGTH = 1 << 20
_TOO_DEEP = "its values are nested too deeply"
# In YAML 1.2 (9.1.2) such a line always begins a document, even inside a block scalar.
_DOCUMENT_START = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_EMPTY_DOCUMENT = re.compile(r"(\s|#[^\n]*|---(?=\s|$)|\.\.\.(?=\s|$)|%[^\n]*)*")


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


def parse_yaml(text: str, *, first_line: int = 1) -> Any:
    """Return the value of a text in YAML or JSON.

    Args:
        text: one document.
        first_line: number of its first line, if it is a part of a longer text.

    Raises:
        InvalidSpec: the text is neither YAML nor JSON, or too large. The error does not show the text, because it may
            contain credentials.
    """
    given = f"a text of {len(text)} characters"
    if len(text) > _MAX_LENGTH:
        raise invalid_field("", given, f"it may have at most {_MAX_LENGTH}")
    try:
        return yaml.load(text, _LimitedLoader)  # noqa: S506 - made of the safe loader
    except yaml.YAMLError as error:
        raise invalid_field("", given, f"it must be YAML or JSON: {_describe_error(error, first_line)}") from None
    except (ValueError, RecursionError) as error:  # an invalid date, or a number with thousands of digits
        reason = _TOO_DEEP if isinstance(error, RecursionError) else str(error)
        raise invalid_field("", given, f"it must be YAML or JSON: {reason}") from None


class _LimitedLoader(yaml.SafeLoader):
    """Safe loader that limits the size of a text with all its references expanded."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[int, int] = {}  # by the node's id; nodes that are still being read are missing

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Read one value, and refuse it if it is too large, contains itself or repeats a key.

        Raises:
            yaml.composer.ComposerError: the value is refused.
        """
        is_reference = self.check_event(yaml.AliasEvent)
        node = super().compose_node(parent, index)
        if is_reference and node is not None and id(node) not in self._sizes:
            raise yaml.composer.ComposerError(None, None, "a value contains itself", node.start_mark)
        if node is not None and not is_reference:
            self._sizes[id(node)] = self._size(node)
        return node

    def _size(self, node: yaml.Node) -> int:
        if isinstance(node, yaml.ScalarNode):
            return 1 + len(node.value)
        inner = node.value
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in inner if isinstance(key, yaml.ScalarNode)]
            if len(set(keys)) < len(keys):
                raise yaml.composer.ComposerError(None, None, "a key occurs twice", node.start_mark)
            inner = [part for pair in inner for part in pair]
        size = 1 + sum(self._sizes[id(child)] for child in inner)
        if size > _MAX_LENGTH:
            raise yaml.composer.ComposerError(
                None, None, "it is too large after its references are expanded", node.start_mark
            )
        return size


def _describe_error(error: yaml.YAMLError, first_line: int) -> str:
    """Return the problem and its position, without the surrounding text."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or "it can't be read"
    return f"{problem} in line {mark.line + first_line}, column {mark.column + 1}" if mark else str(problem)

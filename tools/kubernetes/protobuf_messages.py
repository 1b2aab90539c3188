"""Write the table of protobuf messages with which the laptop cluster's API server decodes requests of Go clients:

    python tools/kubernetes/protobuf_messages.py FOLDER OUTPUT

FOLDER contains the Go modules of Kubernetes, as `go env GOMODCACHE` prints it, plus `k8s.io`. OUTPUT is the JSON file
`protobuf_messages.json` of the API server.

The Go types are the source instead of the `.proto` files, because only they tell which fields JSON inlines or omits.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

VERSION = "v0.36.3"
ROOTS = {
    "k8s.io/api/core/v1": (
        "Binding ConfigMap Event Namespace Node PersistentVolume PersistentVolumeClaim Pod Secret Service ServiceAccount"
    ),
    "k8s.io/api/events/v1": "Event",
    "k8s.io/api/batch/v1": "Job",
    "k8s.io/api/rbac/v1": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "k8s.io/api/storage/v1": "StorageClass",
    "k8s.io/api/authorization/v1": "SelfSubjectAccessReview SelfSubjectRulesReview",
    "k8s.io/api/authentication/v1": "SelfSubjectReview TokenRequest",
    "k8s.io/apimachinery/pkg/apis/meta/v1": "DeleteOptions",
}
# Types with a JSON form of their own, by the last part of their package and their name.
SPECIAL = {
    "v1.Time": "time",
    "v1.MicroTime": "time",
    "v1.FieldsV1": "json",
    "resource.Quantity": "quantity",
    "intstr.IntOrString": "int-or-string",
    "runtime.RawExtension": "json",
    "types.UID": "string",
}
SCALARS = {"string": "string", "bool": "bool", "[]byte": "bytes"} | dict.fromkeys(("int", "int32", "int64"), "integer")
_TYPE = re.compile(r"^type (\w+) (?:struct \{\n(.*?)\n\}|([\w.\[\]*]+))", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r'^\t(?:\w+ +)?([\w.*\[\]]+) +`json:"([^"]*)".*?protobuf:"[^,]+,(\d+),[^"]*"', re.MULTILINE)
_IMPORT = re.compile(r'^\t(?:(\w+) )?"(k8s\.io/[^"]+)"', re.MULTILINE)


class Package:
    """The types and imports of a Go package."""

    def __init__(self, folder: Path, path: str) -> None:
        module, _, inner = path.removeprefix("k8s.io/").partition("/")
        found = [file.read_text() for file in sorted((folder / f"{module}@{VERSION}" / inner).glob("*types.go"))]
        self.name = path.rsplit("/", 1)[1]
        self.types = {one[1]: (one[2], one[3]) for text in found for one in _TYPE.finditer(text)}
        self.imports = {
            alias or target.rsplit("/", 1)[1]: target for text in found for alias, target in _IMPORT.findall(text)
        }


class Table:
    """The messages that the roots need, by package and name of their Go type."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._packages = folder, dict[str, Package]()
        self.messages: dict[str, dict[str, list[object]]] = {}

    def add(self, path: str, name: str) -> str:
        """Add a message with the messages of its fields; return its key."""
        key = f"{path.removeprefix('k8s.io/')}.{name}"
        if key not in self.messages:
            self.messages[key] = {}
            self.messages[key].update(self._fields(path, name))
        return key

    def _package(self, path: str) -> Package:
        if path not in self._packages:
            self._packages[path] = Package(self._folder, path)
        return self._packages[path]

    def _fields(self, path: str, name: str) -> Iterator[tuple[str, list[object]]]:
        for go_type, tag, number in _FIELD.findall(self._package(path).types[name][0]):
            json_name, *options = tag.split(",")
            inline = "inline" in options and not json_name
            keeps_zero = go_type.startswith("*") or "omitempty" not in options
            yield number, ["" if inline else json_name, self._resolve(path, go_type.lstrip("*")), int(keeps_zero)]

    def _resolve(self, path: str, go_type: str) -> str:
        """Return a type: a scalar, a special type or the key of a message, with `[]` or `{}` before it."""
        if go_type in SCALARS:
            return SCALARS[go_type]
        if go_type.startswith("[]"):
            return f"[]{self._resolve(path, go_type[2:].lstrip('*'))}"
        if go_type.startswith("map["):
            return "{}" + self._resolve(path, go_type.partition("]")[2])
        package = self._package(path)
        alias, _, name = go_type.rpartition(".")
        target = package.imports.get(alias, path) if alias else path
        if special := SPECIAL.get(f"{target.rsplit('/', 1)[1]}.{name}"):
            return special
        _, definition = self._package(target).types[name]
        return self._resolve(target, definition) if definition else self.add(target, name)


def main() -> None:
    """Write the table."""
    table = Table(Path(sys.argv[1]))
    for path, names in ROOTS.items():
        for name in names.split():
            table.add(path, name)
    lines = [f"{json.dumps(key)}: {json.dumps(table.messages[key])}" for key in sorted(table.messages)]
    Path(sys.argv[2]).write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

"""Write the table of Kubernetes' own types for the laptop cluster's API server.

    python tools/apiserver/kubernetes_types.py FOLDER OUTPUT

FOLDER contains the Go modules of Kubernetes; it is `k8s.io` in the folder that `go env GOMODCACHE` prints. OUTPUT is
the file `kubernetes_types.json` of the API server; `trainjob_local.apiserver.kubernetes_types` describes it.

The Go types are the source, because the published schemas have no protobuf numbers, and the `.proto` files have neither
patch strategies nor the fields that JSON inlines.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

VERSION = "v0.36.3"
ROOTS = {
    "k8s.io/api/core/v1": "Binding ConfigMap Event Namespace Node PersistentVolume PersistentVolumeClaim Pod Secret "
    "Service ServiceAccount",
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
_FIELD = re.compile(r"^\t(?:\w+ +)?([\w.*\[\]]+) +`([^`]*)`", re.MULTILINE)
_TAG = re.compile(r'(\w+):"([^"]*)"')
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
        self.messages: dict[str, dict[str, list[str]]] = {}

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

    def _fields(self, path: str, name: str) -> Iterator[tuple[str, list[str]]]:
        for go_type, text in _FIELD.findall(self._package(path).types[name][0]):
            tags = dict(_TAG.findall(text))
            if "protobuf" not in tags:
                continue
            json_name, *options = tags["json"].split(",")
            omitted = "omitempty" in options or "omitzero" in options
            presence = "pointer" if go_type.startswith("*") else "" if omitted else "required"
            field = ["" if "inline" in options else json_name, self._resolve(path, go_type.lstrip("*")), presence]
            patch = [tags["patchStrategy"], tags.get("patchMergeKey", "")] if "patchStrategy" in tags else []
            yield tags["protobuf"].split(",")[1], [*field, *patch]

    def _resolve(self, path: str, go_type: str) -> str:
        """Return a scalar, a special type or a key; `[]` or `{}` before it means list or map."""
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

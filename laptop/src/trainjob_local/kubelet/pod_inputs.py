"""Environment and volumes of a pod's containers, read from the API server.

Source: Kubernetes 1.36 `pkg/kubelet/kubelet_pods.go` (environment) and `pkg/volume/*` (secret, configmap, projected,
downwardapi).
"""

from __future__ import annotations

import base64
import contextlib
import posixpath
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from trainjob.errors import ClusterError
from trainjob_local.kubelet.command_line import expand, rewrite_port
from trainjob_local.kubelet.volume_files import replace_files
from trainjob_local.objects import Json, ObjectApi

__all__ = ["MissingInput", "PodInputs"]

_METADATA = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")
_LOCAL_ADDRESS = "127.0.0.1"
_TOKEN_SECONDS = 3600
_BYTES = "surrogateescape"  # a Secret may hold any bytes; text keeps them with this error handler, as in os.environ


class MissingInput(Exception):
    """Error for an input of a container that does not exist yet; the kubelet waits for it."""


class PodInputs:
    """Reader of the objects to which one pod's spec refers.

    Args:
        api: client of the API server.
        pod: the pod.
        folder: folder for the pod's own files.
        port: function that returns the port of the pod's JobSet.
    """

    def __init__(self, api: ObjectApi, pod: Json, folder: Path, port: Callable[[], int]) -> None:
        self._api, self._pod, self._folder, self._port = api, pod, folder, port
        self._namespace: str = pod["metadata"]["namespace"]
        self._lock = threading.Lock()  # of the files of the volumes
        self._tokens: dict[str, tuple[float, str]] = {}  # by path, with the time until which they are used

    def resolve_environment(self, container: Json) -> dict[str, str]:
        """Resolve `envFrom` and `env` of a container.

        Raises:
            MissingInput: a Secret, ConfigMap or key that is not optional is missing; the text is the kubelet's.
            NoFreePort: no port is free for the pod's JobSet.
        """
        env: dict[str, str] = {}
        for source in container.get("envFrom", []):
            kind, ref = (
                ("secrets", source["secretRef"]) if "secretRef" in source else ("configmaps", source["configMapRef"])
            )
            data = self._object_data(kind, ref["name"], optional=bool(ref.get("optional")))
            for key, value in data.items():
                name = source.get("prefix", "") + key
                env[name] = rewrite_port(name, value, self._port)
        for variable in container.get("env", []):
            found = self._resolve_variable(container, variable, env)
            if found is not None:
                env[variable["name"]] = rewrite_port(variable["name"], found, self._port)
        return env

    def prepare_volume(self, volume: Json) -> Path:
        """Return the local folder of a volume, with the volume's files in it.

        Raises:
            MissingInput: the claim, its volume, a Secret, a ConfigMap or the node's folder is missing.
        """
        if claim := volume.get("persistentVolumeClaim"):
            return self._claim_folder(claim["claimName"])
        if "hostPath" in volume:
            return _check_host_path(volume["hostPath"])
        local = self._folder / "volumes" / str(volume["name"])
        with self._lock:
            local.mkdir(parents=True, exist_ok=True)
            if _has_files(volume):
                replace_files(local, self._read_files(volume))
        return local

    def refresh_volumes(self, volumes: Iterable[Json]) -> None:
        """Replace the files of Secrets, ConfigMaps and the downward API that have changed.

        A volume whose Secret or ConfigMap does not exist any more keeps its files.
        """
        for volume in filter(_has_files, volumes):
            with self._lock, contextlib.suppress(MissingInput, ClusterError):
                local = self._folder / "volumes" / str(volume["name"])
                if local.is_dir():  # else the pod has not mounted it yet, or has ended
                    replace_files(local, self._read_files(volume))

    def remove_volumes(self) -> None:
        """Remove the volumes of an ended pod, as a kubelet does.

        The folders of claims and of the node stay.
        """
        with self._lock:
            shutil.rmtree(self._folder / "volumes", ignore_errors=True)

    def _resolve_variable(self, container: Json, variable: Json, env: Mapping[str, str]) -> str | None:
        source = variable.get("valueFrom") or {}
        if "fieldRef" in source:
            return self._field_value(source["fieldRef"]["fieldPath"])
        if ref := source.get("resourceFieldRef"):
            kind, _, name = ref["resource"].partition(".")
            return str(container.get("resources", {}).get(kind, {}).get(name, "0"))
        if source:
            return self._resolve_key(source)
        return expand(variable.get("value", ""), env)

    def _resolve_key(self, source: Json) -> str | None:
        kind, ref = (
            ("secrets", source["secretKeyRef"])
            if "secretKeyRef" in source
            else ("configmaps", source["configMapKeyRef"])
        )
        optional = bool(ref.get("optional"))
        data = self._object_data(kind, ref["name"], optional=optional)
        if ref["key"] not in data and not optional:
            raise MissingInput(f"couldn't find key {ref['key']} in {_KINDS[kind]} {self._namespace}/{ref['name']}")
        return data.get(ref["key"])

    def _volume_files(self, source: Json, *, projected: bool) -> dict[str, str]:
        if ref := source.get("secret"):
            return self._selected_items("secrets", ref["name" if projected else "secretName"], ref)
        if ref := source.get("configMap"):
            return self._selected_items("configmaps", ref["name"], ref)
        if "downwardAPI" in source:
            return {
                item["path"]: self._field_value(item["fieldRef"]["fieldPath"])
                for item in source["downwardAPI"].get("items", [])
            }
        if projection := source.get("serviceAccountToken"):
            return {projection["path"]: self._get_token(projection)}
        return {}  # an emptyDir, or a source that this kubelet does not support

    def _selected_items(self, kind: str, name: str, ref: Json) -> dict[str, str]:
        found = self._get(kind, name, optional=bool(ref.get("optional")))
        texts, binary = found.get("data") or {}, found.get("binaryData") or {}
        data = _decode(texts) if kind == "secrets" else {**texts, **_decode(binary)}
        items = ref.get("items")
        if not items:
            return data
        absent = [item["key"] for item in items if item["key"] not in data]
        if absent and not ref.get("optional"):
            raise MissingInput(f"references non-existent {_KINDS[kind]} key: {absent[0]}")
        return {item["path"]: data[item["key"]] for item in items if item["key"] in data}

    def _read_files(self, volume: Json) -> dict[str, bytes]:
        """Return the files of a volume, of which the last source of a path counts.

        Raises:
            MissingInput: a Secret or a ConfigMap is missing.
        """
        sources = volume.get("projected", {}).get("sources", [volume])
        found = (self._volume_files(source, projected=source is not volume).items() for source in sources)
        return {posixpath.normpath(name): text.encode(errors=_BYTES) for files in found for name, text in files}

    def _get_token(self, projection: Json) -> str:
        """Return a token, which is used for 80 % of its life (Kubernetes 1.36, pkg/kubelet/token)."""
        path = projection["path"]
        until, token = self._tokens.get(path, (0.0, ""))
        if time.monotonic() >= until:
            token = self._request_token(projection)
            life = projection.get("expirationSeconds", _TOKEN_SECONDS)
            self._tokens[path] = time.monotonic() + 0.8 * life, token
        return token

    def _request_token(self, projection: Json) -> str:
        meta = self._pod["metadata"]
        spec = {
            "expirationSeconds": projection.get("expirationSeconds", _TOKEN_SECONDS),
            "audiences": [projection["audience"]] if "audience" in projection else [],  # serialized name
            "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]},
        }
        return self._api.token(self._namespace, self._pod["spec"].get("serviceAccountName", "default"), spec)

    def _claim_folder(self, name: str) -> Path:
        claim = self._get("persistentvolumeclaims", name)
        volume = claim["spec"].get("volumeName")
        if not volume:
            raise MissingInput(f'PVC "{self._namespace}/{name}" is not bound')
        try:
            found = self._api.get("persistentvolumes", volume)
        except ClusterError as error:
            raise MissingInput(str(error)) from error
        return Path(found["spec"]["hostPath"]["path"])

    def _object_data(self, kind: str, name: str, *, optional: bool) -> dict[str, str]:
        found = self._get(kind, name, optional=optional)
        data: dict[str, str] = found.get("data") or {}
        return _decode(data) if kind == "secrets" else data

    def _get(self, kind: str, name: str, *, optional: bool = False) -> Json:
        try:
            return self._api.get(kind, name, self._namespace)
        except ClusterError as error:
            if error.status == 404 and optional:
                return {}
            text = f'{_KINDS[kind]} "{name}" not found' if error.status == 404 else error.message
            raise MissingInput(text) from error

    def _field_value(self, path: str) -> str:
        """Return the value of a field of the pod (the downward API)."""
        if found := _METADATA.fullmatch(path):
            return str((self._pod["metadata"].get(found[1]) or {}).get(found[2], ""))
        if path in ("status.podIP", "status.hostIP", "status.podIPs", "status.hostIPs"):
            return _LOCAL_ADDRESS
        value: Any = self._pod
        for key in path.split("."):
            value = value.get(key, "")
        return "\n".join(f'{key}="{one}"' for key, one in value.items()) if isinstance(value, dict) else str(value)


_KINDS = {"secrets": "secret", "configmaps": "configmap", "persistentvolumeclaims": "persistentvolumeclaim"}


def _has_files(volume: Json) -> bool:
    """Return whether the kubelet writes the files of a volume."""
    return any(kind in volume for kind in ("secret", "configMap", "downwardAPI", "projected"))


def _decode(data: Mapping[str, str]) -> dict[str, str]:
    return {key: base64.b64decode(value).decode(errors=_BYTES) for key, value in data.items()}


def _check_host_path(source: Json) -> Path:
    """Return a path of this machine, after checking it against the requested type.

    Source: Kubernetes 1.36, pkg/volume/hostpath/host_path.go.

    Raises:
        MissingInput: the path is not of the requested type.
    """
    path, kind = Path(source["path"]), source.get("type", "")
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    if kind == "Directory" and not path.is_dir():
        raise MissingInput(f"hostPath type check failed: {path} is not a directory")
    if kind == "File" and not path.is_file():
        raise MissingInput(f"hostPath type check failed: {path} is not a file")
    return path

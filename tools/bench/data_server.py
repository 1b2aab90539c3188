"""nginx as a Hugging Face Hub on loopback, with a second server as its CDN.

Files of `safetensors` are redirected to the CDN, as the real hub redirects large files; the others are sent at once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

COMMIT = "c0ffee" * 6 + "c0de"
_LARGE = ".safetensors"
_CONFIGURATION = """
daemon off; pid {root}/nginx.pid; error_log {root}/error.log;
events {{ worker_connections 2048; }}
http {{
  access_log off; sendfile on; tcp_nopush on; default_type application/octet-stream; keepalive_requests 100000;
  map_hash_bucket_size 256; map_hash_max_size 65536; {folders}
  map $uri $digest {{ default ""; {digests} }}
  map $uri $size {{ default ""; {sizes} }}
  server {{
    listen 127.0.0.1:{port}{tls};
    location ~ ^/api/[a-z]+/bench/([^/]+)/tree/ {{ default_type application/json; alias {root}/api/$1/tree.json; }}
    location ~ ^/api/[a-z]+/bench/([^/]+) {{ default_type application/json; alias {root}/api/$1/info.json; }}
    location ~ ^/(?:datasets/)?bench/([^/]+)/resolve/[^/]+/(.*{large})$ {{
      add_header X-Repo-Commit {commit} always; add_header X-Linked-Size $size always;
      add_header X-Linked-Etag '"$digest"' always; return 302 {scheme}://127.0.0.1:{cdn_port}/$1/$2;
    }}
    location ~ ^/(?:datasets/)?bench/([^/]+)/resolve/[^/]+/(.*)$ {{
      etag off; add_header X-Repo-Commit {commit} always; add_header ETag '"$digest"' always; alias {root}/files/$1/$2;
    }}
  }}
  server {{ listen 127.0.0.1:{cdn_port}{tls}; root {root}/files; {limit} }}
}}
"""


@dataclass(frozen=True)
class DataServer:
    """A running hub.

    Attributes:
        url: address of the hub.
        authority: file with the certificate of its authority; it is needed only with TLS.
        paths: paths of the files of each repository.
    """

    url: str
    authority: Path
    paths: dict[str, list[str]]


def write_repository(root: Path, name: str, count: int, size: int, suffix: str) -> None:
    """Write files with random content, and the hub's description of them.

    Args:
        root: folder of the server.
        name: name of the repository; its organization is `bench`.
        count: number of files.
        size: size of each file in bytes.
        suffix: suffix of the files.
    """
    folder, tree = root / "files" / name, []
    for number in range(count):
        path = folder / f"{number // 100:03d}" / f"part-{number:05d}{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = os.urandom(size)
        path.write_bytes(content)
        entry: dict[str, Any] = {"type": "file", "path": path.relative_to(folder).as_posix(), "size": size}
        if suffix == _LARGE:
            digest = hashlib.sha256(content).hexdigest()
            entry |= {"oid": digest[:40], "lfs": {"oid": digest, "size": size, "pointerSize": 134}}
        else:
            entry["oid"] = hashlib.sha1(b"blob %d\0" % size + content).hexdigest()  # noqa: S324 - what git uses
        tree.append(entry)
    counts = {"private": False, "gated": False, "tags": [], "downloads": 0, "likes": 0}
    siblings = [{"rfilename": entry["path"]} for entry in tree]
    info = {"id": f"bench/{name}", "sha": COMMIT, **counts, "siblings": siblings}
    (root / "api" / name).mkdir(parents=True)
    for part, description in {"info": info, "tree": tree}.items():
        (root / "api" / name / f"{part}.json").write_text(json.dumps(description))


@contextlib.contextmanager
def serve(root: Path, *, tls: bool = False, limit: str = "") -> Iterator[DataServer]:
    """Serve the repositories of a folder.

    Args:
        root: folder of the server.
        tls: whether the hub and its CDN use TLS.
        limit: rate of each response of the CDN, such as `20m` for 20 MiB/s; empty for none.
    """
    authority, certificate = trustme.CA(), root / "server.pem"
    authority.cert_pem.write_to_path(str(root / "authority.pem"))
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(certificate))
    trees = {path.parent.name: json.loads(path.read_text()) for path in root.glob("api/*/tree.json")}
    files = [
        (f"{kind}/bench/{name}/resolve/{COMMIT}/{entry['path']}", entry)
        for name, tree in trees.items()
        for entry in tree
        for kind in ("", "/datasets")
    ]
    port, cdn_port = _find_ports()
    scratch = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    (root / "nginx.conf").write_text(
        _CONFIGURATION.format(
            root=root,
            folders=" ".join(f"{name}_temp_path {root}/{name};" for name in scratch),
            digests=" ".join(f'"{uri}" "{entry.get("lfs", entry)["oid"]}";' for uri, entry in files),
            sizes=" ".join(f'"{uri}" "{entry["size"]}";' for uri, entry in files if "lfs" in entry),
            port=port,
            cdn_port=cdn_port,
            tls=f" ssl; ssl_certificate {certificate}; ssl_certificate_key {certificate}" if tls else "",
            scheme="https" if tls else "http",
            limit=f"limit_rate {limit};" if limit else "",
            commit=COMMIT,
            large=_LARGE.replace(".", r"\."),
        )
    )
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    process = subprocess.Popen([nginx, "-c", str(root / "nginx.conf")], stderr=subprocess.PIPE, text=True)
    try:
        _wait_for(port, process)
        paths = {name: [entry["path"] for entry in tree] for name, tree in trees.items()}
        yield DataServer(f"{'https' if tls else 'http'}://127.0.0.1:{port}", root / "authority.pem", paths)
    finally:
        process.terminate()
        process.communicate()


def _find_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return one.getsockname()[1], other.getsockname()[1]


def _wait_for(port: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
    message = process.stderr.read() if process.stderr else ""
    raise RuntimeError(f"nginx has ended: {message}")

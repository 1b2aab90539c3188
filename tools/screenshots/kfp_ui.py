"""The front end of Kubeflow Pipelines with one uploaded pipeline.

It is KFP's own front end, built from KFP's sources. It shows the graph of a compiled pipeline without a back end: this
module answers its requests for the pipeline. A run's graph needs KFP's API server and metadata store.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_ID = "tickets-llm"
_CREATED = "2026-01-01T00:00:00Z"


class _Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments: Any, spec: object, **named: Any) -> None:
        self._spec = spec
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        """Send a file of the front end, or the answer of the API."""
        path = self.path.partition("?")[0]
        if path in ("/", "/index.html") or path.startswith("/static/"):
            super().do_GET()
            return
        body = json.dumps(self._find_answer(path)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _find_answer(self, path: str) -> dict[str, Any]:
        version = {
            "pipeline_id": _ID,
            "pipeline_version_id": _ID,
            "display_name": _ID,
            "created_at": _CREATED,
            "pipeline_spec": self._spec,
        }
        if not path.startswith("/apis/"):
            return {}
        if path.startswith("/apis/v1beta1/"):
            return {"id": _ID, "name": _ID, "created_at": _CREATED}
        if path.endswith("/versions"):
            return {"pipeline_versions": [version]}
        if "/versions/" in path:
            return version
        return {"pipeline_id": _ID, "display_name": _ID, "created_at": _CREATED} if "/pipelines/" in path else {}

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def open_pipeline(front_end: Path, compiled: Path) -> Iterator[str]:
    """Serve the front end on the loopback interface; yield the address of the graph.

    Args:
        front_end: folder `frontend/build` of KFP's sources.
        compiled: compiled pipeline.
    """
    spec = yaml.safe_load(compiled.read_text("utf-8"))
    handler = functools.partial(_Handler, directory=str(front_end), spec=spec)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/#/pipelines/details/{_ID}/version/{_ID}"
        finally:
            server.shutdown()
            thread.join()

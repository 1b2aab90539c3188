"""A Hugging Face Hub on loopback that takes uploads, in a process of its own.

`upload_server.py FOLDER BYTES_PER_SECOND` prints its address. Each connection has the given rate; 0 is no limit.
Uploaded bytes are hashed and forgotten.
"""

from __future__ import annotations

import hashlib
import sys
import time
from http import HTTPStatus
from pathlib import Path

from tests.integration.programs.export.hub_uploads import UploadHandler, Uploads
from trainjob_local.demo.hub import HubServer

TOKEN = "hf_token_of_the_benchmark"
_READ = 256 << 10  # bytes


def _create_handler(uploads: Uploads, rate: int) -> type[UploadHandler]:
    class Handler(UploadHandler):
        """A handler that reads uploads at a limited rate."""

        def do_PUT(self) -> None:  # noqa: N802 - the library's name
            """Hash the bytes of an upload, and check that they are those of its name."""
            left, digest, began = int(self.headers["Content-Length"]), hashlib.sha256(), time.monotonic()
            size = left
            while left:
                block = self.rfile.read(min(left, _READ))
                left -= len(block)
                digest.update(block)
                if rate:
                    time.sleep(max(0.0, began + (size - left) / rate - time.monotonic()))
            if not self.path.endswith(digest.hexdigest()):
                self.send_hub_error(HTTPStatus.BAD_REQUEST, "", "the upload has another digest")
                return
            self.uploads.lfs[digest.hexdigest()] = b""
            self.send_json({})

    return type("Handler", (Handler,), {"uploads": uploads})


if __name__ == "__main__":
    root = Path(sys.argv[1])
    (root / "models").mkdir(parents=True, exist_ok=True)
    with HubServer(root, handler=_create_handler(Uploads(TOKEN), int(sys.argv[2]))) as server:
        print(server.url, flush=True)
        sys.stdin.read()

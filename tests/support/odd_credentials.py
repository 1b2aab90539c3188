"""Credentials as people store them: with a line end, a blank or another character after them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import yaml

SECRET = "hf_SECRETsecretSECRET1234"
ODD_ENDS = {"line end": "\n", "Windows line end": "\r\n", "blank": " ", "control character": "\x01", "euro": "€"}


class HeaderEcho(BaseHTTPRequestHandler):
    """A server that accepts no token, and repeats the headers in its answer."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(401)
        self.end_headers()
        self.wfile.write(str(self.headers).encode())

    do_HEAD = do_POST = do_GET  # noqa: N815 - the names that http.server calls

    def log_message(self, *arguments: Any) -> None:
        """Write no log."""


def write_odd_kubeconfig(kubeconfig: Path, path: Path, end: str) -> str:
    """Write a copy of a kubeconfig whose token has this end, and return the token without it."""
    content = yaml.safe_load(kubeconfig.read_text())
    user = content["users"][0]["user"]
    token: str = user["token"]
    user["token"] = token + end
    path.write_text(yaml.safe_dump(content))
    return token

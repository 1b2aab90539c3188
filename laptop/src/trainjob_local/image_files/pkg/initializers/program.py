"""The main program of an initializer."""

from __future__ import annotations

import os
import sys

from pkg.initializers import huggingface, s3
from pkg.initializers.request import DownloadFailed, parse_request

__all__ = ["main"]

_DOWNLOADS = {"hf": huggingface.download, "s3": s3.download}


def main(kind: str) -> int:
    """Download a `dataset` or a `model` as the environment variables request.

    Returns:
        The exit code: 0, or 1 after one sentence on stderr.
    """
    try:
        request = parse_request(os.environ, kind)
        if request.scheme not in _DOWNLOADS:
            raise DownloadFailed(
                f"STORAGE_URI {request.uri!r}: this cluster's {kind} initializer supports only hf:// and s3://"
            )
        request.target.mkdir(parents=True, exist_ok=True)
        _DOWNLOADS[request.scheme](request)
    except (DownloadFailed, OSError) as failure:
        print(f"{kind} initializer: {failure}", file=sys.stderr, flush=True)
        return 1
    print(f"{kind} initializer: done", flush=True)
    return 0

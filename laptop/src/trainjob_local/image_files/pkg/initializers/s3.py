"""Download of the objects with a key prefix from an S3-compatible object store.

The path of a downloaded file is the rest of its key after the prefix. Ignore patterns are matched with whole keys. The
region is `auto` unless it is given.
Source: Trainer 2.3 `pkg/initializers/utils/opendal.py`.
"""

from __future__ import annotations

import fnmatch
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import Any

from pkg.initializers.progress import Progress
from pkg.initializers.request import DownloadFailed, Request

__all__ = ["download"]

_WORKERS = 4
_BLOCK = 8 << 20


def download(request: Request) -> None:
    """Download every object with the prefix that no ignore pattern matches.

    Raises:
        DownloadFailed: the store cannot be read, or has no matching object.
    """
    bucket, _, prefix = request.location.partition("/")
    if not bucket:
        raise DownloadFailed(f"STORAGE_URI {request.uri!r} names no bucket; use s3://bucket/prefix")
    try:
        _download(request, bucket, prefix)
    except DownloadFailed:
        raise
    except Exception as failure:
        raise DownloadFailed(_explain_failure(request, bucket, failure)) from failure


def _download(request: Request, bucket: str, prefix: str) -> None:
    store = _store(request, bucket)
    sizes = {
        entry.path: entry.metadata.content_length
        for entry in store.list(prefix, recursive=True)
        if not entry.metadata.is_dir
    }
    keys = [key for key in sizes if not any(fnmatch.fnmatch(key, pattern) for pattern in request.ignore_patterns)]
    if not keys:
        raise DownloadFailed(
            f"no object of {request.uri} matches the patterns; its objects: {', '.join(sorted(sizes)[:10]) or 'none'}"
        )
    progress = Progress(request, [sizes[key] for key in keys])

    def fetch(key: str) -> None:
        _fetch(store, key, request, prefix)
        progress.report_file(key, sizes[key])

    with ThreadPoolExecutor(_WORKERS) as workers:
        for _ in workers.map(fetch, keys):
            pass


def _store(request: Request, bucket: str) -> Any:
    import opendal

    names = ("ENDPOINT", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "REGION", "ROLE_ARN")
    given = {name.lower(): request.options[name] for name in names if name in request.options}
    retries = opendal.layers.RetryLayer(max_times=3, factor=2.0, jitter=True)
    return opendal.Operator("s3", **{"root": "/", "bucket": bucket, "region": "auto", **given}).layer(retries)


def _fetch(store: Any, key: str, request: Request, prefix: str) -> None:
    below = PurePosixPath(key[len(prefix) :].lstrip("/") or PurePosixPath(key).name)
    if ".." in below.parts:
        raise DownloadFailed(f"the key {key!r} leads out of {request.target}")
    path = request.target / below
    path.parent.mkdir(parents=True, exist_ok=True)
    with store.open(key, "rb") as source, path.open("wb") as target:
        while block := source.read(_BLOCK):
            target.write(block)


def _explain_failure(request: Request, bucket: str, failure: Exception) -> str:
    kind, text = type(failure).__name__, " ".join(str(failure).split())
    if kind == "PermissionDenied":
        return f"no access to {request.uri}: check ACCESS_KEY_ID and SECRET_ACCESS_KEY"
    if kind == "NotFound" or "NoSuchBucket" in text:
        return f"no bucket {bucket} for {request.uri}: check the address and ENDPOINT"
    return f"{request.uri} cannot be downloaded: {kind}: {text[:300]}"

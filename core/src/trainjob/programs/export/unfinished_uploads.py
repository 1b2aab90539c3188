"""Multipart uploads that a killed export has not finished.

A store keeps their parts, and charges for them, until they are ended (Amazon S3 API Reference 2006-03-01,
ListMultipartUploads and AbortMultipartUpload).
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterator
from urllib.error import HTTPError

from trainjob.programs.export.s3_requests import S3Requests

__all__ = ["end_uploads"]

_UPLOAD = re.compile(r"<Upload>.*?</Upload>", re.DOTALL)
_MISSING = 404


def end_uploads(requests: S3Requests, keys: Collection[str]) -> int:
    """End the unfinished uploads of objects, and return their number.

    Args:
        requests: the bucket.
        keys: keys of the objects. Uploads of other objects are not changed.

    Raises:
        OSError: the store refuses or can't be reached.
        ValueError: the store does not know the request.
    """
    prefix = min(keys)
    while not all(key.startswith(prefix) for key in keys):
        prefix = prefix[:-1]
    count = 0
    for key, upload in list(_list_uploads(requests, prefix)):
        if key in keys:
            try:
                requests.send("DELETE", key, {"uploadId": upload})
            except HTTPError as refusal:
                if refusal.code != _MISSING:  # it has ended meanwhile
                    raise
            count += 1
    return count


def _list_uploads(requests: S3Requests, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield key and ID of each unfinished upload below a prefix."""
    query = {"uploads": "", "prefix": prefix}
    while True:
        answer = requests.send("GET", "", query)
        if "ListMultipartUploadsResult" not in answer:
            raise ValueError("the store does not list them")
        for upload in _UPLOAD.findall(answer):
            yield _get(upload, "Key"), _get(upload, "UploadId")
        if _get(answer, "IsTruncated") != "true":
            return
        query |= {
            "key-marker": _get(answer, "NextKeyMarker"),
            "upload-id-marker": _get(answer, "NextUploadIdMarker"),
        }


def _get(xml: str, name: str) -> str:
    found = re.search(rf"<{name}>([^<]*)</{name}>", xml)
    return html.unescape(found[1]) if found else ""

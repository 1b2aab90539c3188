"""Buckets of the object stores that are known, as opendal reaches them; for fetches and exports alike."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainjob.programs.fetch.credentials import google_options, s3_options

__all__ = ["SCHEMES", "Bucket", "bucket_of", "told"]

_SERVICES = {"s3": "s3", "gs": "gcs"}
SCHEMES = tuple(_SERVICES)
"""How an object store's address may begin."""
_CREDENTIALS = {
    "s3": "ACCESS_KEY_ID and SECRET_ACCESS_KEY in the step's secret",
    "gs": "GOOGLE_CREDENTIALS in the step's secret, or the pod's service account",
}
_SAID = re.compile(r'code: "?(\w+)"?, message: "([^"]*)"')
_LONGEST = 300  # characters of a failure in the library's words


@dataclass(frozen=True)
class Bucket:
    """A bucket.

    Attributes:
        scheme: `s3` for any S3-compatible store, `gs` for Google Cloud Storage.
        name: its name.
        options: of opendal's service. Credentials that are missing are looked for as the store's own tools do: for S3
            the `AWS_*` variables, web identity, instance metadata; for Google GOOGLE_APPLICATION_CREDENTIALS, gcloud's
            own file, the metadata server, and so a workload identity.
    """

    scheme: str
    name: str
    options: Mapping[str, str] = field(repr=False)

    def operator(self, root: str = "/") -> Any:
        """Opens it; paths are then below `root`."""
        import opendal

        retries = opendal.layers.RetryLayer(max_times=4, factor=2.0, jitter=True, min_delay=0.5)
        return opendal.Operator(_SERVICES[self.scheme], root=root, bucket=self.name, **self.options).layer(retries)

    def trouble(self, failure: Exception, needs: str) -> tuple[str, str] | None:
        """What is wrong with bucket or credentials, and what to do; None where a failure is about something else.

        Args:
            failure: the library's.
            needs: what the credentials must be allowed to do.
        """
        kind, said, credentials = type(failure).__name__, told(str(failure)), _CREDENTIALS[self.scheme]
        if kind == "PermissionDenied" or said.startswith("401: "):  # opendal 0.47 has no kind for Google's 401
            return f"access denied ({said})", f"check {credentials}: it must be allowed to {needs}"
        if "signing http request" in str(failure):
            hint = f"check {credentials}, and that pods may reach who gives out the tokens"
            return f"no credentials that work ({said})", hint
        if kind == "NotFound" or "NoSuchBucket" in str(failure):
            return "no such bucket", "make the bucket, or correct the address or the endpoint"
        return None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name}"


def bucket_of(scheme: str, name: str, environment: Mapping[str, str], endpoint: str, region: str) -> Bucket:
    """A bucket and how to reach it.

    Args:
        scheme: one of `SCHEMES`.
        name: the bucket's.
        environment: where the credentials are.
        endpoint: the store's address; empty for the usual one.
        region: of S3 only; empty to take AWS_REGION.

    Raises:
        InvalidSpec: the credentials are of no form that is known.
    """
    if scheme == "gs":
        return Bucket(scheme, name, google_options(environment, endpoint))
    return Bucket(scheme, name, s3_options(environment, endpoint, region))


def told(failure: str) -> str:
    """What the store itself said in a failure of the library, or the beginning of the library's own words."""
    if said := _SAID.search(failure):
        return f"{said[1]}: {said[2]}"
    about, _, source = failure.partition("Backtrace:")[0].partition("Source:")
    line = " ".join((source or about).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"

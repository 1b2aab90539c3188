"""Buckets of the supported object stores, opened with opendal, for fetches and exports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trainjob.addresses import StoreAddress
from trainjob.programs.fetch.credentials import azure_options, google_options, s3_options
from trainjob.programs.fetch.retries import is_of_writer

__all__ = ["Bucket", "create_bucket", "extract_message"]

# opendal's service of a scheme, and its option with the bucket's name.
_SERVICES = {"s3": ("s3", "bucket"), "gs": ("gcs", "bucket"), "az": ("azblob", "container")}
_CREDENTIALS = {
    "s3": "ACCESS_KEY_ID and SECRET_ACCESS_KEY in the step's secret",
    "gs": "GOOGLE_CREDENTIALS in the step's secret, or the pod's service account",
    "az": "AZURE_STORAGE_CONNECTION_STRING or account and key in the step's secret, or the pod's identity",
}
_STORE_MESSAGE = re.compile(r'code: "?(\w+)"?, message: "([^"]*)"')
# With one of these a pod has an identity, so missing credentials are a fault.
_AWS_IDENTITIES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
)
# A response to a HEAD has no code; the SDKs, too, take 400 for a wrong region.
_OTHER_REGION = re.compile(
    "AuthorizationHeaderMalformed|PermanentRedirect|status: 301|HeadObject.*status: 400", re.DOTALL
)
_BUCKET_REGION = re.compile(r'"x-amz-bucket-region": "([\w-]+)"')
_ANY_KEY = "manifest.json"  # of a first request; there need not be such an object
_NO_CREDENTIALS = "signing http request"  # in the message of opendal
_MAX_MESSAGE_LENGTH = 300  # characters of the library's own message


@dataclass(frozen=True)
class Bucket:
    """A bucket in an object store.

    Attributes:
        scheme: `s3` for any S3-compatible store, `gs` for Google Cloud Storage, `az` for Azure Blob Storage.
        name: name of the bucket or container.
        options: options of opendal's service. opendal searches for missing credentials as the store's own tools do. For
            S3 these are the `AWS_*` variables, web identity and instance metadata. For Google these are
            GOOGLE_APPLICATION_CREDENTIALS, gcloud's own file, and the metadata server, which also covers workload
            identity.
        may_be_public: whether the bucket may be read without credentials, because the pod is not meant to have any.
    """

    scheme: str
    name: str
    options: Mapping[str, str] = field(repr=False)
    may_be_public: bool = False

    def adapt(self) -> Bucket:
        """Return the bucket with the options that the response to a first request requires.

        They are the region of the bucket, and no credentials if there are none and the bucket may be public.
        """
        bucket = self
        for _ in range(2 if self.scheme == "s3" else 0):
            try:
                bucket._create_plain_operator("/").exists(_ANY_KEY)
                break
            except Exception as failure:  # noqa: BLE001 - any other failure is that of the next request, too
                if not (found := bucket._find_options(str(failure))):
                    break
                bucket = replace(bucket, options={**bucket.options, **found})
        return bucket

    def create_operator(self, root: str = "/") -> Any:
        """Return an opendal operator for the bucket; its paths are relative to `root`."""
        import opendal

        retries = opendal.layers.RetryLayer(max_times=4, factor=2.0, jitter=True, min_delay=0.5)
        return self._create_plain_operator(root).layer(retries)

    def _create_plain_operator(self, root: str) -> Any:
        import opendal

        service, bucket = _SERVICES[self.scheme]
        return opendal.Operator(service, root=root, **{bucket: self.name}, **self.options)

    def _find_options(self, failure: str) -> dict[str, str]:
        if self.may_be_public and _NO_CREDENTIALS in failure:
            return {"allow_anonymous": "true"}  # opendal 0.47 then signs no request
        region = _BUCKET_REGION.search(failure) if _OTHER_REGION.search(failure) else None
        return {"region": region[1]} if region else {}

    def describe_access_problem(self, failure: Exception, permissions: str) -> tuple[str, str] | None:
        """Return the problem with the bucket or its credentials, and advice.

        Args:
            failure: the library's error.
            permissions: the permissions that the credentials need.

        Returns:
            The problem and the advice; None if the failure has another cause.
        """
        kind = str(failure).partition(" ")[0] if is_of_writer(failure) else type(failure).__name__
        message, credentials = extract_message(str(failure)), _CREDENTIALS[self.scheme]
        is_denied = kind == "PermissionDenied" or getattr(failure, "status", 0) in (401, 403)
        if is_denied or message.startswith("401: "):  # opendal 0.47 has no kind for Google's 401
            return f"access denied ({message})", f"check {credentials}: it must be allowed to {permissions}"
        if _NO_CREDENTIALS in str(failure):
            hint = f"check {credentials}, and that pods can reach the service that issues the tokens"
            return f"no valid credentials ({message})", hint
        if self.scheme == "s3" and _OTHER_REGION.search(str(failure)):
            found = _BUCKET_REGION.search(str(failure))
            region = found[1] if found else "that of the bucket"
            return f"the bucket is not in the region {self.options['region']}", f"set `region` of the step to {region}"
        if kind == "NotFound" or "NoSuchBucket" in str(failure):
            return "no such bucket", "create the bucket, or correct the address or the endpoint"
        return None

    def __str__(self) -> str:
        return f"{self.scheme}://{self.name}"


def create_bucket(
    address: StoreAddress, environment: Mapping[str, str], endpoint: str, region: str, *, is_read_only: bool = False
) -> Bucket:
    """Return the bucket of an address, with the options to reach it.

    Args:
        address: an address of an object store.
        environment: variables with the credentials.
        endpoint: the store's address; empty means the usual one.
        region: region, for S3 only; empty means AWS_REGION.
        is_read_only: whether the bucket is only read, so that it may be a public one.

    Raises:
        InvalidSpec: the credentials have no known form.
    """
    may_be_public = is_read_only and not any(environment.get(name) for name in _AWS_IDENTITIES)
    if address.scheme == "gs":
        options = google_options(environment, endpoint)
    elif address.scheme == "az":
        options = azure_options(environment, endpoint, address.account, address.account_url)
    else:
        options = s3_options(environment, endpoint, region)
    return Bucket(address.scheme, address.bucket, options, may_be_public)


def extract_message(failure: str) -> str:
    """Return the store's own message in a failure of the library.

    If there is none, return the beginning of the library's message.
    """
    if found := _STORE_MESSAGE.search(failure):
        return f"{found[1]}: {found[2]}"
    about, _, source = failure.partition("Backtrace:")[0].partition("Source:")
    line = " ".join((source or about).split())
    return line if len(line) <= _MAX_MESSAGE_LENGTH else f"{line[:_MAX_MESSAGE_LENGTH]}…"

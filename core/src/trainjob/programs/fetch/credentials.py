"""Credentials of stores in a step's environment, for fetches and exports."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence

from trainjob.errors import NO_CREDENTIALS, InvalidSpec, Problem, TrainJobError

__all__ = ["check_secrets", "google_options", "s3_options"]

GOOGLE = "GOOGLE_CREDENTIALS"


def check_secrets(
    secrets: Iterable[Sequence[str]], environment: Mapping[str, str], error_class: type[TrainJobError]
) -> None:
    """Raise an error for the first Secret of which the pod has no variable.

    The references to its keys are optional, because a store accepts alternatives. Therefore the kubelet starts the pod
    even if the Secret does not exist. The pod can't distinguish a missing Secret from one without these keys.

    Args:
        secrets: the name of each Secret, followed by the variables that may come from it.
        environment: variables of the pod.
        error_class: class of the error.

    Raises:
        TrainJobError: the pod has none of the variables of a Secret.
    """
    for name, *variables in secrets:
        if not any(variable in environment for variable in variables):
            raise error_class(
                f"{NO_CREDENTIALS} {name}: it does not exist, or has none of the keys {', '.join(variables)}",
                hint="create it in the namespace of the TrainJob, correct its name or keys, or name no Secret",
            )


def s3_options(environment: Mapping[str, str], endpoint: str, region: str) -> dict[str, str]:
    """Return the options of opendal's s3 service, without the bucket.

    Empty options are left out. opendal then uses AWS's own mechanisms.

    Args:
        environment: variables with the credentials.
        endpoint: the store's address; empty means AWS.
        region: the bucket's region; empty means AWS_REGION.
    """
    region = region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
    options = {
        "endpoint": endpoint,
        # "auto", as in the Trainer's initializers (Trainer 2.3 pkg/initializers/utils/opendal.py); AWS requires a real
        # region.
        "region": region or ("auto" if endpoint else "us-east-1"),
        "access_key_id": environment.get("ACCESS_KEY_ID", ""),
        "secret_access_key": environment.get("SECRET_ACCESS_KEY", ""),
        "session_token": environment.get("SESSION_TOKEN", ""),
    }
    return {name: value for name, value in options.items() if value}


def google_options(environment: Mapping[str, str], endpoint: str) -> dict[str, str]:
    """Return the options of opendal's gcs service, without the bucket.

    Empty options are left out. opendal then uses Google's own mechanisms. GOOGLE_CREDENTIALS contains the content of a
    key file, of a service account or of workload identity federation, as for Terraform's google provider. opendal
    itself reads GOOGLE_APPLICATION_CREDENTIALS, the path of such a file.

    Args:
        environment: variables with the credentials.
        endpoint: the store's address; empty means Google's.

    Raises:
        InvalidSpec: GOOGLE_CREDENTIALS is not the content of a key file.
    """
    options = {"endpoint": endpoint}
    if content := environment.get(GOOGLE, ""):
        try:
            json.loads(content)["type"]
        except (ValueError, LookupError, TypeError, RecursionError):
            rule = 'it must be the content of a key file, a JSON object with "type", such as "service_account"'
            raise InvalidSpec(Problem(GOOGLE, "***", rule)) from None
        # opendal 0.47 accepts the content in base64 only.
        options["credential"] = base64.b64encode(content.encode()).decode()
    return {name: value for name, value in options.items() if value}

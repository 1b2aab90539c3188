"""Rules that find a credential in a file of a project.

Sources, pages and data are searched for tokens of known formats only: they are full of examples such as
`password="test"`. The other rules apply to files that exist to hold settings or credentials. None of 14 public
repositories of trainings breaks one of the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from trainjob.spec.credential_rules import (
    contains_credentials,
    find_token,
    has_url_with_password,
    is_literal,
    may_denote_secret,
)
from trainjob.spec.literal_credentials import find_literal

# Of each format of `credential_rules`, a part in lower case. Nearly all lines have none of them, so that 200 MiB need
# seconds and not minutes. A test compares them with the formats.
_TOKEN_HINTS = (
    *("akia", "asia", "-signature=", "sig=", "accountkey=", "sharedaccesskey=", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    *(
        "github_pat_",
        "glpat-",
        "gldt-",
        "glrt-",
        "glptt-",
        "glsoat-",
        "glcbt-",
        "gloas-",
        "hf_",
        "sk-",
        "aiza",
        "ya29.",
    ),
    *("xox", "xapp-", "hooks.slack", "dapi", "dckr_", "nvapi-", "pypi-age", "eyj", "bearer ", "basic ", "private key"),
)
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*")
_SECRET_VALUE = re.compile(
    r"(?:password|passwd|token|secret_access_key|client-key-data|\bkey)[\"']?\s*[=:\s]\s*[\"']?([^\s\"',}]+)",
    re.IGNORECASE,
)


def find_credential(name: str, text: str) -> tuple[int, str] | None:
    """Return the number of the first line with a credential, and its kind; None without one.

    Args:
        name: name of the file, with its folders.
        text: its contents.
    """
    rules = [rule for pattern, rule in _RULES_BY_NAME if pattern.fullmatch(name)]
    lowered = text.lower()
    if any(hint in lowered for hint in _TOKEN_HINTS):
        rules.append(_find_token)
    for number, line in enumerate(text.split("\n") if rules else (), 1):
        if kind := next(filter(None, (rule(line) for rule in rules)), ""):
            return number, kind
    return None


def _find_token(line: str) -> str:
    lowered = line.lower()
    return find_token(line) if any(hint in lowered for hint in _TOKEN_HINTS) else ""


def _find_variable(line: str) -> str:
    found = _ASSIGNMENT.fullmatch(line)
    if not found:
        return ""
    value = found[2].strip("\"'")
    is_secret = (may_denote_secret(found[1]) and is_literal(value)) or contains_credentials(value)
    return "the value of a secret variable" if is_secret else ""


def _find_value(line: str) -> str:
    return "a password or a token" if any(map(is_literal, _SECRET_VALUE.findall(line))) else ""


def _find_url(line: str) -> str:
    return "a URL with a credential" if has_url_with_password(line) else ""


def _find_stored_url(line: str) -> str:
    return "a URL with a credential" if contains_credentials(line) else ""


def _find_registry_login(line: str) -> str:
    return kind if (kind := find_literal(line)) == "a login of a registry" else ""


def _find_cluster_key(line: str) -> str:
    return kind if (kind := find_literal(line)) == "a key of a kubeconfig" else ""


# Names of files, with their folders, and the rule for each of their lines.
_RULES_BY_NAME: tuple[tuple[re.Pattern[str], Callable[[str], str]], ...] = tuple(
    (re.compile(rf"(?:.*/)?(?:{pattern})"), rule)
    for pattern, rule in (
        # Not .env.example and its like, whose values are placeholders.
        (r"(?!.*\.(?:example|sample|template|dist)$)(?:\.env(?:\.[\w.-]+)?|[\w.-]+\.env)", _find_variable),
        (r"[._]netrc|\.pypirc|\.npmrc|\.pgpass|kaggle\.json|\.aws/credentials", _find_value),
        (r"\.kube/config|(?:[\w-]+\.)?kubeconfig(?:[.-][\w.-]+)?", _find_value),
        (r"\.git-credentials", _find_stored_url),
        (r"[\w.-]*requirements[\w.-]*|pip\.conf|Dockerfile|\.gitmodules|.*\.(?:toml|lock|cfg|ini|ya?ml)", _find_url),
        (r"config\.json|\.dockercfg|\.dockerconfigjson", _find_registry_login),
        (r".*\.(?:ya?ml|conf)", _find_cluster_key),
    )
)

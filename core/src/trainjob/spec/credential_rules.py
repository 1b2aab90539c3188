"""Rules that recognize a credential by its format, or by the name of a variable or an option.

The rules are our own: detect-secrets 1.5.0 imports requests and 315 modules, which is too much for a DAG file, and it
knows no tokens of Hugging Face, no signed URLs and no fine-grained tokens of GitHub. docs/explanation/security.md
explains the rules to users.
"""

from __future__ import annotations

import functools
import re

# Formats of tokens, each with its source. Repetitions are limited, so that long texts need linear time.
_FORMATS = {
    # docs.aws.amazon.com/IAM: "IAM identifiers", unique ID prefixes
    "an AWS access key": r"(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)",
    # docs.aws.amazon.com/AmazonS3: "Authenticating Requests: Using Query Parameters"; the same for Google Cloud Storage
    "a signed URL": r"X-(?:Amz|Goog)-Signature=[0-9a-fA-F]{32}",
    # learn.microsoft.com: "Create an account SAS", parameter sig; a SHA-256 in base64, URL-encoded
    "a signed URL of Azure": r"sig=[A-Za-z0-9%+/]{40,256}",
    # learn.microsoft.com: "Configure Azure Storage connection strings"; also of other services and of databases
    "a connection string": r"(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{20}",
    # github.blog 2021-04-05: "Behind GitHub's new authentication token formats"; fine-grained ones: docs.github.com
    "a GitHub token": r"gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{50}",
    # docs.gitlab.com: "Token overview", prefixes
    "a GitLab token": r"gl(?:pat|dt|rt|ptt|soat|cbt|oas)-[\w-]{20}",
    # huggingface.co/docs/hub: "User access tokens", 34 characters after the prefix
    "a Hugging Face token": r"hf_[A-Za-z0-9]{30,40}(?!\w)",
    # platform.openai.com: T3BlbkFJ is "OpenAI" in base64; docs.anthropic.com
    "an OpenAI key": r"sk-[\w-]{20,100}T3BlbkFJ|sk-(?:proj|svcacct|admin)-[\w-]{40}",
    "an Anthropic key": r"sk-ant-[a-z]{3,8}\d\d-[\w-]{40}",
    # cloud.google.com/docs/authentication/api-keys; access tokens of OAuth 2.0
    "a Google key": r"AIza[\w-]{35}(?!\w)|ya29\.[\w-]{30}",
    # api.slack.com/authentication/token-types; incoming webhooks
    "a Slack token": r"xox[abeoprs]-(?:\d+-)+[A-Za-z0-9]{10}|xapp-\d-[A-Z0-9]{8,20}-\d+-[a-f0-9]{20}",
    "a Slack webhook": r"hooks\.slack\.com/services/T\w{6,20}/B\w{6,20}/\w{16}",
    # docs.databricks.com, docs.docker.com, docs.nvidia.com/ngc, pypi.org/help: prefixes of their tokens
    "a Databricks token": r"dapi[0-9a-f]{32}(?!\w)",
    "a Docker token": r"dckr_(?:pat|oat)_[\w-]{20}",
    "an NVIDIA key": r"nvapi-[\w-]{40}",
    "a PyPI token": r"pypi-AgE[\w-]{50}",
    # RFC 7519, compact serialization: header and payload are JSON objects in base64
    "a JSON Web Token": r"eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{20}",
    # RFC 6750, RFC 7617: headers of HTTP
    "a Bearer token": r"(?i:Bearer)[ ]{1,4}(?=[A-Za-z._~+/-]{0,100}\d)[\w.~+/-]{16}",
    "a password of HTTP": r"(?i:Authorization)[\"']?:[ \"']{0,3}(?i:Basic) [A-Za-z0-9+/]{8}",
    # RFC 7468 and OpenSSH's format
    "a private key": r"-----BEGIN (?:[A-Z0-9]{2,12} ){0,3}PRIVATE KEY",
}
_MIN_TOKEN_LENGTH = 20  # characters of the shortest format
# A user with a password, or over HTTP anything before the @. A user without a password, as in git@HOST, is allowed.
_CREDENTIALS_IN_URL = re.compile(r"://[^/\s@:]*:[^/\s@]+@|https?://[^/\s@]+@")
# For commands: a user with a password that is no reference, such as $TOKEN, or a token as the user; not the digest of
# an image.
_URL_WITH_PASSWORD = re.compile(
    r"://[^/\s@:?#]*:(?![$<{*])[^/\s@?#]+@(?!sha256:)|https?://(?=[^/\s@:\d]{0,99}\d)[\w.~%-]{20,200}@"
)

_QUERY_PARAMETER = re.compile(r"[?&]([\w.-]{1,60})=([^&#\s\"']+)")

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_SECRET_ENDINGS = ("password", "passwd", "passphrase", "apikey", "authtoken", "accesstoken", "secretkey", "privatekey")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Last words of a name that denote a secret only after one of these words.
_WORDS_BEFORE = {
    "key": _words(
        "api secret private access account encryption signing auth session hf huggingface wandb openai anthropic "
        "kaggle comet cohere mistral gemini groq nvidia ngc"
    ),
    "token": _words(
        "hf huggingface face hub access api auth bearer refresh session oauth github gh gitlab git slack bot wandb "
        "neptune comet mlflow tracking databricks docker registry pypi npm vault kaggle openai service secret security "
        "personal"
    ),
    "pass": _words(
        "db database user smtp mail redis pg postgres mysql mongo ssh ftp admin root proxy registry docker key"
    ),
    "pwd": _words("db database user pg postgres mysql mongo ssh ftp admin root proxy registry sa"),
    "pat": _words("github gh gitlab git azure devops ado databricks docker"),
    "secret": _words("client app consumer oauth api shared webhook jwt"),
    "auth": _words("redis"),
    "credentials": _words("google aws azure"),
}
_SECRET_PHRASES = ("access_key_id", "azure_storage_key", "azure_storage_connection_string", "hugging_face_hub_key")
# Words before `token` in the names of tokens of a text.
_TEXT_TOKENS = _words(
    "pad padding eos bos unk unknown sep cls mask start end stop image video audio special boundary begin fim prefix "
    "suffix middle next last first new added think eot eom eod boi eoi sos decoder forced trigger class concept "
    "instance placeholder initializer response assistant system instruction separator target modifier label extra "
    "blank word delimiter max min num n per every each"
)
_SWITCHES = _words("use no with without skip has is enable disable allow require trust num max min add")
_PLAIN_VALUES = _words(
    "none null nil true false yes no on off auto default enabled disabled required optional anonymous basic "
    "0 1 unset empty"
)
# A reference $(NAME) or $NAME, a path, a token of a text such as <pad> or [SEP], or a placeholder such as ***.
_NO_SECRET = re.compile(
    r"\$.*|`.*|(?:file:)?(?:~|\.{1,2})?(?:/[\w.-]+){2,}|\.{0,2}/[\w.-]+|<[^>]*>|\[[^\]]*\]|\*+|[xX]{3,}|\.{3}",
    re.DOTALL,
)
_VARIABLE_NAME = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def find_token(text: str) -> str:
    """Return the kind of token in a text, such as `a GitHub token`; empty without one."""
    if len(text) < _MIN_TOKEN_LENGTH or text.isalpha():
        return ""
    return next((kind for kind, pattern in _patterns() if pattern.search(text)), "")


def redact_tokens(text: str) -> str:
    """Return a text with `***` in place of the tokens of a known format."""
    if len(text) < _MIN_TOKEN_LENGTH or text.isalpha():
        return text
    for _, pattern in _patterns():
        text = pattern.sub("***", text)
    return text


def contains_credentials(url: str) -> bool:
    """Return whether a URL in this text contains a user with a password, or a token."""
    return bool(_CREDENTIALS_IN_URL.search(url))


def has_url_with_password(text: str) -> bool:
    """Return whether a text contains a URL with a user's literal password, or with a token."""
    return bool(_URL_WITH_PASSWORD.search(text))


def has_secret_parameter(text: str) -> bool:
    """Return whether a URL in a text has a query parameter whose name denotes a secret."""
    found = _QUERY_PARAMETER.findall(text) if "=" in text else []
    return any(may_denote_secret(name) and is_literal(value) for name, value in found)


def denotes_secret(name: str) -> bool:
    """Return whether the name of a variable, option or argument certainly denotes a secret."""
    words = _split(name)
    if not words or words[0] in _SWITCHES:
        return False
    *others, last = words
    before = others[-1] if others else ""
    phrase = "_".join(words)
    return last.endswith(_SECRET_ENDINGS) or before in _WORDS_BEFORE.get(last, ()) or phrase.endswith(_SECRET_PHRASES)


def denotes_within(parent: str, name: str) -> bool:
    """Return whether a name denotes a secret, alone or within `parent`: `key` of `wandb`.

    `key` of `secret` does not: it names a key of a Kubernetes Secret.
    """
    return denotes_secret(name) or (_split(parent)[-1:] != ["secret"] and denotes_secret(f"{parent}_{name}"))


def may_denote_secret(name: str) -> bool:
    """Return whether a name denotes a secret, or may do so, such as `MY_TOKEN`."""
    words = _split(name)
    if not words or words[0] in _SWITCHES:
        return False
    is_token = words[-1] == "token" and words[-2:-1] != [] and words[-2] not in _TEXT_TOKENS
    return denotes_secret(name) or is_token or words == ["token"] or words[-1] == "secret"


def is_literal(value: str) -> bool:
    """Return whether a value can be a secret: no reference, path, switch or placeholder."""
    text = value.strip()
    return bool(text) and text.lower() not in _PLAIN_VALUES and not _NO_SECRET.fullmatch(text)


def is_variable_name(value: str) -> bool:
    """Return whether a value is the name of an environment variable, such as `HF_TOKEN`."""
    return bool(_VARIABLE_NAME.fullmatch(value))


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    # Compiled on first use: most DAG files have no value that is long enough.
    return tuple((kind, re.compile(rf"(?<![\w-])(?:{pattern})")) for kind, pattern in _FORMATS.items())


def _split(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]

"""Rules that recognize a credential by its place in a command, a script or a file, such as `curl -u me:PASSWORD`.

The words of a command are joined with [SEPARATOR][], so that one rule finds a credential in a list and in a script.
"""

from __future__ import annotations

import functools
import re

from trainjob.spec.credential_rules import denotes_secret, is_literal, is_variable_name
from trainjob.spec.problems import REDACTED

SEPARATOR = "\x1f"
"""Character between words: white space in a pattern, and in no word of a command."""

# In each text that a rule matches. Most texts have none of these words, so that the rules are rarely compiled.
_HINT = re.compile("pass|pwd|key|token|secret|auth|cred|pat|connection|curl|login|mysql|mariadb", re.IGNORECASE)
# To an option of the same command. Repetitions are limited, so that long texts need linear time.
_TO_OPTION = r"\b[^;&|\n]{0,100}?\s"
_VALUE = r"(?:\\?[\"'])?(?P<value>[^\s\"';&|()\\]{1,2000})"
_TEXT = r"(?P<quote>\\?[\"'])(?P<value>[^\"'\n\x1f\\]{1,2000})(?P=quote)"
_NAME = r"(?P<name>[A-Za-z][\w.-]{0,80})"
# Of each kind, the source of its form. A group `name` must denote a secret.
_PLACES = {
    # man curl: --user, --proxy-user
    "a password for curl": rf"\bcurl{_TO_OPTION}(?:-\w{{0,5}}[uU]|--(?:proxy-)?user)[\s=]*[\"']?[^\s:\"'$]*:{_VALUE}",
    # man sshpass: -p
    "a password for sshpass": rf"\bsshpass\s+-p\s*{_VALUE}",
    # docs.docker.com: "docker login", --password; the other clients of registries have the same option
    "a password of a login": rf"\b(?:docker|podman|buildah|skopeo|nerdctl|oras|helm|crane){_TO_OPTION}login(?=\s)"
    rf"{_TO_OPTION}(?:-p|--password)(?![\w-])[\s=]*{_VALUE}",
    # dev.mysql.com: "End-User Guidelines for Password Security", -pyour_pass
    "a password for MySQL": rf"\b(?:mysql|mysqldump|mysqladmin|mariadb|mariadb-dump){_TO_OPTION}-p{_VALUE}",
    # docs.wandb.ai: "wandb login [OPTIONS] [KEY]"; keys have 40 or more characters
    "a key of Weights & Biases": r"\bwandb\s+login\b[^;&|\n]{0,200}?\s(?!-)(?P<value>[\w-]{40,100})(?![\w./:])",
    # gnu.org, inetutils manual: "The .netrc file"
    "a .netrc file": rf"\b(?:machine\s+\S{{1,200}}|default)\s+login\s+\S{{1,200}}\s+password\s+{_VALUE}",
    # docs.docker.com: "docker login", credential stores: base64 of user and password
    "a login of a registry": r"[\"']auth\\?[\"']\s*:\s*\\?[\"'](?P<value>[A-Za-z0-9+/=]{4,4000})",
    # kubernetes.io: kubeconfig (v1), AuthInfo
    "a key of a kubeconfig": r"client-key-data(?:\\?[\"'])?\s*:\s*(?:\\?[\"'])?(?P<value>[A-Za-z0-9+/=]{20,20000})",
    # RFC 9110: a field of a request, as an option of curl, wget and httpie
    "a header": rf"\s(?:-H|--header)[\s=]*(?:\\?[\"'])?{_NAME}:\s*(?P<value>[^\"'\n\x1f]{{1,2000}})",
    # A shell's variable in lower case, at the beginning of a command; see credential_checks for upper case.
    "a shell's variable": r"(?:^|[;&|\n]|\b(?:env|export)\s)\s*(?:\w{1,60}=\S{0,200}\s+){0,8}"
    rf"(?P<name>[a-z]\w{{0,80}})={_VALUE}",
    # An assignment or an item in Python, JSON, YAML or TOML whose value is a quoted text.
    "a value in a script": rf"(?<![\w.$-]){_NAME}(?:\\?[\"'])?\]?\s{{0,3}}[=:]\s{{0,3}}{_TEXT}",
    # os.environ.setdefault, os.putenv and their like
    "a variable in a script": rf"(?:setdefault|putenv|setenv)\(\s*[\"']{_NAME}[\"'],\s*{_TEXT}",
}


def find_literal(text: str) -> str:
    """Return the kind of a credential that its place in a text shows; empty without one."""
    if not _HINT.search(text):
        return ""
    return next((kind for kind, pattern in _patterns() if any(map(_is_credential, pattern.finditer(text)))), "")


def redact_literals(text: str) -> str:
    """Return a text with `***` in place of the credentials that their places show."""
    if _HINT.search(text):
        for _, pattern in _patterns():  # one after the other, because the values of two rules may overlap
            text = pattern.sub(_redact_match, text)
    return text


def _redact_match(found: re.Match[str]) -> str:
    before, after = found.string[found.start() : found.start("value")], found.string[found.end("value") : found.end()]
    return f"{before}{REDACTED}{after}" if _is_credential(found) else found[0]


def _is_credential(found: re.Match[str]) -> bool:
    name, value = found.groupdict().get("name"), found["value"]
    is_named = name is None or (denotes_secret(name) and not is_variable_name(value))
    return is_named and is_literal(value) and "$" not in value


@functools.cache
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern)) for kind, pattern in _PLACES.items())

"""Translation of pip's settings of package indexes to environment variables of uv.

Sources: pip's documentation "Configuration" (files and their order), uv's "Compatibility with pip".
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["names_index", "read_pip_settings", "redact"]

# For each setting of pip: uv's variables for it, the first of which is set, and what separates the values of a list.
_SETTINGS = {
    "index-url": (("UV_DEFAULT_INDEX", "UV_INDEX_URL"), " "),
    "extra-index-url": (("UV_INDEX", "UV_EXTRA_INDEX_URL"), " "),
    "find-links": (("UV_FIND_LINKS",), ","),
    "no-index": (("UV_NO_INDEX",), " "),
    "trusted-host": (("UV_INSECURE_HOST",), " "),
    "cert": (("SSL_CERT_FILE",), " "),
}
_INDEX_SETTINGS = ("index-url", "extra-index-url", "no-index")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+@")


def read_pip_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables of uv with the values of pip's settings.

    A setting of uv wins over that of pip.
    """
    configured = _read_files(variables)
    found = {}
    for name, (names, separator) in _SETTINGS.items():
        value = variables.get(f"PIP_{name.replace('-', '_').upper()}", configured.get(name, ""))
        if value.strip() and not any(each in variables for each in names):
            found[names[0]] = separator.join(value.split())
    if "UV_INDEX" in found:  # pip takes the best version of all indexes; uv only looks at the first with the package
        found.setdefault("UV_INDEX_STRATEGY", variables.get("UV_INDEX_STRATEGY", "unsafe-best-match"))
    return found


def names_index(variables: Mapping[str, str]) -> bool:
    """Return whether uv's variables name the package index."""
    return any(variables.get(name) for setting in _INDEX_SETTINGS for name in _SETTINGS[setting][0])


def redact(text: str) -> str:
    """Return the text without the credentials of its URLs."""
    return _CREDENTIALS.sub("***@", text)


def _read_files(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of pip's files; a later file overrides an earlier one."""
    home = variables.get("HOME") or os.path.expanduser("~")  # noqa: PTH111
    named = variables.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return {}
    system = variables.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)
    files = [
        *(f"{folder}/pip/pip.conf" for folder in reversed(system)),
        "/etc/pip.conf",
        f"{home}/.pip/pip.conf",
        f"{variables.get('XDG_CONFIG_HOME') or home + '/.config'}/pip/pip.conf",
        f"{sys.prefix}/pip.conf",
        *([named] if named else []),
    ]
    found = {}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (OSError, configparser.Error, UnicodeDecodeError):  # uv works with its own settings
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    return found

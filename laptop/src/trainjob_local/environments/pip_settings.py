"""Translation of pip's settings of package indexes to environment variables of uv.

Sources: pip's documentation "Configuration" (files and their order), uv's "Compatibility with pip".
"""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["read_pip_settings"]


@dataclass(frozen=True)
class _Setting:
    """A setting of pip and its equivalent of uv.

    Attributes:
        name: name in pip's files; `PIP_NAME` in the environment.
        variable: environment variable of uv.
        older: other environment variables of uv with the same meaning.
        separator: text between the values of a list, in uv's variable.
    """

    name: str
    variable: str
    older: tuple[str, ...] = ()
    separator: str = " "


_SETTINGS = (
    _Setting("index-url", "UV_DEFAULT_INDEX", ("UV_INDEX_URL",)),
    _Setting("extra-index-url", "UV_INDEX", ("UV_EXTRA_INDEX_URL",)),
    _Setting("find-links", "UV_FIND_LINKS", separator=","),
    _Setting("no-index", "UV_NO_INDEX"),
    _Setting("trusted-host", "UV_INSECURE_HOST"),
    _Setting("cert", "SSL_CERT_FILE"),
)


def read_pip_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables of uv with the values of pip's settings.

    A setting of uv wins over that of pip.

    Args:
        variables: environment variables of this process.
    """
    configured = _read_files(variables)
    found = {}
    for setting in _SETTINGS:
        value = variables.get(f"PIP_{setting.name.replace('-', '_').upper()}", configured.get(setting.name, ""))
        if value.strip() and not any(name in variables for name in (setting.variable, *setting.older)):
            found[setting.variable] = setting.separator.join(value.split())
    if "UV_INDEX" in found:  # pip takes the best version of all indexes; uv only looks at the first with the package
        found["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    return found


def _read_files(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of pip's files; a later file overrides an earlier one."""
    home = Path(variables.get("HOME") or "~").expanduser()
    config_home = Path(variables.get("XDG_CONFIG_HOME") or home / ".config")
    system = [Path(folder) for folder in variables.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)]
    named = variables.get("PIP_CONFIG_FILE", "")
    if named == os.devnull:
        return {}
    files = [
        *(folder / "pip" / "pip.conf" for folder in reversed(system)),
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        config_home / "pip" / "pip.conf",
        Path(sys.prefix) / "pip.conf",
        *([Path(named)] if named else []),
    ]
    found: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file)
        except (configparser.Error, UnicodeDecodeError):  # pip reports it; uv works with its own settings
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                found.update(parser.items(section))
    return found

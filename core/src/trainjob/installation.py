"""Address of the page about installation, for the hints of errors."""

from __future__ import annotations

INSTALLATION_PAGE = "https://github.com/trainjob/trainjob/blob/main/docs/how-to/installation.md"

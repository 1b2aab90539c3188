"""Where users find how to install the distributions of this project, for hints of errors."""

from __future__ import annotations

INSTALLATION_PAGE = "https://github.com/trainjob/trainjob/blob/main/docs/installation.md"

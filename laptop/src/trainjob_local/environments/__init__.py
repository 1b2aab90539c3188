"""Python environments that are created on first use, in a cache directory, from locked requirements.

A lock names the packages with versions and hashes; `uv` installs them. The laptop cluster runs the containers of stock
images in these environments.

    lock = stock_locks()["initializer"]
    folder = find_environment(lock) or create_environment(lock)

An environment is ready when its marker exists, which is written last. The name of its folder contains a digest of the
lock and the Python, so another lock gives another folder. Packages that a user adds to an environment remain in it.
"""

from __future__ import annotations

from trainjob_local.environments.creation import create_environment
from trainjob_local.environments.errors import EnvironmentInUse, EnvironmentNotCreated
from trainjob_local.environments.folders import (
    Environment,
    delete_environment,
    environment_folder,
    environments_folder,
    find_environment,
    list_environments,
    use_environment,
)
from trainjob_local.environments.locks import EnvironmentLock, stock_locks

__all__ = [
    "Environment",
    "EnvironmentInUse",
    "EnvironmentLock",
    "EnvironmentNotCreated",
    "create_environment",
    "delete_environment",
    "environment_folder",
    "environments_folder",
    "find_environment",
    "list_environments",
    "stock_locks",
    "use_environment",
]

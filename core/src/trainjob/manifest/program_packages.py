"""Modules and packages of each program that travels in a container's command: the program's own come first."""

from __future__ import annotations

FETCH_PACKAGES = ("trainjob.programs.fetch", "trainjob.addresses", "trainjob.credentials", "trainjob.errors")
"""The fetch's program, and what it needs."""
PREPARATION_PACKAGES = tuple(
    f"trainjob.programs.{name}" for name in ("fetch.rows", "locked_library", "pip_installation")
)
"""Further modules of the fetch's program, with which it prepares rows."""
_SHARED_MODULES = (
    "bucket",
    "connections",
    "credentials",
    "folder",
    "names",
    "progress",
    "record",
    "retries",
    "selection",
)
EXPORT_PACKAGES = (
    "trainjob.programs.export",
    *(f"trainjob.programs.fetch.{name}" for name in _SHARED_MODULES),
    *(f"trainjob.{name}" for name in ("framework_modules", "job_variables", "addresses", "credentials", "errors")),
    "trainjob.mlflow_names",
    "trainjob.programs.registry_client",
)
"""The export's program, and what it needs besides modules of frameworks."""
_MODEL_MODULES = (
    *(f"trainjob.programs.{name}" for name in ("locked_library", "pip_installation")),
    *(f"trainjob.frameworks.{name}" for name in ("durable_files", "model_folder", "row_files")),
    *(f"trainjob.{name}" for name in ("job_variables", "credentials", "errors")),
)
EVALUATION_PACKAGES = ("trainjob.frameworks.evaluation", *_MODEL_MODULES)
"""The evaluation's program, and what it needs."""
GENERATION_PACKAGES = ("trainjob.frameworks.generation", "trainjob.frameworks.evaluation.lock", *_MODEL_MODULES)
"""The generation's program, and what it needs."""
PROMOTION_PACKAGES = (
    "trainjob.programs.promotion",
    "trainjob.programs.registry_client",
    *(f"trainjob.{name}" for name in ("credentials", "errors")),
)
"""The program of promotions and rollbacks, and what it needs."""
CHAMPION_PACKAGES = (
    *(name for name in PROMOTION_PACKAGES if name not in EVALUATION_PACKAGES),
    "trainjob.frameworks.checkpoint_copies.lock",
    "trainjob.programs.store_fetch",
)
"""Modules with which the evaluation's program finds and fetches a champion."""
CODE_PACKAGES = ("trainjob.programs.code",)
"""The program that unpacks the code of a project."""
CODE_STORAGE_PACKAGES = ("trainjob.programs.code_storage",)
"""The program that keeps the code of a project in a workspace."""
CODE_FETCH_PACKAGES = (
    *(f"trainjob.programs.{name}" for name in ("code_fetch", "store_fetch", "locked_library", "pip_installation")),
    *(
        "trainjob.frameworks.checkpoint_copies.lock",
        "trainjob.job_variables",
        "trainjob.version",
        "trainjob.credentials",
        "trainjob.errors",
    ),
)
"""The program that fetches the code of a project from a store, and what it needs."""

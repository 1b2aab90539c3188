"""sentence-transformers of the image, or an installation of the locked packages."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from trainjob.errors import INSTALLATION_FAILED, InstallationFailed, InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.checks import get_version, list_versions
from trainjob.programs.pip_installation import install
from trainjob_sentence_transformers.pod.run_arguments import RunArguments

__all__ = ["provide_library"]

_LIBRARY = "sentence-transformers"
_FOR_TRAINING = ("accelerate", "datasets")  # of the library's extra `train`
_REPORTED = (_LIBRARY, "transformers", "torch", *_FOR_TRAINING)


def provide_library(run: RunArguments, folder: Path) -> Path | None:
    """Use the image's library, or install it into a folder.

    The folder contains everything but torch, which must be the image's, because it has to fit the GPU's driver.

    Args:
        run: the request.
        folder: folder for the packages; it does not exist yet.

    Returns:
        The folder to add to the module search path; None if the image contains the library.

    Raises:
        InvalidSpec: the image contains another version, or lacks a package that a training needs.
        InstallationFailed: pip failed; the error has the last lines of its output.
    """
    found = get_version(_LIBRARY)
    if found and found != run.library_version:
        rule = f"the image has {_LIBRARY} {found}: use an image with {run.library_version}, or without it"
        raise InvalidSpec(Problem("config.sentence_transformers_version", repr(run.library_version), rule))
    needed = _FOR_TRAINING if found else ("torch",)
    if missing := [name for name in needed if not get_version(name)]:
        raise InvalidSpec(Problem("image", "the image of this pod", f"it must contain {' and '.join(missing)}"))
    if found:
        print(f"sentence_transformers: the image contains {list_versions(*_REPORTED)}", flush=True)
        return None
    _install(run, folder)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return folder


def _install(run: RunArguments, folder: Path) -> None:
    version = run.library_version.replace(".", "_")
    requirements = importlib.import_module(f"trainjob_sentence_transformers.pod.lock_{version}").REQUIREMENTS
    source = ["--index-url", run.index_url] if run.index_url else []
    if run.wheels:
        source = ["--no-index", "--find-links", str(run.wheels)]
    packages = {line.partition("==")[0] for line in requirements}  # one may have lines for several Pythons
    print(f"sentence_transformers: installing {len(packages)} packages with pip", flush=True)
    begin = time.monotonic()
    if failure := install(f"{_LIBRARY} {run.library_version}", requirements, folder, source):
        hint = f"give an image with {_LIBRARY}, a pip_index_url that the pods can reach, or wheels in the workspace"
        raise InstallationFailed(f"{INSTALLATION_FAILED}: {failure}", hint=hint)
    print(f"sentence_transformers: installed in {time.monotonic() - begin:.0f} s", flush=True)

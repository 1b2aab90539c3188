"""TRL of the image, or an installation of the locked packages."""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from trainjob.errors import INSTALLATION_FAILED, InstallationFailed, InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.checks import get_version, list_versions
from trainjob.frameworks.trl.pod.run_arguments import RunArguments
from trainjob.programs.pip_installation import install

__all__ = ["provide_trl"]

_REPORTED = ("trl", "transformers", "torch", "peft", "accelerate", "datasets")


def provide_trl(run: RunArguments, folder: Path) -> Path | None:
    """Use the image's TRL, or install TRL into a folder.

    The folder contains everything but torch, which must be the image's, because it has to fit the GPU's driver.

    Args:
        run: the request.
        folder: folder for the packages; it does not exist yet.

    Returns:
        The folder to add to the module search path; None if the image contains TRL.

    Raises:
        InvalidSpec: the image contains another version of TRL.
        InstallationFailed: pip failed; the error has the last lines of its output.
    """
    found = get_version("trl")
    if found and found != run.trl_version:
        rule = f"the image has TRL {found}: set trl_version, or use an image with TRL {run.trl_version} or without TRL"
        raise InvalidSpec(Problem("config.trl_version", repr(run.trl_version), rule))
    if found:
        print(f"trl: the image contains {list_versions(*_REPORTED)}", flush=True)
        return None
    if not get_version("torch"):
        raise InvalidSpec(Problem("image", "the image of this pod", "it must contain torch"))
    _install(run, folder)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    return folder


def _install(run: RunArguments, folder: Path) -> None:
    lock = importlib.import_module(f"trainjob.frameworks.trl.pod.lock_{run.trl_version.replace('.', '_')}")
    source = ["--index-url", run.index_url] if run.index_url else []
    if run.wheels:
        source = ["--no-index", "--find-links", str(run.wheels)]
    packages = {line.partition("==")[0] for line in lock.REQUIREMENTS}  # one may have lines for several Pythons
    print(f"trl: installing {len(packages)} packages with pip", flush=True)
    begin = time.monotonic()
    if failure := install(f"TRL {run.trl_version}", lock.REQUIREMENTS, folder, source):
        hint = "give an image that contains TRL, a pip_index_url that the pods can reach, or wheels in the workspace"
        raise InstallationFailed(f"{INSTALLATION_FAILED}: {failure}", hint=hint)
    seconds, names = time.monotonic() - begin, sorted(path.stem for path in folder.glob("*.dist-info"))
    print(f"trl: installed {', '.join(names)} in {seconds:.0f} s", flush=True)

"""Run the file of a pipeline with `kfp.local`, in a Python whose path may contain spaces.

    run_pipeline.py FILE [ARGUMENT ...]

kfp 2.17 writes `sys.executable` into the shell commands of the steps without quotes. This program replaces it with a
word that the shell looks up in PATH, and makes the folder of this Python the first one there.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    sys.executable = "python3"
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")

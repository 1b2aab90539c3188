"""Compile the demo's pipeline and run it with `kfp.local`; the outputs of its steps stay in a folder.

Usage: run_pipeline.py FOLDER
"""

import sys
from pathlib import Path

from kfp import compiler, components, local

import trainjob_demo

sys.path.append(str(Path(trainjob_demo.__file__).parent / "pipelines"))

from tickets_llm import tickets_llm

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    compiler.Compiler().compile(tickets_llm, str(folder / "pipeline.yaml"))
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root=str(folder / "outputs"), raise_on_error=True)
    components.load_component_from_file(str(folder / "pipeline.yaml"))()

"""`trainjob demo --workflow FILE` runs each example as it stands."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.e2e.demo.test_demo import ENVIRONMENTS, ROOT, TRAINJOB

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("torchrun_lock")]

# tests/e2e/demo/test_demo.py runs tickets_llm and trl_sft. tiny_llama has what several examples share.
NOT_RUN = {
    "evaluate_candidate": "needs a model on the workspace",
    "gang": "needs a runtime of manifests/runtimes",
    "mpi_on_nodes": "needs an MPI that the laptop cluster does not have",
    "object_store": "needs an object store",
    "runtimes": "needs a runtime of manifests/runtimes",
    "promote_approved": "needs the proposal of evaluate_candidate",
    "registered": "needs a model registry",
    "tracked": "needs an MLflow server",
    "unsloth_sft": "needs an image with Unsloth and a GPU",
}
# Environments of the laptop cluster beside `initializer` and `trl`.
ENVIRONMENT_OF = {
    **dict.fromkeys(("boosted_trees", "jax_on_nodes"), "runtimes"),
    "llamafactory_preferences": "llamafactory",
}
# DAGs that export no model to their workspace. kfp.local deletes the workspace of a pipeline with its run.
WITHOUT_EXPORT = {
    "boosted_trees",
    "container",
    "distributed_function",
    "housekeeping",
    "jax_on_nodes",
    "nightly_promotion",
    "project_code",
    "queued",
}
EXAMPLES = [
    pytest.param(engine, path.stem, id=f"{engine}-{path.stem}")
    for engine in ("airflow", "kfp")
    for path in sorted((ROOT / "examples" / engine).glob("*.py"))
    if path.stem not in {"tickets_llm", "tiny_llama", "trl_sft", *NOT_RUN}
]


@pytest.mark.parametrize(("engine", "name"), EXAMPLES)
def test_an_example_runs_as_it_stands(engine, name, tmp_path):
    environments = list(ENVIRONMENTS)
    if more := ENVIRONMENT_OF.get(name):
        if not (ROOT / ".venv" / more / ".ready").exists():
            pytest.skip(f"needs .venv/{more}")
        environments.append(f"--environment={more}={ROOT / '.venv' / more}")
    file = ROOT / "examples" / engine / f"{name}.py"
    command = [TRAINJOB, "demo", "--engine", engine, "--framework", "trl", "--workflow", file, "--state", tmp_path]
    done = subprocess.run([*command, *environments], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    score = re.search(r"^exact match: (\d+)/60 -> (\d+)/60$", done.stdout, re.MULTILINE)
    assert bool(score) == (engine == "airflow" and name not in WITHOUT_EXPORT), done.stdout
    assert bool(score) == ("no score: " not in done.stdout)

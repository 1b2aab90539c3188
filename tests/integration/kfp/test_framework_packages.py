"""The component `fine_tune` with the framework of another package."""

from __future__ import annotations

import pytest

from tests.integration.kfp.pipeline_runner import PipelineRunner
from tests.support.framework_packages import install_line_framework
from trainjob.errors import InvalidSpec
from trainjob.status import Phase, derive_verdict
from trainjob_kfp import steps
from trainjob_kfp.input_names import name_inputs


def test_a_launcher_with_the_package_runs_its_framework(laptop, cluster, claim, tmp_path, unique):
    packages = install_line_framework(tmp_path / "packages")
    runner = PipelineRunner(laptop, tmp_path, unique, PYTHONPATH=str(packages))
    code, log = runner("other_framework", workspace=claim)
    assert code == 0, log
    assert "[node-0] y = 2.000 x + 1.000" in log
    assert [derive_verdict(job).phase for job in runner.list_trainjobs(cluster)] == [Phase.COMPLETE]


def test_a_launcher_without_the_package_names_it(laptop, cluster, claim, tmp_path, unique):
    runner = PipelineRunner(laptop, tmp_path, unique)
    code, log = runner("other_framework", workspace=claim)
    assert code != 0
    known = "llamafactory, torchtune, trl, unsloth"
    assert f"framework cannot be 'line': it must be one of {known}; for another one, install" in log
    assert not runner.list_trainjobs(cluster)


def test_an_argument_that_the_framework_does_not_have_is_refused(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(install_line_framework(tmp_path / "packages"))
    arguments = {"model": "line", "workspace": "w", "framework": "line", "learning_rate": 0.2, "epochs": 2}
    with pytest.raises(InvalidSpec) as refused:
        steps.fine_tune(arguments, None)
    [problem] = name_inputs(refused.value, arguments).problems
    assert problem.field == "epochs"
    assert problem.allowed.startswith("there is no field 'epochs' in LineConfig; its fields are num_nodes,")

"""Tests of promotions with the components, `kfp.local` and the laptop cluster."""

from __future__ import annotations

from tests.integration.kfp.pipeline_runner import PipelineRunner


def test_a_promotion_is_undone_in_the_same_run(laptop, tmp_path, unique):
    run = PipelineRunner(laptop, tmp_path, unique)
    code, log = run("promoted", model="s3://models/a", service=unique, folder=str(tmp_path))
    assert code == 0, log
    assert "promoted True s3://models/a, rolled back True s3://models/a" in log
    assert (tmp_path / "served").read_text() == ""

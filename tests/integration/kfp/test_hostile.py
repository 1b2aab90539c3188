"""Tests with invalid run keys of other TrainJobs, and with any numbers in a loss curve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.client import Connection
from trainjob.lifecycle import RunKey, cancel, submit
from trainjob.manifest import labels
from trainjob.status import Progress
from trainjob_kfp import steps
from trainjob_kfp.launcher import clean_up
from trainjob_kfp.loss_curve import Curves, render_loss_curve


def shell_step(script):
    return steps.train({"image": "busybox", "command": ["sh", "-c", script]}, None)


@pytest.mark.parametrize("annotation", ["no JSON", "[" * 5000, "[]", "null", '{"run": 5}'])
def test_clean_up_ignores_a_trainjob_with_an_invalid_run_key(laptop, cluster, unique, annotation):
    own_key, other_key = (RunKey("kfp", "tickets", name, unique) for name in ("own", "other"))
    jobs = [submit(cluster, shell_step("sleep 60"), key) for key in (own_key, other_key)]
    other = jobs[1]
    cluster.patch_trainjob(other.name, other.namespace, other.uid, annotations={labels.RUN_KEY: annotation})
    assert clean_up(connection=Connection(kubeconfig=str(laptop.kubeconfig)), key=own_key) == [jobs[0].name]
    assert cluster.get_trainjob(other.name, other.namespace)
    cancel(cluster, other)


NUMBERS = st.floats() | st.sampled_from([0.0, 1e308, -1e308, 5e-324])
POINTS = st.builds(Progress, step=st.integers(0, 2**62), loss=st.none() | NUMBERS)


@given(points=st.lists(POINTS, max_size=30), title=st.text(max_size=9) | st.just("</title><script>x</script>"))
def test_any_numbers_result_in_a_valid_loss_curve_page(points, title):
    page = render_loss_curve(Curves(points), title, note=title)
    assert page.startswith("<!DOCTYPE html>")
    assert "<script>" not in page

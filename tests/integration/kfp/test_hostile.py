"""What others write into a namespace does not stop a pipeline's clean-up, and no log breaks a page."""

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
from trainjob_kfp.loss_curve import render_loss_curve


def shell_step(script):
    return steps.train({"image": "busybox", "command": ["sh", "-c", script]}, None)


@pytest.mark.parametrize("written", ["no JSON", "[" * 5000, "[]", "null", '{"run": 5}'])
def test_clean_up_beside_a_trainjob_with_another_run_key(laptop, cluster, unique, written):
    ours, theirs = (RunKey("kfp", "tickets", name, unique) for name in ("ours", "theirs"))
    jobs = [submit(cluster, shell_step("sleep 60"), key) for key in (ours, theirs)]
    other = jobs[1]
    cluster.patch_trainjob(other.name, other.namespace, other.uid, annotations={labels.RUN_KEY: written})
    assert clean_up(connection=Connection(kubeconfig=str(laptop.kubeconfig)), key=ours) == [jobs[0].name]
    assert cluster.get_trainjob(other.name, other.namespace)
    cancel(cluster, other)


NUMBERS = st.floats() | st.sampled_from([0.0, 1e308, -1e308, 5e-324])
POINTS = st.builds(Progress, step=st.integers(0, 2**62), loss=st.none() | NUMBERS)


@given(points=st.lists(POINTS, max_size=30), title=st.text(max_size=9) | st.just("</title><script>x</script>"))
def test_a_loss_curve_of_any_numbers(points, title):
    page = render_loss_curve(points, title, note=title)
    assert page.startswith("<!DOCTYPE html>")
    assert "<script>" not in page

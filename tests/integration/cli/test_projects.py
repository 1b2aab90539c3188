"""Tests of `trainjob run` with a project of the shape of a public training repository."""

from __future__ import annotations

import yaml

from tests.support.made_project import MODULE, make_project


def test_a_repository_runs_unchanged_on_two_nodes(trainjob, namespace, tmp_path):
    expected = make_project(tmp_path / "acme")
    trainer = {"image": "busybox", "command": ["python", "-m", MODULE], "args": ["--lr", "1"], "num_nodes": 2}
    request = {"step": "TrainJob", "name": "acme", "code": "acme", "trainer": trainer}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(request))
    done = trainjob("run", tmp_path / "train.yaml", "-n", namespace)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {f"[node-{node}] {expected}" for node in range(2)} <= set(lines), done.stdout

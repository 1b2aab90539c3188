"""The state folder of a laptop cluster belongs to its user, and no other user can access it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trainjob.errors import ClusterError
from trainjob_local import LocalCluster

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("open_mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path, open_mode: int) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(open_mode)
    (state / "admin-token").write_text("known to another user")
    with pytest.raises(
        ClusterError, match=rf"can write to the state folder {state} \(mode {open_mode:04o}\)"
    ) as raised:
        LocalCluster(state).start()
    assert f"chmod 700 {state}" in str(raised.value)
    assert [path.name for path in state.iterdir()] == ["admin-token"]


@needs_root
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 65534, 65534)
    with pytest.raises(ClusterError, match=f"the state folder {state} belongs to user ") as raised:
        LocalCluster(state).start()
    assert "--state" in str(raised.value)
    assert not any(state.iterdir())


@needs_root
def test_a_link_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    state = tmp_path / "state"
    state.symlink_to("own")
    os.chown(state, 65534, 65534, follow_symlinks=False)
    with pytest.raises(ClusterError, match="belongs to user "):
        LocalCluster(state).start()


def test_an_own_folder_and_its_volumes_become_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "volumes").mkdir(parents=True)
    for folder in (state, state / "volumes"):
        folder.chmod(0o755)
    with LocalCluster(state):
        assert (mode(state), mode(state / "volumes")) == (0o700, 0o700)


def test_a_new_folder_and_its_volumes_are_private(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "below" / "state") as cluster:
        assert (mode(cluster.state), mode(cluster.state / "volumes")) == (0o700, 0o700)

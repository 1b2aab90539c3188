"""Tests of containers with mounts and process IDs of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from process_kubelet.isolation import enter, first_process, isolated, unavailable
from tests.support.polling import until
from trainjob_local.kubelet.isolation import Mount
from trainjob_local.kubelet.processes import Processes


@pytest.fixture(scope="module", autouse=True)
def possible():
    if sys.platform != "linux":
        pytest.skip("mount namespaces are Linux's")
    if reason := unavailable():
        pytest.skip(reason)


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


@pytest.fixture
def processes():
    started = Processes()
    yield started
    started.close()


def said(own, script, *mounts, cwd="", programs=()):
    """Run a shell script in a container, which must succeed, and return its output lines."""
    command = isolated(["sh", "-ec", script], folder=own, mounts=mounts, cwd=cwd, programs=programs)
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_volumes_are_at_their_places(own, tmp_path):
    outer, inner, file = tmp_path / "outer", tmp_path / "inner", tmp_path / "file"
    outer.mkdir()
    inner.mkdir()
    file.write_text("text\n")
    places = [
        Mount(inner, "/no/such/place/inner", read_only=True),
        Mount(outer, "/no/such/place"),
        Mount(file, "/etc/a"),
    ]
    script = "cat /etc/a; echo o > /no/such/place/o; ! touch /no/such/place/inner/i 2> /dev/null; pwd"
    assert said(own, script, *places, cwd="/work/of/its/own") == ["text", "/work/of/its/own"]
    assert [path.name for path in sorted(outer.iterdir())] == ["inner", "o"]
    assert not Path("/no/such/place").exists()


def test_a_link_on_the_way_to_a_place_is_followed(own, tmp_path):
    """A mount below a symbolic link such as `/var/run` is found there."""
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "token").write_text("secret\n")
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert (
        said(own, f"cat {place}/token /run/secrets/kubernetes.io/serviceaccount/token", Mount(volume, place))[0]
        == "secret"
    )


def test_a_mount_hides_what_is_there_but_not_the_programs(own, tmp_path):
    """A mount hides the machine's files below it, but not the programs.

    Examples are a `/tmp` of the container's own, and this project's environments below the machine's `/tmp`.
    """
    above, volume = tmp_path / "above", tmp_path / "volume"
    volume.mkdir()
    for name in ("environment/bin", "environment/lib", "other"):
        (above / name).mkdir(parents=True)
    script, programs = f"ls {above}; ls {above}/environment", [f"{above}/environment/bin", "/usr/bin"]
    assert said(own, script, Mount(volume, str(above)), programs=programs) == ["environment", "bin", "lib"]


def test_what_it_changes_is_gone_with_it(own, tmp_path):
    (tmp_path / "kept").write_text("before\n")
    assert said(own, f"echo after > {tmp_path}/kept; rm -r {own}; cat {tmp_path}/kept") == ["after"]
    assert (tmp_path / "kept").read_text() == "before\n"
    assert list(own.iterdir()) == []


def test_it_sees_only_its_own_processes(own):
    assert said(own, "echo $$; ls /proc | grep -c '^[0-9]*$'")[0] == "1"
    assert int(said(own, "ls -d /proc/[0-9]* | wc -l")[0]) <= 4


@pytest.mark.parametrize(("command", "code"), [(["sh", "-c", "exit 5"], 5), (["no-such-program"], 127)])
def test_its_exit_code(own, processes, command, code):
    process = processes.start(isolated(command, folder=own), dict(os.environ), own, first_process=first_process)
    while process.read():
        pass
    assert process.wait() == code


def test_a_signal_is_for_process_1(own, processes):
    """Process 1 gets the signal; a program without a handler reacts only to SIGKILL."""
    script = "trap 'echo told' TERM; sleep 600 & echo ready; wait; sleep 600"
    process = processes.start(
        isolated(["sh", "-c", script], folder=own), dict(os.environ), own, first_process=first_process
    )
    assert process.read() == b"ready\n"
    process.signal(signal.SIGTERM)
    assert process.read() == b"told\n"
    first = process.inside()
    assert first is not None
    assert first_process(process.pid) == first
    process.signal(signal.SIGKILL)
    assert process.read() == b""
    assert process.wait() == 137
    assert process.inside() is None


def test_another_command_enters_it(own, processes):
    process = processes.start(
        isolated(["sh", "-c", "echo inside > /its-own-file; echo ready; sleep 600"], folder=own),
        dict(os.environ),
        own,
        first_process=first_process,
    )
    assert process.read() == b"ready\n"
    first = process.inside()
    assert first is not None
    entered = subprocess.run([*enter(first), "cat", "/its-own-file"], capture_output=True, text=True)
    assert entered.stdout == "inside\n"
    process.signal(signal.SIGKILL)
    process.wait()


def test_all_of_it_ends_with_what_started_it(own):
    before = Path("/proc/self/mountinfo").read_text()
    with subprocess.Popen(isolated(["sh", "-c", "setsid sleep 600 & sleep 600"], folder=own)) as started:
        first = until(lambda: first_process(started.pid))
        until(lambda: len(Path(f"/proc/{first}/task/{first}/children").read_text().split()) == 2)
        inside = [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]
        started.kill()
    until(lambda: not any(alive(pid) for pid in inside))
    assert Path("/proc/self/mountinfo").read_text() == before


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False

"""Tests of containers with mounts and process IDs of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from process_kubelet.isolation import enter_command, first_process, isolated_command, unavailable_reason
from tests.support.polling import wait_until
from trainjob_local.kubelet.isolation import Mount
from trainjob_local.kubelet.processes import ProcessManager


@pytest.fixture(scope="module", autouse=True)
def isolation_required():
    if sys.platform != "linux":
        pytest.skip("mount namespaces exist only on Linux")
    if reason := unavailable_reason():
        pytest.skip(reason)


@pytest.fixture
def container_folder(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    return folder


@pytest.fixture
def processes():
    started = ProcessManager()
    yield started
    started.close()


def run_isolated(folder, script, *mounts, cwd="", programs=()):
    """Run a shell script in a container, which must succeed, and return its output lines."""
    command = isolated_command(["sh", "-ec", script], folder=folder, mounts=mounts, cwd=cwd, programs=programs)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_volumes_are_at_their_mount_paths(container_folder, tmp_path):
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
    assert run_isolated(container_folder, script, *places, cwd="/work/of/its/own") == ["text", "/work/of/its/own"]
    assert [path.name for path in sorted(outer.iterdir())] == ["inner", "o"]
    assert not Path("/no/such/place").exists()


def test_a_mount_path_may_contain_a_symbolic_link(container_folder, tmp_path):
    """A mount below a symbolic link such as `/var/run` is found there."""
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "token").write_text("secret\n")
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    assert (
        run_isolated(
            container_folder, f"cat {place}/token /run/secrets/kubernetes.io/serviceaccount/token", Mount(volume, place)
        )[0]
        == "secret"
    )


def test_a_mount_hides_files_but_not_the_programs(container_folder, tmp_path):
    """A mount hides the machine's files below it, but not the programs.

    Examples are a `/tmp` of the container's own, and this project's environments below the machine's `/tmp`.
    """
    above, volume = tmp_path / "above", tmp_path / "volume"
    volume.mkdir()
    for name in ("environment/bin", "environment/lib", "other"):
        (above / name).mkdir(parents=True)
    script, programs = f"ls {above}; ls {above}/environment", [f"{above}/environment/bin", "/usr/bin"]
    assert run_isolated(container_folder, script, Mount(volume, str(above)), programs=programs) == [
        "environment",
        "bin",
        "lib",
    ]


def test_file_changes_end_with_the_container(container_folder, tmp_path):
    (tmp_path / "kept").write_text("before\n")
    assert run_isolated(
        container_folder, f"echo after > {tmp_path}/kept; rm -r {container_folder}; cat {tmp_path}/kept"
    ) == ["after"]
    assert (tmp_path / "kept").read_text() == "before\n"
    assert list(container_folder.iterdir()) == []


def test_a_container_sees_only_its_own_processes(container_folder):
    assert run_isolated(container_folder, "echo $$; ls /proc | grep -c '^[0-9]*$'")[0] == "1"
    assert int(run_isolated(container_folder, "ls -d /proc/[0-9]* | wc -l")[0]) <= 4


@pytest.mark.parametrize(("command", "code"), [(["sh", "-c", "exit 5"], 5), (["no-such-program"], 127)])
def test_the_exit_code_of_a_container(container_folder, processes, command, code):
    process = processes.start(
        isolated_command(command, folder=container_folder),
        dict(os.environ),
        container_folder,
        first_process=first_process,
    )
    while process.read():
        pass
    assert process.wait() == code


def test_process_1_receives_the_signal(container_folder, processes):
    """Process 1 gets the signal; a program without a handler reacts only to SIGKILL."""
    script = "trap 'echo received' TERM; sleep 600 & echo ready; wait; sleep 600"
    process = processes.start(
        isolated_command(["sh", "-c", script], folder=container_folder),
        dict(os.environ),
        container_folder,
        first_process=first_process,
    )
    assert process.read() == b"ready\n"
    process.signal(signal.SIGTERM)
    assert process.read() == b"received\n"
    first = process.first_process_id()
    assert first is not None
    assert first_process(process.pid) == first
    process.signal(signal.SIGKILL)
    assert process.read() == b""
    assert process.wait() == 137
    assert process.first_process_id() is None


def test_another_command_can_run_in_the_container(container_folder, processes):
    process = processes.start(
        isolated_command(["sh", "-c", "echo inside > /its-own-file; echo ready; sleep 600"], folder=container_folder),
        dict(os.environ),
        container_folder,
        first_process=first_process,
    )
    assert process.read() == b"ready\n"
    first = process.first_process_id()
    assert first is not None
    entered = subprocess.run([*enter_command(first), "cat", "/its-own-file"], capture_output=True, text=True)
    assert entered.stdout == "inside\n"
    process.signal(signal.SIGKILL)
    process.wait()


def test_all_processes_end_with_the_process_that_started_them(container_folder):
    before = Path("/proc/self/mountinfo").read_text()
    with subprocess.Popen(
        isolated_command(["sh", "-c", "setsid sleep 600 & sleep 600"], folder=container_folder)
    ) as started:
        first = wait_until(lambda: first_process(started.pid))
        wait_until(lambda: len(Path(f"/proc/{first}/task/{first}/children").read_text().split()) == 2)
        inside = [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]
        started.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in inside))
    assert Path("/proc/self/mountinfo").read_text() == before


def is_alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False

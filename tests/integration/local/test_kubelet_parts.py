"""Tests of the kubelet's pure functions, log files and processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.polling import wait_until
from trainjob_local.environments import EnvironmentLock, stock_locks
from trainjob_local.images import Image, default_images, find_image, images_from_json, images_to_json
from trainjob_local.kubelet import watchdog
from trainjob_local.kubelet.command_line import build_rewriter, expand, rewrite_port
from trainjob_local.kubelet.container_logs import ContainerLog, LogOptions, format_records, format_since
from trainjob_local.kubelet.image_pull import pull_problems
from trainjob_local.kubelet.missing_module import MissingModule
from trainjob_local.kubelet.pod_status import build_pod_conditions, lost_state, qos_class
from trainjob_local.kubelet.processes import ProcessManager
from trainjob_local.settings import ClusterSettings

NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=timezone.utc)

# -- command, environment, paths --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)-$(B)", "1-$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$A ${A} $(A", "$A ${A} $(A"),
        ("$(metadata.name)", "x"),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text, expected):
    assert expand(text, {"A": "1", "metadata.name": "x"}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/workspace/model", "/v/w/model"),
        ("cp -r a /workspace && ls /workspace/", "cp -r a /v/w && ls /v/w/"),
        ("output_dir=/workspace/output", "output_dir=/v/o"),  # the longer mount first
        ("/workspace/outputs", "/v/w/outputs"),
        ("/workspace2", "/workspace2"),
        ("/my/workspace", "/my/workspace"),
        ("https://workspace/x", "https://workspace/x"),
        ("--rdzv_endpoint=job-node-0-0.job:29500", "--rdzv_endpoint=127.0.0.1:29501"),
        ("--rdzv_endpoint=localhost:29500", "--rdzv_endpoint=localhost:29501"),
        ("until nc -z job-node-0-0.job 29500; do", "until nc -z 127.0.0.1 29501; do"),
        ("connect(('job-node-0-0.job', 29500))", "connect(('127.0.0.1', 29501))"),
        ("echo >/dev/tcp/job-node-0-0.job/29500", "echo >/dev/tcp/127.0.0.1/29501"),
        ("tcp://other:29500 job-node-0-0.job:295000 --steps 29500", "tcp://other:29500 127.0.0.1:295000 --steps 29500"),
        ("job-node-0-1.job.ns.svc.cluster.local", "127.0.0.1"),
        ("job-node-0-1.jobs", "job-node-0-1.jobs"),
        ("my.job", "127.0.0.1"),
    ],
)
def test_paths_and_hosts_are_rewritten(text, expected):
    rewrite = build_rewriter([("/workspace", "/v/w"), ("/workspace/output", "/v/o")], "job", "ns", lambda: 29501)
    assert rewrite(text) == expected


def no_port():
    """Fail, because these texts contain no port."""
    raise AssertionError("no port is needed")


@given(st.text(alphabet="ab/. =:", max_size=30))
def test_a_rewritten_path_is_not_rewritten_again(text):
    folders = {"/a": "/a/b", "/a/b": "/a"}
    marks = {"/a": "\N{SNOWMAN}", "/a/b": "\N{COMET}"}
    marked = build_rewriter(list(marks.items()), "", "ns", no_port)(text)
    for path, mark in marks.items():
        marked = marked.replace(mark, folders[path])
    assert build_rewriter(list(folders.items()), "", "ns", no_port)(text) == marked


def test_without_mounts_and_subdomain_nothing_changes():
    assert build_rewriter([], "", "ns", no_port)("/workspace job.x") == "/workspace job.x"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PET_MASTER_PORT", "29500", "29501"),
        ("DMLC_TRACKER_PORT", "29500", "29501"),
        ("MASTER_PORT", "23456", "23456"),
        ("MAX_STEPS", "29500", "29500"),
    ],
)
def test_variables_with_the_trainers_port_get_the_jobsets(name, value, expected):
    assert rewrite_port(name, value, lambda: 29501) == expected


# -- logs -------------------------------------------------------------------------------------------------------------

chunks = st.lists(st.binary(min_size=1, max_size=20), max_size=12)


@given(chunks)
def test_a_log_returns_every_byte(tmp_path_factory, written):
    log = ContainerLog(tmp_path_factory.mktemp("log") / "c.log")
    for chunk in written:
        log.write(chunk)
    log.close()
    assert b"".join(log.read(LogOptions())) == b"".join(written)
    assert b"".join(ContainerLog(log.path, ended=True).read(LogOptions(follow=True))) == b"".join(written)


@given(chunks, st.integers(0, 5))
def test_the_tail_of_a_log_is_its_last_records(tmp_path_factory, written, count):
    """A part of a line counts as one, as in Kubernetes 1.36 (k8s.io/cri-client `pkg/logs/tail.go`)."""
    log = ContainerLog(tmp_path_factory.mktemp("log") / "c.log")
    for chunk in written:
        log.write(chunk)
    log.close()
    records = [record for chunk in written for record in re.findall(rb"[^\n]*\n|[^\n]+", chunk)]
    assert b"".join(log.read(LogOptions(tail=count))) == b"".join(records[max(0, len(records) - count) :])


@given(chunks, st.integers(0, 60))
def test_a_limit_truncates_a_log(tmp_path_factory, written, limit):
    log = ContainerLog(tmp_path_factory.mktemp("log") / "c.log")
    for chunk in written:
        log.write(chunk)
    log.close()
    assert b"".join(log.read(LogOptions(limit=limit))) == b"".join(written)[:limit]


def test_records_have_the_format_of_container_runtimes():
    assert format_records(b"one\ntwo\r", NOW) == (
        b"2026-01-31T12:00:00.000000000Z stdout F one\n2026-01-31T12:00:00.000000000Z stdout P two\r\n"
    )


def test_only_the_beginning_of_a_line_has_a_timestamp(tmp_path):
    log = ContainerLog(tmp_path / "c.log")
    for chunk in (b"10%\r", b"20%\r", b"done\nnext\n"):
        log.write(chunk)
    log.close()
    text = b"".join(log.read(LogOptions(timestamps=True)))
    lines = text.split(b"\n")
    assert [line.split(b" ", 1)[1] for line in lines[:2]] == [b"10%\r20%\rdone", b"next"]
    assert text.count(b"Z ") == 2


def test_since_excludes_earlier_records(tmp_path):
    path = tmp_path / "c.log"
    path.write_bytes(format_records(b"old\n", NOW) + format_records(b"new\n", NOW + timedelta(seconds=0.5)))
    log = ContainerLog(path, ended=True)
    for since, expected in (
        ("2026-01-31T12:00:00Z", b"old\nnew\n"),
        ("2026-01-31T12:00:00.2Z", b"new\n"),
        ("2026-01-31T13:00:00.5+01:00", b"new\n"),
        ("2026-01-31T12:00:01Z", b""),
    ):
        assert b"".join(log.read(LogOptions(since=format_since(since, None, NOW)))) == expected
    path.write_bytes(format_records(b"begun", NOW) + format_records(b" ended\nnew\n", NOW + timedelta(seconds=1)))
    rest = b"".join(log.read(LogOptions(since="2026-01-31T12:00:01", timestamps=True)))
    assert (
        rest == b" ended\n2026-01-31T12:00:01.000000000Z new\n"
    )  # the line's time is in its first record, which is excluded
    assert format_since("", 90, NOW) == "2026-01-31T11:58:30"
    assert format_since("", None, NOW) == ""
    with pytest.raises(ValueError, match="RFC 3339"):
        format_since("yesterday", None, NOW)


def test_a_follower_sees_progress_frames_before_any_newline(tmp_path):
    log = ContainerLog(tmp_path / "c.log")
    seen: list[bytes] = []
    arrived = threading.Condition()

    def follow() -> None:
        for piece in log.read(LogOptions(follow=True)):
            with arrived:
                seen.append(piece)
                arrived.notify_all()

    reader = threading.Thread(target=follow)
    reader.start()
    for number, frame in enumerate((b"\r 1%", b"\r 2%", b"\r 3%\n"), start=1):
        log.write(frame)
        with arrived:
            assert arrived.wait_for(lambda wanted=number: len(seen) >= wanted, timeout=60)
    log.close()
    reader.join(60)
    assert not reader.is_alive()
    assert b"".join(seen) == b"\r 1%\r 2%\r 3%\n"


def test_a_cancelled_follower_ends(tmp_path):
    log, cancelled = ContainerLog(tmp_path / "c.log"), threading.Event()
    reader = threading.Thread(target=lambda: list(log.read(LogOptions(follow=True), cancelled)))
    reader.start()
    cancelled.set()
    reader.join(60)
    assert not reader.is_alive()
    log.close()


# -- processes --------------------------------------------------------------------------------------------------------


def test_output_exit_code_and_signals(tmp_path):
    processes = ProcessManager()
    try:
        env = {"PATH": os.environ["PATH"]}
        process = processes.start(["sh", "-c", "echo hi; exit 7"], env, tmp_path)
        assert (process.read(), process.read(), process.wait()) == (b"hi\n", b"", 7)
        process = processes.start(["sleep", "60"], env, tmp_path)
        process.signal(signal.SIGTERM)
        assert process.wait() == 143
        with pytest.raises(OSError):
            processes.start(["/no/such/program"], env, tmp_path)
    finally:
        processes.close()


@pytest.mark.parametrize("command", ["touch ready; sleep 60", "setsid sh -c 'touch ready; sleep 60'"])
def test_a_container_ends_with_its_first_process(tmp_path, command):
    processes = ProcessManager()
    try:
        script = f"{{ {command}; }} 2>/dev/null & until [ -e ready ]; do sleep 0.01; done; exit 3"
        process = processes.start(["sh", "-c", script], {"PATH": os.environ["PATH"]}, tmp_path)
        assert process.read() == b""  # the sleeping process held the pipe until it was killed
        assert process.wait() == 3
    finally:
        processes.close()


KILLED = """
import os, sys, time
from pathlib import Path
from trainjob_local.kubelet.processes import ProcessManager
processes = ProcessManager(remove=Path(sys.argv[1]))
env = {"PATH": os.environ["PATH"]}
import threading
started = []
sleepers = ["sh", "-c", "sleep 300 & sleep 300"]
thread = threading.Thread(target=lambda: started.append(processes.start(sleepers, env, "/")))
thread.start(); thread.join()
leave_the_group = "import os, time; os.setsid() if os.fork() == 0 else None; time.sleep(300)"
escaped = processes.start([sys.executable, "-c", leave_the_group], env, "/")
print(started[0].pid, escaped.pid, flush=True)
time.sleep(300)
"""


def test_a_killed_kubelet_leaves_nothing(tmp_path):
    folder = tmp_path / "state"
    folder.mkdir()
    kubelet = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE, text=True)
    assert kubelet.stdout is not None
    groups = [int(pid) for pid in kubelet.stdout.readline().split()]
    mark = next(
        entry.split("=", 1)[1]
        for entry in Path(f"/proc/{groups[0]}/environ").read_text().split("\0")
        if entry.startswith(watchdog.NODE_MARK_VARIABLE)
    )
    wait_until(lambda: len(watchdog.find_marked_processes(mark)) >= 3)
    kubelet.kill()
    kubelet.wait()
    kubelet.stdout.close()
    wait_until(lambda: not watchdog.find_marked_processes(mark) and not folder.exists())


def test_the_watchdog_knows_the_running_groups():
    assert watchdog.running_groups(["+1\n", "+2\n", "-1\n", "rubbish\n", "+3"]) == {2, 3}


def test_conditions_keep_their_time_until_they_change():
    container = {"state": {"running": {}}, "ready": True}
    first = build_pod_conditions("Running", [], [container], [], NOW, volumes_mounted=True)
    later = build_pod_conditions("Running", [], [container], first, NOW + timedelta(seconds=5), volumes_mounted=True)
    assert later == first
    assert [one["status"] for one in first] == ["True"] * 5
    end, over = NOW + timedelta(seconds=9), {**container, "ready": False}
    ended = build_pod_conditions("Succeeded", [], [over], first, end, volumes_mounted=True)
    assert [one.get("reason") for one in ended] == [None, None, None, "PodCompleted", "PodCompleted"]
    assert [one["status"] for one in ended] == ["False", "True", "True", "False", "False"]
    assert [one["lastTransitionTime"][-3:] for one in ended] == ["09Z", "00Z", "00Z", "09Z", "09Z"]


def test_conditions_of_other_components_stay():
    theirs = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    assert build_pod_conditions("Running", [], [], [theirs], NOW, volumes_mounted=True)[-1] == theirs


@pytest.mark.parametrize(
    ("image", "available", "reasons"),
    [
        ("docker.io/library/python:3.12-alpine", True, []),
        ("ghcr.io:443/a/b_c/d-e.f@sha256:" + "a" * 64, True, []),
        ("localhost:5000/x", False, ["ErrImagePull", "ImagePullBackOff"]),
        ("Busybox", True, ["InvalidImageName"]),
        ("a b", True, ["InvalidImageName"]),
        ("busybox:", True, ["InvalidImageName"]),
        ("", True, ["InvalidImageName"]),
    ],
)
def test_the_reasons_why_an_image_cannot_be_pulled(image, available, reasons):
    assert list(pull_problems(image, available=available)) == reasons


def test_a_container_lost_with_its_node_has_exit_code_137():
    state = lost_state({"running": {"startedAt": "2026-01-31T11:00:00Z"}}, NOW)["terminated"]
    assert (state["exitCode"], state["startedAt"]) == (137, "2026-01-31T11:00:00Z")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({}, "BestEffort"),
        ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    ],
)
def test_the_quality_of_service_class_of_a_pod(resources, expected):
    assert qos_class({"containers": [{"resources": resources}]}) == expected


def test_stock_images_find_their_environments(tmp_path):
    images = default_images({"initializer": tmp_path / "i", "torchtune": tmp_path / "t"})
    dataset = find_image(images, "ghcr.io/kubeflow/trainer/dataset-initializer:v2.3.0")
    assert dataset.entrypoint == ("python", "-m", "pkg.initializers.dataset")
    assert dataset.environment == tmp_path / "i"
    assert (dataset.python_path[0] / "pkg" / "initializers").is_dir()
    tune = find_image(images, "ghcr.io/kubeflow/trainer/torchtune-trainer:v2.3.0")
    assert (tune.environment, tune.env["TIKTOKEN_CACHE_DIR"]) == (tmp_path / "t", "")
    assert "no folder bin" in tune.problem()
    assert find_image(images, "busybox").environment == Path(sys.prefix)
    assert find_image(images, "busybox").problem() == ""


TORCH_IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"


@pytest.mark.parametrize("image", [TORCH_IMAGE, "ghcr.io/acme/trl-trainer:1.16", "huggingface/trl", "trl:1"])
def test_the_environment_trl_replaces_images_with_torch_and_with_trl(tmp_path, image):
    images = default_images({"torchtune": tmp_path / "torchtune", "trl": tmp_path / "trl"})
    found = find_image(images, image)
    assert found.environment == tmp_path / "trl"
    assert found.env == {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TOKENIZERS_PARALLELISM": "false"}


@pytest.mark.parametrize("image", ["ghcr.io/kubeflow/trainer/torchtune-trainer:v2.3.0", "acme/torchtune-trainer"])
def test_the_environment_trl_leaves_the_trainers_image_to_the_environment_torchtune(tmp_path, image):
    images = default_images({"torchtune": tmp_path / "torchtune", "trl": tmp_path / "trl"})
    assert find_image(images, image).environment == tmp_path / "torchtune"
    assert find_image(images, "acme/control").environment == Path(sys.prefix)


def test_without_the_environment_trl_the_environment_torchtune_replaces_images_with_torch(tmp_path):
    images = default_images({"torchtune": tmp_path / "torchtune"})
    assert find_image(images, TORCH_IMAGE).environment == tmp_path / "torchtune"
    assert find_image(images, "huggingface/trl").lock.name == "trl"


TRAINER = "ghcr.io/kubeflow/trainer"


@pytest.mark.parametrize(
    ("image", "lock"),
    [
        (f"{TRAINER}/dataset-initializer:v2.3.0", "initializer"),
        (f"{TRAINER}/model-initializer:v2.3.0", "initializer"),
        (f"{TRAINER}/torchtune-trainer:v2.3.0", "torchtune"),
        (TORCH_IMAGE, "trl"),
        ("huggingface/trl", "trl"),
        ("docker.io/hiyouga/llamafactory:0.9.5", "llamafactory"),
        (f"{TRAINER}/xgboost-runtime:v2.3.0", "runtimes"),
        ("nvcr.io/nvidia/jax:25.10-py3", "runtimes"),
        (f"{TRAINER}/deepspeed-runtime:v2.3.0", "runtimes"),
    ],
)
def test_a_stock_image_without_an_environment_has_a_lock(monkeypatch, tmp_path, image, lock):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = find_image(default_images(), image)
    assert (found.environment, found.lock) == (None, stock_locks()[lock])
    given = find_image(default_images({lock: tmp_path}), image)
    assert (given.environment, given.lock) == (tmp_path, None)


def test_no_environment_replaces_unsloths_image_unless_one_is_named(tmp_path):
    found = find_image(default_images(), "docker.io/unsloth/unsloth:core")
    rule = "the laptop cluster has no environment for Unsloth, which trains on GPUs only"
    assert found.problem().startswith(rule)
    assert images_from_json(images_to_json([found])) == (found,)
    (tmp_path / "bin").mkdir()
    given = find_image(default_images({"unsloth": tmp_path}), "docker.io/unsloth/unsloth:core")
    assert (given.environment, given.problem()) == (tmp_path, "")


def test_this_interpreters_environment_replaces_a_stock_image_if_it_has_the_packages(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    for image in (f"{TRAINER}/torchtune-trainer:v2.3.0", TORCH_IMAGE, f"{TRAINER}/xgboost-runtime:v2.3.0"):
        found = find_image(default_images(), image)
        assert (found.environment, found.lock) == (Path(sys.prefix), None)


def test_an_environment_replaces_images_with_its_name(tmp_path):
    images = default_images({"xgboost": tmp_path, "acme": tmp_path})
    for image in ("acme/anything", f"{TRAINER}/xgboost-runtime:v2.3.0"):
        assert find_image(images, image).environment == tmp_path


def test_a_missing_module_is_found_in_any_block_of_the_output():
    error = b"Traceback ...\nModuleNotFoundError: No module named 'acme.tools'\n"
    for cut in range(len(error)):
        reader = MissingModule()
        for block in (b"x" * 500, error[:cut], error[cut:], b"y" * 500):
            reader.read(block)
        assert "/e, which has no module 'acme.tools'; add the package" in reader.advice(Path("/e"))
        assert reader.advice(None) == ""
    assert MissingModule().advice(Path("/e")) == ""


def test_images_can_be_stored_as_json():
    lock = EnvironmentLock("mine", Path("/l.txt"), ("addon",))
    image = Image("a|b", Path("/e"), ("x", "y"), {"K": "V"}, (Path("/p"),), ("nice",), lock)
    assert images_from_json(images_to_json([image])) == (image,)
    assert images_from_json('[{"match": "x"}]') == (Image("x"),)
    for wrong in ("{}", '[{"entrypoint": []}]', '[{"match": "x", "colour": 1}]'):
        with pytest.raises(ValueError, match="image"):
            images_from_json(wrong)


def test_settings_can_be_stored_as_json():
    settings = ClusterSettings(
        Path("/s"), True, 7, {"t": Path("/e")}, {"HF_ENDPOINT": "x"}, (Image("m", Path("/e"), env={"A": "b"}),), gpus=2
    )
    assert ClusterSettings.from_json(settings.to_json()) == settings

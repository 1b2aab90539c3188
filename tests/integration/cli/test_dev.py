"""Tests of `trainjob dev`: what it sends after a change, what runs then, and how it ends."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from contextlib import closing

import pytest
import yaml

from tests.integration.cli.dev_session import MODEL, DevProject, DevSession
from tests.integration.cli.gated_steps import wait_for_only_trainjob
from tests.support.accounts import create_account, create_token, grant, kubeconfig_with_token
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.pseudo_terminal import CTRL_C
from tests.support.shipped_manifests import apply_roles, load_objects

SECONDS = 300.0
LOCAL_FILES = f"{MODEL} train.py"


@pytest.fixture
def start_dev(start_command, namespace):
    """Return a function that starts the command for a project: `start_dev(project, *options)`."""

    def start(project, *options):
        return DevSession(start_command("dev", project.file, "-n", namespace, *options))

    return start


def test_each_change_runs_the_training_again_with_the_files_of_the_folder(start_dev, tmp_path):
    project = DevProject(tmp_path)
    session = start_dev(project)
    session.wait_for(rf"RUN a {LOCAL_FILES}$")
    session.wait_for("run 1 ended with exit code 0; waiting for a change")
    project.write(MODEL, "NAME = 'b'")
    assert session.wait_for(r"dev: change 1: (\S+) \(0.\d kB\)$")[1] == MODEL
    session.wait_for(rf"RUN b {LOCAL_FILES}$")
    project.write("data/näme.txt", "new")
    session.wait_for(r"RUN b data/näme.txt pkg/model.py train.py$")
    (project.folder / "data" / "näme.txt").unlink()
    assert "(deleted)" in session.wait_for("dev: change 3: .*").group()
    session.wait_for(rf"RUN b {LOCAL_FILES}$")
    project.write(MODEL, "NAME = 'a'")
    session.wait_for(rf"RUN a {LOCAL_FILES}$")
    project.write("pkg/__init__.py", "")
    (project.folder / MODEL).replace(project.folder / "pkg" / "other.py")
    session.wait_for(r"ModuleNotFoundError: No module named 'pkg.model'")


def test_an_error_does_not_end_the_pods(start_dev, cluster, namespace, tmp_path):
    project = DevProject(tmp_path)
    session = start_dev(project)
    session.wait_for("RUN a")
    pods = list_pod_uids(cluster, namespace)
    project.write(MODEL, "NAME =")
    session.wait_for("SyntaxError")
    session.wait_for(r"run \d+ ended with exit code 1; waiting for a change")
    project.write(MODEL, "raise SystemExit(7)")
    session.wait_for(r"run \d+ ended with exit code 7; waiting for a change")
    project.write(MODEL, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    session.wait_for(r"run \d+ ended with exit code 137; waiting for a change")
    project.write(MODEL, "NAME = 'c'")
    session.wait_for("RUN c")
    assert list_pod_uids(cluster, namespace) == pods


WAITS = "print('RUN', NAME, flush=True); signal.pause()"
RUNNING = {
    "one that ends at SIGTERM": "",
    "one that ignores SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); ",
    "one with a process that ignores SIGTERM": (
        "import subprocess; subprocess.Popen(['sh', '-c', \"trap '' TERM; while :; do sleep 1; done\"]); "
    ),
}


@pytest.mark.parametrize("before", RUNNING.values(), ids=RUNNING)
def test_a_change_ends_the_run_that_lasts(start_dev, tmp_path, before):
    text = f"import os, signal\nNAME = '{{}}'\n{before}print('PID', os.getpid(), flush=True)\n{WAITS}"
    project = DevProject(tmp_path, {MODEL: text.format("a")})
    session = start_dev(project)
    group = int(session.wait_for(r"PID (\d+)")[1])
    session.wait_for("RUN a")
    project.write(MODEL, text.format("b"))
    session.wait_for("RUN b")
    wait_until(lambda: not list_running(group))  # a signal takes a moment


def test_the_next_run_does_not_meet_the_compiled_module_of_the_last(start_dev, tmp_path):
    """Python would take it for valid: the sizes are equal, and so are the times in whole seconds."""
    project = DevProject(tmp_path)
    session = start_dev(project)
    for letter in "abcabcabc":
        project.write(MODEL, f"NAME = '{letter}'")
        session.wait_for(f"RUN {letter}")


def test_two_nodes_meet_at_another_port_after_each_change(start_dev, tmp_path):
    stub = tmp_path / "stub"
    (stub / "torch" / "distributed").mkdir(parents=True)
    run = "import os, sys; print('torchrun', os.environ['PET_MASTER_PORT'], sys.argv[1:], flush=True)"
    (stub / "torch" / "distributed" / "run.py").write_text(run)
    project = DevProject(tmp_path, module="train", num_nodes=2, args=["--lr", "1"], env={"PYTHONPATH": str(stub)})
    session = start_dev(project)
    line = r"\[node-(.)\] torchrun (\d+) \['-m', 'train', '--lr', '1'\]"
    first = [session.wait_for(line).groups() for _ in range(2)]
    project.write(MODEL, "NAME = 'b'")
    second = [session.wait_for(line).groups() for _ in range(2)]
    assert [sorted(node for node, _ in found) for found in (first, second)] == [["0", "1"]] * 2
    ports = [{port for _, port in found} for found in (first, second)]
    assert [len(found) for found in ports] == [1, 1]
    assert ports[0] != ports[1]


TORCH = """
import json, os, sys
import torch, torch.distributed
import pkg.model
torch.distributed.init_process_group("gloo")
total = torch.ones(1)
torch.distributed.all_reduce(total)
print("RUN", pkg.model.NAME, int(total), json.dumps([__name__, sys.argv[1:], os.environ["LOCAL_RANK"]]), flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.mark.torchtune
@pytest.mark.parametrize("start", [{"module": "train"}, {"script": "train.py"}], ids=["module", "script"])
@pytest.mark.parametrize(("nodes", "processes"), [(1, 1), (1, 2), (2, 1)])
def test_torch_is_kept_in_memory(start_dev, tmp_path, torchrun_lock, start, nodes, processes):
    fields = {"image": None, "num_nodes": nodes, "num_proc_per_node": processes, "args": ["--lr", "1"], **start}
    project = DevProject(tmp_path, {"train.py": TORCH, "numpy.py": "raise RuntimeError('of the project')"}, **fields)
    session = start_dev(project)
    for letter in "ab":
        project.write(MODEL, f"NAME = '{letter}'")
        found = [session.wait_for(rf"RUN {letter} {nodes * processes} (.*)")[1] for _ in range(nodes * processes)]
        local_ranks = [str(rank) for _ in range(nodes) for rank in range(processes)]
        assert sorted(found) == sorted(json.dumps(["__main__", ["--lr", "1"], rank]) for rank in local_ranks)
    assert "not kept in memory" not in "".join(session.lines)


@pytest.mark.torchtune
def test_a_failure_of_one_process_ends_the_others_and_its_traceback_is_that_of_the_training(
    start_dev, tmp_path, torchrun_lock
):
    text = "import os, signal\nif os.environ['RANK'] == '0':\n    raise ValueError('rank 0')\nsignal.pause()"
    project = DevProject(tmp_path, {"train.py": text}, image=None, module="train", num_proc_per_node=2)
    session = start_dev(project)
    session.wait_for("Traceback")
    assert 'train.py", line 3, in <module>' in session.wait_for("File .*").group()
    session.wait_for("ValueError: rank 0")
    session.wait_for("run 1 ended with exit code 1")


def test_ctrl_c_deletes_the_trainjob_and_its_config_maps(terminal, cluster, namespace, tmp_path):
    project = DevProject(tmp_path)
    screen = terminal("dev", project.file, "-n", namespace)
    screen.wait_for_text("RUN a", SECONDS)
    project.write(MODEL, "NAME = 'b'")
    screen.wait_for_text("RUN b", SECONDS)
    name = wait_for_only_trainjob(cluster, namespace)["metadata"]["name"]
    names = [f"{name}-code", f"{name}-changes"]
    assert all(cluster.get_config_map(each, namespace) for each in names)
    screen.send_keys(CTRL_C)
    assert screen.wait_for_exit(SECONDS) == 130
    assert cluster.get_trainjob(name, namespace) is None
    wait_until(lambda: not any(cluster.get_config_map(each, namespace) for each in names))
    assert "Traceback" not in screen.output


def test_the_pods_of_a_killed_command_end_after_the_idle_time(start_dev, cluster, namespace, tmp_path):
    session = start_dev(DevProject(tmp_path), "--idle", "1s")
    session.wait_for("RUN a")
    session.process.kill()
    session.process.wait(SECONDS)
    assert wait_for_only_trainjob(cluster, namespace, phase="Complete")


def test_the_command_ends_with_the_idle_time(start_dev, tmp_path):
    session = start_dev(DevProject(tmp_path), "--idle", "1s")
    session.wait_for("no run and no change for 1 s: the pod ends")
    session.wait_for("is complete")
    assert session.process.wait(SECONDS) == 0


def test_a_killed_command_that_is_started_again_continues(start_dev, cluster, namespace, tmp_path):
    project = DevProject(tmp_path)
    killed = start_dev(project)
    killed.wait_for("RUN a")
    project.write(MODEL, "NAME = 'b'")
    killed.wait_for("RUN b")
    killed.process.kill()
    killed.process.wait(SECONDS)
    job = wait_for_only_trainjob(cluster, namespace)
    project.write(MODEL, "NAME = 'a'")  # the files of the start, so that the request is the same
    again = start_dev(project)
    again.wait_for("adopted, because it already existed")
    again.wait_for("dev: change 2: ")
    again.wait_for(r"run \d+ with change 2")
    again.wait_for("RUN a")
    assert wait_for_only_trainjob(cluster, namespace)["metadata"]["uid"] == job["metadata"]["uid"]


def test_other_files_at_the_start_replace_the_trainjob_of_a_killed_command(start_dev, cluster, namespace, tmp_path):
    project = DevProject(tmp_path)
    killed = start_dev(project)
    killed.wait_for("RUN a")
    killed.process.kill()
    killed.process.wait(SECONDS)
    job = wait_for_only_trainjob(cluster, namespace)
    project.write(MODEL, "NAME = 'b'")
    again = start_dev(project)
    again.wait_for("RUN b")
    assert wait_for_only_trainjob(cluster, namespace)["metadata"]["uid"] != job["metadata"]["uid"]


NOISE = random.Random(1).randbytes(1_100_000)  # noqa: S311 - it can't be compressed
REFUSED = {
    "a credential": ("settings.py", "TOKEN = 'hf_" + "aBcDeFgHiJ" * 4 + "'", "contains"),
    "too large": ("noise.bin", NOISE, "more than 1000000 bytes need a workspace"),
}


@pytest.mark.parametrize(("name", "text", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_change_that_cannot_travel_is_reported_and_the_next_one_is_sent(start_dev, tmp_path, name, text, reason):
    project = DevProject(tmp_path)
    session = start_dev(project)
    session.wait_for("RUN a")
    project.write(name, text)
    assert session.wait_for("dev: not sent, waiting for a change: .*")
    if reason not in session.lines[-1]:
        session.wait_for(reason)
    (project.folder / name).unlink()
    project.write(MODEL, "NAME = 'b'")
    session.wait_for(rf"RUN b {LOCAL_FILES}$")


def test_a_link_that_would_be_broken_is_not_sent(start_dev, tmp_path):
    project = DevProject(tmp_path)
    session = start_dev(project)
    session.wait_for("RUN a")
    (project.folder / "link.py").symlink_to("/etc/passwd")
    session.wait_for("not sent, .*link.py")
    (project.folder / "link.py").unlink()
    (project.folder / "alias.py").symlink_to(MODEL)
    session.wait_for(r"RUN a alias.py pkg/model.py train.py$")


def test_changes_that_are_too_large_start_over_with_a_new_trainjob(start_dev, cluster, namespace, tmp_path):
    (tmp_path / "workspace").mkdir()
    project = DevProject(tmp_path, workspace={"node_path": str(tmp_path / "workspace")})
    session = start_dev(project)
    session.wait_for("RUN a")
    [first] = {job["metadata"]["uid"] for job in cluster.list_trainjobs(namespace)}
    project.write("noise.bin", NOISE)
    session.wait_for(r"the changes have 1.1 MB compressed, more than 1 MB; starting over with a new TrainJob")
    session.wait_for("RUN a noise.bin pkg/model.py train.py$")
    [second] = {job["metadata"]["uid"] for job in cluster.list_trainjobs(namespace)}
    assert first != second
    project.write(MODEL, "NAME = 'b'")
    session.wait_for(r"change 1: pkg/model.py \(0.\d kB\)")
    session.wait_for("RUN b")


def test_other_requirements_start_over_with_a_new_trainjob(start_dev, tmp_path):
    project = DevProject(
        tmp_path, {"requirements.txt": ""}, code={"path": "project", "requirements": "requirements.txt"}
    )
    session = start_dev(project)
    session.wait_for("RUN a")
    project.write("requirements.txt", "# pydantic\n")
    session.wait_for("requirements.txt has changed, .*; starting over with a new TrainJob")
    session.wait_for("RUN a")


@pytest.mark.parametrize("may_patch_pods", [True, False], ids=["Role trainjob-dev", "without pods"])
def test_the_shipped_roles_suffice_and_pods_are_optional(
    start_command, laptop, cluster, namespace, environment, tmp_path, may_patch_pods
):
    with closing(Client.from_kubeconfig(str(laptop.kubeconfig))) as admin:
        create_account(admin, namespace)
        apply_roles(admin, namespace, "person", "robot")
        rules = next(each for each in load_objects("dev") if each["kind"] == "Role")["rules"]
        allowed = [rule for rule in rules if may_patch_pods or rule["resources"] != ["pods"]]
        grant(admin, namespace, allowed)
        token = create_token(admin, namespace)
    config = tmp_path / "config"
    config.write_text(kubeconfig_with_token(str(laptop.kubeconfig), token, namespace))
    environment["KUBECONFIG"] = str(config)
    project = DevProject(tmp_path)
    session = DevSession(start_command("dev", project.file, "-n", namespace))
    session.wait_for("RUN a")
    project.write(MODEL, "NAME = 'b'")
    if not may_patch_pods:
        session.wait_for("a change may take 90 s to reach the pods, because .*manifests/dev")
        job = wait_for_only_trainjob(cluster, namespace)
        for pod in list_pods(cluster, job):  # as another person who has the permission
            metadata = pod["metadata"]
            cluster.annotate_pod(metadata["name"], namespace, metadata["uid"], {"example.org/sync": "1"})
    session.wait_for("RUN b")
    assert may_patch_pods == ("90 s" not in "".join(session.lines))


DOCUMENTS = {
    "two requests": ([{"step": "TrainJob"}, {"step": "TrainJob", "name": "b"}], "2 requests"),
    "another step": ([{"step": "InitializeModel", "storage_uri": "hf://org/model", "workspace": "w"}], "TrainJob"),
    "no code": ([{"step": "TrainJob", "trainer": {"image": "busybox", "command": ["true"]}}], 'code: "."'),
    "MPI": (
        [{"step": "TrainJob", "runtime": "deepspeed-distributed", "trainer": {"code": "project", "module": "train"}}],
        "without MPI",
    ),
}


@pytest.mark.parametrize(("documents", "reason"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_request_that_cannot_run_again_is_refused(trainjob, namespace, tmp_path, documents, reason):
    project = DevProject(tmp_path)
    project.file.write_text(yaml.safe_dump_all(documents))
    done = trainjob("dev", project.file, "-n", namespace)
    assert done.returncode == 2
    assert reason in done.stderr


@pytest.mark.parametrize("idle", ["0s", "soon"])
def test_the_idle_time_is_checked(trainjob, namespace, tmp_path, idle):
    done = trainjob("dev", DevProject(tmp_path).file, "-n", namespace, "--idle", idle)
    assert done.returncode == 2
    assert "--idle" in done.stderr


def test_sigterm_deletes_the_trainjob(start_dev, cluster, namespace, tmp_path):
    session = start_dev(DevProject(tmp_path))
    session.wait_for("RUN a")
    session.process.send_signal(signal.SIGTERM)
    assert session.process.wait(SECONDS) == 143
    assert cluster.list_trainjobs(namespace) == []


def list_pods(cluster, job):
    return cluster.list_pods(job["metadata"]["name"], job["metadata"]["namespace"])


def list_pod_uids(cluster, namespace):
    return [pod["metadata"]["uid"] for job in cluster.list_trainjobs(namespace) for pod in list_pods(cluster, job)]


def list_running(group):
    """Return the processes of a group that are no zombies."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [row for row in rows if row[0] == str(group) and not row[1].startswith("Z")]

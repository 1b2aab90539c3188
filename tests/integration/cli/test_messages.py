"""Messages of the command about files, durations, waits, rights and narrow terminals, in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys

import pytest
import yaml

from tests.integration.cli.bare_apiserver import bare_apiserver, make_run_key
from tests.integration.cli.pipe_reader import PipeReader
from tests.support.pseudo_terminal import PseudoTerminal

TEMPLATE = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "bert"},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"template": TEMPLATE}}},
}
MANIFEST = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: tune
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    imagee: busybox
"""


@pytest.fixture
def api_server(tmp_path):
    with bare_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
def environment(environment, api_server):
    return {**environment, "KUBECONFIG": str(api_server.kubeconfig)}


@pytest.mark.parametrize("command", ["submit", "run"])
def test_a_v1_job_is_referred_to_the_converter(trainjob, command):
    done = trainjob(command, "-", input=yaml.safe_dump(JOB))
    assert done.returncode == 2
    assert done.stderr.startswith("error: standard input:2: kind cannot be 'PyTorchJob': it is a job of the")
    assert "`trainjob migrate convert FILE`" in done.stderr


@pytest.mark.parametrize("command", ["submit", "run"])
@pytest.mark.parametrize("first", ["", "step: TrainJob\nname: first\ntrainer: {image: x}\n---\n"])
def test_a_field_that_the_api_server_does_not_know_has_file_and_line(trainjob, tmp_path, command, first):
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST if command == "run" else first + MANIFEST)
    line = 9 if command == "run" or not first else 13
    done = trainjob(command, file)
    assert done.returncode == 2
    assert f"error: {file}:{line}: " in done.stderr, done.stderr
    assert 'unknown field "spec.trainer.imagee"' in done.stderr


def test_errors_found_before_anything_is_sent_have_file_line_and_field(trainjob, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(
        "# a comment\n"
        + MANIFEST.replace("  name: tune", "  name: tune\n  uid: 1")
        + "---\nstep: TrainJob\ndeadline: soon\n"
    )
    done = trainjob("submit", file, "--json")
    assert done.returncode == 2
    fields = [problem["field"] for problem in json.loads(done.stderr)["problems"]]
    assert fields == [f"{file}:6: metadata.uid", f"{file}:14: deadline"]


def test_two_documents_of_one_name_are_both_named(trainjob, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(MANIFEST.replace("imagee", "image") + "---\n" + MANIFEST)
    done = trainjob("submit", file)
    assert done.stderr.startswith(f"error: {file}:10: name cannot be 'tune': the document in line 1 has this name")


def test_a_timeout_without_a_unit_counts_seconds(trainjob, api_server):
    api_server.create_trainjob("a")
    api_server.set_finished("a", "Failed")
    done = trainjob("wait", "a", "--timeout", "80")
    assert (done.returncode, "cannot be" in done.stderr) == (3, False)


NO_VOLCANO = 'no matches for kind "PodGroup" in version "scheduling.volcano.sh/v1beta1"'


@pytest.fixture
def hint(trainjob, api_server):
    """Create the TrainJob `a`, whose JobSet cannot be created, and return its hint."""
    job = api_server.create_trainjob("a", make_run_key("train"))
    place = {"name": "a", "namespace": "default", "uid": job["metadata"]["uid"]}
    event = {"type": "Warning", "reason": "TrainJobResourcesCreationFailed", "message": NO_VOLCANO}
    meta = {"metadata": {"name": "e", "namespace": "default"}, "involvedObject": {"kind": "TrainJob", **place}}
    api_server.create_object("events", {"apiVersion": "v1", "kind": "Event", **meta, **event})
    [hint] = json.loads(trainjob("describe", "a", "--json").stdout)["hints"]
    assert NO_VOLCANO in hint
    return hint


def test_wait_reports_the_reason_and_the_advice_of_describe(start_command, api_server, hint):
    """Findings row 11: `wait` printed only the phase."""
    process = start_command("wait", "a")
    reader = PipeReader(process.stdout.fileno())
    reader.wait_for(f"TrainJob default/a: {hint}\n")
    api_server.set_finished("a", "Failed")
    reader.read_to_end()
    assert reader.text.count(hint) == 1


def test_a_timeout_has_the_reason_as_its_hint(trainjob, api_server, hint):
    api_server.create_trainjob("b")
    done = trainjob("wait", "a", "b", "--timeout", "1", "--json")
    assert done.returncode == 4
    ended = json.loads(done.stdout)
    assert [(each["error"], each["hint"]) for each in ended] == [("WaitTimeout", hint), ("WaitTimeout", "")]


def test_refused_jobs_are_not_called_complex(trainjob):
    """Findings row 10."""
    refused = {**JOB, "kind": "TFJob", "spec": {"tfReplicaSpecs": JOB["spec"]["pytorchReplicaSpecs"]}}
    report = json.loads(trainjob("migrate", "report", "-", "--json", input=yaml.safe_dump_all([refused, JOB])).stdout)
    assert [job["readiness"] for job in report["jobs"]] == ["refused", "simple"]


def test_refused_fields_of_v1_jobs_have_file_and_line(trainjob, tmp_path):
    """An unknown field is refused; a number in a command list makes the document invalid."""
    file = tmp_path / "jobs.yaml"
    documents = [JOB, {**JOB, "spec": {**JOB["spec"], "unknown": 1}}, {**JOB, "metadata": {"name": ["a"]}}]
    file.write_text(yaml.safe_dump_all(documents))
    lines = file.read_text().splitlines()
    done = trainjob("migrate", "report", file)
    assert f"  refused {file}:{lines.index('  unknown: 1') + 1}: spec.unknown: " in done.stdout, done.stdout
    assert f"cannot read {file}:{lines.index('  - a')}: metadata.name is required: " in done.stdout, done.stdout


def test_a_missing_permission_for_v1_jobs_names_the_rule(trainjob, api_server):
    reader = {"KUBECONFIG": str(api_server.create_restricted_kubeconfig())}
    done = trainjob("migrate", "report", "--from-cluster", env=reader)
    assert done.returncode == 1
    assert "trainjob check" not in done.stderr
    assert "apiGroups [kubeflow.org], verbs [get, list] and resources [pytorchjobs" in done.stderr


def test_a_migration_test_without_rights_deletes_nothing(trainjob, api_server, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(JOB))
    reader = {"KUBECONFIG": str(api_server.create_restricted_kubeconfig())}
    done = trainjob("migrate", "test", file, env=reader)
    assert done.returncode == 1
    assert "create trainjobs in namespace default" in done.stderr
    assert "could not be deleted" not in done.stderr
    kept = trainjob("migrate", "test", file, "--keep", env=reader)
    assert "retained" not in kept.stderr


@pytest.mark.parametrize("command", ["list", "runtimes", "describe"])
def test_a_name_that_does_not_fit_on_a_narrow_terminal_is_marked(environment, api_server, command):
    name = "fine-tune-with-a-name-that-is-as-long-as-it-may-be"
    api_server.create_trainjob(name)
    api_server.set_running(name)
    api_server.create_runtime(name)
    arguments = [command, name] if command == "describe" else [command]
    screen = PseudoTerminal([sys.executable, "-m", "trainjob", *arguments], environment, columns=30)
    try:
        assert screen.wait_for_exit() == 0
        assert "…" in screen.output
        assert "Traceback" not in screen.output
    finally:
        screen.close()


@pytest.mark.parametrize(
    "arguments", ["cost", "migrate report jobs", "migrate report jobs --json", "runtimes --json", "--help"]
)
def test_a_reader_of_one_line_ends_the_command_as_it_ends_cat(environment, api_server, tmp_path, arguments):
    """Findings row 12: `migrate report DIR | head -1` ended with exit code 1."""
    (tmp_path / "jobs").mkdir()
    documents = [{**JOB, "metadata": {"name": f"bert-{n}"}} for n in range(1000)]
    (tmp_path / "jobs" / "all.yaml").write_text(yaml.safe_dump_all(documents))
    shell = f"{shlex.quote(sys.executable)} -m trainjob {arguments} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    expected = {str(128 + signal.SIGPIPE)} if "jobs" in arguments else {"0", str(128 + signal.SIGPIPE)}
    assert done.stdout.splitlines()[-1] in expected


# Root may read everything, unless it has no such capabilities.
UNPRIVILEGED = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (
            ["submit", "{file}"],
            2,
            "error: FILE cannot be '{file}': it must be a file that can be read: Permission",
        ),
        (["submit", "{folder}/a.yaml"], 2, "it must be a file that can be read: Permission denied"),
        (["submit", "{readonly}"], 2, "it must be a file that can be read: Is a directory"),
        (["cost", "--from", "{file}"], 2, "error: --from cannot be '{file}': it must be a file that can be read"),
        (["--kubeconfig", "{file}", "list"], 2, "is not readable"),
        (["--kubeconfig", "{folder}/a.yaml", "list"], 1, "Permission denied: '{folder}/a.yaml'"),
        (["migrate", "report", "{file}"], 0, "cannot read {file}: cannot be read: Permission denied"),
        (["migrate", "report", "{folder}"], 0, "cannot read {folder}: cannot be read: Permission denied"),
        (
            ["migrate", "report", "{folder}/a.yaml"],
            1,
            "error: the operating system refuses to read or write: Permission",
        ),
        (["migrate", "convert", "-", "--to", "{folder}/to"], 1, "Permission denied: {folder}/to"),
        (["migrate", "convert", "-", "--to", "{readonly}"], 1, "error: cannot write {readonly}/"),
    ],
)
def test_a_missing_permission_of_a_file_is_an_error(environment, tmp_path, arguments, code, message):
    paths = {name: tmp_path / name for name in ("file", "folder", "readonly")}
    paths["file"].touch(mode=0o000)
    paths["folder"].mkdir(mode=0o000)
    paths["readonly"].mkdir(mode=0o555)
    command = [sys.executable, "-m", "trainjob", *(each.format(**paths) for each in arguments)]
    done = subprocess.run(
        [*UNPRIVILEGED, *command], env=environment, input=yaml.safe_dump(JOB), capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr
    assert (done.returncode, message.format(**paths) in done.stdout + done.stderr) == (code, True), done


@pytest.mark.parametrize("name", ["KUBECONFIG", "HOME"])
@pytest.mark.parametrize("is_folder", [True, False])
def test_a_kubeconfig_without_permission_is_not_called_missing(environment, tmp_path, name, is_folder):
    """A file in a folder without permission was reported as one that does not exist."""
    file = tmp_path / ".kube" / "config"
    file.parent.mkdir()
    file.touch(mode=0o000)
    if is_folder:
        file.chmod(0o600)
        file.parent.chmod(0o000)
    variables = {**environment, "KUBECONFIG": "", name: str(file if name == "KUBECONFIG" else tmp_path)}
    command = [*UNPRIVILEGED, sys.executable, "-m", "trainjob", "list"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    file.parent.chmod(0o700)
    assert done.returncode == 1
    assert " ".join(done.stderr.split()).startswith(
        f"error: the kubeconfig {file} can't be used: Permission denied: '{file}'"
    )

"""Tests of `trainjob migrate convert`, `report` and `diff`."""

from __future__ import annotations

import json

import pytest
import yaml

SECRET = "hf_TheSecretThatNobodyMaySee"


def v1_job(name, **metadata):
    container = {"name": "pytorch", "image": "example.com/train:1", "command": ["python", "train.py"]}
    container["env"] = [{"name": "HF_TOKEN", "value": SECRET}]
    template = {"spec": {"containers": [container]}}
    replicas = {
        role: {"replicas": 1, "restartPolicy": "OnFailure", "template": template} for role in ("Master", "Worker")
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name, **metadata},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def v1_job_with_runtime(name, **metadata):
    """Return a v1 job that needs a generated runtime."""
    job = v1_job(name, **metadata)
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["hostNetwork"] = True
    return job


TF_JOB = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "old"}, "spec": {"tfReplicaSpecs": {}}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}


@pytest.fixture
def repository(tmp_path):
    """Return a folder with jobs, other objects, a chart's template and hidden folders."""
    folder = tmp_path / "repository"
    (folder / "team" / "deep").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "one.yaml").write_text(yaml.safe_dump_all([v1_job("one"), SERVICE, TF_JOB]))
    (folder / "team" / "two.json").write_text(
        json.dumps({"kind": "List", "items": [v1_job_with_runtime("two", namespace="ml")]})
    )
    (folder / "team" / "deep" / "chart.yml").write_text("metadata:\n  name: {{ .Values.name }}: x\n")
    (folder / "team" / "latin.yaml").write_bytes(b"a: \xff\n")
    (folder / ".git" / "three.yaml").write_text(yaml.safe_dump(v1_job("three")))
    (folder / "README.md").write_text(yaml.safe_dump(v1_job("four")))
    return folder


def test_convert_writes_objects_to_stdout_and_the_report_to_stderr(trainjob, repository):
    done = trainjob("migrate", "convert", repository)
    assert done.returncode == 2  # some jobs were not converted
    found = [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(done.stdout)]
    assert found == [("TrainJob", "one"), ("TrainingRuntime", "two"), ("TrainJob", "two")]
    for text in (
        f"PyTorchJob one simple {repository}/one.yaml:1",
        f"PyTorchJob ml/two complex {repository}/team/two.json:1 item 1",
        "TFJob old refused",
        f"cannot read {repository}/team/deep/chart.yml:1: ",
        "in line 2, column",
        f"cannot read {repository}/team/latin.yaml: not a text in UTF-8",
        "3 jobs, 1 simple, 0 standard, 1 complex, 1 refused, 2 could not be read",
        "1 objects of other kinds skipped (Service 1)",
    ):
        assert text in done.stderr
    assert SECRET not in done.stderr
    assert SECRET in done.stdout  # the manifests are not redacted


def test_a_cluster_accepts_the_converted_objects(trainjob, cluster, namespace):
    given = yaml.safe_dump_all([v1_job("one", namespace=namespace), v1_job_with_runtime("two", namespace=namespace)])
    done = trainjob("migrate", "convert", "-", input=given)
    assert done.returncode == 0
    for document in yaml.safe_load_all(done.stdout):
        if document["kind"] == "TrainingRuntime":
            cluster.runtimes.create(document)
        else:
            cluster.create_trainjob(document)
            cluster.delete_trainjob(document["metadata"]["name"], namespace, None)


def test_jobs_in_other_objects_are_converted_in_their_place(trainjob, tmp_path):
    content = yaml.safe_dump(v1_job("inner"))
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"job.yaml": content}}
    given = yaml.safe_dump_all([config_map, v1_job("one")])
    done = trainjob("migrate", "convert", "-", input=given)
    assert done.returncode == 0
    job, converted = yaml.safe_load_all(done.stdout)
    assert (job["kind"], converted["kind"]) == ("TrainJob", "ConfigMap")
    assert yaml.safe_load(converted["data"]["job.yaml"])["kind"] == "TrainJob"
    assert "The job is a part of ConfigMap c" in done.stderr
    trainjob("migrate", "convert", "-", "--to", tmp_path / "new", input=given)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["configmap.c.yaml", "one.yaml"]
    report = json.loads(trainjob("migrate", "report", "-", "--json", input=given).stdout)
    assert [job["origin"] for job in report["jobs"]] == ['-:1 data["job.yaml"] document 1', "-:13"]


def embed(job):
    """Return a Workflow with a generated name that creates the job."""
    step = {"name": "train", "resource": {"action": "create", "manifest": yaml.safe_dump(job)}}
    workflow = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"generateName": "w-"}}
    return {**workflow, "spec": {"templates": [step]}}


def test_objects_with_the_same_generated_name_are_written_to_different_files(trainjob, tmp_path):
    given = yaml.safe_dump_all([embed(v1_job("one")), embed(v1_job("two"))])
    assert trainjob("migrate", "convert", "-", "--to", tmp_path / "new", input=given).returncode == 0
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == ["workflow.w-2.yaml", "workflow.w.yaml"]
    assert "name: two" in files[0].read_text()
    assert "name: one" in files[1].read_text()


def test_an_object_whose_runtime_has_the_name_of_a_different_one_is_not_written(trainjob):
    other = v1_job_with_runtime("one")
    container = other["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    for replica in other["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["containers"] = [{**container, "workingDir": "/other"}]
    given = yaml.safe_dump_all([embed(v1_job_with_runtime("one")), embed(v1_job_with_runtime("one")), embed(other)])
    done = trainjob("migrate", "convert", "-", input=given)
    assert done.returncode == 2
    kinds = [one["kind"] for one in yaml.safe_load_all(done.stdout)]
    assert kinds == ["TrainingRuntime", "Workflow", "TrainingRuntime", "Workflow"]
    assert "skipped PyTorchJob one (" in done.stderr
    assert "/other" not in done.stdout


def test_existing_files_are_replaced_only_with_overwrite(trainjob, repository, tmp_path):
    to = tmp_path / "new"
    assert trainjob("migrate", "convert", repository, "--to", to).returncode == 2
    assert sorted(path.name for path in to.iterdir()) == ["ml.two.yaml", "one.yaml"]
    kinds = [one["kind"] for one in yaml.safe_load_all((to / "ml.two.yaml").read_text())]
    assert kinds == ["TrainingRuntime", "TrainJob"]
    (to / "one.yaml").write_text("mine")
    (to / "ml.two.yaml").unlink()
    again = trainjob("migrate", "convert", repository, "--to", to)
    assert again.returncode == 2
    assert "it already has one.yaml" in again.stderr
    assert sorted(path.name for path in to.iterdir()) == ["one.yaml"]
    assert (to / "one.yaml").read_text() == "mine"
    trainjob("migrate", "convert", repository, "--to", to, "--overwrite")
    assert yaml.safe_load((to / "one.yaml").read_text())["kind"] == "TrainJob"
    assert sorted(path.name for path in to.iterdir()) == ["ml.two.yaml", "one.yaml"]


def test_the_second_job_of_a_name_is_not_written(trainjob):
    done = trainjob(
        "migrate",
        "convert",
        "-",
        input=yaml.safe_dump_all([v1_job("one"), v1_job("one"), v1_job("one", namespace="x")]),
    )
    assert done.returncode == 2
    assert [one["metadata"].get("namespace") for one in yaml.safe_load_all(done.stdout)] == [None, "x"]
    assert "skipped PyTorchJob one (-:25): -:1 has a job of the same name" in done.stderr


def test_each_format_of_the_report_has_every_field_and_no_secret(trainjob, repository):
    as_json = trainjob("migrate", "report", repository, "--json")
    as_markdown = trainjob("migrate", "report", repository, "--format", "markdown")
    as_text = trainjob("migrate", "report", repository)
    assert [done.returncode for done in (as_json, as_markdown, as_text)] == [0, 0, 0]
    report = json.loads(as_json.stdout)
    assert report["summary"]["classes"] == {"simple": 1, "standard": 0, "complex": 1}
    (first, *_) = report["jobs"]
    for record in first["fields"]:
        assert f"`{record['path']}`" in as_markdown.stdout
        assert f"{record['result']:<9} {record['path']}: " in as_text.stdout
    assert "| refused | 1 |" in as_markdown.stdout
    for done in (as_json, as_markdown, as_text):
        assert SECRET not in done.stdout + done.stderr


def test_a_reader_that_stops_reading_causes_no_traceback(start_command, repository):
    process = start_command("migrate", "report", repository)
    assert process.stdout.readline().startswith("PyTorchJob one simple")
    process.stdout.close()
    assert "Traceback" not in process.stderr.read()
    process.wait(60)
    process.stdout = None  # for communicate()


def test_diff_shows_both_jobs_side_by_side_in_a_hundred_columns(trainjob, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(v1_job_with_runtime("one")))
    done = trainjob("migrate", "diff", file, env={"COLUMNS": "100"})
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in done.stdout
    assert any(line.split() == ["PyTorchJob", "one", "TrainJob", "one"] for line in lines)
    image = "image: example.com/train:1"
    assert any(line.strip().startswith(image) and f"spec.trainer.{image}" in line for line in lines)
    assert any("hostNetwork: true" in line and "TrainingRuntime pod.spec.hostNetwork" in line for line in lines)
    jobs = json.loads(trainjob("migrate", "diff", file, "--json").stdout)
    assert {"result": "converted", "part": "", "before": "kind: PyTorchJob", "after": "kind: TrainJob"} in jobs[0][
        "fields"
    ]
    assert SECRET not in done.stdout + json.dumps(jobs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert"], "use files or folders, - for standard input, or --from-cluster"),
        (["report", "nowhere.yaml"], "PATH cannot be 'nowhere.yaml': there is no such file or folder"),
        (["convert", "nowhere.yaml", "--from-cluster"], "and --from-cluster"),
        (["convert", "x", "-n", "ml"], "it needs --from-cluster"),
        (["convert", "x", "--overwrite"], "it needs --to"),
        (["test", "nowhere.yaml"], "there is no such file or folder"),
    ],
)
def test_invalid_arguments_are_rejected(trainjob, arguments, message):
    done = trainjob("migrate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_a_cluster_without_v1_jobs_is_an_error(trainjob, namespace):
    for arguments in (["report", "--from-cluster"], ["compare", "mnist", "-n", namespace]):
        done = trainjob("migrate", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "has no jobs of the Training Operator" in done.stderr

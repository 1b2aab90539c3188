"""`trainjob migrate convert`, `report` and `diff`: files in, objects and words out."""

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
    """One that needs a runtime."""
    made = v1_job(name, **metadata)
    for replica in made["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["hostNetwork"] = True
    return made


TF_JOB = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "old"}, "spec": {"tfReplicaSpecs": {}}}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}


@pytest.fixture
def repository(tmp_path):
    """A repository as teams have them: jobs, other things, a chart's template, hidden folders."""
    made = tmp_path / "repository"
    (made / "team" / "deep").mkdir(parents=True)
    (made / ".git").mkdir()
    (made / "one.yaml").write_text(yaml.safe_dump_all([v1_job("one"), SERVICE, TF_JOB]))
    (made / "team" / "two.json").write_text(
        json.dumps({"kind": "List", "items": [v1_job_with_runtime("two", namespace="ml")]})
    )
    (made / "team" / "deep" / "chart.yml").write_text("metadata:\n  name: {{ .Values.name }}: x\n")
    (made / "team" / "latin.yaml").write_bytes(b"a: \xff\n")
    (made / ".git" / "three.yaml").write_text(yaml.safe_dump(v1_job("three")))
    (made / "README.md").write_text(yaml.safe_dump(v1_job("four")))
    return made


def test_a_folder_becomes_objects_on_stdout_and_words_on_stderr(trainjob, repository):
    done = trainjob("migrate", "convert", repository)
    assert done.returncode == 2  # not all of it is there
    found = [(one["kind"], one["metadata"]["name"]) for one in yaml.safe_load_all(done.stdout)]
    assert found == [("TrainJob", "one"), ("TrainingRuntime", "two"), ("TrainJob", "two")]
    for said in (
        f"PyTorchJob one simple {repository}/one.yaml:1",
        f"PyTorchJob ml/two complex {repository}/team/two.json:1 item 1",
        "TFJob old refused",
        f"unread {repository}/team/deep/chart.yml:1: ",
        "in line 2, column",
        f"unread {repository}/team/latin.yaml: it is no text in UTF-8",
        "3 jobs, 1 simple, 0 standard, 1 complex, 1 refused, 2 could not be read",
        "1 of other kinds passed by (Service 1)",
    ):
        assert said in done.stderr
    assert SECRET not in done.stderr
    assert SECRET in done.stdout  # it is what is to be applied, as it was


def test_what_comes_out_of_a_pipe_is_what_a_cluster_takes(trainjob, cluster, namespace):
    given = yaml.safe_dump_all([v1_job("one", namespace=namespace), v1_job_with_runtime("two", namespace=namespace)])
    done = trainjob("migrate", "convert", "-", input=given)
    assert done.returncode == 0
    for made in yaml.safe_load_all(done.stdout):
        if made["kind"] == "TrainingRuntime":
            cluster.runtimes.create(made)
        else:
            cluster.create_trainjob(made)
            cluster.delete_trainjob(made["metadata"]["name"], namespace, None)


def test_files_are_written_whole_and_never_over_others_unless_told_so(trainjob, repository, tmp_path):
    to = tmp_path / "new"
    assert trainjob("migrate", "convert", repository, "--to", to).returncode == 2
    assert sorted(path.name for path in to.iterdir()) == ["ml.two.yaml", "one.yaml"]
    kinds = [one["kind"] for one in yaml.safe_load_all((to / "ml.two.yaml").read_text())]
    assert kinds == ["TrainingRuntime", "TrainJob"]
    (to / "one.yaml").write_text("mine")
    (to / "ml.two.yaml").unlink()
    again = trainjob("migrate", "convert", repository, "--to", to)
    assert again.returncode == 2
    assert "it has one.yaml already" in again.stderr
    assert sorted(path.name for path in to.iterdir()) == ["one.yaml"]
    assert (to / "one.yaml").read_text() == "mine"
    trainjob("migrate", "convert", repository, "--to", to, "--overwrite")
    assert yaml.safe_load((to / "one.yaml").read_text())["kind"] == "TrainJob"
    assert sorted(path.name for path in to.iterdir()) == ["ml.two.yaml", "one.yaml"]


def test_two_of_one_name_are_not_both_written(trainjob):
    done = trainjob(
        "migrate",
        "convert",
        "-",
        input=yaml.safe_dump_all([v1_job("one"), v1_job("one"), v1_job("one", namespace="x")]),
    )
    assert done.returncode == 2
    assert [one["metadata"].get("namespace") for one in yaml.safe_load_all(done.stdout)] == [None, "x"]
    assert "left out PyTorchJob one (-:25): -:1 has one of that name" in done.stderr


def test_a_report_has_every_field_in_each_form_and_no_secret(trainjob, repository):
    as_json = trainjob("migrate", "report", repository, "--json")
    as_markdown = trainjob("migrate", "report", repository, "--format", "markdown")
    in_words = trainjob("migrate", "report", repository)
    assert [done.returncode for done in (as_json, as_markdown, in_words)] == [0, 0, 0]
    told = json.loads(as_json.stdout)
    assert told["summary"]["classes"] == {"simple": 1, "standard": 0, "complex": 1}
    (first, *_) = told["jobs"]
    for line in first["lines"]:
        assert f"`{line['path']}`" in as_markdown.stdout
        assert f"{line['fate']:<9} {line['path']}: " in in_words.stdout
    assert "| refused | 1 |" in as_markdown.stdout
    for done in (as_json, as_markdown, in_words):
        assert SECRET not in done.stdout + done.stderr


def test_a_reader_that_has_enough_ends_it_quietly(start_command, repository):
    telling = start_command("migrate", "report", repository)
    assert telling.stdout.readline().startswith("PyTorchJob one simple")
    telling.stdout.close()
    assert "Traceback" not in telling.stderr.read()
    telling.wait(60)
    telling.stdout = None  # for communicate()


def test_old_and_new_stand_side_by_side_on_a_hundred_columns(trainjob, tmp_path):
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
    told = json.loads(trainjob("migrate", "diff", file, "--json").stdout)
    assert {"fate": "converted", "part": "", "before": "kind: PyTorchJob", "after": "kind: TrainJob"} in told[0][
        "fields"
    ]
    assert SECRET not in done.stdout + json.dumps(told)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["convert"], "give files or folders, - for standard input, or --from-cluster"),
        (["report", "nowhere.yaml"], "'nowhere.yaml' is not allowed; there is no such file or folder"),
        (["convert", "nowhere.yaml", "--from-cluster"], "and --from-cluster"),
        (["convert", "x", "-n", "ml"], "it is for --from-cluster"),
        (["convert", "x", "--overwrite"], "it is for --to"),
        (["test", "nowhere.yaml"], "there is no such file or folder"),
    ],
)
def test_what_makes_no_sense_is_refused(trainjob, arguments, said):
    done = trainjob("migrate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_cluster_without_such_jobs_is_told(trainjob, namespace):
    for arguments in (["report", "--from-cluster"], ["compare", "mnist", "-n", namespace]):
        done = trainjob("migrate", *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert "knows no jobs of the Training Operator" in done.stderr

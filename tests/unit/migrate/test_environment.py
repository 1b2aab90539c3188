"""Tests of programs that read variables of the Training Operator, which the Trainer does not set."""

from __future__ import annotations

import pytest

from tests.unit.migrate.v1_jobs import pytorch_job, with_spec
from trainjob_migrate import FieldResult, Launch, convert
from trainjob_migrate.environment import Program

V1_VARIABLES = {
    "JOBSET_NAME": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}},
    "MASTER_ADDR": {"value": "$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME)"},
    "MASTER_PORT": {"value": "29500"},
    "WORLD_SIZE": {"value": "2"},
    "RANK": {
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    },
}
UNBUFFERED = {"PYTHONUNBUFFERED": {"value": "1"}}
TORCHRUN = {
    "torchrun": ["torchrun", "train.py"],
    "its path": ["/opt/conda/bin/torchrun", "--max-restarts=2", "train.py"],
    "the module": ["python", "-m", "torch.distributed.run", "train.py"],
    "the module, unbuffered": ["python3.11", "-u", "-m", "torch.distributed.launch", "--use_env", "train.py"],
    "in a shell": ["bash", "-lc", "pip install x && exec torchrun --nnodes $PET_NNODES train.py"],
    "in a shell's loop": ["sh", "-c", "for lr in 1 2; do torchrun train.py --lr $lr; done"],
    "in a shell, with a variable": ["sh", "-ec", "NCCL_DEBUG=INFO python -m torch.distributed.run train.py"],
}
PLAIN = {
    "a script": ["python", "train.py"],
    "a path": ["/usr/bin/python3", "-u", "/src/train.py", "--backend", "gloo"],
    "a module": ["python", "-m", "team.train"],
    "a program in it": ["python", "-c", "import train"],
    "a shell": ["sh", "-c", "python train.py"],
    "a login shell": ["bash", "-lc", "cd /src; python train.py --lr 1"],
    "a shell with both": ["bash", "-c", "python prepare.py && torchrun train.py"],
    "a shell with an unknown program": ["bash", "-c", "./prepare.sh && torchrun train.py"],
    "a shell's branches": ["sh", "-c", "torchrun a.py; if test -e b.py; then python b.py; fi"],
    "a file with a shebang": ["./train.py"],
    "another launcher": ["accelerate", "launch", "train.py"],
    "torchrun as an argument": ["python", "train.py", "--launcher", "torchrun"],
    "a shell's script": ["bash", "run.sh"],
    "a shell without a line": ["bash", "-c"],
}
READING_COMMANDS = {
    "by the shell": ["sh", "-c", "torchrun --node_rank=$RANK --master_addr=${MASTER_ADDR} train.py"],
    "by Kubernetes": ["torchrun", "--nnodes=$(WORLD_SIZE)", "--node_rank=$(RANK)", "train.py"],
    "by printenv": ["sh", "-c", "torchrun --node_rank `printenv RANK` train.py"],
    "by a script": ["bash", "-c", "source ./env.sh && torchrun train.py"],
    "by a script with a dot": ["sh", "-c", ". /src/env.sh; exec torchrun train.py"],
    "by eval": ["sh", "-c", 'eval "$PREPARE"; torchrun train.py'],
    "by envsubst": ["sh", "-c", "envsubst < a > b && torchrun train.py"],
    "with a default": ["sh", "-c", "python -m torch.distributed.run --master_port ${MASTER_PORT:-23456} train.py"],
}
ENVIRONMENT = "environment"


def variables(conversion):
    env = conversion.train_job["spec"]["trainer"].get("env", [])
    return {variable["name"]: {key: value for key, value in variable.items() if key != "name"} for variable in env}


def find_finding(conversion, topic=ENVIRONMENT):
    return next((one for one in conversion.findings if one.topic == topic), None)


@pytest.mark.parametrize("name", TORCHRUN)
@pytest.mark.parametrize("launch", Launch)
def test_torchrun_needs_nothing(name, launch):
    found = convert(pytorch_job(command=TORCHRUN[name]), launch=launch)
    assert find_finding(found) is None
    assert variables(found) == UNBUFFERED
    assert found.train_job["spec"]["trainer"]["command"] == TORCHRUN[name]


@pytest.mark.parametrize("command", [*PLAIN.values(), *READING_COMMANDS.values()], ids=[*PLAIN, *READING_COMMANDS])
def test_what_may_read_them_gets_the_variables(command):
    found = convert(pytorch_job(command=command))
    assert variables(found) == UNBUFFERED | V1_VARIABLES
    assert found.train_job["spec"]["trainer"]["command"] == command
    assert "2 separate trainings" in find_finding(found).why


@pytest.mark.parametrize("field", ["lifecycle", "livenessProbe"])
def test_a_hook_or_probe_that_reads_them_gets_the_variables(field):
    hook = {"exec": {"command": ["sh", "-c", 'test "$RANK" != 0 || touch /saved']}}
    value = {"preStop": hook} if field == "lifecycle" else hook
    found = convert(pytorch_job(command=["torchrun", "train.py"], **{field: value}))
    assert variables(found) == UNBUFFERED | V1_VARIABLES
    assert "hook or probe" in find_finding(found).what


def test_an_entrypoint_is_not_known_and_gets_them():
    for launch in Launch:
        found = convert(pytorch_job(args=["--epochs", "1"]), launch=launch)
        assert "entrypoint" in find_finding(found).what
        assert variables(found) == UNBUFFERED | V1_VARIABLES


WRAPPED = {
    "a script": ["python", "-m", "torch.distributed.run", "train.py"],
    "a path": ["/usr/bin/python3", "-u", "-m", "torch.distributed.run", "/src/train.py", "--backend", "gloo"],
    "a module": ["python", "-m", "torch.distributed.run", "-m", "team.train"],
    "a program in it": ["torchrun", "--no-python", "python", "-c", "import train"],
    "a shell": ["torchrun", "--no-python", "sh", "-c", "python train.py"],
    "a file with a shebang": ["torchrun", "--no-python", "./train.py"],
}


@pytest.mark.parametrize("name", WRAPPED)
def test_launch_torchrun_starts_the_program_with_torchrun(name):
    found = convert(pytorch_job(command=PLAIN[name]), launch=Launch.TORCHRUN)
    trainer = found.train_job["spec"]["trainer"]
    assert trainer["command"] == WRAPPED[name]
    assert trainer["numProcPerNode"] == 1
    assert variables(found) == UNBUFFERED
    assert "torchrun starts it" in find_finding(found).done


def test_a_script_among_the_arguments_is_wrapped_there():
    found = convert(pytorch_job(command=["python"], args=["train.py", "--lr", "1"]), launch=Launch.TORCHRUN)
    trainer = found.train_job["spec"]["trainer"]
    assert trainer["command"] + trainer["args"] == ["python", "-m", "torch.distributed.run", "train.py", "--lr", "1"]
    found = convert(pytorch_job(command=["python"], args=["-u", "train.py"]), launch=Launch.TORCHRUN)
    assert found.train_job["spec"]["trainer"]["args"] == ["-u", "-m", "torch.distributed.run", "train.py"]


def with_exit_code_policy(job):
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "ExitCode"
    return job


PLAIN_JOB = pytorch_job(command=["python", "train.py"])
NOT_BY_TORCHRUN = {
    "processes of its own": (with_spec(PLAIN_JOB, nprocPerNode="4"), "8", "one process per node"),
    "filled in by Kubernetes": (pytorch_job(command=["python", "t.py", "--rank=$(RANK)"]), "2", "Kubernetes expands"),
    "exit codes": (with_exit_code_policy(pytorch_job(command=["python", "t.py"])), "2", "ExitCode"),
}


@pytest.mark.parametrize("name", NOT_BY_TORCHRUN)
def test_where_torchrun_would_change_what_it_does_it_gets_them(name):
    job, world, why = NOT_BY_TORCHRUN[name]
    found = convert(job, launch=Launch.TORCHRUN)
    assert variables(found)["WORLD_SIZE"] == {"value": world}
    assert why in find_finding(found).done


def test_one_node_gets_them_too():
    found = convert(pytorch_job(workers=0, command=["python", "train.py"]))
    assert variables(found) == UNBUFFERED | V1_VARIABLES | {"WORLD_SIZE": {"value": "1"}}
    assert "separate trainings" not in find_finding(found).why


def test_without_a_master_there_were_none():
    """The Training Operator sets them for jobs with a Master only."""
    found = convert(pytorch_job(master=False, workers=2, command=["python", "train.py"]))
    assert variables(found) == UNBUFFERED
    own = [{"name": "RANK", "value": "7"}]
    assert variables(convert(pytorch_job(master=False, env=own)))["RANK"] == {"value": "7"}


def test_the_jobs_own_values_never_counted():
    env = [{"name": "RANK", "value": "7"}, {"name": "PYTHONUNBUFFERED", "value": "0"}, {"name": "LR", "value": "1"}]
    found = convert(pytorch_job(command=["python", "train.py"], env=env))
    assert variables(found) == {"LR": {"value": "1"}} | UNBUFFERED | V1_VARIABLES
    dropped = [record.path for record in found.fields if record.result is FieldResult.DROPPED]
    assert [path for path in dropped if ".Worker." in path and ".env[" in path] == [
        f"spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].env[{number}]" for number in (0, 1)
    ]


def test_reserved_names_are_left_out():
    env = [{"name": "PET_NNODES", "value": "9"}, {"name": "PET_RDZV_TIMEOUT", "value": "9"}]
    found = convert(pytorch_job(command=["torchrun", "train.py"], env=env))
    assert variables(found) == {"PET_RDZV_TIMEOUT": {"value": "9"}} | UNBUFFERED


def test_old_hosts_become_new_ones():
    command = ["torchrun", "--rdzv_endpoint=mnist-master-0:23456", "train.py", "my-mnist-master-0", "mnist-worker-01x"]
    env = [{"name": "PEER", "value": "http://mnist-worker-1.team.svc:80"}]
    found = convert(pytorch_job(command=command, env=env))
    assert found.train_job["spec"]["trainer"]["command"] == [
        "torchrun",
        "--rdzv_endpoint=$(JOBSET_NAME)-node-0-0.$(JOBSET_NAME):23456",
        "train.py",
        "my-mnist-master-0",
        "mnist-worker-01x",
    ]
    assert variables(found)["PEER"] == {"value": "http://$(JOBSET_NAME)-node-0-2.$(JOBSET_NAME).team.svc:80"}
    path = "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].command"
    assert {one.what for one in found.findings if one.topic == "hosts"} == {
        "The job refers to the host mnist-master-0.",
        "The job refers to the host mnist-worker-1.",
    }
    [names] = [one.what for one in found.findings if one.topic == "names"]
    assert names == f"Names of v1 are used: {path}[3]: my-mnist-master-0; {path}[4]: mnist-worker-01x."


def test_a_program_is_read_without_trusting_it():
    assert not Program((), ("torchrun",)).is_torchrun
    assert not Program(("bash",), ()).is_torchrun
    assert not Program(("python",), ("-m",)).is_torchrun
    assert Program(("python",), ()).with_torchrun().command == ("torchrun", "--no-python", "python")


def label_variable(label):
    return {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


def test_the_index_label_of_workers_is_the_completion_index():
    env = [label_variable("training.kubeflow.org/replica-index")]
    found = convert(pytorch_job(master=False, workers=2, command=["torchrun", "t.py"], env=env))
    assert variables(found)["LABEL"] == V1_VARIABLES["RANK"]
    [record] = [one for one in found.fields if one.path.endswith("env[0]")]
    assert "job-completion-index" in record.reason


def test_the_index_label_of_a_master_and_workers_is_refused():
    """The Master is 0, and so is the first Worker, but a TrainJob has one template for both."""
    env = [label_variable("training.kubeflow.org/replica-index")]
    [blocker] = convert(pytorch_job(command=["python", "t.py"], env=env)).blockers
    assert blocker.reason.endswith("; read RANK")
    [blocker] = convert(pytorch_job(command=["torchrun", "t.py"], env=env)).blockers
    assert blocker.reason.endswith("; read JOB_COMPLETION_INDEX")


def test_the_name_label_is_the_name_of_the_jobset():
    env = [label_variable("training.kubeflow.org/job-name")]
    found = convert(pytorch_job(command=["torchrun", "t.py"], env=env))
    assert variables(found)["LABEL"] == {
        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/jobset-name']"}}
    }


def test_other_labels_of_the_operator_are_refused():
    env = [label_variable("training.kubeflow.org/replica-type")]
    [blocker] = convert(pytorch_job(master=False, command=["torchrun", "t.py"], env=env)).blockers
    assert "read JOB_COMPLETION_INDEX" in blocker.reason


@pytest.mark.parametrize("command", [["python", "train.py"], ["torchrun", "train.py"]])
def test_a_job_of_workers_without_a_rendezvous_has_a_finding(command):
    """The Training Operator sets no address in it, so that the pods do not find each other."""
    job = pytorch_job(master=False, workers=2, command=command)
    what = "The job has neither a Master nor an elasticPolicy."
    assert what in [finding.what for finding in convert(job).findings]
    elastic = with_spec(job, elasticPolicy={"minReplicas": 2, "maxReplicas": 2})
    assert what not in [finding.what for finding in convert(elastic).findings]

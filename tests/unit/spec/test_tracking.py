"""The field `tracking`: the experiment trackers, their fields, and the trainings that can be tracked."""

from __future__ import annotations

import warnings

import pytest

from trainjob import (
    BuiltinTrainer,
    CustomTrainer,
    CustomTrainerContainer,
    FineTune,
    InvalidSpec,
    MLflow,
    SecretReference,
    TensorBoard,
    TorchTuneConfig,
    TrainJob,
    WandB,
)

URI = "https://mlflow.example.org"
TOKEN = "ghp_" + "a1B2" * 9
REFERENCE_ADVICE = (
    "put it into a Secret (kubectl create secret generic NAME --from-literal=KEY=...) and give secret='NAME'"
)


def refusal(kind, **fields):
    with pytest.raises(InvalidSpec) as refused:
        kind(**fields)
    return str(refused.value)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (MLflow, {"tracking_uri": URI}),
        (MLflow, {"tracking_uri": "http://mlflow:5000/path", "experiment": "tickets / v2", "secret": "login"}),
        (MLflow, {"tracking_uri": URI, "secret": {"name": "s", "keys": {"MLFLOW_TRACKING_TOKEN": "token"}}}),
        (MLflow, {"tracking_uri": URI, "system_metrics": True}),
        (MLflow, {"tracking_uri": URI, "parameters": {"a": 1, "b": 0.5, "c": True, "d": "text"}}),
        (WandB, {}),
        (WandB, {"project": "tickets", "entity": "team", "base_url": "https://wandb.example.org", "secret": "login"}),
        (WandB, {"mode": "offline"}),
        (TensorBoard, {}),
        (TensorBoard, {"log_path": "logs/tensorboard"}),
    ],
)
def test_a_tracker_equals_that_of_its_dict(kind, fields):
    tracker = kind(**fields)
    job = {"trainer": CustomTrainerContainer(command=("true",)), "workspace": "w"}
    from_dict = TrainJob(tracking={"backend": tracker.backend, **fields}, **job)
    assert from_dict.tracking == tracker == TrainJob(tracking=tracker, **job).tracking
    assert TrainJob(tracking=tracker.model_dump(), **job).tracking == tracker


def test_values_keep_their_types():
    parameters = {"a": 1, "b": 0.5, "c": True, "d": "1"}
    kept = MLflow(tracking_uri=URI, parameters=parameters).parameters
    assert {name: type(value) for name, value in kept.items()} == {"a": int, "b": float, "c": bool, "d": str}
    assert MLflow(tracking_uri=f"{URI}/").tracking_uri == URI
    assert WandB(secret="login").secret == SecretReference(name="login")
    assert TensorBoard(log_path="a//b/./c/").log_path == "a/b/c"


ADDRESS_RULE = "it must be only the server's address, such as https://mlflow.example.org"
PROJECT_RULE = "it must not contain spaces or any of / \\ # ? % :"
FOLDER_RULE = "it must be a folder below /workspace, such as tensorboard, and outside of dataset and model"


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (MLflow, {}, "tracking_uri is required"),
        (
            MLflow,
            {"tracking_uri": "mlflow.example.org"},
            "tracking_uri cannot be 'mlflow.example.org': it must be a URI: https://… or http://…",
        ),
        (
            MLflow,
            {"tracking_uri": "databricks://profile"},
            "tracking_uri cannot be 'databricks://profile': allowed are https://… or http://…",
        ),
        (
            MLflow,
            {"tracking_uri": "https://user:pass@mlflow"},
            f"tracking_uri cannot be ***: it must not contain a user name or password; {REFERENCE_ADVICE}",
        ),
        (MLflow, {"tracking_uri": f"{URI}?a=b"}, f"tracking_uri cannot be '{URI}?a=b': {ADDRESS_RULE}"),
        (MLflow, {"tracking_uri": f"{URI}#a"}, f"tracking_uri cannot be '{URI}#a': {ADDRESS_RULE}"),
        (
            MLflow,
            {"tracking_uri": URI, "experiment": ""},
            "experiment cannot be '': it must have at least 1 characters",
        ),
        (
            MLflow,
            {"tracking_uri": URI, "system_metrics": "often"},
            "system_metrics cannot be 'often': it must be true or false",
        ),
        (
            MLflow,
            {"tracking_uri": URI, "project": "p"},
            (
                "project: there is no field 'project' in MLflow; its fields are parameters, backend, tracking_uri, "
                "experiment, secret, system_metrics"
            ),
        ),
        (WandB, {"project": "team/a"}, f"project cannot be 'team/a': {PROJECT_RULE}"),
        (WandB, {"entity": "a:b"}, f"entity cannot be 'a:b': {PROJECT_RULE}"),
        (WandB, {"mode": "disabled"}, "mode cannot be 'disabled': it must be 'online' or 'offline'"),
        (
            WandB,
            {"base_url": "https://wandb.example.org?a"},
            (
                "base_url cannot be 'https://wandb.example.org?a': it must be only the server's address, such as "
                "https://wandb.example.org"
            ),
        ),
        *(
            (TensorBoard, {"log_path": path}, f"log_path cannot be {path!r}: {FOLDER_RULE}")
            for path in ("", ".", "/", "/tensorboard", "..", "a/../..", "a/..", "model", "model/a", "./dataset//a/")
        ),
    ],
)
def test_a_field_that_is_not_allowed(kind, fields, message):
    assert refusal(kind, **fields) == message


@pytest.mark.parametrize(
    ("tracking", "message"),
    [
        ("mlflow", "tracking cannot be 'mlflow': give MLflow(...), WandB(...) or TensorBoard(...)"),
        ({}, "tracking.backend is required: it must be one of mlflow, wandb, tensorboard"),
        (
            {"backend": "neptune"},
            "tracking.backend cannot be 'neptune': it must be one of mlflow, wandb, tensorboard",
        ),
        ({"backend": ["mlflow"]}, "tracking.backend cannot be ['mlflow']: it must be one of mlflow, wandb, "),
        ({"backend": "mlflow"}, "tracking.tracking_uri is required"),
        ({"backend": "tensorboard", "log_path": "model"}, f"tracking.log_path cannot be 'model': {FOLDER_RULE}"),
    ],
)
def test_a_value_that_is_no_tracker(tracking, message):
    trainer = CustomTrainerContainer(command=("true",))
    assert refusal(TrainJob, trainer=trainer, tracking=tracking).startswith(message)


def test_a_built_in_trainer_cannot_be_tracked():
    message = refusal(
        TrainJob,
        trainer=BuiltinTrainer(config=TorchTuneConfig()),
        runtime="torchtune-llama3.2-1b",
        tracking=MLflow(tracking_uri=URI),
    )
    assert message == (
        "tracking cannot be a MLflow: a BuiltinTrainer can't be tracked, because the runtime's own program runs: "
        "use FineTune(workspace=...)"
    )
    message = refusal(
        FineTune,
        model="llama3.2-1b",
        config=TorchTuneConfig(),
        dataset="hf://a/b",
        tracking=MLflow(tracking_uri=URI),
    )
    assert message == (
        "tracking cannot be a MLflow: it is allowed only with a workspace; without one, the runtime's own program runs"
    )


def test_a_container_needs_a_command():
    message = refusal(TrainJob, trainer=CustomTrainerContainer(image="i:1"), tracking=MLflow(tracking_uri=URI))
    assert message == "trainer.command is required: give the command to start, because tracking needs it"


@pytest.mark.parametrize("tracking", [TensorBoard(), WandB(mode="offline")])
def test_files_need_a_workspace(tracking):
    trainer = CustomTrainer(func=test_values_keep_their_types)
    message = refusal(TrainJob, trainer=trainer, tracking=tracking)
    assert message == "workspace is required: give a workspace, because the tracker writes its files there"
    assert TrainJob(trainer=trainer, tracking=tracking, workspace="w").tracking == tracking


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (MLflow, {"tracking_uri": URI, "parameters": {"note": TOKEN}}),
        (MLflow, {"tracking_uri": URI, "parameters": {"password": "hunter2"}}),
        (MLflow, {"tracking_uri": f"https://{TOKEN}@mlflow.example.org"}),
        (MLflow, {"tracking_uri": URI, "secret": f"{TOKEN}"}),
        (WandB, {"api_key": TOKEN}),
        (WandB, {"secret": {"name": "s", "keys": {"WANDB_API_KEY": f"{TOKEN} "}}}),
        (TensorBoard, {"parameters": {"url": f"https://user:{TOKEN}@host/path"}}),
    ],
)
def test_a_credential_is_refused_and_not_shown(kind, fields):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        message = refusal(kind, **fields)
    assert TOKEN not in message
    assert "hunter2" not in message


def test_a_model_copy_of_another_backend_has_no_foreign_field():
    """A dict with the fields of another tracker is refused, with each field's path."""
    trainer = CustomTrainerContainer(command=("true",))
    with pytest.raises(InvalidSpec) as refused:
        TrainJob(trainer=trainer, tracking={"backend": "wandb", "tracking_uri": URI, "log_path": "a"})
    assert {problem.field for problem in refused.value.problems} == {"tracking.tracking_uri", "tracking.log_path"}

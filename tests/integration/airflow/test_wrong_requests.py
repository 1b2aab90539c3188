"""The likeliest wrong arguments of operators, and the next step that their errors name."""

from __future__ import annotations

import pytest

from trainjob import CustomTrainer, Placement, TRLConfig
from trainjob.errors import InvalidSpec
from trainjob_airflow import ExportModelOperator, FineTuneOperator, InitializeModelOperator, TrainJobOperator

pytestmark = pytest.mark.usefixtures("airflow_environment")


def tune(**arguments):
    config = {"framework": "trl", "method": "sft"}
    return FineTuneOperator(**{"task_id": "t", "model": "m", "workspace": "w", "config": config, **arguments})


def learn(steps, rate=0.1):
    print(steps, rate)


WRONG = {
    "an argument that the function does not have": (
        lambda: TrainJobOperator(task_id="t", trainer=CustomTrainer(func=learn, func_args={"step": 1})),
        ["there is no parameter 'step' in learn; did you mean steps?", "func_args.steps is required: the parameter"],
    ),
    "no framework": (
        lambda: FineTuneOperator(task_id="t", model="meta-llama/Llama-3.1-8B-Instruct", workspace="w"),
        ["config is required: choose the framework:", '{"framework": "trl", "method": "sft"} trains another model'],
    ),
    "nodes of the operator": (lambda: tune(num_nodes=2), ["in FineTuneOperator; did you mean config.num_nodes?"]),
    "epochs of the operator": (lambda: tune(epochs=3), ["in FineTuneOperator; did you mean config.epochs?"]),
    "template in an object": (
        lambda: tune(config=TRLConfig(method="sft", eval_dataset_path="{{ ds }}")),
        ["TRLConfig cannot be an object with a template: Airflow renders no templates in it; give a dict"],
    ),
    "statement of Jinja in an object": (
        lambda: tune(placement=Placement(service_account_name="{% if params.fast %}fast{% endif %}")),
        ["Placement cannot be an object with a template: Airflow renders no templates in it; give a dict"],
    ),
    "Airflow's resources": (lambda: tune(resources={"gpu": 1}), ["did you mean config.resources_per_node?"]),
    "the trigger's argument": (lambda: tune(on_kill_action="keep"), ["in FineTuneOperator; did you mean on_kill?"]),
    "name of the component's input": (lambda: tune(deadline_seconds=60), ["did you mean deadline?"]),
    "retries of the component": (lambda: tune(attempts=3), ["in FineTuneOperator; did you mean retries?"]),
    "misspelled argument": (lambda: tune(start_timout=60), ["did you mean start_timeout?"]),
    "priority without a queue": (lambda: tune(priority_class="high"), ["did you mean queue_name.priority_class?"]),
    "image of a job": (
        lambda: TrainJobOperator(task_id="t", image="x", command=["y"]),
        ["did you mean trainer.image?\ncommand: there is no argument", "did you mean trainer.command?"],
    ),
    "another source": (
        lambda: InitializeModelOperator(task_id="t", workspace="w", storage_uri="hf://a/b", uri="x"),
        ["there is no argument 'uri' in InitializeModelOperator; did you mean storage_uri?"],
    ),
    "another target": (
        lambda: ExportModelOperator(task_id="t", workspace="w", destination="hf://a/b", target="x"),
        ["there is no argument 'target' in ExportModelOperator; did you mean destination?"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_the_error_of_a_wrong_argument_names_the_next_step(case):
    make, parts = WRONG[case]
    with pytest.raises(InvalidSpec) as raised:
        make()
    assert [part for part in parts if part not in str(raised.value)] == [], raised.value


def test_airflows_own_arguments_are_passed_on():
    operator = tune(pool="gpu", retries=3, resources={"cpus": 1}, doc_md="text", queue="kubernetes")
    assert (operator.pool, operator.retries, operator.queue) == ("gpu", 3, "kubernetes")

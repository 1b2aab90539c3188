"""The error of a program of the demo that failed names the failed TrainJob's reason."""

import pytest

from trainjob_demo.errors import DemoError

JOB_ERROR = """\
TrainJob default/fine-tune-1 failed in step node, rank 0, exit code 2: dataset_path cannot be a dataset with input
  RestartLimitExceeded: container node failed 1 time; max_restarts is 0
  log: trl: failed: dataset_path cannot be a dataset with input
  -> read the step's last log lines above"""
# Airflow's log goes on for more than 30 lines after the error of the task.
AFTER_IT = "\n2026-01-01T00:00:00Z [info] Task instance state updated" * 40


@pytest.mark.parametrize(
    ("log", "description"),
    [
        (f"Traceback:\ntrainjob.errors.CommandFailed: {JOB_ERROR}{AFTER_IT}", JOB_ERROR),
        (f"TrainJob a/b failed: first\nerror: {JOB_ERROR}{AFTER_IT}", JOB_ERROR),
        ("\n".join(map(str, range(40))), "\n".join(map(str, range(10, 40)))),
        ("", "(it printed nothing)"),
    ],
)
def test_the_message_has_the_error_of_the_failed_trainjob_or_the_last_lines(tmp_path, log, description):
    path = tmp_path / "airflow.log"
    path.write_text(log)
    error = DemoError.from_program("airflow dags test own_sft", 1, path)
    assert error.message == f"airflow dags test own_sft failed with exit code 1:\n{description}"
    assert error.hint == f"read the whole log: {path}"

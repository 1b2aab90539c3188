"""Tests of the page with XComs in an object store, as Airflow's `XComObjectStorageBackend` writes them.

They run in Airflow's own app, with the fixtures of test_page.py.
"""
# ruff: noqa: F811 - the fixtures are imported

from __future__ import annotations

import threading

import pytest

from tests.integration.airflow.test_page import (  # noqa: F401 - fixtures
    app,
    environment,
    get_as_admin,
    send_as,
    sweep_query,
    without,
)
from tests.support.polling import wait_until
from trainjob_airflow.plugins import task_records, xcom_objects
from trainjob_airflow.plugins.xcom_objects import XComObject, XComObjects, describe_reference, find_object

# Of universal_pathlib with Airflow 3.1, for any path.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
BACKEND = "airflow.providers.common.io.xcom.backend.XComObjectStorageBackend"
TUNE = ("sweeping", "r", "tune", 0)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """Set the backend for this process, and return its folder and settings."""
    folder = tmp_path_factory.mktemp("xcoms")
    settings = {
        "AIRFLOW__CORE__XCOM_BACKEND": BACKEND,
        "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_PATH": f"file://{folder}",
        "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_THRESHOLD": "0",
        "AIRFLOW__COMMON_IO__XCOM_OBJECTSTORAGE_COMPRESSION": "gzip",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield folder, settings


@pytest.fixture(scope="module")
def run(app, airflow, settings):
    """Run the DAG `sweeping` with the backend, and yield the ID of its run.

    Its XComs are deleted at the end, because other tests of the session read all XComs without the backend.
    """
    from airflow.models.dagrun import DagRun
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete, select

    folder, environment = settings
    done = airflow("dags", "test", "sweeping", **environment)
    with create_session() as session:
        statement = select(DagRun.run_id).where(DagRun.dag_id == "sweeping").order_by(DagRun.id.desc())
        run = session.scalars(statement.limit(1)).first()
    assert run, done.stdout[-4000:]
    assert list(folder.rglob("*.gz")), "the backend wrote no object"
    yield run
    with create_session() as session:
        session.execute(delete(XComModel).where(XComModel.run_id == run))


@pytest.fixture
def objects(monkeypatch):
    """Replace the objects that earlier requests have read."""
    monkeypatch.setattr(task_records, "_OBJECTS", XComObjects())


@pytest.mark.slow
def test_progress_metrics_and_failures_are_read_from_the_object_store(get_as_admin, run, objects, without):
    path = f"api/task?{sweep_query(run, task='tune', index=0)}"
    summary = dict(get_as_admin(path)["summary"])
    assert (summary["Phase"], summary["Step"], summary["Loss"]) == ("Complete", "10 of 10", "1.1")
    assert "Not shown" not in summary
    assert get_as_admin(f"api/task?{sweep_query(run, task='tune', index=2)}")["failure"]["kind"]
    comparison = f"api/comparison?{sweep_query(run)}"
    [group] = wait_until(lambda: get_as_admin(comparison)["groups"])
    assert [row["metrics"] for row in group["rows"]] == [{"loss": 1.1}, {"loss": 1.2}, {"loss": 1.3}]
    shown = get_as_admin(f"api/trainjobs?{sweep_query(run, sort='-loss')}")["trainjobs"]
    assert [row["progress"]["loss"] for row in shown] == [1.2, 1.1]
    with without("XCOM"):
        assert "Loss" not in dict(get_as_admin(path)["summary"])


@pytest.mark.slow
def test_the_page_says_which_object_it_cannot_read(get_as_admin, run, settings, monkeypatch):
    def fail(each):
        raise OSError("the object store is away")

    monkeypatch.setattr(task_records, "_OBJECTS", XComObjects(fail))
    place = f"file://{settings[0]}/sweeping/{run}/tune/"
    summary = get_as_admin(f"api/task?{sweep_query(run, task='tune', index=0)}")["summary"]
    assert sorted(text.partition(place)[0] for name, text in summary if name == "Not shown") == [
        "progress: it can't be read (",
        "return_value: it can't be read (",
    ]
    row = get_as_admin(f"api/trainjobs?{sweep_query(run, sort='name')}")["trainjobs"][0]
    assert row["not_shown"].startswith(f"progress: it can't be read ({place}")
    problems = get_as_admin(f"api/comparison?{sweep_query(run)}")["problems"]
    assert any(f"tune: progress is not shown, because it can't be read ({place}" in each for each in problems)


def test_only_objects_of_the_task_itself_are_read(settings):
    base = f"file://{settings[0]}"
    assert find_object(f"{base}/sweeping/r/tune/a.json", TUNE, "") == XComObject(base, "sweeping/r/tune/a.json", "")
    own = "/sweeping/r/tune/"
    others = ["", own, f"{own}..", f"{own}../../../../etc/passwd", f"{own}b/a.json", "/other/r/tune/a.json"]
    others = [*(base + each for each in others), f"{base}/sweeping/r/tuned/a.json", "file:///etc/passwd", "text"]
    for other in [*others, f"s3://bucket{own}a.json"]:
        assert find_object(other, TUNE, "") is None, other
    assert find_object(f"{base}/sweeping/../tune/a.json", ("sweeping", "..", "tune", 0), "") is None


def test_without_the_backend_no_object_is_read(settings, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__XCOM_BACKEND", "custom.Backend")
    assert find_object(f"file://{settings[0]}/sweeping/r/tune/a.json", TUNE, "") is None


@pytest.mark.parametrize(
    ("reference", "shown"),
    [
        ("s3://key:password@bucket/a?signature=secret#x", "s3://bucket/a"),
        ("file:///tmp/a", "file:///tmp/a"),
        ("a text", ""),
        ("text: of a value", ""),
        ("http://[", ""),
    ],
)
def test_a_reference_is_shown_without_credentials(reference, shown):
    assert describe_reference(reference) == shown


def make_object(number):
    return XComObject("file:///x", str(number), "")


def test_a_slow_object_store_delays_a_request_only_for_a_limited_time(monkeypatch):
    monkeypatch.setattr(xcom_objects, "_MAX_WAIT_SECONDS", 0.05)
    go, reads = threading.Event(), []

    def read(each):
        reads.append(each)
        go.wait(60)
        return "7"

    objects = XComObjects(read)
    for _ in range(3):
        assert objects.read([make_object(1)]) == {}
    go.set()
    wait_until(lambda: objects.read([make_object(1)]) == {make_object(1): "7"})
    assert len(reads) == 1


def test_an_object_that_cannot_be_read_is_read_again_after_a_while():
    now, reads = [0.0], []

    def read(each):
        reads.append(each)
        raise OSError("no")

    objects = XComObjects(read, clock=lambda: now[0])
    for time in (0.0, 29.0, 31.0):
        now[0] = time
        assert objects.read([make_object(1)]) == {}
    assert len(reads) == 2


def test_the_memory_of_read_objects_is_bounded(monkeypatch):
    monkeypatch.setattr(xcom_objects, "_MAX_CACHED_CHARACTERS", 10_000)
    objects = XComObjects(lambda each: "x" * 500)
    for number in range(100):
        assert objects.read([make_object(number)])
    assert len(objects._known) == 6


def test_a_large_object_is_not_read(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * (256 * 1024 + 1))
    with pytest.raises(ValueError, match="256 KiB"):
        xcom_objects._read_object(XComObject(f"file://{tmp_path}", "a", ""))

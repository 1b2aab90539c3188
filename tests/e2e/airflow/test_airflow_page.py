"""The project's page in a complete Airflow, in a headless Chromium from the system's packages."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from tests.support.airflow_versions import HAS_TASK_STATE_STORE
from tests.support.browser import MISSING, open_browser
from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.lifecycle import RunKey
from trainjob.lifecycle.prepared_job import prepare_job
from trainjob.manifest import Dialect, build_trainjob

DAGS = Path(__file__).resolve().parent / "dags"
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def airflow(laptop, installation, tmp_path_factory):
    links = {"trainjob_url": "https://dashboard.example/{namespace}/{name}", "trainjob_logs_url": "javascript:alert(1)"}
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default", **links}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    home = tmp_path_factory.mktemp("airflow-of-the-page")
    with Standalone(
        home, DAGS, **installation, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection, **SHORT_INTERVALS
    ) as airflow:
        yield airflow


@pytest.fixture
def browser(airflow, tmp_path):
    """Open a browser and log in.

    After the login, Airflow 3.1 opens its home page instead of the requested one.
    """
    with open_browser(tmp_path / "profile") as browser:
        browser.driver.get(airflow.url)
        browser.wait_for("nav, a[href$='/dags']")
        browser.errors()  # the first request is refused with 401
        yield browser


def open_page(browser, address):
    """Open one of Airflow's pages, and switch to the frame of the project's page."""
    browser.driver.get(address)
    browser.driver.switch_to.default_content()
    browser.driver.switch_to.frame(browser.wait_for("iframe"))


def read_percent(browser):
    """Return the percentage of the selected TrainJob's progress bar; None if there is no bar."""
    return browser.evaluate("document.querySelector('#detail progress')?.value ?? null")


def count_points(browser):
    return browser.evaluate("document.querySelector('svg.curve polyline')?.points.length ?? 0")


def test_a_user_watches_a_training_in_the_ui(airflow, browser, tmp_path, record_case):
    go, end, done = tmp_path / "go", tmp_path / "end", tmp_path / "done"
    done.touch()
    before = airflow.start_run("tuning", go=str(done), end=str(done))
    wait_for_airflow(lambda: airflow.get_state(before) == "success", 180)
    run = airflow.start_run("tuning", go=str(go), end=str(end))
    base = airflow.url

    # the page in the menu: both runs, the active one first
    open_page(browser, f"{base}/plugin/trainjobs")
    wait_for_airflow(lambda: browser.find("#rows .phase.Running") and browser.find("#rows .phase.Complete"), 60)
    shown = browser.evaluate("[...document.querySelectorAll('#rows .col-run span')].map(one => one.title)")
    assert shown == [each.rpartition("/")[2] for each in (run, before)]
    browser.click("#rows button")

    # the progress that the log has reported until now: 40 of 120 steps
    wait_for_airflow(lambda: count_points(browser) == 40, 30)
    assert round(read_percent(browser), 1) == 33.3
    wait_for_airflow(lambda: "saved recipe state after step 40" in browser.read_texts("#detail pre")[0], 30)
    assert "step 40 of 120, epoch 1 of 2" in browser.read_texts("#detail")[0]
    assert browser.read_texts("[data-part=ranks] td")[:3] == ["node 0", "Running", "0"]

    # text from the cluster is not interpreted as HTML
    assert '<img src=x onerror="document.title=1"> is a line' in browser.read_texts("#detail pre")[0]
    assert browser.find("img") == []
    record_case("page: HTML in a log line, in Chromium", "shown as text")

    # the list shows the progress that the deferred task wrote as its XCom
    wait_for_airflow(lambda: "40 / 120" in browser.read_texts("#rows tr")[0], 240)

    # the deferred task shows its TrainJob among the rendered templates
    instance = airflow.request("GET", f"{run}/taskInstances/fine_tune")
    assert instance["state"] == "deferred"
    rendered = yaml.safe_load(instance["rendered_fields"]["rendered_trainjob"])
    assert (rendered["kind"], rendered["metadata"]["labels"]["trainjob.dev/attempt"]) == ("TrainJob", "1")

    # the page updates itself
    go.touch()
    wait_for_airflow(lambda: count_points(browser) == 80, 30)
    assert round(read_percent(browser), 1) == 66.7

    # the same light or dark theme as Airflow's own page
    browser.evaluate("window.parent.document.documentElement.classList.add('dark')")
    wait_for_airflow(lambda: browser.evaluate("document.documentElement.classList.contains('dark')"), 10)

    # from the frame to the task, whose tab shows only its own TrainJob
    browser.click("#detail dd a")
    path = f"{base}/dags/tuning/runs/{quote(run.rpartition('/')[2], safe='')}/tasks/fine_tune"
    browser.driver.switch_to.default_content()
    wait_for_airflow(lambda: "/tasks/fine_tune" in browser.driver.current_url, 60)
    open_page(browser, f"{path}/plugin/trainjobs-of-task-instance")
    wait_for_airflow(lambda: count_points(browser) == 80, 60)
    assert len(browser.find("#rows tr")) == 1

    end.touch()
    wait_for_airflow(lambda: browser.find("#detail .phase.Complete"), 60)
    assert read_percent(browser) == 100
    assert browser.errors() == []


def suspended_trainjob(airflow, dag, number):
    """Return a suspended TrainJob of a task of this Airflow; nothing runs for it."""
    key = RunKey("airflow", dag, "train", "manual__1", str(number), origin=airflow.url)
    trainer = CustomTrainerContainer(image="busybox", command=["true"])
    prepared = prepare_job(TrainJob(trainer=trainer), key, "default", name_prefix="many")
    manifest = build_trainjob(prepared.job, **prepared.build_metadata(1), dialect=Dialect.V2_2)
    return {**manifest, "spec": {**manifest["spec"], "suspend": True}}


@pytest.fixture
def many_trainjobs(airflow, cluster):
    """Create 80 suspended TrainJobs of one DAG, and 40 of another one."""
    jobs = [suspended_trainjob(airflow, "visible" if number % 3 else "tuning", number) for number in range(120)]
    created = [cluster.create_trainjob(job)["metadata"] for job in jobs]
    yield created
    for meta in created:
        cluster.delete_trainjob(meta["name"], meta["namespace"], meta["uid"])


def choose(browser, selection, value):
    """Select an option as soon as it exists, with a click."""
    browser.wait_for(f"{selection} option[value='{value}']").click()


def read_count(browser):
    return browser.read_texts("#count")[0]


def test_a_user_pages_through_many_trainjobs_and_filters_them(airflow, browser, many_trainjobs):
    open_page(browser, f"{airflow.url}/plugin/trainjobs")
    choose(browser, "#phase", "Suspended")
    wait_for_airflow(lambda: read_count(browser) == "1 to 50 of 120", 60)
    assert len(browser.find("#rows tr")) == 50
    first = browser.read_texts("#rows button")[0]
    assert not browser.find("#previous")[0].is_enabled()

    for count in ("51 to 100 of 120", "101 to 120 of 120"):
        browser.click("#next")
        wait_for_airflow(lambda count=count: read_count(browser) == count, 30)
    assert len(browser.find("#rows tr")) == 20
    assert browser.read_texts("#page")[0] == "Page 3 of 3"
    assert not browser.find("#next")[0].is_enabled()

    # a filter shows its first page; its options have the counts
    assert "visible (80)" in browser.read_texts("#dag option")
    choose(browser, "#dag", "tuning")
    wait_for_airflow(lambda: read_count(browser) == "1 to 40 of 40", 30)
    assert not browser.find("#pages")[0].is_displayed()
    choose(browser, "#dag", "")
    wait_for_airflow(lambda: read_count(browser) == "1 to 50 of 120", 30)
    browser.find("#text")[0].send_keys(first)
    wait_for_airflow(lambda: read_count(browser) == "1 to 1 of 1", 30)
    assert browser.read_texts("#rows button")[0] == first
    assert browser.errors() == []


def read_column(browser, number):
    return browser.read_texts(f"#comparison tbody td:nth-child({number})")


def read_attempts(browser):
    """Return the texts of the table of all tries at one moment, because the page updates it."""
    return browser.evaluate(
        "[...document.querySelectorAll('[data-part=attempts] tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )


def test_a_user_compares_a_sweep_and_opens_the_links_of_all_tries(airflow, browser, cluster):
    run = airflow.start_run("sweeping")
    wait_for_airflow(lambda: airflow.get_state(run) == "success", 240)
    run_page = f"{airflow.url}/dags/sweeping/runs/{quote(run.rpartition('/')[2], safe='')}"

    open_page(browser, f"{run_page}/plugin/trainjobs-of-dag-run")
    browser.wait_for("#rows tr")
    browser.wait_for("#compare").click()
    wait_for_airflow(lambda: len(browser.find("#comparison tbody tr")) == 4, 60)
    assert browser.read_texts("#comparison th")[:2] == ["Task", "Phase"]

    open_page(browser, f"{run_page}/tasks/tune/mapped/0/plugin/trainjobs-of-task-instance")
    browser.wait_for("[data-part=facts] dd")  # Airflow has replaced the placeholders of the frame's address by then
    browser.wait_for("#compare").click()
    wait_for_airflow(lambda: len(browser.find("#comparison tbody tr")) == 3, 60)
    heads = browser.read_texts("#comparison th")
    assert heads == ["Task", "Phase", "trainer.env.RATE", "loss"]
    assert read_column(browser, 3) == ["0.3", "0.1", "0.2"]
    assert browser.read_texts("#comparison .best") == ["0.1 ★"]
    for rates in (["0.1", "0.2", "0.3"], ["0.3", "0.2", "0.1"]):
        browser.click("#comparison button[data-column=loss]")
        assert read_column(browser, 3) == rates
    browser.click("#close-comparison")
    wait_for_airflow(lambda: len(browser.find("#rows tr")) == 1, 30)

    # the tab of a task whose first TrainJob failed and was deleted
    open_page(browser, f"{run_page}/tasks/retried/plugin/trainjobs-of-task-instance")
    deleted = [("1", "deleted", "TrainJob")] if HAS_TASK_STATE_STORE else []
    wait_for_airflow(lambda: len(read_attempts(browser)) == 1 + len(deleted), 60)
    rows = read_attempts(browser)
    tried = "2" if HAS_TASK_STATE_STORE else ""
    assert [(row[0], row[2], row[4]) for row in rows] == [(tried, "Complete", "TrainJob"), *deleted]
    links = browser.evaluate("[...document.querySelectorAll('[data-part=attempts] a')].map(link => link.href)")
    assert links == [f"https://dashboard.example/{row[1].partition(',')[0]}" for row in rows]
    assert "success, try 2" in browser.read_texts("[data-part=summary]")[0]
    assert browser.errors() == []

    # the stored failure of a task without a TrainJob
    failure = {
        "kind": "OutOfMemory",
        "reason": "OOMKilled",
        "trainjob": "default/retried",
        "log": ["<img src=x> is the last line"],
    }
    path = f"{run}/taskInstances/retried"
    airflow.request("POST", f"{path}/xcomEntries", {"key": "failure", "value": failure, "map_index": -1})
    name = rows[0][1].partition(",")[0].partition("/")[2]
    cluster.delete_trainjob(name, "default", None)
    open_page(browser, f"{run_page}/tasks/retried/plugin/trainjobs-of-task-instance")
    wait_for_airflow(
        lambda: "OutOfMemory, OOMKilled, TrainJob default/retried" in " ".join(browser.read_texts("#detail")), 60
    )
    assert "<img src=x> is the last line" in browser.read_texts("[data-part=failure]")[0]
    # The list of TrainJobs is at most 15 s old.
    wait_for_airflow(lambda: [row[2] for row in read_attempts(browser)] == ["deleted"] * 2 * len(deleted), 60)
    wait_for_airflow(lambda: browser.find("#rows tr") == [], 30)
    assert browser.errors() == []

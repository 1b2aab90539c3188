"""The project's page in a complete Airflow, in a headless Chromium from the system's packages."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.browser import MISSING, open_browser
from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow

DAGS = Path(__file__).resolve().parent / "dags"
pytestmark = [pytest.mark.timeout(600), pytest.mark.skipif(bool(MISSING), reason=MISSING)]


@pytest.fixture(scope="module")
def airflow(laptop, installation, tmp_path_factory):
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    home = tmp_path_factory.mktemp("airflow-of-the-page")
    with Standalone(
        home, DAGS, **installation, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection, **SHORT_INTERVALS
    ) as airflow:
        yield airflow


@pytest.fixture
def browser(tmp_path):
    with open_browser(tmp_path / "profile") as browser:
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


def test_a_user_watches_a_training_in_the_ui(airflow, browser, tmp_path):
    go, end, done = tmp_path / "go", tmp_path / "end", tmp_path / "done"
    done.touch()
    before = airflow.start_run("tuning", go=str(done), end=str(done))
    wait_for_airflow(lambda: airflow.get_state(before) == "success", 180)
    run = airflow.start_run("tuning", go=str(go), end=str(end))
    base = airflow.url

    # the page in the menu: both runs, the active one first
    open_page(browser, f"{base}/plugin/trainjobs")
    wait_for_airflow(lambda: browser.find("#rows .phase.Running") and browser.find("#rows .phase.Complete"), 60)
    rows = [row.text for row in browser.find("#rows tr")]
    assert run.rpartition("/")[2] in rows[0]
    assert before.rpartition("/")[2] in rows[1]
    browser.find("#rows button")[0].click()

    # the progress that the log has reported until now: 40 of 120 steps
    wait_for_airflow(lambda: count_points(browser) == 40, 30)
    assert round(read_percent(browser), 1) == 33.3
    wait_for_airflow(lambda: "saved recipe state after step 40" in browser.find("#detail pre")[0].text, 30)
    assert "step 40 of 120, epoch 1 of 2" in browser.find("#detail")[0].text
    assert [cell.text for cell in browser.find("[data-part=ranks] td")][:3] == ["node 0", "Running", "0"]

    # text from the cluster is not interpreted as HTML
    assert '<img src=x onerror="document.title=1"> is a line' in browser.find("#detail pre")[0].text
    assert browser.find("img") == []

    # the list shows the progress that the deferred task wrote as its XCom
    wait_for_airflow(lambda: "40 / 120" in browser.find("#rows tr")[0].text, 240)

    # the page updates itself
    go.touch()
    wait_for_airflow(lambda: count_points(browser) == 80, 30)
    assert round(read_percent(browser), 1) == 66.7

    # the same light or dark theme as Airflow's own page
    browser.evaluate("window.parent.document.documentElement.classList.add('dark')")
    wait_for_airflow(lambda: browser.evaluate("document.documentElement.classList.contains('dark')"), 10)

    # from the frame to the task, whose tab shows only its own TrainJob
    browser.find("#detail dd a")[0].click()
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

"""Tests of the list of TrainJobs in a headless Chromium, in Airflow's own user interface.

The rows of the clusters are made up, as in test_page_list.py. tests/e2e/airflow/test_airflow_page.py has the tests
with a complete Airflow.
"""
# ruff: noqa: F811 - the fixtures are imported

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace

import pytest

from tests.integration.airflow.test_page import app, environment  # noqa: F401 - fixtures
from tests.integration.airflow.test_page_list import DAG, clusters, row, runs  # noqa: F401 - fixtures
from tests.support.browser import MISSING, open_browser
from tests.support.polling import wait_until
from trainjob.errors import ClusterUnreachable
from trainjob_airflow.plugins import api
from trainjob_airflow.plugins.task_records import InstanceRecord, TaskXComs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
    pytest.mark.filterwarnings("ignore"),  # of Airflow's own pages, which run in this process
]


@pytest.fixture(scope="module")
def url(app):
    """Serve Airflow with its user interface to administrators without a login."""
    import uvicorn
    from airflow.api_fastapi.app import create_app

    with socket.socket() as listener, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS", "True")
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app("all"), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def chromium(url, tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("browser") / "profile") as browser:
        browser.driver.get(url)
        browser.wait_for("nav, a[href$='/dags']")
        browser.evaluate("localStorage.setItem('timezone', JSON.stringify('Asia/Tokyo'))")
        yield browser


class Logs:
    """Logs of the made-up TrainJobs; far-3 has no loss."""

    def get(self, uid, cluster, namespace):
        points = [] if uid == "far-3" else [(step, step / 10) for step in range(1, 6)]
        lines = [f"[node-0] step {step} <b>loss</b> {value}" for step, value in points]
        snapshot = {"lines": lines, "curve": "loss", "points": points, "evaluation_points": [], "progress": None}
        return SimpleNamespace(snapshot=lambda pods: snapshot)


@pytest.fixture
def page(chromium, url, clusters, monkeypatch):
    """Return a function that opens the page with a view in the address."""
    chromium.errors()

    def open_view(view=""):
        chromium.driver.get("about:blank")
        chromium.driver.get(f"{url}/plugin/trainjobs{view}")
        enter_frame(chromium)
        wait_until(lambda: chromium.read_texts("#count") not in ([], [""]))
        return chromium

    monkeypatch.setattr(api, "_LOG_TAILS", Logs())
    yield open_view
    # The made-up TrainJobs have no task instances.
    assert [error for error in chromium.errors() if "/api/task?" not in error["message"]] == []


TAB_STOPS = "#rows [tabindex='0'], #rows a, #rows :is(button, input):not([tabindex='-1'])"


def enter_frame(browser):
    browser.driver.switch_to.default_content()
    browser.driver.switch_to.frame(browser.wait_for("iframe"))


def read_hash(browser):
    return browser.evaluate("window.parent.location.hash")


def read_names(browser):
    return browser.read_texts("#rows button.name")


def wait_for_names(browser, *names):
    wait_until(lambda: read_names(browser) == list(names))


def choose(browser, selection, value):
    browser.wait_for(f"{selection} option[value='{value}']").click()


def test_filters_order_and_selection_are_in_the_address_and_back_returns(page):
    browser = page()
    wait_for_names(browser, "near-1", "near-2", "far-3")
    browser.click("[data-column=created]")
    browser.click("[data-column=created]")
    wait_for_names(browser, "far-3", "near-2", "near-1")
    choose(browser, "#connection", "near")
    wait_for_names(browser, "near-2", "near-1")
    browser.click("#rows button.name")
    browser.wait_for("#detail h1")
    assert read_hash(browser) == "#sort=created&connection=near&job=near%2Fml%2Fnear-2"
    address = browser.evaluate("window.parent.location.href")

    browser.evaluate("window.parent.history.back()")
    wait_until(lambda: not browser.find("#detail")[0].is_displayed())
    browser.evaluate("window.parent.history.back()")
    wait_for_names(browser, "far-3", "near-2", "near-1")
    assert browser.find("#connection")[0].get_attribute("value") == ""

    # another user opens the address
    browser.driver.get("about:blank")
    browser.driver.get(address)
    enter_frame(browser)
    wait_for_names(browser, "near-2", "near-1")
    assert browser.find("#connection")[0].get_attribute("value") == "near"
    wait_until(lambda: browser.read_texts("#detail h1") == ["near-2"])
    assert browser.find("th[aria-sort=ascending]")[0].text == "Created ▲"


def test_text_is_one_step_of_back(page):
    browser = page()
    browser.find("#text")[0].send_keys("far-3")
    wait_for_names(browser, "far-3")
    assert read_hash(browser) == "#text=far-3"


def test_runs_are_dates_in_the_time_zone_of_the_user_with_the_id_as_title(page):
    browser = page(f"#dag={DAG}")
    wait_for_names(browser, "near-1", "far-3")
    assert browser.read_texts("#rows td.col-run span") == ["2026-03-01 21:00"] * 2
    assert browser.evaluate("document.querySelector('#rows td.col-run span').title") == "r1"
    assert "by dora" in browser.read_texts("#rows td.col-run")[1]
    assert set(browser.read_texts("#run option")) == {"All runs", "2026-03-01 21:00 (1)"}


def test_a_time_range_is_in_the_time_zone_of_the_user(page):
    browser = page("#time=range&until=2020-01-01T00%3A00")
    wait_until(lambda: browser.read_texts("#count") == ["No TrainJob matches"])
    sent = [address for address in browser.requests() if "/api/trainjobs?" in address]
    assert "until=2019-12-31T15%3A00%3A00.000Z" in sent[-1]


def test_rows_of_a_cluster_that_is_away_are_grey_with_their_age(page, clusters):
    browser = page()
    wait_for_names(browser, "near-1", "near-2", "far-3")
    clusters["far"] = ClusterUnreachable("refused")
    wait_until(lambda: browser.find("#rows tr.away"))
    assert read_names(browser)[2] == "far-3"
    assert "last seen" in browser.read_texts("#rows tr.away td.col-phase")[0]
    browser.click("#rows tr.away button")
    wait_until(lambda: "Last seen" in browser.read_texts("#detail")[0])
    assert "its API server does not respond" in browser.read_texts("#detail")[0]


def test_the_arrow_keys_go_from_row_to_row_and_the_list_is_one_stop_of_tab(page):
    from selenium.webdriver.common.keys import Keys

    browser = page()
    wait_for_names(browser, "near-1", "near-2", "far-3")
    assert browser.evaluate(f"document.querySelectorAll({TAB_STOPS!r}).length") == 1
    browser.evaluate("document.querySelector('#rows button').focus()")
    for key, name in (
        (Keys.ARROW_DOWN, "near-2"),
        (Keys.END, "far-3"),
        (Keys.ARROW_UP, "near-2"),
        (Keys.HOME, "near-1"),
    ):
        browser.driver.switch_to.active_element.send_keys(key)
        assert browser.evaluate("document.activeElement.textContent") == name
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    wait_until(lambda: browser.read_texts("#detail h1") == ["near-2"])
    browser.click("#detail .close")
    wait_until(lambda: not browser.find("#detail")[0].is_displayed())
    assert browser.evaluate("document.activeElement.className") == "name"


def test_a_changed_phase_is_announced(page, clusters):
    browser = page()
    wait_for_names(browser, "near-1", "near-2", "far-3")
    assert browser.evaluate("document.querySelector('#changes').ariaLive") == "polite"
    clusters["far"] = [row(3, connection="far", phase="Failed", finished=True, ended=row(0)["created"])]
    wait_until(lambda: browser.evaluate("document.querySelector('#changes').textContent") == "far-3: Failed")


@pytest.mark.parametrize("view", ["", "#job=near%2Fml%2Fnear-1"])
def test_a_narrow_window_cuts_nothing_off(page, chromium, clusters, view):
    clusters["near"] = [row(1), row(2, dag="d" * 240, queue="q" * 60)]
    chromium.run_command("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    try:
        chromium.driver.get("about:blank")
        browser = page(view)
        wait_until(lambda: read_names(browser))
        width = browser.evaluate("document.documentElement.clientWidth")
        wide = "[...document.querySelectorAll('#list *, #detail *')].filter(one => one.getBoundingClientRect().right > "
        assert browser.evaluate(f"{wide}{width + 1}).map(one => one.outerHTML.slice(0, 80))") == []
        assert browser.evaluate("document.documentElement.scrollWidth") == width
    finally:
        chromium.run_command("Emulation.clearDeviceMetricsOverride")


def test_the_losses_of_several_trainjobs_are_one_chart_in_the_address(page):
    from selenium.webdriver.common.keys import Keys

    browser = page()
    wait_for_names(browser, "near-1", "near-2", "far-3")
    browser.evaluate("document.querySelector('#rows button').focus()")
    browser.driver.switch_to.active_element.send_keys(Keys.ARROW_LEFT)
    browser.driver.switch_to.active_element.send_keys(Keys.SPACE)
    wait_until(lambda: len(browser.find("#chart polyline")) == 1)
    for key in ("near/ml/near-2", "far/ml/far-3"):
        browser.click(f"#rows input[data-key='{key}']")
    wait_until(lambda: len(browser.find("#chart li")) == 3)
    assert len(browser.find("#chart polyline")) == 2
    assert [text.splitlines()[:2] for text in browser.read_texts("#chart li")] == [
        ["near-1", "0.5 at step 5"],
        ["near-2", "0.5 at step 5"],
        ["far-3", "no loss in the log"],
    ]
    assert read_hash(browser) == "#chart=near%2Fml%2Fnear-1%2Cnear%2Fml%2Fnear-2%2Cfar%2Fml%2Ffar-3"
    browser.click("#chart li button")
    wait_until(lambda: len(browser.find("#chart li")) == 2)
    browser.evaluate("window.parent.history.back()")
    wait_until(lambda: len(browser.find("#chart li")) == 3)


def test_a_log_is_searched_and_downloaded(page):
    browser = page("#job=near%2Fml%2Fnear-1")
    wait_until(lambda: browser.read_texts("#detail pre"))
    browser.find("#detail [type=search]")[0].send_keys("STEP 3 <b>")
    assert browser.read_texts("#detail pre") == ["[node-0] step 3 <b>loss</b> 0.3\n"]
    assert browser.read_texts("#detail mark") == ["step 3 <b>"]
    assert browser.read_texts("#detail header.log [role=status]") == ["1 of the last 5 lines"]
    link = browser.find("#detail a[download]")[0].get_attribute("href")
    assert link.endswith("/trainjob/api/trainjobs/near/ml/near-1/log.txt")
    assert browser.evaluate(f"fetch({link!r}).then(file => file.text())").count("\n") == 5


def test_the_scores_of_a_task_are_drawn_by_run(page, monkeypatch):
    def read_xcoms(instances, keys):
        def score(run):
            return {"t/<b>acc": {"value": {"first": 0.5, "second": 0.7}.get(run, 0.6)}}

        return {
            each: TaskXComs(others={"return_value": {"scores": score(each[1]), "champion_scores": score("")}})
            for each in instances
        }

    runs = [("d", run, "t", -1) for run in ("first", "second")]
    record = InstanceRecord(runs[0], "EvaluateOperator", "success", 1, {})
    monkeypatch.setattr(api, "read_instance", lambda instance: record)
    monkeypatch.setattr(api, "list_succeeded_instances", lambda instance, limit: runs)
    monkeypatch.setattr(api, "read_xcoms", read_xcoms)
    browser = page("#job=near%2Fml%2Fnear-2")
    wait_until(lambda: browser.read_texts("[data-part=scores] h2") == ["t/<b>acc (dashed: champion)"])
    assert len(browser.find("[data-part=scores] polyline")) == 2
    texts = "[...document.querySelectorAll('[data-part=scores] text')].map(one => one.textContent)"
    assert browser.evaluate(texts) == ["0.5", "0.7", "run 1", "run 2"]

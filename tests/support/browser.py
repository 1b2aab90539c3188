"""A headless Chromium from the system's packages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.support.standalone import wait_for_airflow

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
MISSING = (
    ("" if CHROMIUM and DRIVER else "needs Debian's packages chromium and chromium-driver")
    if find_spec("selenium")
    else "needs selenium, which .venv/airflow has"
)
"""Why no browser can be opened; empty if one can."""

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


class Browser:
    """A browser with the operations that tests and screenshots need."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def find(self, selector: str) -> list[Any]:
        """Return the elements of a CSS selector; empty while the page loads."""
        return list(self.driver.find_elements("css selector", selector))

    def wait_for(self, selector: str, seconds: float = 60) -> Any:
        """Return the first element of a selector as soon as it exists."""
        return wait_for_airflow(lambda: self.find(selector), seconds)[0]

    def read_texts(self, selector: str) -> list[str]:
        """Return the texts of the elements of a selector, which the page may replace."""
        return list(self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(one => one.innerText)"))

    def click(self, selector: str) -> None:
        """Select the first element of a selector with a click; the page may replace it."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        return self.driver.execute_script(f"return {script}")

    def run_command(self, name: str, **parameters: object) -> Any:
        """Run a command of the Chrome DevTools Protocol."""
        return self.driver.execute_cdp_cmd(name, parameters)

    def errors(self) -> list[Any]:
        """Return the errors of the console since the last call."""
        return [entry for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]

    def requests(self) -> list[str]:
        """Return the addresses that pages have requested since the last call."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]


@contextmanager
def open_browser(profile: Path, size: tuple[int, int] = (1400, 900), scale: int = 1) -> Iterator[Browser]:
    """Open a browser, and close it at the end.

    Args:
        profile: new folder for the browser's data.
        size: width and height of the window, in CSS pixels.
        scale: pixels of a screenshot per CSS pixel.
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    own = (f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", f"--force-device-scale-factor={scale}")
    for flag in (*_FLAGS, *own):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=Service(str(DRIVER))) as driver:
        yield Browser(driver)

"""A browser, in the sizes in which pages are looked at."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver

Show = Callable[[Path], None]


@pytest.fixture(scope="session")
def started() -> Iterator[webdriver.Chrome]:
    chrome, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chrome or not driver:
        pytest.skip("Debian's packages chromium and chromium-driver bring the browser")
    options = webdriver.ChromeOptions()
    options.binary_location = chrome
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield opened
    opened.quit()


@pytest.fixture
def browser(started: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """The browser, with an empty log; what a page does must ask the network for nothing and break nothing."""
    started.get("about:blank")
    list_requests(started)
    started.get_log("browser")  # type: ignore[no-untyped-call]
    yield started
    started.switch_to.default_content()
    assert [url for url in list_requests(started) if not url.startswith(("file:", "data:", "about:"))] == []
    assert [entry for entry in started.get_log("browser") if entry["level"] == "SEVERE"] == []  # type: ignore[no-untyped-call]


@pytest.fixture(params=[(390, 844), (1280, 900)], ids=["phone", "desk"])
def show(request: pytest.FixtureRequest, browser: webdriver.Chrome) -> Show:
    """A function that opens a page in a window of a phone's size, or a desk's."""
    width, height = request.param
    sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < height}

    def open_page(page: Path) -> None:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
        browser.get(page.as_uri())
        assert browser.execute_script("return window.innerWidth") == width

    return open_page


def list_requests(browser: webdriver.Chrome) -> list[str]:
    """Return the addresses that were asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]  # type: ignore[no-untyped-call]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]

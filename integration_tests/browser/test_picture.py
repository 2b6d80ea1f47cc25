"""A trace's page in a real browser: one can click through it, and it sends no request."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from llama_index_gear import Trace
from llama_index_gear.trace.evidence import Linked, Source, Walked

SON = ["Stephen Curry", "son of", "Dell Curry"]
WENT = ["Dell Curry", "went to", "Virginia Tech"]


def trace() -> Trace:
    made = Trace(question="Where did the father of Stephen Curry play?", stopped="answered", answer="Virginia Tech")
    made.titles = {"p-1": "Stephen Curry", "p-2": "Dell Curry"}
    step = made.open_step()
    made.note(
        step,
        query=made.question,
        base=["p-1"],
        linked=[Linked(triple=SON, passage_id="p-1", score=0.7)],
        beams=[Walked(score=1.2, chain=[SON, WENT], passage_ids=["p-1", "p-2"])],
        passages=["p-1", "p-2"],
        gist=[SON],
        answerable=True,
        answer="Virginia Tech",
    )
    texts = {
        "p-1": "He is the son of Dell Curry. <img src='http://127.0.0.1:9/x.png'>",
        "p-2": "He went to Virginia Tech.",
    }
    made.note(
        passages=[
            Source(passage_id=key, title=made.titles[key], text=text, score=0.5, ranks={"step 1": 1}, chain=[SON])
            for key, text in texts.items()
        ]
    )
    return made


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
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


def list_requests(browser: webdriver.Chrome) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]  # type: ignore[no-untyped-call]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def test_the_page_can_be_clicked_through_and_no_request_leaves(browser: webdriver.Chrome, tmp_path: Path) -> None:
    page = trace().to_html(tmp_path / "trace.html")
    browser.get(page.as_uri())
    passage = browser.find_element(By.CSS_SELECTOR, "[data-passage='p-2']")
    text = passage.find_element(By.CSS_SELECTOR, ".text")
    assert not text.is_displayed()
    passage.find_element(By.TAG_NAME, "summary").click()
    assert text.is_displayed() and text.text == "He went to Virginia Tech."
    lit = [fact.get_attribute("data-fact") for fact in browser.find_elements(By.CSS_SELECTOR, ".fact.lit")]
    assert lit == ["1"]

    first, second = browser.find_elements(By.CSS_SELECTOR, ".fact")
    browser.execute_script("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", first)
    assert browser.find_element(By.ID, "read").text.startswith("Stephen Curry — son of — Dell Curry")
    assert "stated by: Stephen Curry" in browser.find_element(By.ID, "read").text
    lit_passages = browser.find_elements(By.CSS_SELECTOR, ".passage.lit")
    assert [element.get_attribute("data-passage") for element in lit_passages] == ["p-1"]

    step = browser.find_element(By.CSS_SELECTOR, ".step")
    step.find_element(By.TAG_NAME, "summary").click()
    assert "Dell Curry went to Virginia Tech" in step.text
    assert {url for url in list_requests(browser) if not url.startswith("data:")} == {page.as_uri()}
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("in_notebook", [False, True])
def test_a_citation_opens_its_passage(browser: webdriver.Chrome, tmp_path: Path, in_notebook: bool) -> None:
    cited = trace()
    cited.note(response="Virginia Tech [2]", citations={"2": "p-2"})
    page = tmp_path / "trace.html"
    if in_notebook:
        page.write_text(f"<!doctype html><p>{cited._repr_html_()}</p>", "utf-8")
    else:
        cited.to_html(page)
    browser.get(page.as_uri())
    if in_notebook:
        browser.switch_to.frame(browser.find_element(By.TAG_NAME, "iframe"))
    text = browser.find_element(By.CSS_SELECTOR, "[data-passage='p-2'] .text")
    assert not text.is_displayed()
    browser.find_element(By.CSS_SELECTOR, ".answer a").click()
    assert text.is_displayed() and text.text == "He went to Virginia Tech."
    lit = browser.find_elements(By.CSS_SELECTOR, ".passage.lit")
    assert [element.get_attribute("data-passage") for element in lit] == ["p-2"]


def test_a_click_with_the_mouse_hits_a_line(browser: webdriver.Chrome, tmp_path: Path) -> None:
    browser.get(trace().to_html(tmp_path / "trace.html").as_uri())
    line = browser.find_element(By.CSS_SELECTOR, ".fact .touch")
    webdriver.ActionChains(browser).move_to_element(line).click().perform()
    assert "Stephen Curry — son of — Dell Curry" in browser.find_element(By.ID, "read").text


def test_the_picture_fits_a_narrow_window(browser: webdriver.Chrome, tmp_path: Path) -> None:
    browser.set_window_size(500, 900)
    browser.get(trace().to_html(tmp_path / "trace.html").as_uri())
    width = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
    assert width <= 0

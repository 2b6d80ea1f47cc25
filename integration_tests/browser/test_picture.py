"""A trace's page in a real browser: one can click through it, and it sends no request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from drawings import check_colors, check_drawing
from selenium import webdriver
from selenium.webdriver.common.by import By

from llama_index_gear.trace.evidence import Linked, PassageLink, Slots, Source, Walked
from llama_index_gear.trace.trace import Trace

SON = ["Stephen Curry", "son of", "Dell Curry"]
WENT = ["Dell Curry", "went to", "Virginia Tech"]
CHAINS = {"p-1": [SON], "p-2": [SON, WENT]}


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
    made.note(links=[PassageLink(triple=SON, passages=["p-1"])])
    texts = {
        "p-1": "He is the son of Dell Curry. <img src='http://127.0.0.1:9/x.png'>",
        "p-2": "He went to Virginia Tech.",
    }
    made.note(
        passages=[
            Source(passage_id=key, title=made.titles[key], text=text, score=0.5, ranks={"step 1": 1}, chain=CHAINS[key])
            for key, text in texts.items()
        ]
    )
    return made


def open_folded(browser: webdriver.Chrome) -> None:
    for summary in browser.find_elements(By.CSS_SELECTOR, ".rest > summary"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", summary)
        summary.click()


def list_lit(browser: webdriver.Chrome) -> list[str | None]:
    lit = browser.find_elements(By.CSS_SELECTOR, ".passage.lit")
    return [element.get_attribute("data-passage") for element in lit]


def test_the_page_can_be_clicked_through(browser: webdriver.Chrome, tmp_path: Path) -> None:
    browser.get(trace().to_html(tmp_path / "trace.html").as_uri())
    passage = browser.find_element(By.CSS_SELECTOR, "[data-passage='p-2']")
    text = passage.find_element(By.CSS_SELECTOR, ".text")
    assert not text.is_displayed()
    passage.find_element(By.TAG_NAME, "summary").click()
    assert text.is_displayed() and text.text == "He went to Virginia Tech."
    assert list_lit(browser) == ["p-2"]

    assert not browser.find_element(By.CSS_SELECTOR, ".step").is_displayed()
    open_folded(browser)
    step = browser.find_element(By.CSS_SELECTOR, ".step")
    step.find_element(By.TAG_NAME, "summary").click()
    assert "Dell Curry went to Virginia Tech" in step.text


@pytest.mark.parametrize("in_notebook", [False, True])
def test_citations_and_facts_lead_to_their_passages(
    browser: webdriver.Chrome, tmp_path: Path, in_notebook: bool
) -> None:
    cited = trace()
    others = {f"q-{number}": f"Other {number}" for number in range(4)}  # cited together they are too many to stand open
    sources = [
        Source(passage_id=key, title=title, text="", score=0.1, ranks={}, chain=[]) for key, title in others.items()
    ]
    cited.note(passages=[*cited.passages, *sources], response="Virginia Tech [2]")
    cited.note(citations={"2": "p-2", **{str(number): key for number, key in enumerate(others, start=3)}})
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
    assert text.is_displayed() and text.text == "He went to Virginia Tech." and list_lit(browser) == ["p-2"]

    folded = browser.find_element(By.CSS_SELECTOR, "[data-passage='p-1'] .text")
    assert not folded.is_displayed()
    (chip,) = [chip for chip in browser.find_elements(By.CSS_SELECTOR, "a.chip") if chip.text == "Stephen Curry"]
    chip.click()
    assert folded.is_displayed() and list_lit(browser) == ["p-1"]


NAMES = ["Stephen Curry", "Dell Curry", "Virginia Tech", "1982", "B" * 90, "A name " * 20, "Davidson", "NBA"]
LONG = "was, as everybody knows who has ever read anything about it, in spite of all that was written, " * 2


def make_full(gist: Sequence[Slots]) -> Trace:
    """Return a trace with these facts, eight cited passages, and one that is not cited."""
    full = Trace(question="Where did the father of Stephen Curry play, and for whom?", stopped="answered")
    ids = [f"p-{number}" for number in range(9)]
    full.note(full.open_step(), query=full.question, passages=ids, gist=[list(slots) for slots in gist])
    full.note(titles={key: f"{NAMES[number % 8]}, passage {number}" for number, key in enumerate(ids)})
    full.note(links=[PassageLink(triple=slots, passages=[ids[at % 8]]) for at, slots in enumerate(full.gist)])
    full.note(response="Virginia Tech [1], since 1982 [2][3][4][5][6][7][8]")
    full.note(citations={str(number): key for number, key in enumerate(ids[:8], start=1)})
    chain = [["NBA", LONG, "Davidson"]]
    full.note(
        passages=[
            Source(
                passage_id=key, title=full.titles[key], text="Text. " * 50, score=0.5, ranks={"step 1": 1}, chain=chain
            )
            for key in ids
        ]
    )
    return full


FULL: dict[str, list[Slots]] = {
    "none": [],
    "a line": [["Stephen Curry", "son of", "Dell Curry"], ["Dell Curry", LONG, "Virginia Tech"]],
    "a star": [["Stephen Curry", LONG if number % 2 else "is", name] for number, name in enumerate(NAMES[1:])],
    "rings": [[NAMES[at], "knows", NAMES[(at + by) % 8]] for by in (1, 3, -1) for at in range(4)],
    "apart": [[NAMES[at], "of" * 60, NAMES[at + 1]] for at in (0, 2, 4, 6)],
}


def test_no_arrow_crosses_and_nothing_is_cut(
    browser: webdriver.Chrome, tmp_path: Path, show: Callable[[Path], None]
) -> None:
    for name, gist in FULL.items():
        full = make_full(gist)
        show(full.to_html(tmp_path / f"{name}.html"))
        seen = check_drawing(browser)
        text = browser.find_element(By.TAG_NAME, "body").text
        assert all(" ".join(slots[1].split()) in text for slots in gist), name
        joined = {frozenset((slots[0], slots[2])) for slots in gist}
        assert len(seen["heads"]) >= len(seen["elbows"]) and len(seen["heads"]) >= len(joined), name
        check_colors(browser)
        open_folded(browser)
        assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0

"""The page of a store's graph in a real browser: walked by clicks, searched, on a phone and a desk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from drawings import check_colors, check_drawing
from qdrant_client import QdrantClient
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from llama_index_gear import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

EMBED = WordEmbedding(16)
LONG = "took his doctorate at the University of Göttingen in 1927 with him as his adviser, and then taught at Caltech"
UNBROKEN = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft-" + "x" * 60
FACTS = {
    "one": [("J. Robert Oppenheimer", LONG, "Max Born"), (UNBROKEN, "honored", "Max Born")],
    "two": [("Olivia Newton-John", "granddaughter of", "Max Born"), ("Olivia Newton-John", "born in", "Cambridge")],
    "three": [("Max Born", "knew", "J. Robert Oppenheimer"), ("Max Born", "wrote to", "<img src=x onerror=alert(1)>")],
    "four": [("Max Born", "met", f"Physicist {number}") for number in range(45)],
    "five": [("Quantum mechanics", "“See Max Born.” links to", "Max Born"), ("Quantum mechanics", "has", "spin")],
    "six": [("Quantum mechanics", "“It is of Bohr.” mentions", name) for name in ("Niels Bohr", "Jordan", "Pauli")],
}
_NAMES = """
return [...document.querySelectorAll("#picture .name")].map(name => {
  const [box, text] = ["rect", "text"].map(tag => name.querySelector(tag).getBoundingClientRect());
  return { name: name.getAttribute("aria-label"), box: [box.left, box.top, box.right, box.bottom],
    fits: text.left >= box.left && text.right <= box.right && text.top > box.top - 2 && text.bottom < box.bottom + 2 };
});
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    store.add([passage(name, f"Text of {name}. " * 20, facts, embed_model=EMBED) for name, facts in FACTS.items()])
    return store.to_html(tmp_path_factory.mktemp("graph") / "graph.html", "Max Born")


def click(browser: webdriver.Chrome, css: str, text: str) -> None:
    (found,) = [element for element in browser.find_elements(By.CSS_SELECTOR, css) if element.text == text]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    found.click()


def read_entity(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.CSS_SELECTOR, "#entity .box.asked").text


def test_it_is_walked_searched_and_read(browser: webdriver.Chrome, page: Path, show: Callable[[Path], None]) -> None:
    show(page)
    seen = check_drawing(browser)
    assert len(seen["elbows"]) == 40 and read_entity(browser) == "Max Born"
    check_colors(browser)
    browser.find_element(By.ID, "more").click()
    assert len(check_drawing(browser)["elbows"]) == 50

    click(browser, "#entity button.box", "Olivia Newton-John")
    assert read_entity(browser) == "Olivia Newton-John" and browser.find_element(By.ID, "heading").text == "2 NEIGHBORS"
    check_drawing(browser)
    text = browser.find_element(By.CSS_SELECTOR, ".passage .text")
    assert not text.is_displayed()
    browser.find_elements(By.CSS_SELECTOR, "#entity .chip")[0].click()
    assert text.is_displayed() and text.text.startswith("Text of two.")
    assert browser.execute_script("return arguments[0].getBoundingClientRect().top < innerHeight", text)

    click(browser, "#entity button.box", "Cambridge")
    click(browser, "#trail .chip", "Max Born")
    assert read_entity(browser) == "Max Born" and browser.find_element(By.ID, "trail").text == ""

    search = browser.find_element(By.ID, "search")
    search.send_keys("robert opp")
    assert [hit.text for hit in browser.find_elements(By.CSS_SELECTOR, "#hits button")] == ["J. Robert Oppenheimer"]
    search.send_keys(Keys.ENTER)
    assert read_entity(browser) == "J. Robert Oppenheimer"
    heads = browser.find_elements(By.CSS_SELECTOR, "#entity .head")
    assert sorted((head.get_attribute("class") or "").split()[1] for head in heads) == ["back", "out"]
    assert "→ took his doctorate" in browser.find_element(By.ID, "entity").text
    search.send_keys("nobody")
    assert browser.find_element(By.ID, "hits").text == "No such name on this page."
    assert not browser.find_elements(By.TAG_NAME, "img")


def walk_to(browser: webdriver.Chrome, name: str, key: str = "") -> None:
    (found,) = [
        shape
        for shape in browser.find_elements(By.CSS_SELECTOR, "#picture .name")
        if shape.get_attribute("aria-label") == name
    ]
    if key:
        found.send_keys(key)
    else:
        found.find_element(By.TAG_NAME, "text").click()
    assert read_entity(browser) == name


def check_picture(browser: webdriver.Chrome) -> list[str]:
    """Check that every name is in its box, and every box in the window, over no other; return the names."""
    seen = browser.execute_script(_NAMES)
    width = browser.execute_script("return window.innerWidth")
    for at, one in enumerate(seen):
        left, top, right, bottom = one["box"]
        assert one["fits"] and 0 <= left < right <= width, one
        for other in seen[at + 1 :]:
            apart = other["box"][0] >= right or other["box"][2] <= left
            assert apart or other["box"][1] >= bottom or other["box"][3] <= top, (one, other)
    return [one["name"] for one in seen]


def test_its_picture_is_walked(browser: webdriver.Chrome, page: Path, show: Callable[[Path], None]) -> None:
    show(page)
    is_phone = browser.execute_script("return window.innerWidth") < 640
    names = check_picture(browser)
    assert names[-1] == "Max Born" and len(names) >= (9 if is_phone else 17)
    caption = browser.find_element(By.ID, "caption").text
    assert f"join it to 50 neighbors, {8 if is_phone else 16} of them in the picture." in caption
    search = browser.find_element(By.ID, "search")
    search.send_keys("quantum", Keys.ENTER)
    assert set(check_picture(browser)) >= {"Quantum mechanics", "Max Born", "spin", "Niels Bohr", "Jordan", "Pauli"}
    links = browser.find_elements(By.CSS_SELECTOR, "#picture .edge.link:not(.thin)")
    assert len(links) == 4 and "“It is of Bohr.” mentions" in {
        link.find_element(By.TAG_NAME, "title").get_attribute("textContent") for link in links
    }
    assert "1 fact and 4 links join it to 5 neighbors." in browser.find_element(By.ID, "caption").text
    walk_to(browser, "Jordan", Keys.ENTER)
    assert check_picture(browser)[-1] == "Jordan" and browser.find_element(By.ID, "heading").text == "1 NEIGHBOR"
    walk_to(browser, "Quantum mechanics")
    walk_to(browser, "Max Born")
    assert browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert not browser.find_elements(By.CSS_SELECTOR, "#picture img")

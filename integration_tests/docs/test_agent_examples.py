"""The agent's examples run as a new user runs them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Script = Callable[..., str]

# What the model's libraries warn of at their own discretion.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for a store that the first test fills, since ingestion takes longest in this example."""
    return tmp_path_factory.mktemp("store")


def run_agent(script: Script, store: Path, page: Path, *arguments: str) -> str:
    said = script("gear_agent.py", "--store", str(store), "--html", str(page), *arguments)
    assert "Virginia Tech Hokies" in page.read_text("utf-8")
    return said


def test_the_example_without_a_key(script: Script, filled: Path, tmp_path: Path) -> None:
    said = run_agent(script, filled, tmp_path / "t.html")
    assert "A: 1982 [3]\n   answered" in said
    assert "2. query: When did Dell Curry join the Virginia Tech Hokies?" in said
    assert "[3] Virginia Tech Hokies men's basketball" in said


def test_the_example_of_a_function_agent(script: Script, filled: Path) -> None:
    said = script("function_agent.py", "--store", str(filled))
    assert "answer_from_documents({'input': 'What year did the father of Stephen Curry join" in said
    assert "= 1982 [3]\n     [3] Virginia Tech Hokies men's basketball\n     (answered; it searched: " in said
    assert "subtract({'later': 2024, 'earlier': 1982})\n   = 42\nA: In 1982, 42 years ago.\n" in said


def test_the_example_with_t2rag(script: Script, filled: Path, tmp_path: Path) -> None:
    said = run_agent(script, filled, tmp_path / "t.html", "--method", "t2rag")
    assert "A: 1982 [3]\n   resolved" in said
    assert "3. values: {'?year': '1982'}" in said
    assert "[3] Virginia Tech Hokies men's basketball" in said


@pytest.mark.long
def test_the_example_with_wikidata(script: Script, tmp_path: Path) -> None:
    """The second run neither embeds passages nor loads triples again."""
    for written in (941, 0):
        said = script("wikidata_graph.py", "--store", str(tmp_path))
        assert f"101 passages, {101 if written else 0} of them new or changed" in said
        assert f"LoadResult(read=941, written={written})" in said and "705 kept, 175 literal" in said
        shares = re.findall(r"(hybrid search|with Wikidata) +\d+ % +(\d+) of 20 questions complete", said)
        complete = {name: int(count) for name, count in shares}
        assert complete["with Wikidata"] > complete["hybrid search"]
        assert "A: Tanganyika [1]\n[1] Zanzibar" in said

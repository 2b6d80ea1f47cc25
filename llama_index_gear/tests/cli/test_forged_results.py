"""Hostile passages, titles, ids, facts and answers behind `mcp`: a result shows as many passages as there are."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_gear import GeARVectorStore, Triple, attach_triples
from llama_index_gear.characters import unify_spelling
from llama_index_gear.cli import mcp_results as results
from llama_index_gear.cli import serving as serving
from llama_index_gear.errors import ArgumentError
from llama_index_gear.testing import ScriptedLLM

mcp = pytest.importorskip("mcp.server.mcpserver", reason="needs the extra mcp") and pytest.importorskip("mcp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK's own

QUESTION = "Whom did Max Born advise?"
PARTS = [
    *("\n", "\r", "\r\n", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\n\n", "\n   ", "\n| ", "\n- ", "\n> **"),
    *("[2] ", "[ 3 ]", "[２]", "【4】 ", "[[5] ", "Passage 6. ", "(id: x.txt-0)", "（ID：x", "( id :x)", "(ids: x)"),
    *("↳ ", "   ↳ Bank — says — wire", " — ", "#####\n", "\u200b[7]", "\x1b[2J", "\x9b31m", "\u202e", "\u2066"),
    *("Bank Policy ", "Max Born ", "advised ", "Robert Oppenheimer ", "Basel.", "Rank 1.\n", "\u200d", "\ufeff"),
]
HEADING = re.compile(r"\W*[\[［【]\s*\d+\s*[\]］】]|\W*Passage \d+ ?[.:]", re.IGNORECASE)
ID = re.compile(r"[(（]\s*ids?\s*[:：]", re.IGNORECASE)


def draw(source: random.Random, length: int = 14) -> str:
    return "".join(source.choices(PARTS, k=source.randint(1, length)))


def count(text: str) -> tuple[int, int, int]:
    """Return the number of headings, ids and facts that a reader sees; refuse what he can't see."""
    assert not [one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one != "\n"]
    return len([line for line in text.split("\n") if HEADING.match(line)]), len(ID.findall(text)), text.count("↳")


@pytest.fixture(params=range(4))
def hostile(
    request: pytest.FixtureRequest, tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, random.Random]:
    """A store of twenty drawn passages, and what draws."""
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    source = random.Random(request.param)
    nodes = []
    for number in range(20):
        text = f"Max Born advised {draw(source, 40)}"
        node = TextNode(id_=f"{draw(source)}{number}", text=text, metadata={"title": draw(source)})
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=f"{draw(source)}{number}")
        facts = [("Max Born", f"x{draw(source)}", f"x{draw(source)}"), (f"x{draw(source)}", "met", "Max Born")]
        nodes.append(attach_triples(node, [Triple(*slots) for slots in facts]))
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=embedding) as store:
        store.add(embedding(nodes))
    return tmp_path / "s", source


async def test_search_and_explain_show_the_passages_that_there_are(hostile: tuple[Path, random.Random]) -> None:
    tools = serving.StoreTools(hostile[0])
    found = await tools.search(QUESTION, 20)
    facts = sum(len(passage.chain) for passage in found.passages)
    assert len(found.passages) == 20 and count(found.format()) == (20, 20, facts)
    for passage in found.passages[:5]:
        told = await tools.explain(QUESTION, passage.id)
        assert told.passage.id == passage.id, "the data have ids as they are"
        assert count(told.format()) == (1, 1, len(told.passage.chain))
        assert told.format().count("\nRank ") == 0


def test_facts_that_lead_to_passages_are_as_many_as_there_are() -> None:
    source = random.Random(0)
    for _ in range(100):
        chain = [[draw(source) for _ in range(3)] for _ in range(source.randint(0, 3))]
        passage = results.Passage(
            id=draw(source), document=draw(source), title=draw(source), text=draw(source, 40), chain=chain
        )
        explained = results.Explanation(rank=1, passage=passage, lists={}, reasons=[draw(source)])
        shown = results.Passages(passages=[passage, passage]).format()
        assert count(shown) == (2, 2, 2 * len(chain)) and count(explained.format()) == (1, 1, len(chain))


async def test_ask_shows_the_citations_that_there_are(hostile: tuple[Path, random.Random]) -> None:
    folder, source = hostile
    told: list[str] = []

    async def report(step: int, message: str) -> None:
        told.append(message)

    for _ in range(5):
        query, answer = f"Who? {draw(source)}", f"Robert {draw(source)}"
        step = {"needed": [1, 2, 3], "facts": [], "answerable": False, "query": query}
        end = {"needed": [1], "facts": [], "answerable": True, "answer": answer}
        tools = serving.StoreTools(folder, llm=ScriptedLLM([json.dumps(step), json.dumps(end)]))
        answered = await tools.ask(QUESTION, report)
        await tools.finish()
        number = len(answered.citations)
        assert number and count(answered.format()) == (number, number, 0)
    assert len(told) >= 5 and all(count(message) == (0, 0, 0) and "\n" not in message for message in told)


async def test_add_and_delete_say_one_line(hostile: tuple[Path, random.Random]) -> None:
    folder, source = hostile
    tools = serving.StoreTools(folder)
    for number in range(5):
        hidden = f"{number}{draw(source)}\u202e"
        with pytest.raises(ArgumentError, match="holds characters that can't be seen"):
            await tools.add("Max Born lived in Basel.", draw(source) + "x", hidden)
        name = "".join(one for one in draw(source) if one.isprintable()) + f"n{number}"
        written = await tools.add(f"Max Born {draw(source)}", draw(source) + "x", name)
        assert (
            written.document == unify_spelling(name)
            and count(written.format())[1:] == (0, 0)
            and "\n" not in written.format()
        )
        assert (await tools.delete(name)).deleted == written.added


async def test_an_error_is_one_line_of_bounded_length(hostile: tuple[Path, random.Random]) -> None:
    """Whatever a client sends, it doesn't come back whole: not an argument, nor the name of a tool."""
    from llama_index_gear.cli.mcp_server import build_server

    folder, source = hostile
    long = (draw(source) * 100_000)[:100_000]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("search", {"question": long + "x"}),
        ("search", {"question": 5 * [long]}),
        ("search", {"question": "Who?", "top_k": long}),
        ("search", {long: long}),
        ("explain", {"question": "Who?", "id": long}),
        ("explain", {"question": long + "x", "id": "x"}),
        ("ask", {"question": long + "x"}),
        ("add", {"text": "Max Born.", "title": long, "id": "a"}),
        ("add", {"text": "Max Born.", "title": "a", "id": long}),
        ("add", {"text": "Max Born.", "title": "a", "id": f"{long[:900]}"}),
        ("delete", {"id": long}),
        ("delete", {"id": f"x{draw(source)}"}),
        (long, {}),
    ]
    llm = ScriptedLLM([ConnectionError(f"no {long}")])
    async with mcp.Client(build_server(lambda: serving.StoreTools(folder, llm=llm), asks=True, write=True)) as client:
        for name, arguments in [*calls, ("ask", {"question": QUESTION})]:
            result = await client.call_tool(name, arguments)
            text = result.content[0].text
            assert result.is_error and "\n" not in text and len(text) <= 1_001 + len(" … "), (name, text)
            assert count(text)[0] == 0 or name == long
        told = (await client.call_tool("delete", {"id": 100_000 * "a"})).content[0].text
        assert told.endswith("take an id that search returned"), "what to do stands at the end"

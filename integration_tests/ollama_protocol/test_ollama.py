"""LlamaIndex's Ollama client against a server that speaks Ollama's protocol: extraction, agents, the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.schema import TextNode
from ollama_server import MODEL, OllamaServer

from llama_index_gear import GeARQueryEngine, GeARTripleExtractor, GeARVectorStore, Triple
from llama_index_gear.cli import store_folder
from llama_index_gear.cli.main import main
from llama_index_gear.cli.models import open_llm
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.asking import fill_store
from llama_index_gear.tests.store_contract import passage

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # the clients' own

JAWS = {"subject": "Jaws", "predicate": "directed by", "object": "Steven Spielberg"}
FACT = json.dumps({"entities": [], "triples": [list(JAWS.values())]})
STEP = json.dumps({"needed": [1], "facts": [list(JAWS.values())], "answerable": True, "answer": "Steven Spielberg"})


@pytest.fixture
def ollama() -> Iterator[OllamaServer]:
    with OllamaServer() as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GeARVectorStore]:
    text = "Jaws was directed by Steven Spielberg."
    yield from fill_store(tmp_path / "s", [passage("jaws", text, [JAWS.values()], metadata={"title": "Jaws"})])


def make_nodes(count: int = 1) -> list[TextNode]:
    return [TextNode(text=f"Jaws {number} was directed by Steven Spielberg.") for number in range(count)]


@pytest.mark.parametrize("has_tools", [True, False])
def test_a_model_is_asked_for_text_whether_or_not_it_has_tools(has_tools: bool) -> None:
    with OllamaServer(has_tools=has_tools) as ollama:
        ollama.answer = lambda body: FACT
        extractor = GeARTripleExtractor(ollama.llm())
        nodes = extractor(make_nodes(2))
    assert [read_triples(node) for node in nodes] == [[Triple(**JAWS)]] * 2
    assert not extractor.ledger.failures and extractor.ledger.calls == len(ollama.requests) == 2
    assert not any(body.get("tools") for body in ollama.requests)


def test_a_server_s_error_is_told(ollama: OllamaServer) -> None:
    ollama.answer = lambda body: 400
    extractor = GeARTripleExtractor(ollama.llm())
    extractor(make_nodes())
    assert len(ollama.requests) == 1 and "the model has no answer" in str(extractor.ledger.failures)
    unknown = GeARTripleExtractor(ollama.llm(model="llama9"))
    with pytest.raises(Exception, match="model 'llama9' not found"):
        unknown(make_nodes())


async def test_agents_ask_for_no_tools_and_serve_several_event_loops(
    ollama: OllamaServer, store: GeARVectorStore
) -> None:
    """Ollama's client keeps connections, which belong to an event loop: those of an earlier one are passed over."""
    ollama.answer = lambda body: STEP
    llm = ollama.llm()
    engine = GeARQueryEngine.from_vector_store(store, llm=llm)
    extractor = GeARTripleExtractor(llm, num_workers=4)
    assert str(engine.query("Who directed Jaws?")) == "Steven Spielberg [1]"
    for _ in range(2):
        said = await asyncio.to_thread(lambda: asyncio.run(engine.aquery("Who directed Jaws?")))
        assert str(said) == "Steven Spielberg [1]"
        extractor(make_nodes(8))  # in a loop of its own, since one is running
        assert not extractor.ledger.failures and extractor.ledger.calls == 8
    assert not any(body.get("tools") for body in ollama.requests)


async def test_an_agent_with_the_tool(ollama: OllamaServer, store: GeARVectorStore) -> None:
    """The outer agent calls functions; GeAR's search, with the same model, asks for none."""

    def answer(body: dict[str, Any]) -> str | dict[str, Any]:
        if not body.get("tools"):
            return STEP
        said = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        return said[0] if said else {"input": "Who directed Jaws?"}

    ollama.answer = answer
    llm = ollama.llm()
    engine = GeARQueryEngine.from_vector_store(store, llm=llm)
    said = await FunctionAgent(tools=[engine.as_tool()], llm=llm, streaming=False).run("Who made Jaws?")
    assert str(said) == "Steven Spielberg [1]\n[1] Jaws"


def test_a_slow_model_ends_in_time(ollama: OllamaServer) -> None:
    ollama.answer, ollama.delay = lambda body: FACT, 1.0
    extractor = GeARTripleExtractor(ollama.llm(request_timeout=0.1, context_window=8_192), max_retries=0)
    extractor(make_nodes())
    assert [outcome for _, outcome, _ in extractor.ledger.failures] == ["timed out"]


def test_the_command_line_takes_ollama_s_environment(
    ollama: OllamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OLLAMA_HOST", ollama.host)
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: WordEmbedding())
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "Jaws.txt").write_text("Jaws was directed by Steven Spielberg.")
    assert main(["index", "docs"]) == 0
    ollama.answer = lambda body: STEP
    monkeypatch.setenv("OLLAMA_MODEL", MODEL)
    capsys.readouterr()
    assert main(["ask", "Who directed Jaws?"]) == 0
    assert "Steven Spielberg [1]\n\n[1] Jaws.txt" in capsys.readouterr().out
    options = ollama.requests[0]["options"]
    assert options == {"temperature": 0.0, "num_ctx": 16_384, "num_predict": 4_096}
    assert main(["ask", "Who directed Jaws?", "--llm", "ollama/llama9"]) == 1
    failed = capsys.readouterr().err
    assert f"error: the model's server at {ollama.host} (OLLAMA_HOST) knows no such model" in failed
    assert "`ollama pull` brings one (ResponseError: model 'llama9' not found" in failed
    assert main(["ask", "Who directed Jaws?", "--llm", "none"]) == 0 and open_llm("none") is None
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    assert main(["ask", "Who directed Jaws?"]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("error: no model's server answers at 127.0.0.1:1")

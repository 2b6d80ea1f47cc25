"""Extraction and SyncGE through `llama-index-llms-openai` over real HTTP, including failures on the way."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from openai_server import OpenAIServer, Reply

from llama_index_gear import (
    Budget,
    GeARQueryEngine,
    GeARTripleExtractor,
    GeARVectorStore,
)
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.nodes import read_triples
from llama_index_gear.tests.asking import fill_store
from llama_index_gear.tests.store_contract import passage

FACT = {"subject": "Ada Lovelace", "predicate": "wrote notes on", "object": "Analytical Engine"}
GOOD = Reply(json.dumps({"entities": ["Ada Lovelace"], "triples": [FACT]}))


def make_passages(count: int) -> list[TextNode]:
    return [
        TextNode(id_=f"passage-{n}", text=f"Text number {n}.", metadata={"title": f"Title {n}"}) for n in range(count)
    ]


def make_extractor(server: OpenAIServer, **arguments: Any) -> GeARTripleExtractor:
    # A client that LlamaIndex keeps across event loops may lose a reply on a connection of a loop that is gone; the
    # extractor asks again, but here requests are counted.
    llm = server.llm(**{"timeout": 30.0, "reuse_client": False, **arguments.pop("llm", {})})
    return GeARTripleExtractor(llm=llm, num_workers=1, **arguments)


def test_every_passage_is_accounted_for(server: OpenAIServer, caplog: pytest.LogCaptureFixture) -> None:
    server.script(
        Reply(status=429, headers={"Retry-After": "0"}),  # passage 0: rate limit, then success
        GOOD,
        Reply(status=500),  # passage 1: twice a server error, then success
        Reply(status=503),
        GOOD,
        Reply(json.dumps({"entities": [], "triples": []})),  # passage 2: states no facts
        Reply("I would rather chat."),  # passage 3: unreadable twice
        Reply("Lovely weather."),
        Reply(""),  # passage 4: empty twice
        Reply(""),
        Reply(refusal="I can't help with that."),  # passage 5
        Reply('{"triples": [' + json.dumps(FACT) + ', {"subject": "Ch', finish_reason="length"),  # 6
        Reply(status=401),  # passage 7: no use in trying again
        Reply("Here they are: " + json.dumps({"triples": [["A", "b", "C"]]})),  # passage 8
        Reply(cut=True),  # passage 9: connection lost in the middle, then success
        GOOD,
    )
    with caplog.at_level(logging.WARNING):
        nodes = make_extractor(server)(make_passages(10))
    ledger = ExtractionLedger.of(nodes)
    assert [node.metadata["gear_extraction"]["outcome"] for node in nodes] == [
        "extracted", "extracted", "no facts", "unreadable", "empty", "refused", "truncated", "failed", "extracted",
        "extracted",
    ]  # fmt: skip
    assert [node.metadata["gear_extraction"]["calls"] for node in nodes] == [2, 3, 1, 2, 2, 1, 1, 1, 1, 2]
    assert ledger.calls == len(server.requests) == 16
    assert (ledger.passages, ledger.triples, sum(ledger.outcomes.values())) == (10, 5, 10)
    assert [failure[0] for failure in ledger.failures] == [f"passage-{n}" for n in (3, 4, 5, 6, 7)]
    # The server counts every reply that it finished; the client never saw the one that was cut.
    assert (ledger.prompt_tokens, ledger.completion_tokens) == (
        server.usage.prompt_tokens,
        server.usage.completion_tokens,
    )
    assert "5 of 10 passages could not be extracted" in caplog.text
    assert "number 3" in str(server.requests[7]["messages"]) and "could not be read" in str(
        server.requests[7]["messages"]
    )


def test_what_failed_is_asked_for_again_and_what_succeeded_is_not(server: OpenAIServer) -> None:
    server.script(GOOD, Reply(refusal="No."), GOOD)
    extract = make_extractor(server)
    first = extract(make_passages(3))
    server.script(GOOD)
    second = extract(first)
    assert len(server.requests) == 4
    assert "number 1" in str(server.requests[3]["messages"])
    assert (extract.ledger.reused, extract.ledger.calls, extract.ledger.triples) == (2, 1, 3)
    assert [len(read_triples(node)) for node in second] == [1, 1, 1]


def test_time_out(server: OpenAIServer) -> None:
    server.script(Reply("late", delay=5.0), Reply("late again", delay=5.0))
    extract = make_extractor(server, llm={"timeout": 0.2}, max_retries=1)
    (node,) = extract(make_passages(1))
    assert node.metadata["gear_extraction"]["outcome"] == "timed out"
    assert node.metadata["gear_extraction"]["calls"] == 2
    assert read_triples(node) == []


def test_sync_call_inside_a_running_loop(server: OpenAIServer) -> None:
    server.script(GOOD)

    async def run_notebook() -> list[Any]:
        return make_extractor(server)(make_passages(1))

    assert len(read_triples(asyncio.run(run_notebook())[0])) == 1


STEP = {"needed": [1], "facts": [list(FACT.values())], "answerable": True, "answer": "the Analytical Engine"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GeARVectorStore]:
    node = passage("ada", "Ada Lovelace wrote notes on the Analytical Engine.", [FACT.values()])
    yield from fill_store(tmp_path / "store", [node])


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_an_agent_of_a_slow_model_ends_in_time(server: OpenAIServer, store: GeARVectorStore, mode: str) -> None:
    server.script(Reply(json.dumps(STEP), delay=60.0))
    engine = GeARQueryEngine.from_vector_store(store, llm=server.llm(), abstain=True, budget=Budget(timeout=0.3))
    start = time.monotonic()
    response = engine.query("What is it?") if mode == "sync" else await engine.aquery("What is it?")
    assert time.monotonic() - start < 60 and str(response).startswith("I don't know.")
    assert [result.node.node_id for result in response.source_nodes] == ["ada"]

"""Calls of an extractor: tenants, and what failed before."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import TextNode
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores import SimpleVectorStore
from qdrant_client import QdrantClient

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, Triple
from llama_index_gear.errors import ArgumentError, TenantError
from llama_index_gear.extraction import llm_extractor as extractor
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import contents


def make_passages(*names: str) -> list[TextNode]:
    return [TextNode(id_=name, text=f"{name} is here.", metadata={"title": f"On {name}"}) for name in names]


def list_shown(prompt: str) -> str:
    """Return the first word of the passage that a prompt shows."""
    return prompt.split("\n#####\n")[1].partition("\n\n")[2].split()[0]


def state_facts(prompt: str) -> str:
    """State of the passage in the prompt that its first word is here."""
    return json.dumps({"entities": [], "triples": [[list_shown(prompt), "is", "here"]]})


def list_triples(nodes: Any) -> list[list[Triple]]:
    return [read_triples(node) for node in nodes]


def expect_triples(*names: str) -> list[list[Triple]]:
    return [[Triple(name, "is", "here")] for name in names]


def make_customers_passages(**owners: str) -> list[TextNode]:
    nodes = make_passages(*owners)
    for node in nodes:
        node.metadata["customer"] = owners[node.node_id]
    return nodes


def test_tenants_share_no_cache() -> None:
    llm, cache = ScriptedLLM(otherwise=state_facts), SimpleKVStore()
    extractor = GeARTripleExtractor(llm, tenant_field="customer", cache=cache)
    nodes = make_customers_passages(Ada="acme", Bob="bolt", Cid="acme")
    assert list_triples(extractor(nodes)) == expect_triples("Ada", "Bob", "Cid")
    assert extractor(make_customers_passages(Ada="acme", Cid="bolt"))
    assert list(map(list_shown, llm.history[3:])) == ["Cid"]


def test_a_passage_of_no_tenant_is_refused_before_a_call() -> None:
    llm = ScriptedLLM(otherwise=state_facts)
    extractor = GeARTripleExtractor(llm, tenant_field="customer")
    with pytest.raises(TenantError, match="'Bob' has no tenant.*customer"):
        extractor([*make_customers_passages(Ada="acme"), *make_passages("Bob")])
    with pytest.raises(TenantError):
        extractor.estimate(make_passages("Bob"))
    assert llm.history == []
    with pytest.raises(ArgumentError, match="tenant_field"):
        GeARTripleExtractor(llm, tenant_field="")


def test_failures_are_extracted_again_tenant_by_tenant() -> None:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding(), tenant_field="customer")
    failing = GeARTripleExtractor(ScriptedLLM(otherwise=lambda _: ""), tenant_field="customer")
    nodes = make_customers_passages(Ada="acme", Bob="bolt")
    IngestionPipeline(transformations=[failing, WordEmbedding()], vector_store=store).run(nodes=nodes)
    llm = ScriptedLLM(otherwise=state_facts)
    extractor = GeARTripleExtractor(llm, tenant_field="customer")
    assert extractor.retry_failed(store.for_tenant("acme")).outcomes == {"extracted": 1}
    assert list(map(list_shown, llm.history)) == ["Ada"]
    with pytest.raises(TenantError):
        extractor.retry_failed(store)


def test_a_retry_holds_a_page_in_memory_and_sums_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extractor, "_PAGE", 4)
    names = [f"Name{number}" for number in range(11)]
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding())
    down = ScriptedLLM([TimeoutError("down")] * len(names))
    first = GeARTripleExtractor(down, max_retries=0)
    store.add(WordEmbedding()(first(make_passages(*names))))
    read: list[list[str]] = []
    get_nodes = GeARVectorStore.aget_nodes

    async def note_and_read(self: Any, node_ids: Any = None, filters: Any = None, limit: Any = None) -> Any:
        read.append(node_ids)
        return await get_nodes(self, node_ids, filters, limit)

    monkeypatch.setattr(GeARVectorStore, "aget_nodes", note_and_read)
    before = contents(store)
    poor = GeARTripleExtractor(ScriptedLLM(), price=(1.0, 1.0), max_cost=1e-9)
    assert poor.retry_failed(store).outcomes == {"over budget": 11} and poor.ledger.answered == 0
    assert contents(store) == before
    read.clear()
    llm = ScriptedLLM(otherwise=state_facts)
    later = GeARTripleExtractor(llm)
    ledger = later.retry_failed(store)
    assert [len(ids) for ids in read] == [4, 4, 3]
    assert sorted(name for ids in read for name in ids) == sorted(names)
    assert sorted(llm.history) == sorted(down.history)
    assert ledger is later.ledger
    assert (ledger.passages, ledger.outcomes, ledger.triples) == (11, {"extracted": 11}, 11)
    assert ledger.calls == 11
    assert sorted(map(str, list_triples(store.get_nodes()))) == sorted(map(str, expect_triples(*names)))
    assert later.retry_failed(store) == ExtractionLedger()


def test_a_retry_leaves_out_what_somebody_else_extracted_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extractor, "_PAGE", 1)
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding())
    failed = GeARTripleExtractor(ScriptedLLM([TimeoutError("down")] * 2), max_retries=0)(make_passages("Ada", "Bob"))
    store.add(WordEmbedding()(failed))
    asked: list[str] = []

    def write_beside(prompt: str) -> str:
        asked.append(list_shown(prompt))
        (other,) = {"Ada", "Bob"} - set(asked)
        extracted = GeARTripleExtractor(ScriptedLLM(otherwise=state_facts))(make_passages(other))
        store.add(WordEmbedding()(extracted))
        return state_facts(prompt)

    ledger = GeARTripleExtractor(ScriptedLLM(otherwise=write_beside), show_progress=True).retry_failed(store)
    assert (ledger.passages, ledger.reused, len(asked)) == (1, 0, 1)
    assert "2/2" in capsys.readouterr().err
    assert sorted(map(str, list_triples(store.get_nodes()))) == sorted(map(str, expect_triples("Ada", "Bob")))


def test_what_costs_nothing_is_not_answered_and_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    extractor = GeARTripleExtractor(ScriptedLLM(otherwise=state_facts))
    nodes = extractor([*make_passages("Ada", "Bob"), TextNode(text=" ")])
    assert extractor.ledger.answered == 2
    extractor(nodes)
    assert (extractor.ledger.answered, extractor.ledger.reused) == (0, 3)
    assert caplog.text == ""


def test_a_retry_wants_a_store_that_knows_what_failed() -> None:
    with pytest.raises(ArgumentError, match="retry_failed needs a GeARVectorStore, not SimpleVectorStore"):
        GeARTripleExtractor(ScriptedLLM()).retry_failed(SimpleVectorStore())

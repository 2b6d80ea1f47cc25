"""A graph for a collection of another program: its vectors are taken over, and nothing of theirs is changed."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.bridge.pydantic import PrivateAttr, SerializeAsAny
from llama_index.core.llms import LLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import (
    BaseNode,
    MetadataMode,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
    TransformComponent,
)
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from llama_index.core.vector_stores.utils import node_to_metadata_dict
from llama_index.llms.openai import OpenAI
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models
from qdrant_client.local.qdrant_local import QdrantLocal

from llama_index_gear import (
    ExistingCollection,
    ExtractionSchema,
    GeARTripleExtractor,
    GeARVectorStore,
    GraphRetriever,
    MentionTripleExtractor,
    NaiveGERetriever,
)
from llama_index_gear.errors import ArgumentError, EmbeddingError, StoreError, TenantError
from llama_index_gear.extraction.accounting import ExtractionEstimate
from llama_index_gear.flow import QdrantCall
from llama_index_gear.ingestion.updates import describe_extractor
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

EMBED = WordEmbedding(64)
TEXTS = {
    "Max Born": "Max Born was a physicist of Breslau who taught J. Robert Oppenheimer.",
    "Olivia": "Olivia was born in Cambridge. Her mother Irene was a daughter of Max Born.",
    "Fermilab": "Fermilab is a laboratory near Chicago.",
}
QUESTION = "Where was a granddaughter of the teacher of J. Robert Oppenheimer born?"


class CountingEmbedding(WordEmbedding):
    """Remembers which texts it embedded."""

    _seen: list[str] = PrivateAttr(default_factory=list)

    def _get_text_embedding(self, text: str) -> list[float]:
        self._seen.append(text)
        return super()._get_text_embedding(text)


class OtherEmbedding(WordEmbedding):
    """Another model: its vectors are near none of the usual ones."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return super()._get_text_embedding(f"{hash(text)}")


def identify(title: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, title))


def make_nodes(embed_model: BaseEmbedding = EMBED) -> list[TextNode]:
    nodes = []
    for title, text in TEXTS.items():
        source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"{title}.txt")}
        node = TextNode(id_=identify(title), text=text, metadata={"file_name": f"{title}.txt"}, relationships=source)
        node.embedding = embed_model.get_text_embedding(node.get_content(MetadataMode.EMBED))
        nodes.append(node)
    return nodes


def make_llama(client: QdrantClient, **options: Any) -> QdrantVectorStore:
    return QdrantVectorStore("docs", client=client, **options)


def weigh(texts: Sequence[str]) -> tuple[list[list[int]], list[list[float]]]:
    words = [sorted({sum(map(ord, word)) for word in text.split()}) for text in texts]
    return words, [[1.0] * len(indices) for indices in words]


def fill_dense(client: QdrantClient) -> None:
    make_llama(client).add(list(make_nodes()))


def fill_hybrid(client: QdrantClient) -> None:
    make_llama(client, enable_hybrid=True, sparse_doc_fn=weigh, sparse_query_fn=weigh).add(list(make_nodes()))


def put_raw(client: QdrantClient, points: dict[Any, dict[str, Any]], name: str | None = None) -> None:
    """Store points of another program, whose vectors are those of their bare texts."""
    config: Any = models.VectorParams(size=64, distance=models.Distance.COSINE)
    if not client.collection_exists("docs"):
        both: Any = {name: config, "other": models.VectorParams(size=4, distance=models.Distance.DOT)}
        client.create_collection("docs", vectors_config=both if name else config)
    for point_id, payload in points.items():
        dense = EMBED.get_text_embedding(payload.get("text") or payload.get("page_content") or "x")
        vector: Any = {name: dense, "other": [1.0, 2.0, 3.0, 4.0]} if name else dense
        client.upsert("docs", [models.PointStruct(id=point_id, payload=payload, vector=vector)], wait=True)


def fill_raw(client: QdrantClient) -> None:
    put_raw(client, {n: {"text": text, "title": title, "n": n} for n, (title, text) in enumerate(TEXTS.items())})


def fill_langchain(client: QdrantClient) -> None:
    points: dict[Any, dict[str, Any]] = {
        identify(title): {"page_content": text, "metadata": {"title": title, "doc_id": f"{title}.txt"}}
        for title, text in TEXTS.items()
    }
    put_raw(client, points, "body")


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LlamaIndex, dense": (fill_dense, {"title_key": "file_name"}),
    "LlamaIndex, hybrid": (fill_hybrid, {"title_key": "file_name"}),
    "raw": (fill_raw, {}),
    "LangChain's": (fill_langchain, {"text_key": "page_content", "vector_name": "body"}),
}


def read_all(client: QdrantClient, name: str = "docs") -> str:
    """Return all of a collection: its settings, and every point with its vectors, as JSON."""
    points, _ = client.scroll(name, limit=1_000, with_payload=True, with_vectors=True)
    config = client.get_collection(name).config
    plain = [config.model_dump(mode="json"), [point.model_dump(mode="json") for point in points]]
    return json.dumps(plain, sort_keys=True)  # a server lists the names of vectors in any order


def connect() -> QdrantClient:
    return QdrantClient(os.environ["QDRANT_URL"], check_compatibility=False, timeout=60)


@pytest.fixture(params=["memory", "server"] if "QDRANT_URL" in os.environ else ["memory"])
def client(request: pytest.FixtureRequest) -> Iterator[QdrantClient]:
    client = QdrantClient(":memory:") if request.param == "memory" else connect()
    yield client
    if getattr(client._client, "closed", False):
        return
    for name in ("docs", "docs_gear", "docs_gear_triples"):
        client.delete_collection(name)
    client.close()


def make_store(client: QdrantClient, embed_model: BaseEmbedding = EMBED, **options: Any) -> GeARVectorStore:
    return GeARVectorStore("docs_gear", client=client, embed_model=embed_model, **options)


def list_titles(store: GeARVectorStore) -> list[str]:
    return sorted(node.metadata["title"] for node in store.get_nodes())


@pytest.mark.parametrize("kind", KINDS)
async def test_extract_retrieve_delete_and_nothing_of_theirs_changes(client: QdrantClient, kind: str) -> None:
    fill, options = KINDS[kind]
    fill(client)
    theirs = read_all(client)
    embed_model = CountingEmbedding(dimension=64)
    store = make_store(client, embed_model)
    collection = ExistingCollection("docs", client, **options)
    report = collection.extract_to(store)
    assert (report.passages, report.written, report.deleted, report.skipped) == (3, 3, 0, {})
    passages = {node.get_content(MetadataMode.EMBED) for node in store.get_nodes()}
    assert len([text for text in embed_model._seen if text in passages]) == 3, "the probe; no passage is embedded again"
    assert list_titles(store) == sorted(TEXTS) and store.check().ok and store.check().triples >= 6
    ids = {node.node_id for node in store.get_nodes()}
    assert ids == ({"0", "1", "2"} if kind == "raw" else set(map(identify, TEXTS)))
    before = {point.id: point for point in client.scroll("docs", with_vectors=True)[0]}
    for node in store.get_nodes():
        vector: Any = before[node.metadata["gear_source"]["point"]].vector
        if isinstance(vector, dict):
            vector = vector.get("body") or vector.get("text-dense") or vector[""]
        assert node.embedding == pytest.approx(vector, abs=1e-6)

    store.embed_stored_triples()
    for retriever in (GraphRetriever(store, similarity_top_k=2), NaiveGERetriever(store, similarity_top_k=2)):
        found = retriever.retrieve(QUESTION)
        assert "Olivia" in {result.metadata["title"] for result in found}
        assert any(result.metadata["gear_chain"] for result in found)
    embed_model._seen.clear()
    assert await collection.aextract_to(store) == type(report)(passages=3)
    assert embed_model._seen == [], "a second run embeds and writes nothing"
    if kind != "raw":
        store.delete("Olivia.txt")
        assert len(store.get_nodes()) == 2
    else:
        store.delete_nodes(["1"])
    assert store.check().ok
    store.clear()
    assert read_all(client) == theirs, "nothing of theirs changed"


def test_a_second_run_does_what_changed(client: QdrantClient) -> None:
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    store.add([TextNode(id_="own", text="Own.", metadata={"title": "Own"}, embedding=EMBED.get_text_embedding("Own."))])
    collection.extract_to(store)
    client.delete("docs", [2], wait=True)
    put_raw(
        client,
        {0: {"text": "Max Born lived in Edinburgh.", "title": "Max Born"}, 7: {"text": "Ulm is a town of Swabia."}},
    )
    report = collection.extract_to(store)
    assert (report.passages, report.written, report.deleted) == (3, 2, 1)
    assert {node.node_id for node in store.get_nodes()} == {"0", "1", "7", "own"}
    (changed,) = store.get_nodes(["0"])
    assert {triple.object for triple in read_triples(changed)} == {"Edinburgh"} and store.check().ok
    client.set_payload("docs", {"title": "Born, Max"}, [0], wait=True)
    put_raw(client, {1: {"text": " "}})
    report = collection.extract_to(store)
    assert (report.passages, report.written, report.deleted, report.skipped) == (2, 1, 1, {"no text under 'text'": 1})
    assert "1 point skipped" in str(report)
    assert store.get_nodes(["0"])[0].metadata["title"] == "Born, Max"


def test_vectors_of_another_model_are_taken_over_when_they_change(client: QdrantClient) -> None:
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    collection.extract_to(store)
    vector = EMBED.get_text_embedding(TEXTS["Olivia"] + " More.")
    client.update_vectors("docs", [models.PointVectors(id=1, vector=vector)], wait=True)
    assert collection.extract_to(store).written == 1
    (node,) = store.get_nodes(["1"])
    assert node.embedding == pytest.approx(client.retrieve("docs", [1], with_vectors=True)[0].vector, abs=1e-6)


def state_fact(prompt: str) -> str:
    name = prompt.rsplit("\n#####\n", 2)[1].partition("\n\n")[2].split()[0]
    return json.dumps({"entities": [], "triples": [[name, "is", "here"]]})


def test_a_model_s_extraction_has_a_ledger_a_ceiling_and_is_gone_on_with(client: QdrantClient) -> None:
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    llm = ScriptedLLM(otherwise=state_fact)
    price = (1_000_000.0, 1_000_000.0)
    first = GeARTripleExtractor(llm, price=price, max_cost=1_200.0, num_workers=1)
    ledger = collection.extract_to(store, first).ledger
    assert ledger.outcomes["over budget"] and ledger.outcomes["extracted"] and ledger.calls == len(llm.history)
    assert len(store.get_nodes()) == 3, "a passage without triples is there all the same"
    more = GeARTripleExtractor(llm, price=price, max_cost=1e9)
    report = collection.extract_to(store, more)
    assert report.written == ledger.outcomes["over budget"] and report.ledger.outcomes == {"extracted": report.written}
    assert len(llm.history) == 3 and store.check().triples == 3
    assert collection.extract_to(store, more).written == 0
    other = GeARTripleExtractor(llm, kg_schema=ExtractionSchema(relation_types=["is"]))
    assert collection.extract_to(store, other).written == 3, "another schema extracts all anew"


class Served(ScriptedLLM):
    """A model at an address."""

    api_base: str = "http://localhost:1/v1"


def make_served(address: str) -> tuple[GeARTripleExtractor, ScriptedLLM]:
    llm = Served(otherwise=state_fact, api_base=f"http://{address}/v1")  # type: ignore[call-arg]  # ScriptedLLM's
    return GeARTripleExtractor(llm), llm


def test_a_model_that_moved_extracts_nothing_anew(client: QdrantClient) -> None:
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    assert collection.extract_to(store, make_served("localhost:1")[0]).written == 3
    extractor, llm = make_served("me:secret@gateway")
    assert collection.extract_to(store, extractor).written == 0 and llm.history == []
    assert extractor(store.get_nodes()) and extractor.ledger.reused == 3


MODEL: dict[str, Any] = {"model": "gpt-4o-mini", "api_key": "sk-1", "temperature": 0.0}
REACHED: list[dict[str, Any]] = [
    {"max_retries": 9}, {"timeout": 1.0}, {"reuse_client": False}, {"default_headers": {"X-Team": "b"}},
    {"api_base": "http://elsewhere/v1"}, {"api_version": "2"}, {"api_key": "sk-2"},
]  # fmt: skip
ANSWERS: list[dict[str, Any]] = [
    {"model": "gpt-4o"}, {"temperature": 1.0}, {"max_tokens": 5}, {"additional_kwargs": {"seed": 5}},
    {"system_prompt": "Be brief."},
]  # fmt: skip


class Titled(TransformComponent):
    """An extractor of somebody else, whose form holds all of its model's."""

    llm: SerializeAsAny[LLM]
    num_workers: int = 4
    max_triples: int = 10

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> Sequence[BaseNode]:
        return nodes


@pytest.mark.parametrize("kind", [GeARTripleExtractor, Titled])
def test_how_a_model_is_reached_is_no_setting_of_an_extraction(kind: Any) -> None:
    def describe(changes: dict[str, Any], **settings: Any) -> str:
        return describe_extractor(kind(llm=OpenAI(**{**MODEL, **changes}), **settings))

    plain = describe({})
    assert [changes for changes in REACHED if describe(changes) != plain] == []
    assert describe({}, num_workers=9) == plain
    assert len({plain, *map(describe, ANSWERS)}) == 1 + len(ANSWERS)
    own: dict[str, Any] = {"max_triples": 5} if kind is Titled else {"kg_schema": ExtractionSchema(domain="x")}
    assert describe({}, **own) != plain
    if kind is GeARTripleExtractor:
        others: list[dict[str, Any]] = [
            {"kg_schema": ExtractionSchema(relation_types=["is"])},
            {"extract_prompt": PromptTemplate("{passage}")},
        ]
        assert len({plain, *(describe({}, **other) for other in others)}) == 3


class CutOff(ScriptedLLM):
    """A model whose replies are cut off behind the first fact."""

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=super().complete(prompt).text, raw={"done_reason": "length"})


def test_a_failed_call_replaces_nothing_and_a_reply_that_was_cut_off_replaces_what_rules_found(
    client: QdrantClient,
) -> None:
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    collection.extract_to(store)
    down = GeARTripleExtractor(ScriptedLLM([ValueError("no")] * 3), max_retries=0)
    assert collection.extract_to(store, down).written == 0
    cut = GeARTripleExtractor(CutOff(otherwise=state_fact), max_retries=0)  # type: ignore[call-arg]
    assert collection.extract_to(store, cut).written == 3
    down = GeARTripleExtractor(ScriptedLLM([ValueError("no")] * 3), max_retries=0)
    assert collection.extract_to(store, down).written == 0
    assert {triple.predicate for node in store.get_nodes() for triple in read_triples(node)} == {"is"}
    assert collection.extract_to(store, GeARTripleExtractor(ScriptedLLM(otherwise=state_fact))).written == 3


def test_what_another_process_stored_while_a_model_was_asked_is_looked_at_again(client: QdrantClient) -> None:
    """Its triples were paid for, so those of calls that failed replace none, and none is counted as written."""
    fill_raw(client)
    begun: list[str] = []

    def fail(prompt: str) -> str:
        if not begun:
            begun.append(prompt)
            paid = GeARTripleExtractor(ScriptedLLM(otherwise=state_fact))
            assert ExistingCollection("docs", client).extract_to(make_store(client), paid).written == 3
        raise ValueError("no")

    down = GeARTripleExtractor(ScriptedLLM(otherwise=fail), max_retries=0, num_workers=1)
    store = make_store(client)
    assert ExistingCollection("docs", client).extract_to(store, down).written == 0
    assert [len(read_triples(node)) for node in store.get_nodes()] == [1, 1, 1] and store.check().ok


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_the_estimate_of_a_collection_is_what_the_run_then_takes(
    client: QdrantClient, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr("llama_index_gear.ingestion.existing_collection._PAGE", 2)
    fill_raw(client)
    put_raw(client, {7: {"text": " "}})
    store, collection = make_store(client), ExistingCollection("docs", client)
    llm = ScriptedLLM(otherwise=state_fact)
    extractor = GeARTripleExtractor(llm, price=(1.0, 2.0))

    async def estimate(extractor: GeARTripleExtractor = extractor, **options: Any) -> ExtractionEstimate:
        if mode == "sync":
            return collection.estimate(store, extractor, **options)
        return await collection.aestimate(store, extractor, **options)

    before = await estimate()
    assert llm.history == [] and not client.collection_exists(store.collection_name)
    assert (before.passages, before.reused, before.calls) == (3, 0, 3) and before.cost
    few = MetadataFilters(filters=[MetadataFilter(key="n", value=1, operator=FilterOperator.LTE)])
    assert (await estimate(filters=few)).calls == 2
    collection.extract_to(store, extractor, filters=few)
    left = await estimate()
    assert (left.passages, left.reused, left.calls) == (3, 2, 1) and left.cost and left.cost < before.cost
    with pytest.raises(ArgumentError, match="one by rule costs nothing"):
        await estimate(MentionTripleExtractor())  # type: ignore[arg-type]
    ledger = collection.extract_to(store, extractor).ledger
    assert (ledger.calls, ledger.prompt_tokens) == (left.calls, left.prompt_tokens)
    assert await estimate() == ExtractionEstimate(3, 3, cost=0.0)
    assert (await estimate(GeARTripleExtractor(llm))).cost is None
    other = await estimate(GeARTripleExtractor(llm, kg_schema=ExtractionSchema(domain="physicists")))
    assert (other.reused, other.calls) == (0, 3)


def test_a_run_that_was_killed_is_repeated(client: QdrantClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_index_gear.ingestion.existing_collection._PAGE", 1)
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    llm = ScriptedLLM([state_fact, KeyboardInterrupt(), state_fact, state_fact])
    extractor = GeARTripleExtractor(llm, num_workers=1)
    with pytest.raises(KeyboardInterrupt):
        collection.extract_to(store, extractor)
    assert collection.extract_to(store, extractor).written == 2
    assert llm.remaining == 0 and store.check().ok and len(store.get_nodes()) == 3


def test_filters_choose_what_is_taken(client: QdrantClient) -> None:
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    few = MetadataFilters(filters=[MetadataFilter(key="n", value=1, operator=FilterOperator.LTE)])
    assert collection.extract_to(store, filters=few).passages == 2
    assert list_titles(store) == ["Max Born", "Olivia"]
    assert collection.extract_to(store).written == 1
    assert collection.extract_to(store, filters=few).deleted == 1


def test_tenants_keep_what_is_theirs(client: QdrantClient) -> None:
    def payload(text: str, tenant: str) -> dict[str, Any]:
        return {"text": text, "group": tenant}

    put_raw(client, {1: payload("Ada knows Bob.", "a"), 2: payload("Eve knows Bob.", "b"), 3: payload("Ulm.", "b")})
    store, collection = make_store(client, tenant_field="group"), ExistingCollection("docs", client)
    assert collection.extract_to(store.for_tenant("a")).passages == 1
    assert collection.extract_to(store).written == 2
    assert [node.node_id for node in store.for_tenant("a").get_nodes()] == ["1"]
    assert len(store.for_tenant("b").get_nodes()) == 2
    put_raw(client, {2: payload("Eve knows Bob.", "a")})
    client.delete("docs", [3], wait=True)
    report = collection.extract_to(store)
    assert (report.written, report.deleted) == (1, 1)
    assert len(store.for_tenant("a").get_nodes()) == 2 and store.for_tenant("b").get_nodes() == []
    put_raw(client, {5: {"text": "Nobody's."}})
    with pytest.raises(TenantError, match="has no tenant"):
        collection.extract_to(store)


def test_a_tenant_that_stands_inside_metadata_keeps_its_passages(client: QdrantClient) -> None:
    def payload(text: str, tenant: str, kind: str) -> dict[str, Any]:
        return {"page_content": text, "kind": kind, "metadata": {"group": tenant}}

    put_raw(
        client,
        {
            1: payload("Ada knows Bob.", "a", "note"),
            2: payload("Eve knows Bob.", "b", "note"),
            3: payload("Ulm is a town of Swabia.", "a", "fact"),
        },
    )
    store = make_store(client, tenant_field="group")
    collection = ExistingCollection("docs", client, text_key="page_content")
    assert collection.extract_to(store).written == 3
    report = collection.extract_to(store.for_tenant("a"))
    assert (report.passages, report.written, report.deleted) == (2, 0, 0)
    notes = MetadataFilters(filters=[MetadataFilter(key="kind", value="note")])
    report = collection.extract_to(store.for_tenant("a"), filters=notes)
    assert (report.passages, report.written, report.deleted) == (1, 0, 1)
    assert len(store.for_tenant("b").get_nodes()) == 1


def test_collections_of_one_name_in_two_places_leave_each_other_s_passages(tmp_path: Path) -> None:
    for name, points in (("a", {1: "Ada knows Bob.", 2: "Ulm is a town of Swabia."}), ("b", {3: "Eve knows Bob."})):
        client = QdrantClient(path=str(tmp_path / name))
        put_raw(client, {point: {"text": text} for point, text in points.items()})
        client.close()
    with closing(QdrantClient(":memory:")) as client:
        store = make_store(client)
        for name, passages in (("a", 2), ("b", 1), ("a", 2)):
            with ExistingCollection.from_path(tmp_path / name, "docs") as collection:
                report = collection.extract_to(store)
                assert (report.passages, report.deleted) == (passages, 0)
        assert report.written == 0 and {node.node_id for node in store.get_nodes()} == {"1", "2", "3"}
        (tmp_path / "a").rename(tmp_path / "moved")
        earlier = str(tmp_path / "a")
        with ExistingCollection.from_path(tmp_path / "moved", "docs") as collection:
            with pytest.raises(ArgumentError, match=re.escape(f"say place={earlier!r}")):
                collection.extract_to(store)
        with ExistingCollection.from_path(tmp_path / "moved", "docs", place=earlier) as collection:
            report = collection.extract_to(store)
            assert (report.passages, report.written, report.deleted) == (2, 0, 0)
            assert len(store.get_nodes()) == 3 and collection.place == earlier


def test_a_failed_call_and_a_ceiling_leave_the_triples_that_are_there(client: QdrantClient) -> None:
    fill_raw(client)
    store, collection = make_store(client), ExistingCollection("docs", client)
    collection.extract_to(store)
    before = {node.node_id: read_triples(node) for node in store.get_nodes()}
    llm = ScriptedLLM([state_fact, ValueError("ill"), ValueError("ill")], otherwise=state_fact)
    report = collection.extract_to(store, GeARTripleExtractor(llm, num_workers=1))
    assert report.written == 1 and report.ledger.outcomes == {"extracted": 1, "failed": 2}
    kept = {node.node_id: read_triples(node) for node in store.get_nodes()}
    assert sum(kept[node_id] == before[node_id] for node_id in before) == 2 and store.check().ok
    client.set_payload("docs", {"more": "metadata"}, [0, 1, 2], wait=True)
    stopped = GeARTripleExtractor(llm, price=(1.0, 1.0), max_cost=0.0)
    report = collection.extract_to(store, stopped)
    assert report.written == 0 and {node.node_id: read_triples(node) for node in store.get_nodes()} == kept
    assert all(node.metadata["more"] == "metadata" for node in store.get_nodes())
    report = collection.extract_to(store, GeARTripleExtractor(llm))
    assert report.written == 3 and report.ledger.outcomes == {"extracted": 3} and len(llm.history) == 6
    assert collection.extract_to(store, GeARTripleExtractor(llm)).written == 0
    put_raw(client, {0: {"text": "Max Born lived in Edinburgh."}})
    report = collection.extract_to(store, stopped)
    assert report.written == 1 and read_triples(store.get_nodes(["0"])[0]) == []


def test_a_point_that_gives_another_passage_leaves_none_behind(client: QdrantClient) -> None:
    def payload(node_id: str, text: str) -> dict[str, Any]:
        return {"text": text, **node_to_metadata_dict(TextNode(id_=node_id, text=text))}

    put_raw(client, {1: payload("first", "Ada knows Bob."), 2: payload("second", "Eve knows Bob.")})
    store, collection = make_store(client), ExistingCollection("docs", client)
    assert collection.extract_to(store).written == 2
    put_raw(client, {1: payload("new", "Ada knows Bob."), 2: payload("first", "Ulm is a town of Swabia.")})
    report = collection.extract_to(store)
    assert (report.passages, report.written, report.deleted) == (2, 2, 1)
    assert {node.node_id for node in store.get_nodes()} == {"new", "first"} and store.check().ok
    assert collection.extract_to(store) == type(report)(passages=2)


def test_all_passages_of_a_point_are_deleted_with_it(client: QdrantClient) -> None:
    put_raw(client, {1: {"text": "Ada knows Bob."}, 2: {"text": "Eve knows Bob."}})
    store, collection = make_store(client), ExistingCollection("docs", client)
    collection.extract_to(store)
    (node,) = store.get_nodes(["1"])
    store.add([node.model_copy(update={"id_": "older"})])
    client.delete("docs", [1], wait=True)
    assert collection.extract_to(store).deleted == 2
    assert [node.node_id for node in store.get_nodes()] == ["2"]


def test_a_passage_that_moves_to_another_tenant_is_lost_to_no_error(client: QdrantClient) -> None:
    put_raw(client, {1: {"text": "Ada knows Bob.", "group": "a"}, 2: {"text": "Eve knows Bob.", "group": "a"}})
    store, collection = make_store(client, tenant_field="group"), ExistingCollection("docs", client)
    collection.extract_to(store)
    client.set_payload("docs", {"group": "b"}, [1], wait=True)
    with pytest.raises(EmbeddingError, match="did not make the vectors"):
        collection.extract_to(make_store(client, OtherEmbedding(dimension=64), tenant_field="group"))
    put_raw(client, {3: {"text": "Nobody's."}})
    llm = ScriptedLLM(otherwise=state_fact)
    with pytest.raises(TenantError, match="has no tenant"):
        collection.extract_to(store, GeARTripleExtractor(llm))
    assert llm.history == [], "nothing is paid for"
    client.delete("docs", [3], wait=True)
    with pytest.raises(KeyboardInterrupt):
        collection.extract_to(store, GeARTripleExtractor(ScriptedLLM([KeyboardInterrupt()]), num_workers=1))
    assert len(store.for_tenant("a").get_nodes()) == 2


def test_a_stored_passage_without_a_tenant_is_named_when_it_is_to_be_deleted(client: QdrantClient) -> None:
    put_raw(client, {1: {"text": "Ada knows Bob."}, 2: {"text": "Eve knows Bob.", "group": "a"}})
    collection = ExistingCollection("docs", client)
    collection.extract_to(make_store(client))
    client.delete("docs", [1], wait=True)
    with pytest.raises(TenantError, match="passage '1' is to be deleted and has no tenant under 'group'"):
        collection.extract_to(make_store(client, tenant_field="group"))
    assert collection.extract_to(make_store(client)).deleted == 1


class Relay:
    """A client that passes calls on: nobody sees that it has the same server as another."""

    def __init__(self, client: QdrantClient) -> None:
        self._to = client

    def query_batch_points(self, *arguments: Any, **options: Any) -> Any:
        return self._to.query_batch_points(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._to, name)


def test_the_collection_that_is_read_is_not_written_through_another_client(client: QdrantClient) -> None:
    fill_hybrid(client)
    theirs = read_all(client)
    store = GeARVectorStore("docs", client=client, embed_model=EMBED)
    with pytest.raises(ArgumentError, match="would write into the collection 'docs'.*'docs_gear'"):
        ExistingCollection("docs", Relay(client)).extract_to(store)
    assert read_all(client) == theirs and not client.collection_exists(store.triple_collection_name)


def test_blank_points_before_one_with_text_are_left_out(client: QdrantClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_index_gear.ingestion.existing_collection._PAGE", 2)
    put_raw(client, {1: {"text": ""}, 2: {"text": " "}, 3: {"text": "Ulm."}})
    report = ExistingCollection("docs", client).extract_to(make_store(client))
    assert (report.written, report.skipped) == (1, {"no text under 'text'": 2})


def test_a_collection_without_such_vectors_says_so(client: QdrantClient) -> None:
    put_raw(client, {1: {"text": "Ulm."}}, "body")
    client.upsert("docs", [models.PointStruct(id=1, payload={"text": "Ulm."}, vector={"body": [1.0] * 64})])
    with pytest.raises(ArgumentError, match=r"no passage \(no vector 'other'\); name .* vector_name="):
        ExistingCollection("docs", client, vector_name="other").extract_to(make_store(client))
    client.delete_collection("docs")
    client.create_collection("docs", {}, sparse_vectors_config={"words": models.SparseVectorParams()})
    with pytest.raises(ArgumentError, match="has no dense vectors"):
        ExistingCollection("docs", client).extract_to(make_store(client))


def test_a_refused_argument_leaves_the_folder_to_others(tmp_path: Path) -> None:
    QdrantClient(path=str(tmp_path)).close()
    with pytest.raises(ArgumentError, match="the name comes first") as caught:
        ExistingCollection.from_path(tmp_path, 5)  # type: ignore[arg-type]
    QdrantClient(path=str(tmp_path)).close()
    assert caught.traceback, "the error is alive, and with it what was opened"


def test_points_without_that_vector_are_left_out_and_two_collections_take_two_stores(client: QdrantClient) -> None:
    fill_langchain(client)
    lone = models.PointStruct(id=9, payload={"page_content": "No vector."}, vector={"other": [1.0, 0.0, 0.0, 0.0]})
    client.upsert("docs", [lone], wait=True)
    store = make_store(client)
    report = ExistingCollection("docs", client, **KINDS["LangChain's"][1]).extract_to(store)
    assert (report.written, report.skipped) == (3, {"no vector 'body'": 1})
    client.delete_collection("docs")
    other = QdrantClient(":memory:")
    other.create_collection("notes", models.VectorParams(size=64, distance=models.Distance.COSINE))
    same = models.PointStruct(id=identify("Olivia"), payload={"text": "x"}, vector=EMBED.get_text_embedding("x"))
    other.upsert("notes", [same])
    with pytest.raises(ArgumentError, match="from collection 'docs' at .* give each collection a store of its own"):
        ExistingCollection("notes", other).extract_to(store)
    assert len(store.get_nodes()) == 3


async def test_an_async_client_and_a_bar(client: QdrantClient, capsys: pytest.CaptureFixture[str]) -> None:
    fill_raw(client)
    is_local = isinstance(client._client, QdrantLocal)
    second = client if is_local else connect()
    native = None if is_local else AsyncQdrantClient(os.environ["QDRANT_URL"], check_compatibility=False)
    store = make_store(client)
    async with ExistingCollection("docs", None if native else second, native) as collection:
        if native:
            with pytest.raises(StoreError, match="only an async client"):
                collection.extract_to(store)
        report = await collection.aextract_to(store, show_progress=True)
    assert report.written == 3 and "Extracting triples: 100%" in capsys.readouterr().err


def test_what_cannot_be_is_refused_before_anything_is_written(
    client: QdrantClient, caplog: pytest.LogCaptureFixture
) -> None:
    store = make_store(client)
    with pytest.raises(StoreError, match="there is no collection 'docs'"):
        ExistingCollection("docs", client).extract_to(store)
    fill_langchain(client)
    theirs = read_all(client)
    for options, error, match in (
        ({}, ArgumentError, "dense vectors 'body', 'other': name one"),
        ({"vector_name": "body"}, ArgumentError, "their fields: metadata, page_content.*text_key"),
        ({"vector_name": "nothing"}, ArgumentError, "dense vectors 'body', 'other'"),
        ({"vector_name": "other", "text_key": "page_content"}, EmbeddingError, "64 dimensions in place of 4"),
    ):
        with pytest.raises(error, match=match):
            ExistingCollection("docs", client, **options).extract_to(store)
    assert "compares vectors by Dot" in caplog.text
    taken: dict[str, Any] = {"vector_name": "body", "text_key": "page_content"}
    with pytest.raises(ArgumentError, match=r"would write into .* GeARVectorStore\('docs_gear', …\)"):
        ExistingCollection("docs", client, **taken).extract_to(
            GeARVectorStore("docs", client=client, embed_model=EMBED)
        )
    with pytest.raises(EmbeddingError, match=r"did not make the vectors of collection 'docs' \(cosine -?0\.\d\d"):
        ExistingCollection("docs", client, **taken).extract_to(make_store(client, OtherEmbedding(dimension=64)))
    assert not client.collection_exists("docs_gear") and read_all(client) == theirs


def test_a_call_that_writes_is_refused(client: QdrantClient) -> None:
    collection = ExistingCollection("docs", client)
    for method in ("upsert", "delete", "set_payload", "create_payload_index", "update_collection"):
        with pytest.raises(StoreError, match="is only read"):
            collection._answer(QdrantCall(method, {}))


def test_a_collection_is_somewhere() -> None:
    with pytest.raises(ArgumentError, match="needs a Qdrant server"):
        ExistingCollection("docs")


def test_a_place_is_a_text(client: QdrantClient) -> None:
    for wrong in (Path("/x"), 5):
        with pytest.raises(ArgumentError, match="place must be a str or None"):
            ExistingCollection("docs", client, place=wrong)  # type: ignore[arg-type]
    assert ExistingCollection("docs", client, place="").place == ExistingCollection("docs", client).place

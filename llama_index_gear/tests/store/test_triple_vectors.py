"""Stores whose triples have no vectors, or get them later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import BaseNode
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear import (
    GeARRetriever,
    GeARVectorStore,
    GraphRetriever,
    NaiveGERetriever,
    SyncGERetriever,
    T2RAGRetriever,
)
from llama_index_gear.errors import ArgumentError, EmbeddingError, TenantError
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.store import triple_vectors
from llama_index_gear.store.collections import ALL, EMBEDDED_KEY, NONE, PARTIAL
from llama_index_gear.store.schema import DENSE, match_lacking
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import contents, make_process, passage, read

EMBED = WordEmbedding()
QUERY = EMBED.get_query_embedding("Ann knows Bea")


class Counting(WordEmbedding):
    """A model that remembers what it embedded."""

    seen: list[str] = []

    def _get_text_embedding(self, text: str) -> list[float]:
        self.seen.append(text)
        return super()._get_text_embedding(text)


class Silent(WordEmbedding):
    """A model that must not be called."""

    def _get_text_embedding(self, text: str) -> list[float]:
        raise AssertionError(f"embeds {text!r}")


class Backwards(WordEmbedding):
    """Another model, of the same dimension."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return super()._get_text_embedding(text[::-1])


def make_nodes(names: Sequence[str], **metadata: Any) -> list[BaseNode]:
    """Make passages of two triples each; the second is the same text in all."""
    return [
        passage(name, f"{name} knows Bea", [(name, "knows", "Bea"), ("Bea", "is", "a name")], document=name,
                metadata=metadata)
        for name in names
    ]  # fmt: skip


NODES = make_nodes(["Ann", "Carl", "Dora", "Eve", "Finn"])


@pytest.fixture(params=["edge", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., GeARVectorStore]]:
    made: list[GeARVectorStore] = []

    def make(**arguments: Any) -> GeARVectorStore:
        given: dict[str, Any] = {"embed_model": EMBED, "batch_size": 2, **arguments}
        if request.param == "edge":
            made.append(GeARVectorStore.from_path(tmp_path / str(len(made)), **given))
        else:
            made.append(GeARVectorStore(client=QdrantClient(":memory:"), **given))
        return made[-1]

    yield make
    for store in made:
        store.close()


def get_state(store: GeARVectorStore) -> Any:
    return store.client.get_collection(store.collection_name).config.metadata[EMBEDDED_KEY]


def count_lacking(store: GeARVectorStore) -> int:
    lacking = models.Filter(must=[match_lacking(DENSE)])
    return int(store.client.count(store.triple_collection_name, lacking, exact=True).count)


def open_again(store: GeARVectorStore, **arguments: Any) -> GeARVectorStore:
    given: dict[str, Any] = {"embed_model": EMBED, "batch_size": 2, **arguments}
    return GeARVectorStore(client=store.client, **given)


def test_no_model_is_called_for_triples_and_all_but_vector_search_works(make_store: Any) -> None:
    store = make_store(embed_model=Silent())
    store.add(NODES)
    store.add(NODES[:1])
    store.finish_writes()
    store.link_aliases([("Ann", "Carl")])
    store.unlink_aliases()
    store.delete("Finn")
    assert get_state(store) == NONE and count_lacking(store) == 8
    report = store.check(sample_size=0)
    assert report.ok and (report.passages, report.triples) == (4, 8) and store.bulk_load is not None
    (groups,) = read(store).incident_flow([(["bea"], [])], [50])
    assert len(groups) == 8
    assert len(read(store).fetch_triples_flow([group.id for group in groups])) == 8
    ((found,),) = read(store).link_words_flow(["Ann knows Bea"], 1)
    assert found.triple.text == "Ann knows Bea" and found.score > 0
    assert read(store).link_words_flow(["…", ""], 3) == [[], []]


@pytest.mark.parametrize(
    "search",
    [
        methodcaller("link_flow", ["Ann"], 1, QUERY),
        methodcaller("search_flow", ["Ann"], 1),
        methodcaller("neighbors_flow", [("bea",)], QUERY, [], 1),
        methodcaller("similarities_flow", [(["a"], ["b"])]),
        methodcaller("require_vectors_flow"),
    ],
)
def test_vector_search_says_what_to_call(search: Callable[[Any], Any]) -> None:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    search(read(store))  # nothing is stored, and nothing lacks a vector
    store.add([passage("p", "no triple")])
    search(read(store))
    store.add(NODES)
    with pytest.raises(ArgumentError, match="embed_stored_triples"):
        search(read(store))
    store.embed_stored_triples()
    search(read(store))


def test_stored_triples_are_embedded_once_and_new_ones_from_then_on(make_store: Any) -> None:
    model = Counting()
    store, whole = make_store(embed_model=model), make_store(embed_triples=True)
    whole.add(NODES)
    store.add(NODES)
    assert store.embed_stored_triples() == 10
    assert contents(store) == contents(whole) and get_state(store) == get_state(whole) == ALL
    assert sorted(set(model.seen)) == sorted({"Bea is a name", *(f"{node.node_id} knows Bea" for node in NODES)})
    del model.seen[:]
    assert store.embed_stored_triples() == 0 and model.seen == []
    opened = open_again(store)
    for one in (opened, whole):
        one.add(make_nodes(["Gil"]))
    assert contents(store) == contents(whole) and store.check().ok


def test_asked_for_before_anything_is_stored_it_holds_for_what_is_new(make_store: Any) -> None:
    store = make_store()
    assert store.embed_stored_triples() == 0
    store.add(NODES)
    assert get_state(store) == ALL and count_lacking(store) == 0


async def test_they_are_embedded_in_async_calls_too(make_store: Any) -> None:
    store = make_store()
    await store.async_add(NODES)
    assert await store.aembed_stored_triples() == 10 and (await store.acheck()).ok and count_lacking(store) == 0


def test_a_store_that_wants_vectors_embeds_what_is_new(make_store: Any) -> None:
    store = make_store()
    store.add(NODES[:2])
    wanting = open_again(store, embed_triples=True)
    wanting.add(NODES[2:])
    assert get_state(store) == PARTIAL and count_lacking(store) == 4
    with pytest.raises(ArgumentError, match="embed_stored_triples"):
        read(wanting).link_flow(["Ann"], 1, QUERY)
    assert wanting.check().ok and wanting.embed_stored_triples() == 4 and get_state(store) == ALL


def test_stores_of_one_process_learn_that_triples_are_embedded(make_store: Any) -> None:
    store = make_store()
    store.add(NODES[:2])
    other = open_again(store)
    other.add(NODES[2:4])
    store.embed_stored_triples()
    other.add(NODES[4:])
    assert count_lacking(store) == 0 and read(other).link_flow(["Ann"], 1, QUERY)[0]


def test_a_kill_at_any_call_is_resumed_and_nothing_is_embedded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triple_vectors, "_PAGE", 2)
    after = 0
    while True:
        model = Counting()
        store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=model, batch_size=2)
        store.add(make_nodes(["Ann", "Carl", "Dora"]))
        flow, answered = store._vectors.embed_flow(), 0
        try:
            batch = next(flow)
            while answered < after:
                batch = flow.send([store._connection.answer(request) for request in batch])
                answered += 1
        except StopIteration:
            break
        flow.close()
        assert store._collections.embedded in (None, get_state(store))
        before = list(model.seen)
        left = count_lacking(store)
        assert get_state(store) in (NONE, PARTIAL) or left == 0
        again = open_again(store, embed_model=model)
        assert again.embed_stored_triples() == left and count_lacking(store) == 0 and again.check(sample_size=0).ok
        # What was embedded when the kill came, and not stored, is embedded again: a page at most.
        assert len(before) - (6 - left) <= 2 and len(model.seen) <= len(before) + left
        after += 1
    assert after > 10


def test_an_extracted_text_is_never_a_vector_of_another_model(make_store: Any) -> None:
    store = make_store()
    store.add(NODES)
    assert open_again(store, embed_model=Backwards()).repair(reembed=True).ok
    assert count_lacking(store) == 10 and get_state(store) == NONE


def test_a_triple_without_a_vector_is_a_fault_where_all_have_one(make_store: Any) -> None:
    store = make_store()
    store.add(NODES)
    assert store.repair().ok and count_lacking(store) == 10
    store.embed_stored_triples()
    points, _ = store.client.scroll(store.triple_collection_name, limit=1, with_payload=True, with_vectors=True)
    bare = models.PointStruct(id=points[0].id, payload=points[0].payload, vector={
        name: vector for name, vector in points[0].vector.items() if name != DENSE
    })  # fmt: skip
    store.client.upsert(store.triple_collection_name, points=[bare])
    report = store.check()
    assert report.without_vectors == (points[0].payload["passage_id"],) and "1 passage with vectors" in str(report)
    assert store.repair().ok and count_lacking(store) == 0


@pytest.mark.parametrize(
    ("source", "target", "state", "lacking"),
    [
        (False, None, NONE, 4),
        (True, None, ALL, 0),
        (False, False, NONE, 6),
        (True, False, NONE, 2),
        (False, True, PARTIAL, 4),
        (True, True, ALL, 0),
    ],
)
def test_a_copy_has_the_vectors_that_there_are(
    make_store: Any, source: bool, target: bool | None, state: str, lacking: int
) -> None:
    one, other = make_store(embed_triples=source), make_store(embed_triples=bool(target))
    one.add(NODES[:2])
    if target is not None:
        other.add(NODES[2:3])
    assert one.copy_to(other) == 2 and other.check().ok
    assert (get_state(other), count_lacking(other)) == (state, lacking)
    assert other.embed_stored_triples() == lacking and count_lacking(other) == 0


def test_stores_of_one_process_learn_that_a_copy_brought_triples_without_vectors(make_store: Any) -> None:
    source, target = make_store(), make_store(embed_triples=True)
    source.add(NODES[:2])
    target.add(NODES[2:])
    other = open_again(target)
    assert read(other).link_flow(["Ann"], 1, QUERY)[0]
    source.copy_to(target)
    with pytest.raises(ArgumentError, match="embed_stored_triples"):
        read(other).link_flow(["Ann"], 1, QUERY)


def test_tenants_share_the_vectors(make_store: Any) -> None:
    store = make_store(tenant_field="tenant")
    store.for_tenant("a").add(make_nodes(["Ann"]))
    store.for_tenant("b").add(make_nodes(["Carl"]))
    for tenant in "ab":
        with pytest.raises(ArgumentError, match="embed_stored_triples"):
            read(store.for_tenant(tenant)).link_flow(["Ann"], 1, QUERY)
        ((found,),) = read(store.for_tenant(tenant)).link_words_flow(["Bea is a name"], 1)
        assert found.passage_id == {"a": "Ann", "b": "Carl"}[tenant]
    with pytest.raises(TenantError):
        store.for_tenant("a").embed_stored_triples()
    assert store.embed_stored_triples() == 4
    ((found,),) = read(store.for_tenant("b")).link_flow(["Ann knows Bea"], 1, QUERY)
    assert found.passage_id == "Carl"
    store.for_tenant("a").add(make_nodes(["Dora"]))
    assert count_lacking(store) == 0 and store.check().ok


def test_another_process_that_writes_learns_it_after_its_write() -> None:
    client = QdrantClient(":memory:")
    one, other = make_process(client, EMBED), make_process(client, EMBED)
    one.add(NODES[:1])
    other.add(NODES[1:2])
    assert one.embed_stored_triples() == 4
    other.add(NODES[2:])
    assert count_lacking(one) == 0 and one.check().ok


def test_another_process_that_reads_learns_it_at_its_next_read() -> None:
    client = QdrantClient(":memory:")
    one, other = make_process(client, EMBED), make_process(client, EMBED)
    one.add(NODES)
    assert not read(other).have_vectors_flow()
    one.embed_stored_triples()
    assert read(other).have_vectors_flow() and other._collections.embedded == ALL


def test_passages_without_triples_are_not_repaired_with_another_model(make_store: Any) -> None:
    store = make_store()
    store.add([passage(name, f"{name} sleeps") for name in ("Ann", "Carl")])
    store.client.delete_collection(store.triple_collection_name)
    with pytest.raises(EmbeddingError, match="another embedding model"):
        open_again(store, embed_model=Backwards()).repair()


NEEDING: dict[str, Callable[[GeARVectorStore, ScriptedLLM], Any]] = {
    "NaiveGE": lambda store, llm: NaiveGERetriever(store),
    "NaiveGE, foreign base": lambda store, llm: NaiveGERetriever(store, GraphRetriever(store)),
    "SyncGE": lambda store, llm: SyncGERetriever(store, llm=llm),
    "separate": lambda store, llm: PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="separate"),
    "single": lambda store, llm: PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"),
    "T²RAG": lambda store, llm: T2RAGRetriever(store, llm=llm),
}


@pytest.mark.parametrize("method", NEEDING)
def test_a_method_that_needs_vectors_says_so_before_a_model_is_called(method: str) -> None:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    store.add(NODES)
    with pytest.raises(ArgumentError, match="embed_stored_triples"):
        NEEDING[method](store, ScriptedLLM([])).retrieve("Whom does Ann know?")


def test_the_agent_links_its_notes_by_words_where_there_are_no_vectors() -> None:
    found = {}
    for embed_triples in (False, True):
        store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED, embed_triples=embed_triples)
        store.add(NODES)
        fact = '"facts": [["Carl", "knows", "Bea"]]'
        replies = [
            f'{{"needed": [1], {fact}, "answerable": false, "query": "Whom does Dora know?"}}',
            '{"needed": [1], "facts": [], "answerable": true, "answer": "Bea"}',
        ]
        retriever = GeARRetriever(store, llm=ScriptedLLM(replies), similarity_top_k=3)
        _, trace = retriever.retrieve_with_trace("Whom does Carl know?")
        found[embed_triples] = [[list(linked.triple) for linked in step.linked] for step in trace.steps]
        assert trace.links[0].passages[0] == "Carl"
    assert found[False] == found[True] == [[], [["Carl", "knows", "Bea"]]]

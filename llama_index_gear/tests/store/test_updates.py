"""Changing documents in every way of LlamaIndex: their own passages are replaced, those of others stay."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import StorageContext, VectorStoreIndex
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.kvstore import SimpleKVStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_client import QdrantClient

from llama_index_gear import GeARTripleExtractor, GeARVectorStore, MentionTripleExtractor
from llama_index_gear.errors import TenantError
from llama_index_gear.flow import QdrantCall
from llama_index_gear.nodes import read_triples
from llama_index_gear.store.access import connection_of
from llama_index_gear.store.copy import copy_flow
from llama_index_gear.store.locks import AcquirePassages
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import Contents, contents, passage
from llama_index_gear.triple import Triple


class CountedEmbedding(WordEmbedding):
    """An embedding model that remembers the texts that it embedded."""

    _texts: list[str] = PrivateAttr(default_factory=list)

    def _get_text_embedding(self, text: str) -> list[float]:
        self._texts.append(text)
        return super()._get_text_embedding(text)

    def take_texts(self) -> list[str]:
        texts, self._texts[:] = list(self._texts), []
        return texts


def state_facts(prompt: str) -> str:
    """State a fact that all passages share, and one of the passage's own."""
    words = prompt.rsplit("\n#####\n", 2)[1].partition("\n\n")[2].split()
    return json.dumps({"entities": [], "triples": [["Ada", "knows", "Bob"], [words[0], "is told of", words[-1]]]})


# Sentences told by a full stop: LlamaIndex's own way wants NLTK's files, which old versions fetch.
SPLITTER = SentenceSplitter(
    chunk_size=24, chunk_overlap=0, chunking_tokenizer_fn=lambda text: re.findall(r"[^.]+\.?\s*", text)
)


def make_document(name: str, *sentences: str) -> Document:
    text = " ".join(
        f"{sentence} and nothing else is to be said of that in this long sentence." for sentence in sentences
    )
    return Document(id_=name, text=text)


@pytest.fixture
def embed_model() -> CountedEmbedding:
    return CountedEmbedding()


@pytest.fixture
def store(tmp_path: Path, embed_model: CountedEmbedding) -> Iterator[GeARVectorStore]:
    made = GeARVectorStore.from_path(tmp_path / "store", embed_model=embed_model, embed_triples=True)
    yield made
    assert made.check().ok
    made.close()


def select_document(name: str, held: Contents) -> Any:
    """Return the points of a document."""
    return {
        key: {i: point for i, point in points.items() if point[0]["doc_id"] == name} for key, points in held.items()
    }


def list_first_words(nodes: Sequence[BaseNode]) -> list[str]:
    return sorted(node.get_content().split()[0] for node in nodes)


@pytest.mark.parametrize("strategy", [DocstoreStrategy.UPSERTS, DocstoreStrategy.UPSERTS_AND_DELETE])
def test_a_pipeline_pays_for_what_changed_alone(
    store: GeARVectorStore, embed_model: CountedEmbedding, strategy: DocstoreStrategy
) -> None:
    llm = ScriptedLLM(otherwise=state_facts)
    pipeline = IngestionPipeline(
        transformations=[SPLITTER, GeARTripleExtractor(llm), embed_model],
        vector_store=store,
        docstore=SimpleDocumentStore(),
        docstore_strategy=strategy,
        disable_cache=True,
    )
    one, two, three = make_document("1", "Alpha", "Beta"), make_document("2", "Gamma"), make_document("3", "Delta")
    pipeline.run(documents=[one, two, three])
    assert (len(llm.history), list_first_words(store.get_nodes())) == (4, ["Alpha", "Beta", "Delta", "Gamma"])
    before = contents(store)
    embed_model.take_texts()

    pipeline.run(documents=[one, two, three])
    assert (len(llm.history), embed_model.take_texts()) == (4, [])
    assert contents(store) == before

    two = make_document("2", "Epsilon", "Zeta")
    pipeline.run(documents=[one, two, three])
    assert len(llm.history) == 6
    assert sorted(text.split()[0] for text in embed_model.take_texts()) == ["Ada", "Epsilon", "Epsilon", "Zeta", "Zeta"]
    assert list_first_words(store.get_nodes()) == ["Alpha", "Beta", "Delta", "Epsilon", "Zeta"]
    after = contents(store)
    assert select_document("1", after) == select_document("1", before) and select_document(
        "3", after
    ) == select_document("3", before)
    assert {len(points) for points in select_document("2", after).values()} == {2, 4}
    assert all(len(read_triples(node)) == 2 for node in store.get_nodes())

    pipeline.run(documents=[one, two])
    deleted = strategy == DocstoreStrategy.UPSERTS_AND_DELETE
    assert list_first_words(store.get_nodes()) == ["Alpha", "Beta", *([] if deleted else ["Delta"]), "Epsilon", "Zeta"]
    assert (len(llm.history), embed_model.take_texts()) == (6, [])
    assert select_document("1", contents(store)) == select_document("1", before)


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("splits", [True, False])
async def test_a_moved_document_takes_its_passages_along(store: GeARVectorStore, mode: str, splits: bool) -> None:
    """The guide's pipeline, without LlamaIndex's cache, which knows passages by their texts alone."""
    llm = ScriptedLLM(otherwise=state_facts)
    pipeline = IngestionPipeline(
        transformations=[
            *([SPLITTER] if splits else []),
            GeARTripleExtractor(llm, cache=SimpleKVStore()),
            store.embed_model,
        ],
        vector_store=store,
        docstore=SimpleDocumentStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        disable_cache=True,
    )

    async def run(*documents: Document) -> dict[str, str]:
        if mode == "sync":
            pipeline.run(documents=documents)
        else:
            await pipeline.arun(documents=documents)
        assert store.check().ok
        return {node.ref_doc_id or node.node_id: node.get_content().split()[0] for node in store.get_nodes()}

    assert await run(make_document("old", "Alpha"), make_document("other", "Beta")) == {"old": "Alpha", "other": "Beta"}
    calls = len(llm.history)
    moved = await run(make_document("new", "Alpha"), make_document("other", "Beta"))
    assert moved == {"new": "Alpha", "other": "Beta"} and len(llm.history) == calls, "the extractor's cache knows it"
    assert await run(make_document("other", "Alpha"), make_document("new", "Beta")) == {"other": "Alpha", "new": "Beta"}
    assert await run(make_document("new", "Gamma")) == {"new": "Gamma"}


def test_an_index_inserts_refreshes_and_deletes(store: GeARVectorStore, embed_model: CountedEmbedding) -> None:
    index = VectorStoreIndex.from_documents(
        [make_document("1", "Alpha", "Beta"), make_document("2", "Gamma")],
        storage_context=StorageContext.from_defaults(vector_store=store),
        transformations=[SPLITTER, MentionTripleExtractor()],
        embed_model=embed_model,
    )
    before = contents(store)
    index.insert(make_document("3", "Delta"))
    assert list_first_words(store.get_nodes()) == ["Alpha", "Beta", "Delta", "Gamma"]
    embed_model.take_texts()
    unchanged, changed, new = (
        make_document("1", "Alpha", "Beta"),
        make_document("2", "Epsilon"),
        make_document("4", "Zeta"),
    )
    assert index.refresh_ref_docs([unchanged, changed, new]) == [False, True, True]
    assert list_first_words(store.get_nodes()) == ["Alpha", "Beta", "Delta", "Epsilon", "Zeta"]
    assert not any("Alpha" in text or "Delta" in text for text in embed_model.take_texts())
    index.delete_ref_doc("4")
    index.delete_ref_doc("2", delete_from_docstore=True)
    assert list_first_words(store.get_nodes()) == ["Alpha", "Beta", "Delta"]
    assert select_document("1", contents(store)) == select_document("1", before)


def drive_until(flow: Any, answer: Any, until: Callable[[Any], bool]) -> Sequence[Any]:
    """Drive a flow until it is about to make such a request, and return the batch of requests with it."""
    batch: Sequence[Any] = next(flow)
    while not until(batch[0]):
        batch = flow.send([answer(request) for request in batch])
    return batch


def make_test_of_method(method: str) -> Callable[[Any], bool]:
    return lambda asked: (
        isinstance(asked, QdrantCall) and ((asked.method, asked.arguments["collection_name"]) == (method, "gear"))
    )


def finish(flow: Any, answer: Any, batch: Sequence[Any]) -> None:
    with contextlib.suppress(StopIteration):
        while True:
            batch = flow.send([answer(request) for request in batch])


def test_writers_through_two_stores_of_one_client_take_turns() -> None:
    embed_model, client = WordEmbedding(), QdrantClient(":memory:")
    one, two = (GeARVectorStore(client=client, embed_model=embed_model, tenant_field="who") for _ in range(2))
    new = [
        passage("p", text, [("A", "is", text)], embed_model=embed_model, document="d", metadata={"who": text})
        for text in ("a", "b")
    ]
    one.add([passage("q", "old", [("A", "is", "old")], embed_model=embed_model, document="d", metadata={"who": "a"})])
    flow, answer = one._writes.add_flow(new[:1]), one._connection.answer
    batch = drive_until(flow, answer, make_test_of_method("upsert"))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(two.add, new[1:])
        while len(one._locks._claims) < 2:
            assert not other.done()
        finish(flow, answer, batch)
        with pytest.raises(TenantError, match="another tenant has a passage of the id 'p'"):
            other.result(timeout=60)
    assert one.check().ok and one.for_tenant("a").get_nodes(["p"]) and one.check().passages == 2


@pytest.mark.parametrize("reembed", [False, True])
def test_a_repair_leaves_what_is_written_beside_it(reembed: bool) -> None:
    """A repair does not write back what it read of a passage before another call changed it."""
    embed_model = WordEmbedding()
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model)
    names = ("deleted", "edited", "left")
    store.add([passage(name, f"old {name}", [("A", "is", name)], embed_model=embed_model) for name in names])
    lost = [Triple("A", "is", name).id(name) for name in names]
    store.client.delete(store.triple_collection_name, points_selector=lost)
    flow, answer = store._checks.repair_flow(reembed), store._connection.answer
    batch = drive_until(flow, answer, lambda asked: isinstance(asked, AcquirePassages))
    store.delete_nodes(["deleted"])
    store.add([passage("edited", "new", [("A", "is", "new")], embed_model=embed_model)])
    finish(flow, answer, batch)
    assert {node.node_id: node.get_content() for node in store.get_nodes()} == {"edited": "new", "left": "old left"}
    assert store.check().ok and store.check().triples == 2


def test_a_delete_does_not_wait_until_all_is_added() -> None:
    embed_model = WordEmbedding()
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model, batch_size=1)
    old, *new = [
        passage(f"p{n}", f"old {n}", [("A", "is", str(n))], embed_model=embed_model, document=f"d{n}") for n in range(9)
    ]
    store.add([old])
    flow, answer = store._writes.add_flow(new), store._connection.answer
    batch = drive_until(flow, answer, make_test_of_method("upsert"))
    with ThreadPoolExecutor(1) as pool:
        delete = pool.submit(store.delete, "d0")
        while len(store._locks._claims) < 2:
            assert not delete.done()
        batch = flow.send([answer(request) for request in batch])
        while not isinstance(batch[0], AcquirePassages):
            batch = flow.send([answer(request) for request in batch])
        finish(flow, answer, batch)  # the second batch waits its turn: the delete comes before it
        delete.result(timeout=60)
    assert {node.node_id for node in store.get_nodes()} == {f"p{n}" for n in range(1, 9)} and store.check().ok


def test_what_is_added_beside_a_clear_is_there_whole_or_not_at_all() -> None:
    embed_model = WordEmbedding()
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model)
    old, new = (passage(n, n, [("A", "is", n)], embed_model=embed_model, document="d") for n in ("old", "new"))
    store.add([old])
    flow, answer = store._deletes.clear_flow(), store._connection.answer
    batch = drive_until(flow, answer, make_test_of_method("delete_collection"))
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(store.add, [new])
        while len(store._locks._claims) < 2:
            assert not adding.done()
        finish(flow, answer, batch)
        adding.result(timeout=60)
    assert [node.node_id for node in store.get_nodes()] == ["new"] and store.check().triples == 1 and store.check().ok


def test_a_delete_spares_triples_that_a_call_that_died_gave_another_document() -> None:
    embed_model = WordEmbedding()
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model)

    def make_passage(document: str) -> BaseNode:
        return passage(
            "p", "x", [("A", "is", "B")], embed_model=embed_model, document=document, metadata={"kind": document}
        )

    store.add([make_passage("old")])
    flow = store._writes.add_flow([make_passage("new")])
    drive_until(flow, store._connection.answer, make_test_of_method("upsert"))
    flow.close()
    store.delete("new")
    store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="kind", value="new")]))
    report = store.check()
    assert (report.passages, report.triples, report.incomplete) == (1, 1, ())
    store.delete("old")
    assert store.check().triples == 0


def test_a_delete_by_filters_decides_when_its_turn_has_come() -> None:
    embed_model = WordEmbedding()
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model)

    def make_passage(kind: str) -> BaseNode:
        return passage("p", kind, [("A", "is", "B")], embed_model=embed_model, document="d", metadata={"kind": kind})

    store.add([make_passage("old")])
    old = MetadataFilters(filters=[MetadataFilter(key="kind", value="old")])
    flow, answer = store._deletes.delete_nodes_flow(None, old), store._connection.answer
    batch = drive_until(flow, answer, lambda asked: isinstance(asked, AcquirePassages))
    store.add([make_passage("new")])
    finish(flow, answer, batch)
    assert [node.get_content() for node in store.get_nodes()] == ["new"] and store.check().ok


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_copy_beside_a_writer_holds_whole_passages(change: str) -> None:
    embed_model = WordEmbedding()
    source, target = (GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model) for _ in range(2))
    source.add([passage("p", "old", [("A", "is", "B")], embed_model=embed_model, document="d")])
    flow = copy_flow(source._writes, target._writes, connection_of(target), None, False)
    answer = connection_of(source).answer

    batch = drive_until(flow, answer, lambda sent: isinstance(sent, QdrantCall) and sent.method == "scroll")
    batch = flow.send([answer(sent) for sent in batch])  # the page is known
    if change == "edit":
        source.add([passage("p", "new", [("A", "was", "C")], embed_model=embed_model, document="d")])
    else:
        source.delete("d")
    finish(flow, answer, batch)
    assert [node.get_content() for node in target.get_nodes()] == (["new"] if change == "edit" else [])
    assert target.check().ok and contents(target) == contents(source)


def test_a_writer_waits_while_a_copy_reads_its_passage() -> None:
    embed_model = WordEmbedding()
    source, target = (
        GeARVectorStore(client=QdrantClient(":memory:"), embed_model=embed_model, batch_size=1) for _ in range(2)
    )
    old = [passage(n, n, [("A", "is", n)], embed_model=embed_model, document=n) for n in ("p", "q", "r")]
    source.add(old)
    flow = copy_flow(source._writes, target._writes, connection_of(target), None, False)
    answer = connection_of(source).answer

    batch = drive_until(flow, answer, lambda sent: isinstance(sent, AcquirePassages))
    batch = flow.send([answer(sent) for sent in batch])
    batch = flow.send([answer(sent) for sent in batch])  # the passage is read, its triples are not
    new = [passage(n, "new", [("A", "was", n)], embed_model=embed_model, document=n) for n in ("p", "q", "r")]
    with ThreadPoolExecutor(1) as pool:
        adding = pool.submit(source.add, new)
        while len(source._locks._claims) < 2:
            assert not adding.done()
        copied = None
        try:
            while True:
                batch = flow.send([answer(sent) for sent in batch])
        except StopIteration as stop:
            copied = stop.value
        adding.result(timeout=60)
    assert copied == 3 and target.check().ok and target.check().passages == 3


class SlowWrites:
    """A client, as of a server, whose first write of passages ends when it is allowed to."""

    def __init__(self, client: QdrantClient) -> None:
        self.client = client
        self.is_writing, self.may_end, self.has_written = threading.Event(), threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        if name == "_client":  # by which the engine in memory is known, and served one call at a time
            raise AttributeError(name)
        return getattr(self.client, name)

    def upsert(self, **options: Any) -> Any:
        if options["collection_name"] == "gear" and not self.is_writing.is_set():
            self.is_writing.set()
            self.may_end.wait(60)
            self.client.upsert(**options)
            self.has_written.set()
            return None
        return self.client.upsert(**options)


async def test_a_write_that_was_cancelled_does_not_land_after_the_next() -> None:
    embed_model, client = WordEmbedding(), SlowWrites(QdrantClient(":memory:"))
    store = GeARVectorStore(client=client, embed_model=embed_model)  # type: ignore[arg-type]
    one, two = (passage("p", n, [("A", "is", n)], embed_model=embed_model, document="d") for n in ("one", "two"))
    first = asyncio.create_task(store.async_add([one]))
    await asyncio.to_thread(client.is_writing.wait)
    first.cancel()
    second = asyncio.create_task(store.async_add([two]))
    while len(store._locks._claims) < 2:  # noqa: ASYNC110 - claims know no event
        await asyncio.sleep(0)
    client.may_end.set()
    await asyncio.wait_for(second, 60)
    await asyncio.to_thread(client.has_written.wait)
    assert first.cancelled() and [node.get_content() for node in store.get_nodes()] == ["two"] and store.check().ok

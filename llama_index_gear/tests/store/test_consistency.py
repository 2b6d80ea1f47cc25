"""A store's settings of replicas reach each call that writes or reads points, and no other."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage, read
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(8)
WRITES = {"upsert", "delete", "batch_update_points"}
READS = {"retrieve", "scroll", "query_batch_points"}


class Told(QdrantClient):
    """Qdrant in memory that notes what its calls are told of replicas."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.told: set[tuple[str, str, Any]] = set()


class ToldAwaited(AsyncQdrantClient):
    """The async client of the same memory."""

    def __init__(self, told: Told) -> None:
        super().__init__(":memory:")
        self.one = told


def make_methods(name: str) -> tuple[Any, Any]:
    def call(self: Told, *arguments: Any, **options: Any) -> Any:
        self.told |= {(name, word, options.get(word)) for word in ("ordering", "consistency")}
        return getattr(QdrantClient, name)(self, *arguments, **options)

    async def acall(self: ToldAwaited, *arguments: Any, **options: Any) -> Any:
        return getattr(self.one, name)(*arguments, **options)

    return call, acall


for _name in (*WRITES, *READS, "count", "collection_exists", "get_collection", "create_collection"):
    _call, _acall = make_methods(_name)
    setattr(Told, _name, _call)
    setattr(ToldAwaited, _name, _acall)
ToldAwaited.create_payload_index = make_methods("create_payload_index")[1]  # type: ignore[method-assign]
Told.create_payload_index = make_methods("create_payload_index")[0]  # type: ignore[method-assign]


def work(store: GeARVectorStore) -> None:
    store.add([passage("p", "Ada met Bob.", [("Ada", "met", "Bob"), ("Bob", "is", "Robert")], embed_model=EMBED)])
    store.link_aliases([("Bob", "Robert B.")])
    store.add([passage("p", "Ada saw Bob.", [("Ada", "saw", "Bob"), ("B.", "is", "Bob")], embed_model=EMBED)])
    store.link_aliases([("Bob", "B.")])
    store.unlink_aliases([("Bob", "B.")])
    store.embed_stored_triples()
    store.finish_writes()
    assert store.repair().ok
    copied = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    store.copy_to(copied)
    store.delete_nodes(["p"])
    copied.copy_to(store)


def ask(store: GeARVectorStore) -> None:
    store.query(VectorStoreQuery(query_str="Ada?", similarity_top_k=1))
    GraphRetriever(store).retrieve("Whom did Ada see?")
    store.check()
    assert store.get_nodes(["p"])
    assert read(store).fetch_triples_flow([Triple("Ada", "saw", "Bob").id("p")])


async def awork(store: GeARVectorStore) -> None:
    await store.async_add([passage("p", "Ada saw Bob.", [("Ada", "saw", "Bob")], embed_model=EMBED)])
    await store.adelete_nodes(["q"])


async def aask(store: GeARVectorStore) -> None:
    await store.aquery(VectorStoreQuery(query_str="Ada?", similarity_top_k=1))
    await store.aget_nodes(["p"])


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("consistency", ["majority", 2])
def test_each_call_is_told(is_async: bool, consistency: Any) -> None:
    """A list of points that a write reads must not lack those that another writer is changing."""
    client = Told()
    aclient = ToldAwaited(client) if is_async else None
    settings = CollectionSettings(write_ordering="strong", read_consistency=consistency)
    store = GeARVectorStore(client=client, aclient=aclient, embed_model=EMBED, collection_settings=settings)
    if is_async:
        asyncio.run(awork(store))
    else:
        work(store)
        assert {name for name, _, _ in client.told} >= {*WRITES, "scroll"}
    assert_told(client, {"retrieve"}, consistency)
    client.told.clear()
    if is_async:
        asyncio.run(aask(store))
    else:
        ask(store)
        assert {name for name, _, _ in client.told} >= READS
    assert_told(client, READS, consistency)


def assert_told(client: Told, reads: set[str], consistency: Any) -> None:
    for name, word, value in client.told:
        wanted = {
            "ordering": "strong" if name in WRITES else None,
            "consistency": consistency if name in reads else None,
        }
        assert value == wanted[word], (name, word)


def test_by_default_nothing_is_said() -> None:
    client = Told()
    store = GeARVectorStore(client=client, embed_model=EMBED)
    work(store)
    ask(store)
    assert {value for _, _, value in client.told} == {None}


def test_the_words_are_qdrant_s() -> None:
    ordering, kind = models.WriteOrdering.MEDIUM, models.ReadConsistencyType.ALL
    GeARVectorStore(
        client=Told(),
        embed_model=EMBED,
        collection_settings=CollectionSettings(write_ordering=ordering, read_consistency=kind),
    )
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"write_ordering": "strongest"}, "write_ordering must be 'weak' or 'medium' or 'strong', got 'strongest'"),
        ({"read_consistency": "most"}, "read_consistency must be 'majority' .* or a number of replicas, got 'most'"),
        ({"read_consistency": 0}, "read_consistency must be 1 or more replicas, got 0"),
        ({"read_consistency": True}, "read_consistency must be 'majority'"),
    ]
    for options, words in wrong:
        with pytest.raises(ArgumentError, match=words):
            GeARVectorStore(client=Told(), embed_model=EMBED, collection_settings=CollectionSettings(**options))


def test_the_embedded_engine_has_no_replicas(tmp_path: Path) -> None:
    options: list[dict[str, Any]] = [{"write_ordering": "strong"}, {"read_consistency": "all"}]
    for given in options:
        with pytest.raises(ArgumentError, match="one copy of each point"):
            GeARVectorStore.from_path(tmp_path, embed_model=EMBED, collection_settings=CollectionSettings(**given))

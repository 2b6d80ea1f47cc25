"""Points that tie for the last place are the same ones in every engine, whatever the order of writing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from qdrant_client import QdrantClient

from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.store import ranked_queries
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage, read
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(16)
MANY = 120
"""Passages that say the same."""
QUERY = EMBED.get_query_embedding("Ada knows Bob")
ENGINES: list[Callable[[Path], Any]] = [EdgeClient, lambda folder: QdrantClient(":memory:")]


def fill_store(client: Any, seed: int) -> GeARVectorStore:
    """Return a store of equal passages, some better and some worse ones, written in a random order."""
    said = [(f"p{n}", "Ada knows Bob.", [("Ada", "knows", "Bob"), ("Bob", "knows", "Ada")]) for n in range(MANY)]
    said += [(f"good{n}", f"Ada knows Bob, Ada knows Bob {n}.", [("Ada", "knows Bob", f"x{n}")]) for n in range(3)]
    said += [(f"bad{n}", f"Ada sleeps {n}.", [("Ada", "sleeps", f"y{n}")]) for n in range(3)]
    random.Random(seed).shuffle(said)
    store = GeARVectorStore(client=client, embed_model=EMBED, embed_triples=True, batch_size=20)
    for start in range(0, len(said), 40):
        store.add([passage(*arguments, embed_model=EMBED) for arguments in said[start : start + 40]])
    return store


def load_graph(client: Any, seed: int) -> ExternalTripleStore:
    facts = [Triple("Ada", "knows", f"Bob{n:03}") for n in range(MANY)]
    random.Random(seed).shuffle(facts)
    graph = ExternalTripleStore(client=client, embed_model=EMBED, batch_size=40)
    graph.load(facts)
    return graph


def ask_store(store: GeARVectorStore) -> Iterator[Any]:
    """Yield a store's results by each way of searching, cut within the tie."""
    for mode, top_k in itertools.product(
        (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID), (1, 5, 7)
    ):
        found = store.query(VectorStoreQuery(query_str="Ada knows Bob", mode=mode, similarity_top_k=top_k))
        assert [node.get_content()[:3] for node in found.nodes or []] == ["Ada"] * top_k
        yield found.ids
    for linked in read(store).link_flow(["Ada knows Bob", "Ada sleeps"], 4, QUERY):
        yield [triple.id for triple in linked]
    yield [near.id for near in read(store).neighbors_flow([("bob",)], QUERY, [], 6)[0]]
    yield [node.node.node_id for node in read(store).align_flow(["Ada knows Bob"], 8)[0]]
    yield [triple.id for triple in read(store).search_flow(["Ada knows Bob", "Bob knows Ada"], 9)]
    yield [triple.id for triple in read(store).passage_triples_flow([f"p{n}" for n in range(MANY)], QUERY, 10)]


def ask_graph(graph: ExternalTripleStore) -> Iterator[Any]:
    for linked in read(graph).link_flow(["Ada knows", "knows"], 4, QUERY, ["Ada", ""]):
        yield [triple.id for triple in linked]
    yield [near.id for near in read(graph).neighbors_flow([("ada",)], QUERY, [], 6, "whom Ada knows")[0]]


def test_a_cut_within_a_tie_is_the_same_after_every_order_of_writing_in_every_engine(tmp_path: Path) -> None:
    stores = [fill_store(engine(tmp_path / f"{seed}"), seed) for seed in (1, 2) for engine in ENGINES]
    first, *others = [list(ask_store(store)) for store in stores]
    for ids in others:
        assert ids == first


def test_so_it_is_in_a_graph_of_its_own(tmp_path: Path) -> None:
    graphs = [load_graph(engine(tmp_path / f"{seed}"), seed) for seed in (1, 2) for engine in ENGINES]
    first, *others = [list(ask_graph(graph)) for graph in graphs]
    for ids in others:
        assert ids == first


class Counted:
    """A store's client that counts its requests."""

    def __init__(self, store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.limits: list[list[int]] = []
        self.payloads = self.retrieved = 0
        ask, retrieve = store.client.query_batch_points, store.client.retrieve

        def query_batch_points(collection_name: str, requests: Any, **options: Any) -> Any:
            self.limits.append([request.limit for request in requests])
            answers = ask(collection_name, requests, **options)
            self.payloads += sum(bool(point.payload) for answer in answers for point in answer.points)
            return answers

        def retrieve_less(collection_name: str, ids: Any, *arguments: Any, **options: Any) -> Any:
            self.retrieved += len(ids)
            return retrieve(collection_name, ids, *arguments, **options)

        monkeypatch.setattr(store.client, "query_batch_points", query_batch_points)
        monkeypatch.setattr(store.client, "retrieve", retrieve_less)


def search_words(store: GeARVectorStore, question: str, top_k: int) -> list[str]:
    asked = VectorStoreQuery(query_str=question, mode=VectorStoreQueryMode.SPARSE, similarity_top_k=top_k)
    return store.query(asked).ids or []


def test_only_what_is_cut_in_a_tie_is_asked_again_and_all_such_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = fill_store(EdgeClient(tmp_path), 1)
    counted = Counted(store, monkeypatch)
    assert sorted(search_words(store, "sleeps", 3)) == ["bad0", "bad1", "bad2"]  # as many as there are
    assert counted.limits == [[4]]
    counted.limits.clear()
    assert len(search_words(store, "Ada knows Bob", 3)) == 3  # the tie begins behind the last place
    assert counted.limits == [[4]]
    counted.limits.clear()
    read(store).align_flow(["Ada knows Bob", "sleeps", "Bob"], 5)
    assert counted.limits == [[6, 6, 6], [500, 500]]


def test_of_a_tie_only_what_is_found_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill_store(EdgeClient(tmp_path), 1)
    counted = Counted(store, monkeypatch)
    assert len(search_words(store, "Ada knows Bob", 8)) == 8
    assert counted.payloads == 9 and counted.retrieved <= 8


def test_a_tie_beyond_the_limit_is_left_to_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranked_queries, "MAX_TIED", 50)
    store = fill_store(EdgeClient(tmp_path), 1)
    counted = Counted(store, monkeypatch)
    assert len(search_words(store, "Ada knows Bob", 5)) == 5
    assert counted.limits == [[6], [50]]
    counted.limits.clear()
    assert len(search_words(store, "Ada knows Bob", 60)) == 60
    assert counted.limits == [[61]]


def test_a_point_that_goes_while_its_tie_is_ended_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill_store(EdgeClient(tmp_path), 1)
    retrieve, gone = store.client.retrieve, []

    def retrieve_less(collection_name: str, ids: Any, *arguments: Any, **options: Any) -> Any:
        gone.append(str(ids[0]))
        return retrieve(collection_name, ids[1:], *arguments, **options)

    monkeypatch.setattr(store.client, "retrieve", retrieve_less)
    assert len(search_words(store, "Ada knows Bob", 8)) == 8 - len(gone) == 7

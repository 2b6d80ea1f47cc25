"""The backend that answers each kind of request of a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.errors import StoreError
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.flow import Request
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.requests import FetchTriples, GraphRequest, LinkTriples, PassageTriples, QdrantCall
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.triple import Triple

EMBED = WordEmbedding()
QUERY = EMBED.get_query_embedding("Ada")


@pytest.fixture
def store() -> GeARVectorStore:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED)
    store.add([passage("p", "Ada met Bob", [("Ada", "met", "Bob")], embed_model=EMBED)])
    return store


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[ExternalTripleStore]:
    with ExternalTripleStore.from_path(tmp_path, embed_model=EMBED) as graph:
        graph.load([Triple("Ada", "wrote to", "Eve")])
        yield graph


@dataclass(frozen=True)
class Unheard(Request[int]):
    """A request that no backend knows."""


@dataclass(frozen=True)
class UnheardOfGraph(GraphRequest[int]):
    """A request of graphs that no backend knows."""


@pytest.mark.parametrize("request_", [Unheard(), UnheardOfGraph()], ids=lambda request: type(request).__name__)
async def test_a_request_that_nobody_answers_is_named(
    store: GeARVectorStore, graph: ExternalTripleStore, request_: Request[int]
) -> None:
    who: list[Any] = [store, store._connection, graph, graph._connection, Backends(store), Backends(store, graph=graph)]
    for backend in who:
        with pytest.raises(StoreError, match=f"no answer to {type(request_).__name__}"):
            backend.answer(request_)
        with pytest.raises(StoreError, match=f"no answer to {type(request_).__name__}"):
            await backend.aanswer(request_)


async def test_no_call_of_the_engine_goes_past_the_filters_of_a_store(store: GeARVectorStore) -> None:
    call = QdrantCall("count", {"collection_name": store.collection_name})
    for backend in (store, Backends(store)):
        with pytest.raises(StoreError, match="no answer to QdrantCall"):
            backend.answer(call)
        with pytest.raises(StoreError, match="no answer to QdrantCall"):
            await backend.aanswer(call)


async def test_a_graph_answers_what_is_asked_of_graphs_and_the_store_the_rest(
    store: GeARVectorStore, graph: ExternalTripleStore
) -> None:
    link, of_passage = LinkTriples(["Ada"], 5, QUERY), PassageTriples(["p"], QUERY, None)
    met, wrote = Triple("Ada", "met", "Bob"), Triple("Ada", "wrote to", "Eve")
    for backends, linked in ((Backends(store), met), (Backends(store, graph=graph), wrote)):
        for answers in (backends.answer(link), await backends.aanswer(link)):
            assert [[triple.triple for triple in answer] for answer in answers] == [[linked]]
        fetch = FetchTriples([triple.id for answer in backends.answer(link) for triple in answer])
        for fetched in (backends.answer(fetch), await backends.aanswer(fetch)):
            assert [triple.triple for triple in fetched.values()] == [linked]
        for triples in (backends.answer(of_passage), await backends.aanswer(of_passage)):
            assert [triple.triple for triple in triples] == [met]

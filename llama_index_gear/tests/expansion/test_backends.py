"""The parts that a query is answered with, and what answers its requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from llama_index.core.prompts import PromptTemplate
from qdrant_client import QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.errors import ArgumentError, StoreError
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.flow import CallLLM, Request, arun, run
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.store.access import connection_of
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.triple import Triple

EMBED = WordEmbedding()
QUERY = EMBED.get_query_embedding("Ada")


@pytest.fixture
def store() -> GeARVectorStore:
    store = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=EMBED, embed_triples=True)
    store.add([passage("p", "Ada met Bob", [("Ada", "met", "Bob")], embed_model=EMBED)])
    return store


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[ExternalTripleStore]:
    with ExternalTripleStore.from_path(tmp_path, embed_model=EMBED) as graph:
        graph.load([Triple("Ada", "wrote to", "Eve")])
        yield graph


@dataclass(frozen=True)
class Unheard(Request[int]):
    """A request that nothing answers."""


async def test_a_request_that_nobody_answers_is_named(store: GeARVectorStore, graph: ExternalTripleStore) -> None:
    for backend in (connection_of(store), graph._connection, Backends(store), Backends(store, graph=graph)):
        with pytest.raises(StoreError, match="no answer to Unheard"):
            backend.answer(Unheard())
        with pytest.raises(StoreError, match="no answer to Unheard"):
            await backend.aanswer(Unheard())


def test_a_question_without_a_model_says_so(store: GeARVectorStore) -> None:
    with pytest.raises(ArgumentError, match="give llm"):
        Backends(store).answer(CallLLM(PromptTemplate("{x}"), {"x": "y"}))


async def test_a_graph_is_walked_in_the_place_of_the_store_s_triples(
    store: GeARVectorStore, graph: ExternalTripleStore
) -> None:
    """Whatever drives their flows, each engine answers its own requests."""
    met, wrote = Triple("Ada", "met", "Bob"), Triple("Ada", "wrote to", "Eve")
    for backends, expected in ((Backends(store), met), (Backends(store, graph=graph), wrote)):
        walked = backends.walked
        for linked in (
            run(backends.link_flow(["Ada"], 5, QUERY), backends.answer),
            await arun(backends.link_flow(["Ada"], 5, QUERY), backends.aanswer),
        ):
            assert [[triple.triple for triple in found] for found in linked] == [[expected]]
        ids = [triple.id for found in linked for triple in found]
        for fetched in (
            run(walked.fetch_triples_flow(ids), backends.answer),
            await arun(walked.fetch_triples_flow(ids), backends.aanswer),
        ):
            assert [triple.triple for triple in fetched.values()] == [expected]
        stated = run(backends.reads.passage_triples_flow(["p"], QUERY, None), backends.answer)
        assert [triple.triple for triple in stated] == [met]

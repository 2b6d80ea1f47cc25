"""Walks go from the triples of a name to those of a linked name."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from qdrant_client import QdrantClient

from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.testing.store_contract import passage

QUESTION = "Which club drafted the father of Stephen?"
SON = ("Stephen", "is a son of", "Dell Curry")
DRAFTED = ("Wardell Curry", "joined", "Utah Jazz")


@pytest.fixture
def store() -> GeARVectorStore:
    made = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding())
    made.add(
        [
            passage("son", "The father of Stephen is Dell Curry.", [SON]),
            passage("drafted", "Wardell joined in summer.", [DRAFTED]),
            *(
                passage(f"other{number}", f"Club {number} is a club.", [(f"Club {number}", "is", "a club")])
                for number in range(60)
            ),
        ]
    )
    return made


def first_of(store: GeARVectorStore) -> BaseRetriever:
    """Make a base retriever that finds one passage."""
    return VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model).as_retriever(similarity_top_k=1)


@pytest.mark.parametrize(
    "make",
    [
        lambda store: NaiveGERetriever(store, first_of(store)),
        lambda store: NaiveGERetriever(
            store, first_of(store), beam_search=BeamSearch(beam_length=1), pagerank=LocalPageRank()
        ),
        lambda store: GraphRetriever(store, similarity_top_k=5),
    ],
    ids=["beam search", "PageRank", "ranked together"],
)
def test_a_walk_goes_through_a_link(store: GeARVectorStore, make: Any) -> None:
    def find() -> dict[str, Any]:
        return {result.node.node_id: result.node.metadata for result in make(store).retrieve(QUESTION)}

    before = find()
    assert "drafted" not in before
    store.link_aliases([("Dell Curry", "Wardell Curry")])
    found = find()
    assert "drafted" in found
    if not isinstance(make(store), NaiveGERetriever) or make(store).pagerank is None:
        assert found["drafted"]["gear_chain"] == [list(SON), list(DRAFTED)]
    store.unlink_aliases()
    assert find() == before

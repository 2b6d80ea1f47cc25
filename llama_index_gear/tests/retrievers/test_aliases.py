"""Walks go from the triples of a name to those of a linked name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_client import QdrantClient

from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

OPEN = MetadataFilters(filters=[MetadataFilter(key="read_by", value="all")])
QUESTION = "Which club drafted the father of Stephen?"
SON = ("Stephen", "is a son of", "Dell Curry")
DRAFTED = ("Wardell Curry", "joined", "Utah Jazz")


@pytest.fixture
def store() -> GeARVectorStore:
    made = GeARVectorStore(client=QdrantClient(":memory:"), embed_model=WordEmbedding(), embed_triples=True)
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


def first_of(store: GeARVectorStore, **options: Any) -> BaseRetriever:
    """Make a base retriever that finds one passage."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=store.embed_model)
    return index.as_retriever(similarity_top_k=1, **options)


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
    if not isinstance(make(store), NaiveGERetriever) or make(store)._expansion.pagerank is None:
        assert found["drafted"]["gear_chain"] == [list(SON), list(DRAFTED)]
    store.unlink_aliases()
    assert find() == before


def fill(store: GeARVectorStore, *, is_linked: bool) -> GeARVectorStore:
    """Fill a store with open passages, and with one that is not, whose name may be linked."""
    open_ = {"read_by": "all", "who": "a"}
    nodes = [
        passage("son", "The father of Stephen is Dell Curry.", [SON], metadata=open_),
        passage("plays", "Dell Curry plays golf.", [("Dell Curry", "plays", "golf")], metadata=open_),
    ]
    secret = passage("drafted", "Wardell joined in summer.", [DRAFTED], metadata={"read_by": "some", "who": "a"})
    store.add([*nodes, secret])
    if is_linked:
        assert store.for_tenant("a").link_aliases([("Dell Curry", "Wardell Curry")])
    return store.for_tenant("a")


async def test_no_name_leaves_what_a_filter_allows(tmp_path: Path) -> None:
    """The pool, its ranking, a walk and a page are what they are without the link to a forbidden name."""
    stores = [
        fill(
            GeARVectorStore(
                client=QdrantClient(":memory:"), embed_model=WordEmbedding(), embed_triples=True, tenant_field="who"
            ),
            is_linked=is_linked,
        )
        for is_linked in (True, False)
    ]
    pools, found, pages = [], [], []
    for store in stores:
        retriever = GraphRetriever(store, filters=OPEN)
        pools.append(retriever.gather_pool(QUESTION))
        walk = NaiveGERetriever(store, first_of(store, filters=OPEN), filters=OPEN, pagerank=LocalPageRank())
        results = [*retriever.retrieve(QUESTION), *walk.retrieve(QUESTION)]
        found.append([(result.score, result.node.dict()) for result in results])
        pages.append(store.to_html(tmp_path / "page.html", "Dell Curry", filters=OPEN).read_text("utf-8"))
    assert all("wardell" not in f"{pool.aliases} {pool.passages}" for pool in pools)
    assert (pools[0].aliases, pools[0].lists) == (pools[1].aliases, pools[1].lists)
    assert found[0] == found[1] and pages[0] == pages[1] and "wardell" not in pages[0].lower()
    assert ("dell curry", "wardell curry") in GraphRetriever(stores[0]).gather_pool(QUESTION).aliases

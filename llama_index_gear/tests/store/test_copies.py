"""Stores and their holders refuse to be pickled or copied deeply, and go on working afterwards."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.schema import NodeWithScore

from llama_index_gear.errors import StoreError
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.postprocessors.beam_search import DiverseTripleBeamSearch
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(8)
FACT = Triple("Ada", "knows", "Bob")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GeARVectorStore]:
    with GeARVectorStore.from_path(
        tmp_path / "store", embed_model=EMBED, embed_triples=True, tenant_field="who"
    ) as store:
        facts = [("Ada", "knows", "Bob")]
        store.add([passage("p", "Ada knows Bob.", facts, metadata={"who": "me"}, embed_model=EMBED)])
        yield store


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[ExternalTripleStore]:
    with ExternalTripleStore.from_path(tmp_path / "graph", embed_model=EMBED) as graph:
        graph.load([FACT])
        yield graph


def make_holders(store: GeARVectorStore, graph: ExternalTripleStore) -> dict[str, Any]:
    bound = store.for_tenant("me")
    search = DiverseTripleBeamSearch(bound)
    index = VectorStoreIndex.from_vector_store(bound, embed_model=EMBED)
    return {
        "engine": store.client,
        "what holds the engine": {"client": [store.client]},
        "store": store,
        "tenant": bound,
        "graph": graph,
        "retriever": NaiveGERetriever(bound),
        "postprocessor": search,
        "llama_index's engine": index.as_query_engine(llm=MockLLM(), node_postprocessors=[search]),
    }


COPIES: dict[str, Callable[[Any], object]] = {"pickled": pickle.dumps, "deep": copy.deepcopy}


@pytest.mark.parametrize("how", COPIES)
def test_they_refuse_and_say_what_to_do(
    how: str, store: GeARVectorStore, graph: ExternalTripleStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "_llm", MockLLM())
    for name, holder in make_holders(store, graph).items():
        try:
            COPIES[how](holder)
        except StoreError as error:
            assert re.search("holds a connection.*make another one.*url=….*from_path", str(error)), name
        else:
            pytest.fail(f"{name} can be copied")
    with pytest.raises(StoreError, match="this GeARVectorStore holds a connection"):
        store.model_copy(deep=True)
    assert [node.node_id for node in store.for_tenant("me").get_nodes()] == ["p"] and graph.count() == 1
    search = DiverseTripleBeamSearch(store.for_tenant("me"))
    found = search.postprocess_nodes([NodeWithScore(node=passage("p", "x", embed_model=EMBED))], query_str="Ada?")
    assert [node.node_id for node in found] == ["p"]


def test_a_shallow_copy_of_a_store_shares_its_connection(store: GeARVectorStore) -> None:
    for copied in (copy.copy(store), store.model_copy()):
        assert copied.client is store.client
        assert [node.node_id for node in copied.for_tenant("me").get_nodes()] == ["p"]

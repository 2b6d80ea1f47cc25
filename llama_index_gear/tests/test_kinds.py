"""Every argument of every public call that stores, extracts or loads refuses values of the wrong kind by name.

The error is a `GeARError` (or pydantic's own, for a component's field); nothing is written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.llms import MockLLM
from llama_index.core.vector_stores.types import VectorStoreQuery
from llama_index.llms.openai import OpenAI
from qdrant_client import QdrantClient

from llama_index_gear.errors import ArgumentError, GeARError, check_kinds
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.extraction.extractor import GeARTripleExtractor
from llama_index_gear.extraction.mentions import MentionTripleExtractor
from llama_index_gear.extraction.openai_batch import OpenAIBatch
from llama_index_gear.ingestion.existing_collection import ExistingCollection
from llama_index_gear.ingestion.property_graph import from_property_graph
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.knowledge_graph.triples_file import TriplesFile
from llama_index_gear.knowledge_graph.wikidata import WikidataDump
from llama_index_gear.nodes import ToPropertyGraph, attach_triples, passage_id, read_triples
from llama_index_gear.postprocessors.passage_ranker import PassageRanker
from llama_index_gear.postprocessors.passage_selector import PassageSelector
from llama_index_gear.ranking.learning import fit_ranking
from llama_index_gear.ranking.weights import RankingWeights
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage
from llama_index_gear.triple import GraphTriple, Triple

EMBED = WordEmbedding(8)
NODE = passage("p", "Ada knows Bob.", [("Ada", "knows", "Bob")], embed_model=EMBED)
WRONG: dict[str, Any] = {
    "int": 5,
    "text": "abc",
    "bytes": b"abc",
    "list": ["abc"],
    "dict": {"a": 1},
    "object": object(),
    "True": True,
    "None": None,
    "class": int,
}
FLAGS = {"show_progress", "is_name"}
"""Truth values of which any is taken as Python does: a progress bar harms nobody."""


@dataclass
class House:
    """The objects that the calls are made on. They are made once, since no call may change them."""

    folder: Path
    store: GeARVectorStore
    shared: GeARVectorStore
    graph: ExternalTripleStore
    made: int = field(default=0)

    @property
    def new(self) -> Path:
        self.made += 1
        return self.folder / f"new-{self.made}"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "graph.tsv").write_text("a\tb\tc\n")
    (folder / "dump.nt").write_text("")
    with (
        GeARVectorStore.from_path(folder / "store", embed_model=EMBED) as store,
        GeARVectorStore.from_path(folder / "shared", embed_model=EMBED, tenant_field="who") as shared,
        ExternalTripleStore.from_path(folder / "graph", embed_model=EMBED) as graph,
    ):
        store.add([NODE])
        graph.load([Triple("a", "b", "c")])
        yield House(folder, store, shared, graph)


def list_parameters(of: Callable[..., Any], *left_out: str) -> list[str]:
    return [name for name in inspect.signature(of).parameters if name not in ("self", *left_out)]


MEMORY = QdrantClient(":memory:")
CLIENTS = ("client", "aclient", "url", "api_key")
"""See `test_connection`."""
STORE = ["path", *list_parameters(GeARVectorStore.__init__, *CLIENTS)]
GRAPH = ["path", *list_parameters(ExternalTripleStore.__init__, *CLIENTS)]
QUERY = ["query_str", "mode", "filters", "doc_ids", "node_ids", "similarity_top_k", "alpha"]

Call = Callable[..., Any]
CALLS: dict[str, tuple[Callable[[House], Call], dict[str, Callable[[House], Any]], list[str]]] = {
    # name: what is called, the arguments that it needs, and those that are put to the test
    "GeARVectorStore": (lambda house: GeARVectorStore.from_path, {"path": lambda house: house.new}, STORE),
    "ExternalTripleStore": (lambda house: ExternalTripleStore.from_path, {"path": lambda house: house.new}, GRAPH),
    "EdgeClient": (lambda house: EdgeClient, {}, ["path"]),
    "GeARTripleExtractor": (
        lambda house: GeARTripleExtractor,
        {"llm": lambda house: MockLLM()},
        list_parameters(GeARTripleExtractor.__init__),
    ),
    "MentionTripleExtractor": (lambda house: MentionTripleExtractor, {}, [*MentionTripleExtractor.model_fields]),
    "TriplesFile": (lambda house: TriplesFile, {"path": lambda house: house.folder / "graph.tsv"}, ["path"]),
    "WikidataDump": (
        lambda house: WikidataDump,
        {"path": lambda house: house.folder / "dump.nt", "folder": lambda house: house.new},
        list_parameters(WikidataDump.__init__),
    ),
    "Triple": (
        lambda house: Triple,
        dict.fromkeys(list_parameters(Triple), lambda house: "x"),
        list_parameters(Triple),
    ),
    "GraphTriple": (
        lambda house: GraphTriple,
        {"triple": lambda house: Triple("a", "b", "c")},
        list_parameters(GraphTriple),
    ),
    "read_triples": (lambda house: read_triples, {}, ["node"]),
    "attach_triples": (
        lambda house: attach_triples,
        {"node": lambda house: NODE, "triples": lambda house: []},
        ["node", "triples"],
    ),
    "passage_id": (
        lambda house: passage_id,
        {"number": lambda house: 1, "document": lambda house: NODE},
        ["number", "document"],
    ),
    "ToPropertyGraph()": (lambda house: ToPropertyGraph(), {}, ["nodes"]),
    "extractor()": (lambda house: GeARTripleExtractor(MockLLM()), {}, ["nodes"]),
    "extractor.estimate": (lambda house: GeARTripleExtractor(MockLLM()).estimate, {}, ["nodes"]),
    "extractor.retry_failed": (lambda house: GeARTripleExtractor(MockLLM()).retry_failed, {}, ["vector_store"]),
    "extractor.from_dict": (lambda house: GeARTripleExtractor.from_dict, {}, ["data"]),
    "ExtractionLedger.of": (lambda house: ExtractionLedger.of, {}, ["nodes"]),
    "PassageRanker": (lambda house: PassageRanker, {}, list_parameters(PassageRanker.__init__)),
    "PassageSelector": (
        lambda house: PassageSelector,
        {"llm": lambda house: MockLLM()},
        list_parameters(PassageSelector.__init__),
    ),
    "ranker.from_dict": (lambda house: PassageRanker.from_dict, {}, ["data"]),
    "ranker.gather_pool": (
        lambda house: PassageRanker().gather_pool,
        {"nodes": lambda house: [], "query": lambda house: "Ada"},
        ["nodes", "query"],
    ),
    "RankingWeights": (
        lambda house: RankingWeights,
        {"first": lambda house: {}, "second": lambda house: {}},
        list_parameters(RankingWeights),
    ),
    "RankingWeights.from_dict": (lambda house: RankingWeights.from_dict, {}, ["tables"]),
    "RankingWeights.from_json": (lambda house: RankingWeights.from_json, {}, ["text"]),
    "RankingWeights.load": (lambda house: RankingWeights.load, {}, ["path"]),
    "fit_ranking": (
        lambda house: fit_ranking,
        {"gather_pool": lambda house: str, "questions": lambda house: [], "gold_ids": lambda house: []},
        list_parameters(fit_ranking),
    ),
    "mentions()": (lambda house: MentionTripleExtractor(), {}, ["nodes"]),
    "mentions.extract": (
        lambda house: MentionTripleExtractor().extract,
        {"text": lambda house: "Ada", "title": lambda house: None},
        ["text", "title"],
    ),
    "store.add": (lambda house: house.store.add, {"nodes": lambda house: []}, ["nodes", "if_unchanged_since"]),
    "store.delete": (lambda house: house.store.delete, {}, ["ref_doc_id"]),
    "store.delete_nodes": (
        lambda house: house.store.delete_nodes,
        {"node_ids": lambda house: []},
        ["node_ids", "filters"],
    ),
    "store.get_nodes": (lambda house: house.store.get_nodes, {}, ["node_ids", "filters", "limit"]),
    "store.query": (lambda house: house.store.query, {}, ["query"]),
    "store.query(qdrant_filters)": (
        lambda house: house.store.query,
        {"query": lambda house: VectorStoreQuery(query_str="x")},
        ["qdrant_filters"],
    ),
    "store.query(…)": (
        lambda house: lambda **fields: house.store.query(VectorStoreQuery(**fields)),
        {"query_str": lambda house: "x"},
        QUERY,
    ),
    "store.to_html": (
        lambda house: house.store.to_html,
        {"path": lambda house: house.new, "entity": lambda house: "Ada"},
        ["entity", "filters", "max_triples"],
    ),
    "store.check": (lambda house: house.store.check, {}, ["sample_size"]),
    "store.repair": (lambda house: house.store.repair, {}, ["reembed"]),
    "store.copy_to": (lambda house: house.store.copy_to, {"target": lambda house: house.shared}, ["target", "filters"]),
    "store.for_tenant": (lambda house: house.shared.for_tenant, {}, ["tenant"]),
    "store.scope_filters": (lambda house: house.shared.scope_filters, {}, ["filters"]),
    "store.reads": (lambda house: house.store.reads, {}, ["filters"]),
    "ExistingCollection": (
        lambda house: ExistingCollection,
        {"collection_name": lambda house: "docs", "client": lambda house: MEMORY},
        list_parameters(ExistingCollection.__init__, *CLIENTS),
    ),
    "ExistingCollection.from_path": (
        lambda house: ExistingCollection.from_path,
        {"collection_name": lambda house: "docs"},
        ["path"],
    ),
    "existing.extract_to": (lambda house: ExistingCollection("docs", MEMORY).extract_to, {}, ["store"]),
    "from_property_graph": (lambda house: from_property_graph, {}, ["index"]),
    "graph.load": (lambda house: house.graph.load, {"triples": lambda house: []}, ["triples"]),
}
TAKEN: dict[str, set[str]] = {
    # values that are of the right kind after all, by the name of the argument
    "int": {
        "batch_size",
        "bm25_avg_len",
        "num_workers",
        "max_retries",
        "passages_per_call",
        "retry_backoff",
        "limit",
        "retry_seconds",
    }
    | {"max_triples_per_passage", "aliases", "number", "similarity_top_k", "sample_size", "top_n", "show_top_k"}
    | {"show_tokens", "max_triples"},
    "text": {"path", "folder", "collection_name", "tenant_field", "title_key", "subject", "predicate", "object"}
    | {"text", "title", "query_str", "ref_doc_id", "tenant", "query", "domain", "text_key", "vector_name"},
    "bytes": {"title_key"},  # which pydantic reads as text
    "list": {"node_ids", "doc_ids", "languages", "entities", "allowed_entity_types", "allowed_relation_types"},
    "dict": {"collection_options", "vector_options"},
    "True": {"dense", "on_disk_payload", "raise_on_error", "structured", "reembed", "max_triples_per_passage"},
    "None": {"embed_model", "tenant_field", "tenant", "collection_options", "vector_options", "search_params"}
    | {"structured", "price", "max_cost", "cache", "allow", "title", "node_ids", "doc_ids", "filters", "limit"}
    | {"allowed_entity_types", "allowed_relation_types", "domain", "vector_name"}
    | {"alpha", "qdrant_filters", "bm25_avg_len", "recognizer", "weights", "extractor", "callback_manager", "prompts"}
    | {"write_ordering", "read_consistency"},
}
EXCEPT = {
    ("GeARTripleExtractor", "llm", "None"),  # LlamaIndex's Settings.llm, which complains of its own
    ("PassageSelector", "llm", "None"),
    ("TriplesFile", "path", "text"),  # a name with another ending
    ("WikidataDump", "path", "text"),
    ("ExistingCollection", "title_key", "bytes"),
    ("ExistingCollection.from_path", "path", "text"),  # no such folder
    ("GeARTripleExtractor", "tenant", "text"),  # of no tenant_field
    ("GeARTripleExtractor", "structured", "True"),  # of a model without functions
    ("RankingWeights.from_json", "text", "text"),  # no JSON
    ("RankingWeights.load", "path", "text"),  # no file
    ("store.query", "query", "text"),
    ("store.delete_nodes", "node_ids", "None"),  # would be everything
    ("store.for_tenant", "tenant", "None"),
    ("store.scope_filters", "filters", "None"),  # names no tenant
    ("store.copy_to", "filters", "None"),  # the target has tenants
}


@pytest.mark.parametrize(
    ("name", "argument"),
    [(name, argument) for name, (_, _, arguments) in CALLS.items() for argument in arguments if argument not in FLAGS],
)
def test_a_wrong_kind_is_refused_and_nothing_is_written(house: House, name: str, argument: str) -> None:
    before, triples = contents(house.store), house.graph.count()
    make, needed, _ = CALLS[name]
    for kind, value in WRONG.items():
        arguments = {key: need(house) for key, need in needed.items()} | {argument: value}
        is_taken = argument in TAKEN.get(kind, ()) and (name, argument, kind) not in EXCEPT
        try:
            make(house)(**arguments)
        except (GeARError, ValidationError) as error:
            assert not is_taken, f"{kind} is refused: {error}"
        except (ValueError, ImportError) as error:  # LlamaIndex's own, of a default model that is not there
            assert name in ("GeARTripleExtractor", "PassageSelector"), error
            assert (argument, kind) == ("llm", "None"), error
        else:
            assert is_taken, f"{kind} is taken"
    assert contents(house.store) == before and house.graph.count() == triples
    assert not contents(house.shared)


def test_a_list_is_checked_through_and_so_is_what_stands_in_it() -> None:
    for fine in ([], ["a"], ("a", "b"), {"a"}, {"a": 1}.keys()):
        check_kinds(str, node_ids=fine)
    check_kinds(str, optional=True, node_ids=None)
    refused: list[tuple[Any, str]] = [
        ("abc", r"^node_ids must be a list of str, got 'abc': write \[node_id\]$"),
        (None, "got None"),
        ({"a": 1}, "got {'a': 1}"),
        (iter("a"), "got <str_ascii_iterator>|got <str_iterator>|got <"),
        (["a", 5], "got 5 in it: write"),
        (["a", None], "got None in it"),
    ]
    for wrong, message in refused:
        with pytest.raises(ArgumentError, match=message):
            check_kinds(str, hint="write [node_id]", node_ids=wrong)
    with pytest.raises(ArgumentError, match=r"^pairs must be a list, got 'IBM'$"):
        check_kinds(object, pairs="IBM")


@pytest.mark.parametrize("kind", WRONG)
def test_a_batch_takes_no_other_model_folder_client_or_interval(kind: str, tmp_path: Path) -> None:
    model = OpenAI(api_key="none")
    make: Any = OpenAIBatch
    with pytest.raises(ArgumentError, match="llm must be an OpenAI"):
        make(WRONG[kind], tmp_path / "batch")
    if kind != "text":
        with pytest.raises(ArgumentError, match="folder must be a str or Path"):
            make(model, WRONG[kind])
    if kind != "None":
        with pytest.raises(ArgumentError, match="client must be an OpenAI or None"):
            make(model, tmp_path / "batch", client=WRONG[kind])
    assert not (tmp_path / "batch").exists()
    batch = make(model, tmp_path / "batch")
    if kind != "int":
        with pytest.raises(ArgumentError, match="interval must be 0 or more seconds"):
            batch.wait(WRONG[kind])
    batch.close()

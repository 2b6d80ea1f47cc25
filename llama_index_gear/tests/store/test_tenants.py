"""Filters and tenants keep forbidden passages out of results, traces, prompts and logs; no answer without a tenant."""

import asyncio
import json
import logging
import random
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core import VectorStoreIndex
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import BaseNode, Document, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, TenantError
from llama_index_gear.expansion.beam_search import BeamSearch
from llama_index_gear.expansion.pagerank import LocalPageRank
from llama_index_gear.extraction.llm_extractor import GeARTripleExtractor
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.postprocessors.beam_search import DiverseTripleBeamSearch
from llama_index_gear.query_engines.gear import GeARQueryEngine
from llama_index_gear.query_engines.t2rag import T2RAGQueryEngine
from llama_index_gear.retrievers.gear import GeARRetriever
from llama_index_gear.retrievers.graph import GraphRetriever
from llama_index_gear.retrievers.graph_expansion import NaiveGERetriever, SyncGERetriever
from llama_index_gear.retrievers.paper_gear import ExternalGeARRetriever, PaperGeARRetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.retrievers.t2rag import T2RAGRetriever
from llama_index_gear.store.schema import point_id_of
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.store_contract import aread, contents, passage, read
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(64)
O = FilterOperator  # noqa: E741 - it stands in tables
QUESTION = "What does the Hub know of Entity 3 and Entity 5?"
Make: TypeAlias = Callable[..., GeARVectorStore]


def is_(key: str, value: Any, operator: FilterOperator = O.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


def all_of(*filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=FilterCondition.AND)


def any_of(*filters: MetadataFilter | MetadataFilters) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=FilterCondition.OR)


# -- what is forbidden reaches nothing -----------------------------------------------------------------------------


def draw_corpus(seed: int) -> list[BaseNode]:
    """Draw passages that share entities; each has a mark of its own in its id, text, a triple and an entity's name."""
    rng = random.Random(seed)
    made = []
    for n in range(24):
        one, other, mark = rng.randrange(8), rng.randrange(8), f"mark{n:02d}x"
        facts = [
            ("Hub", "knows", f"Entity {one}"),
            (f"Entity {one}", f"knows by {mark}", f"Entity {other}"),
            (f"Entity {other}", "keeps", f"The {mark}"),
        ]
        text = f"Entity {one} knows Entity {other} and the Hub, says {mark}."
        metadata = {
            "year": rng.randrange(4),
            "kind": rng.choice("abc"),
            "tags": rng.sample(["u", "v", "w"], rng.randrange(3)),
        }
        made.append(passage(f"p-{mark}", text, facts, document=f"d-{mark}", embed_model=EMBED, metadata=metadata))
    return made


def filters() -> st.SearchStrategy[MetadataFilters]:
    years, kinds = st.integers(0, 3), st.sampled_from("abc")
    leaves = st.one_of(
        st.builds(is_, st.just("year"), years, st.sampled_from([O.EQ, O.NE, O.GT, O.GTE, O.LT, O.LTE])),
        st.builds(is_, st.just("year"), st.lists(years, min_size=1), st.sampled_from([O.IN, O.NIN])),
        st.builds(is_, st.just("kind"), kinds, st.sampled_from([O.EQ, O.NE, O.TEXT_MATCH])),
        st.builds(is_, st.just("kind"), st.sampled_from("aBC"), st.just(O.TEXT_MATCH_INSENSITIVE)),
        st.builds(is_, st.just("kind"), st.lists(kinds, min_size=1), st.sampled_from([O.IN, O.NIN])),
        st.builds(is_, st.just("tags"), st.lists(st.sampled_from("uvw"), min_size=1), st.just(O.IN)),
        st.builds(is_, st.just("tags"), st.none(), st.just(O.IS_EMPTY)),
    )
    conditions = st.sampled_from(list(FilterCondition))
    nested: st.SearchStrategy[Any] = st.recursive(
        leaves,
        lambda inner: st.builds(
            lambda some, condition: MetadataFilters(filters=some, condition=condition),
            st.lists(inner, min_size=1, max_size=3),
            conditions,
        ),
        max_leaves=5,
    )
    return nested.map(lambda drawn: drawn if isinstance(drawn, MetadataFilters) else all_of(drawn))


def admits(filters: MetadataFilter | MetadataFilters, metadata: dict[str, Any]) -> bool:
    """Return True if Qdrant is to admit this metadata."""
    if isinstance(filters, MetadataFilters):
        held = [admits(filter_, metadata) for filter_ in filters.filters]
        by_condition = {
            FilterCondition.AND: all(held),
            FilterCondition.OR: any(held),
            FilterCondition.NOT: not any(held),
        }
        return by_condition[filters.condition or FilterCondition.AND]
    held_value: Any = metadata[filters.key]
    value: Any = filters.value
    several = held_value if isinstance(held_value, list) else [held_value]
    tests: dict[FilterOperator, Callable[[], bool]] = {
        O.EQ: lambda: held_value == value,
        O.NE: lambda: held_value != value,
        O.GT: lambda: held_value > value,
        O.GTE: lambda: held_value >= value,
        O.LT: lambda: held_value < value,
        O.LTE: lambda: held_value <= value,
        O.IN: lambda: any(element in value for element in several),
        O.NIN: lambda: not any(element in value for element in several),
        O.TEXT_MATCH: lambda: value in held_value,
        O.TEXT_MATCH_INSENSITIVE: lambda: value.lower() in held_value.lower(),
        O.IS_EMPTY: lambda: not held_value,
    }
    return tests[filters.operator]()


def ask_for_more(prompt: str) -> str:
    """Reply as a model that always finds something more to look for in the prompt."""
    shown = re.findall(r"Entity \d|The mark\d\dx", prompt) or ["Hub"]
    if "Put ?name" in prompt:
        return json.dumps({"triples": [["Hub", "knows", "?one"], ["?one", "keeps", "?other"]]})
    facts = [["Hub", "knows", shown[0]], [shown[0], "knows", shown[len(shown) // 2]], [shown[-1], "keeps", "it"]]
    said = {"triples": facts, "answerable": False, "sufficient": False, "reason": f"what {shown[-1]} keeps is missing"}
    resolved = [{"clue": n, "triple": fact, "passages": [1]} for n, fact in enumerate(facts, start=1)]
    return json.dumps({**said, "query": f"What does {shown[-1]} keep, that {shown[0]} knows?", "facts": resolved})


def fail(prompt: str) -> str:
    raise ConnectionError(f"refused: {prompt}")


def join_texts(nodes: Sequence[BaseNode] | Sequence[NodeWithScore]) -> str:
    return "\n".join(node.node_id + node.get_content(MetadataMode.ALL) for node in nodes)


async def join_event_texts(events: AsyncIterator[Any]) -> str:
    return "\n".join([join_texts(event) if isinstance(event, list) else str(event) async for event in events])


def collect_every_way(
    store: GeARVectorStore, everything: Sequence[BaseNode], graph: ExternalTripleStore, **bound: Any
) -> dict[str, str]:
    """Return all that leaves the store: results, traces, events, prompts, answers; foreign bases: what is admitted."""
    llm, pagerank = ScriptedLLM(otherwise=ask_for_more), LocalPageRank()
    foreign = RankBM25Retriever([*everything], similarity_top_k=24)
    many = {"similarity_top_k": 24, **bound}
    retrievers = {
        "graph": GraphRetriever(store, **many),
        "graph, foreign base": GraphRetriever(store, foreign, **many),
        "naive": NaiveGERetriever(store, beam_search=BeamSearch(beam_length=3), **many),
        "naive, foreign base": NaiveGERetriever(store, foreign, pagerank=pagerank, **many),
        "naive, external graph": NaiveGERetriever(store, graph=graph, **many),
        "sync": SyncGERetriever(store, llm=llm, link_top_k=3, pagerank=pagerank, **many),
        "sync, external graph": SyncGERetriever(store, graph=graph, llm=llm, **many),
    }
    agents = {
        "agent": PaperGeARRetriever(SyncGERetriever(store, llm=llm, **many), max_steps=2),
        "agent, foreign base": PaperGeARRetriever(
            SyncGERetriever(store, foreign, llm=llm, **bound), max_steps=2, calls="merged"
        ),
        "agent, one call": PaperGeARRetriever(SyncGERetriever(store, llm=llm, **bound), calls="single"),
        "agent, PageRank": PaperGeARRetriever(SyncGERetriever(store, llm=llm, pagerank=pagerank, **bound), max_steps=1),
        "agent, external graph": ExternalGeARRetriever(
            SyncGERetriever(store, llm=llm, **bound, graph=graph), max_steps=3
        ),
        "clues": T2RAGRetriever(store, llm=llm, max_rounds=2, **many),
        "clues, passages": T2RAGRetriever(store, llm=llm, max_rounds=2, search_by="passages", **bound),
    }
    engines = {
        "engine": GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm, **bound), max_steps=1)),
        "engine, external graph": GeARQueryEngine.from_vector_store(store, llm, graph=graph, **bound),
        "engine, clues": T2RAGQueryEngine.from_vector_store(store, llm, max_rounds=1, **bound),
    }
    said = {way: join_texts(retriever.retrieve(QUESTION)) for way, retriever in retrievers.items()}
    base = [NodeWithScore(node=node, score=1.0) for node in everything]
    added = DiverseTripleBeamSearch(store, llm=llm, top_n=24, **bound)
    said["postprocessor"] = join_texts(added.postprocess_nodes(base, query_bundle=QueryBundle(QUESTION)))
    for way, agent in agents.items():
        nodes, trace = agent.retrieve_with_trace(QUESTION)
        said[way], said[f"{way}: trace"] = join_texts(nodes), trace.model_dump_json()
        said[f"{way}: events"] = asyncio.run(join_event_texts(agent.astream_events(QUESTION)))
    for way, engine in engines.items():
        response = engine.query(QUESTION)
        said[way], said[f"{way}: answer"] = join_texts(response.source_nodes), f"{response}\n{response.metadata}"
        said[f"{way}: events"] = asyncio.run(join_event_texts(engine.astream_events(QUESTION)))
    said["prompts"] = "\n".join(llm.history)
    return said


def fail_every_way(store: GeARVectorStore, graph: ExternalTripleStore, filters: MetadataFilters | None = None) -> None:
    """Ask by every way with a model that fails after its first reply; the error holds the prompt and is logged."""

    def make_llm() -> ScriptedLLM:
        return ScriptedLLM([ask_for_more], otherwise=fail)

    GeARRetriever(store, llm=make_llm(), filters=filters).retrieve(QUESTION)
    T2RAGRetriever(store, llm=make_llm(), filters=filters).retrieve(QUESTION)
    for kind, where in ((PaperGeARRetriever, None), (ExternalGeARRetriever, graph)):
        kind(SyncGERetriever(store, llm=make_llm(), graph=where, filters=filters)).retrieve(QUESTION)
    GeARTripleExtractor(ScriptedLLM(otherwise=fail), max_retries=0)(store.get_nodes(filters=filters))


def find_marks(*texts: str) -> set[str]:
    return {mark for text in texts for mark in re.findall(r"mark\d\dx", text)}


@contextmanager
def fill_store(seed: int, **options: Any) -> Iterator[tuple[GeARVectorStore, list[BaseNode]]]:
    nodes = draw_corpus(seed)
    with tempfile.TemporaryDirectory() as folder:
        store = GeARVectorStore.from_path(Path(folder) / "store", embed_model=EMBED, embed_triples=True, **options)
        store.add(nodes)
        yield store, nodes
        store.close()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalTripleStore]:
    """A graph of the entities that all passages share; it has no marks of its own."""
    graph = ExternalTripleStore.from_path(tmp_path_factory.mktemp("graph"), embed_model=EMBED)
    graph.load(Triple(one, "knows", f"Entity {n}") for n in range(8) for one in ("Hub", f"Entity {(n + 3) % 8}"))
    yield graph
    graph.close()


SEEDS = st.integers(0, 2**32 - 1)
DRAWN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@settings(DRAWN, max_examples=2)
@given(seed=SEEDS)
def test_without_filters_every_way_leads_to_marks(
    graph: ExternalTripleStore, caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    """Without filters every way shows all marks, so that each could fail where there are filters."""
    caplog.clear()
    with fill_store(seed) as (store, nodes), caplog.at_level(logging.DEBUG):
        said = collect_every_way(store, nodes, graph)
        fail_every_way(store, graph)
    assert {way for way, text in said.items() if not find_marks(text)} == set()
    assert len(find_marks(*said.values())) == len(nodes)
    loggers = {record.name for record in caplog.records if find_marks(record.getMessage())}
    assert {"llama_index_gear.retrievers.base", "llama_index_gear.extraction.accounting"} <= loggers


@settings(DRAWN, max_examples=4)
@given(seed=SEEDS, only=filters())
def test_no_forbidden_passage_triple_or_name_leaves_the_store(
    graph: ExternalTripleStore, caplog: pytest.LogCaptureFixture, seed: int, only: MetadataFilters
) -> None:
    caplog.clear()
    with fill_store(seed) as (store, nodes), caplog.at_level(logging.DEBUG):
        allowed = {mark for node in nodes if admits(only, node.metadata) for mark in find_marks(node.node_id)}
        said = collect_every_way(store, nodes, graph, filters=only)
        fail_every_way(store, graph, only)
    assert {way: find_marks(text) - allowed for way, text in said.items() if find_marks(text) - allowed} == {}
    assert find_marks(*said.values()) == find_marks(caplog.text) == allowed


@pytest.mark.parametrize("bound", [True, False])
@settings(DRAWN, max_examples=2)
@given(seed=SEEDS)
def test_no_other_tenant_s_passage_triple_or_name_leaves_the_store(
    graph: ExternalTripleStore, caplog: pytest.LogCaptureFixture, bound: bool, seed: int
) -> None:
    with fill_store(seed, tenant_field="kind") as (store, nodes):
        for tenant in "abc":
            own = {mark for node in nodes if node.metadata["kind"] == tenant for mark in find_marks(node.node_id)}
            asked, filters = (store.for_tenant(tenant), None) if bound else (store, all_of(is_("kind", tenant)))
            caplog.clear()
            with caplog.at_level(logging.DEBUG):
                said = collect_every_way(asked, nodes, graph, filters=filters)
                fail_every_way(asked, graph, filters)
            assert find_marks(*said.values()) == find_marks(caplog.text) == own


# -- tenants -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["edge", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    made: list[GeARVectorStore] = []

    def maker(**arguments: Any) -> GeARVectorStore:
        options = {"embed_model": EMBED, "embed_triples": True, "tenant_field": "who", **arguments}
        if request.param == "edge":
            made.append(GeARVectorStore.from_path(tmp_path / f"store-{len(made)}", **options))
        else:
            made.append(GeARVectorStore(client=QdrantClient(":memory:"), **options))
        return made[-1]

    yield maker
    for store in made:
        store.close()


FACT = ("Ada", "wrote to", "Bob")


def make_letter(node_id: str, who: str | None = None, document: str = "d-1") -> BaseNode:
    metadata = {} if who is None else {"who": who}
    return passage(node_id, "Ada wrote to Bob.", [FACT], document=document, embed_model=EMBED, metadata=metadata)


def make_shared(make: Make) -> GeARVectorStore:
    """Return a store of two tenants with the same texts, in a document of the same name."""
    store = make()
    store.for_tenant("one").add([make_letter("1-a"), make_letter("1-b", document="d-2")])
    store.for_tenant("other").add([make_letter("2-a"), make_letter("2-b", "other")])
    return store


def list_ids(nodes: Sequence[BaseNode] | None) -> list[str]:
    return sorted(node.node_id for node in nodes or [])


REQUESTS: list[Any] = [
    methodcaller("link_flow", ["Ada wrote to Bob"], 5, EMBED.get_query_embedding("Ada")),
    methodcaller("search_flow", ["Ada wrote to Bob"], 5),
    methodcaller("passage_triples_flow", ["1-a"], EMBED.get_query_embedding("Ada"), None),
    methodcaller("neighbors_flow", [("ada",)], EMBED.get_query_embedding("Ada"), [], 5),
    methodcaller("incident_flow", [(["ada"], [])], [5]),
    methodcaller("fetch_triples_flow", [Triple(*FACT).id("1-a")]),
    methodcaller("get_flow", ["1-a"], vectors=False),
    methodcaller("align_flow", ["Ada"], 5),
    methodcaller(
        "lists_flow",
        "Ada",
        EMBED.get_query_embedding("Ada"),
        [VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE],
        5,
    ),
    methodcaller("similarities_flow", [([Triple(*FACT).id("1-a")], [Triple(*FACT).id("1-a")])]),
    methodcaller("ids_flow"),
]


def test_nothing_is_answered_without_a_tenant(make: Make) -> None:
    store = make_shared(make)
    before = contents(store)
    unnamed = [
        None,
        all_of(),
        all_of(is_("year", 1990)),
        all_of(is_("who", "one", O.NE)),
        all_of(is_("who", "one", O.GT)),
        all_of(is_("who", ["one"], O.IN)),
        all_of(is_("who", "")),
        any_of(is_("who", "one"), is_("year", 1990)),
        any_of(is_("who", "one")),
        all_of(any_of(is_("who", "one"), is_("who", "other"))),
        MetadataFilters(filters=[is_("who", "one")], condition=FilterCondition.NOT),
    ]
    for filters in unnamed:
        query = VectorStoreQuery(query_str="Ada", similarity_top_k=5, filters=filters)
        calls: list[Callable[[], Any]] = [
            partial(store.query, query),
            partial(store.get_nodes, filters=filters),
            partial(store.get_nodes, ["1-a"], filters),
            partial(store.delete_nodes, ["1-a"], filters),
            partial(NaiveGERetriever, store, filters=filters),
            partial(GraphRetriever, store, filters=filters),
            *[partial(request, read(store, filters)) for request in REQUESTS],
        ]
        for call in calls:
            with pytest.raises(TenantError, match="who"):
                call()
    with pytest.raises(TenantError):
        store.delete("d-1")
    assert contents(store) == before


def test_a_tenant_sees_its_own(make: Make) -> None:
    store = make_shared(make)
    one = store.for_tenant("one")
    for bound, filters in ((one, None), (store, all_of(is_("who", "one"))), (store, all_of(all_of(is_("who", "one"))))):
        assert list_ids(bound.get_nodes(filters=filters)) == ["1-a", "1-b"]
        assert list_ids(bound.get_nodes(["1-a", "2-a"], filters)) == ["1-a"]
        for mode in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.SPARSE, VectorStoreQueryMode.HYBRID):
            query = VectorStoreQuery(query_str="Ada", similarity_top_k=5, mode=mode, filters=filters)
            assert list_ids(bound.query(query).nodes) == ["1-a", "1-b"]
            assert query.filters is filters
        for request in REQUESTS[2:4]:
            assert request(read(bound, filters))
        assert set(
            read(bound, filters).fetch_triples_flow([Triple(*FACT).id(passage_id) for passage_id in ("1-a", "2-a")])
        ) == {Triple(*FACT).id("1-a")}
        assert len(REQUESTS[0](read(bound, filters))[0]) == 2
        triple_id, other_id = (Triple(*FACT).id(passage_id) for passage_id in ("1-a", "2-a"))
        similar = read(bound, filters).similarities_flow(
            [([triple_id], [triple_id, other_id]), ([other_id], [triple_id, other_id])]
        )
        assert similar == [[pytest.approx(1.0), 0.0], [0.0, 0.0]]
    assert one.get_nodes(filters=all_of(is_("who", "other"))) == []
    assert list_ids(one.get_nodes(["1-a", "1-b", "2-a"], all_of(is_("doc_id", "d-2")))) == ["1-b"]
    assert one.get_nodes(["1-a"])[0].get_content(MetadataMode.EMBED) == "Ada wrote to Bob."  # nothing shown to models
    assert one.for_tenant("other").get_nodes(["1-a"]) == []


def test_a_tenant_changes_its_own(make: Make) -> None:
    store = make_shared(make)
    one, other = store.for_tenant("one"), store.for_tenant("other")
    before = contents(store)
    with pytest.raises(TenantError, match="'2-a'"):
        one.add([make_letter("new"), make_letter("2-a")])
    with pytest.raises(TenantError, match="'2-a'"):
        store.add([make_letter("new", "one"), make_letter("2-a", "one")])
    with pytest.raises(TenantError, match="'x'"):
        one.add([make_letter("new"), make_letter("x", "other")])
    with pytest.raises(TenantError, match="'x'"):
        store.add([make_letter("new", "one"), make_letter("x")])
    one.delete_nodes(["2-a"])
    one.delete_nodes(filters=all_of(is_("who", "other")))
    assert contents(store) == before
    one.delete("d-1")
    assert (list_ids(one.get_nodes()), list_ids(other.get_nodes())) == (["1-b"], ["2-a", "2-b"])
    assert len(contents(store)[store.triple_collection_name]) == 3
    store.delete_nodes(["1-b", "2-b"], all_of(is_("who", "other")))
    assert (list_ids(one.get_nodes()), list_ids(other.get_nodes())) == (["1-b"], ["2-a"])
    other.clear()
    assert (list_ids(one.get_nodes()), list_ids(other.get_nodes())) == (["1-b"], [])
    assert len(contents(store)[store.triple_collection_name]) == 1
    assert store.check().ok
    store.clear()
    assert contents(store) == {}


def test_an_id_of_another_tenant_s_in_a_later_batch_keeps_the_first_from_being_written(make: Make) -> None:
    store = make(batch_size=1)
    store.add([make_letter("2-a", "other")])
    before = contents(store)
    for bound, nodes in (
        (store.for_tenant("one"), [make_letter("new"), make_letter("2-a")]),
        (store, [make_letter("new", "one"), make_letter("2-a", "one")]),
    ):
        with pytest.raises(TenantError, match="'2-a'"):
            bound.add(nodes)
        assert contents(store) == before


def test_a_tenant_who_deletes_no_ids_deletes_nothing(make: Make) -> None:
    store = make_shared(make)
    before = contents(store)
    for filters in (None, all_of(is_("doc_id", "d-1"))):
        store.for_tenant("one").delete_nodes([], filters)
    store.delete_nodes([], all_of(is_("who", "one")))
    assert contents(store) == before


def test_what_is_about_all_tenants_is_not_for_one(make: Make) -> None:
    store, target = make_shared(make), make()
    one = store.for_tenant("one")
    for call in (one.check, one.repair, lambda: store.copy_to(target.for_tenant("one"))):
        with pytest.raises(TenantError, match="all tenants"):
            call()
    assert one.copy_to(target) == 2
    assert target.for_tenant("one").get_nodes() == one.get_nodes()
    assert store.copy_to(target) == 4
    assert store.check().ok and contents(target) == contents(store)


def test_an_index_is_told_that_it_is_a_tenant_s(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tenant's index is marked as one, so that a server keeps a tenant's points together."""
    store, told = make(), {}
    index = store.client.create_payload_index

    def note_and_index(collection_name: str, field_name: str, field_schema: Any, **options: Any) -> Any:
        told[collection_name, field_name] = field_schema
        return index(collection_name, field_name, field_schema, **options)

    monkeypatch.setattr(store.client, "create_payload_index", note_and_index)
    store.add([make_letter("1-a", "one")])
    for where in ((store.collection_name, "who"), (store.triple_collection_name, "metadata.who")):
        assert told.pop(where) == models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    assert told and set(told.values()) == {models.PayloadSchemaType.KEYWORD}


@pytest.mark.parametrize(
    "wrong",
    [
        *("", 3, "doc_id", "ref_doc_id", "_node_content", "org.id", "page label", "tags[0]"),
        *("gear_triples", "gear_extraction", "gear_chain", "gear_ranks", 'a"b', "a\\b", "größe", "a\n"),
    ],
)
def test_a_field_is_a_name_that_a_payload_has_for_nothing_else(make: Make, wrong: Any) -> None:
    with pytest.raises(ArgumentError, match="tenant_field"):
        make(tenant_field=wrong)


def test_a_copy_takes_no_other_tenant_s_place(make: Make) -> None:
    source, target = make_shared(make), make()
    target.add([make_letter("1-b", "third")])
    before = contents(target)
    with pytest.raises(TenantError, match="'1-b'"):
        source.copy_to(target)
    assert contents(target)[target.collection_name].keys() == before[target.collection_name].keys()
    assert list_ids(target.for_tenant("third").get_nodes()) == ["1-b"]
    assert source.copy_to(target, filters=all_of(is_("who", "other"))) == 2
    with pytest.raises(ArgumentError, match="tenant_field"):
        source.copy_to(make(tenant_field=None))


def test_a_store_whose_payloads_another_program_changed_can_be_repaired() -> None:
    client = QdrantClient(":memory:")
    store = GeARVectorStore(client=client, embed_model=EMBED, embed_triples=True, tenant_field="who")
    store.add([make_letter("first", "one"), make_letter("second", "other")])
    client.set_payload(store.collection_name, payload={"who": "other"}, points=[point_id_of("first")])
    assert list_ids(store.for_tenant("other").get_nodes()) == ["first", "second"]
    report = store.check()
    assert report.outdated == ("first",) and not report.incomplete and "triples or metadata (first)" in str(report)
    assert store.repair().ok
    assert list_ids(store.for_tenant("other").get_nodes()) == ["second"]
    assert list_ids(store.for_tenant("one").get_nodes()) == ["first"]
    client.set_payload(store.collection_name, payload={"more": 1}, points=[point_id_of("first")])
    assert store.check().outdated == ("first",) and store.repair().ok


def test_passages_that_no_tenant_has_are_reported() -> None:
    client = QdrantClient(":memory:")
    GeARVectorStore(client=client, embed_model=EMBED).add([make_letter("first", "one"), make_letter("second")])
    store = GeARVectorStore(client=client, embed_model=EMBED, tenant_field="who")
    report = store.check()
    assert report.without_tenant == ("second",) and not report.ok
    assert "1 passage that no tenant has (second)" in str(report)
    assert store.repair().without_tenant == ("second",)
    store.add([make_letter("third", "one")])
    assert GeARVectorStore(client=client, embed_model=EMBED).check().ok
    with pytest.raises(TenantError, match="no tenant has the passage 'second'"):
        store.for_tenant("one").add([make_letter("second")])
    store.add([make_letter("second", "one")])  # as the report says
    assert store.check().ok and list_ids(store.for_tenant("one").get_nodes()) == ["first", "second", "third"]


async def test_two_tenants_who_write_one_id_at_a_time_do_not_share_it(make: Make) -> None:
    """Neither tenant's passage exists when the other looks; the second to write is refused."""
    store = make()
    store.add([make_letter("first", "one")])
    written = await asyncio.gather(
        *(store.for_tenant(tenant).async_add([make_letter("same")]) for tenant in ("one", "other")),
        return_exceptions=True,
    )
    assert sorted(type(outcome).__name__ for outcome in written) == ["TenantError", "list"]
    assert sum("same" in list_ids(store.for_tenant(tenant).get_nodes()) for tenant in ("one", "other")) == 1
    assert store.check().ok


def test_pipelines_and_indexes_work_for_a_tenant(make: Make) -> None:
    """One of two tenants updates and deletes documents that both have."""
    store = make()
    stores = {tenant: store.for_tenant(tenant) for tenant in ("one", "other")}
    pipelines = {
        tenant: IngestionPipeline(
            transformations=[SentenceSplitter(), MentionTripleExtractor(), EMBED],  # so nodes have ids of their own
            vector_store=stores[tenant],
            docstore=SimpleDocumentStore(),
            docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
        )
        for tenant in stores
    }
    old, kept = Document(text="Ada met Bob.", id_="d-1"), Document(text="Bob met Eve.", id_="d-2")
    for pipeline in pipelines.values():
        pipeline.run(documents=[old, kept])
    pipelines["one"].run(documents=[Document(text="Ada met Zoe.", id_="d-1")])
    assert [node.get_content() for node in stores["one"].get_nodes()] == ["Ada met Zoe."]
    assert sorted(node.get_content() for node in stores["other"].get_nodes()) == ["Ada met Bob.", "Bob met Eve."]
    index = VectorStoreIndex.from_vector_store(stores["other"], embed_model=EMBED)
    index.insert(Document(text="Zoe met Ada.", id_="d-3"))
    index.delete_ref_doc("d-1")
    assert len(index.as_retriever(similarity_top_k=9).retrieve("Ada")) == 2
    assert sorted(node.get_content() for node in stores["other"].get_nodes()) == ["Bob met Eve.", "Zoe met Ada."]
    assert len(stores["one"].get_nodes()) == 1
    assert store.check().ok


async def test_async_calls_are_bound_too(make: Make) -> None:
    store = make_shared(make)
    one = store.for_tenant("one")
    query = VectorStoreQuery(query_str="Ada", similarity_top_k=5)
    assert list_ids((await one.aquery(query)).nodes) == list_ids(await one.aget_nodes()) == ["1-a", "1-b"]
    for call in (store.aquery(query), store.aget_nodes(), store.adelete("d-1"), store.adelete_nodes(["1-a"])):
        with pytest.raises(TenantError):
            await call
    with pytest.raises(TenantError):
        await one.async_add([make_letter("2-a")])
    with pytest.raises(TenantError):
        await REQUESTS[0](aread(store))
    for refused in (one.acheck(), one.arepair()):
        with pytest.raises(TenantError):
            await refused
    await one.adelete("d-1")
    await one.aclear()
    assert len(contents(store)[store.collection_name]) == 2


def make_linked(make: Make, facts: Sequence[tuple[str, str]], years: Sequence[int]) -> Any:
    """Make a tenant's store with a passage for each fact, of this year."""
    store = make().for_tenant("one")
    nodes = [
        passage(f"p{number}", "Text.", [(one, "met", other)], embed_model=EMBED, metadata={"year": year})
        for number, ((one, other), year) in enumerate(zip(facts, years, strict=True))
    ]
    store.add(nodes)
    return store


@pytest.mark.parametrize("seed", range(6))
def test_linked_names_are_hidden_however_few_are_asked_for_at_once(
    make: Make, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The names that are shown are those which a triple that the filter lets through has at an end."""
    monkeypatch.setattr("llama_index_gear.store.triples._KEYS", 3)
    monkeypatch.setattr("llama_index_gear.store.triples._ENDS", 2)
    draw = random.Random(seed)
    names = [f"N{number}" for number in range(12)]
    facts = [(one, other) for one, other in (draw.sample(names, 2) for _ in range(20))]
    years = [draw.choice([1, 2, 3]) for _ in facts]
    store = make_linked(make, facts, years)
    present = sorted({name for fact in facts for name in fact})
    store.link_aliases([tuple(draw.sample(present, 2)) for _ in range(10)])
    every = [read(store).incident_flow([([], [f"p{number}"])], [9])[0][0] for number in range(20)]
    for year in (1, 2, 3):
        shown = [number for number in range(20) if years[number] == year]
        ends = {end for number in shown for end in every[number].entities}
        few = shown[:2]
        (found,) = read(store, MetadataFilters(filters=[MetadataFilter(key="year", value=year)])).incident_flow(
            [([], [f"p{number}" for number in few])], [9]
        )
        got = {alias for incidence in found for _, alias in incidence.aliases}
        assert got == {alias for number in few for _, alias in every[number].aliases} & ends


@pytest.mark.parametrize("many", ["names", "triples of one name", "names that are hidden"])
def test_linked_names_cost_a_read_a_few_small_requests(make: Make, monkeypatch: pytest.MonkeyPatch, many: str) -> None:
    hub = many == "triples of one name"
    facts = [(f"Ada {number}", "Bob") for number in range(100)]
    facts += [("Hub" if hub else f"Eve {number}", f"Dan {number}") for number in range(300 if hub else 100)]
    years = [1] * 100 + [2 if many == "names that are hidden" else 1] * (len(facts) - 100)
    store = make_linked(make, facts, years)
    pairs = [("Ada 0", "Hub"), ("Ada 1", "Dan 7")] if hub else [(f"Ada {n}", f"Eve {n}") for n in range(100)]
    assert len(store.link_aliases(pairs)) == len(pairs)
    expected = {"hub", "dan 7"} if hub else set() if years[-1] == 2 else {f"eve {n}" for n in range(100)}
    asked = list[int]()
    answer = store._connection.answer

    def note(call: Any) -> Any:
        if call.method == "scroll":
            asked.append(len(call.arguments["scroll_filter"].should))
        if call.method == "query_batch_points":
            asked.append(len(call.arguments["requests"]))
        return answer(call)

    monkeypatch.setattr(store._connection, "answer", note)
    (found,) = read(store, MetadataFilters(filters=[MetadataFilter(key="year", value=1)])).incident_flow(
        [([], [f"p{number}" for number in range(100)])], [500]
    )
    assert {alias for incidence in found for _, alias in incidence.aliases} == expected
    assert len(asked) <= 3 and max(asked) <= 64

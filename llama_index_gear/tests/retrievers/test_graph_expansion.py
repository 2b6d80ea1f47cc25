"""The retrievers and the postprocessor on a real embedded store, alone and composed with LlamaIndex's own parts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import FilterOperator, MetadataFilter, MetadataFilters
from qdrant_client import models

import llama_index_gear.expansion.pipeline as graph_walk
from llama_index_gear import (
    DiverseTripleBeamSearch,
    ExternalTripleStore,
    GeARVectorStore,
    LocalPageRank,
    NaiveGERetriever,
    SyncGERetriever,
    Triple,
    attach_triples,
)
from llama_index_gear.errors import ArgumentError
from llama_index_gear.expansion.backends import Backends
from llama_index_gear.expansion.beam_search import BeamSearch, diverse_triple_beam_search_flow
from llama_index_gear.expansion.pagerank import local_pagerank_flow
from llama_index_gear.flow import Flow
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.retrievers.rank_bm25 import RankBM25Retriever
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import list_ids
from llama_index_gear.triple import StoredTriple

NotedReads: TypeAlias = list[tuple[str, tuple[Any, ...]]]
QUESTION = "when did the father of Stephen start playing college basketball"
# The chain: stephen → dell → tech. The last shares no word with the question but "college".
PASSAGES = {
    "stephen": ("Stephen plays basketball; his father is Dell Curry", [("Stephen", "father", "Dell Curry")]),
    "dell": ("Dell Curry went to Virginia Tech", [("Dell Curry", "went to", "Virginia Tech")]),
    "tech": ("Virginia Tech took Curry in 1982", [("Virginia Tech", "took Dell Curry in", "1982")]),
    "noise-1": ("When did college basketball start", [("college basketball", "started in", "Springfield")]),
    "noise-2": ("The father of college basketball", [("Naismith", "father of", "college basketball")]),
    "noise-3": ("Basketball playing did start with the father", [("Basketball", "invented in", "Massachusetts")]),
    "noise-4": ("Cheese is made of milk", [("cheese", "made of", "milk")]),
}


def make_nodes(embed_model: WordEmbedding, **metadata: Any) -> list[TextNode]:
    made = []
    for name, (text, triples) in PASSAGES.items():
        node = TextNode(id_=name, text=text, metadata={"group": name.split("-")[0], **metadata})
        node.excluded_embed_metadata_keys = ["group", *metadata]
        node.embedding = embed_model.get_text_embedding(text)
        made.append(attach_triples(node, [Triple(*slots) for slots in triples]))
    return made  # type: ignore[return-value]


@pytest.fixture
def embed_model() -> WordEmbedding:
    return WordEmbedding()


@pytest.fixture
def store(tmp_path: Path, embed_model: WordEmbedding) -> Iterator[GeARVectorStore]:
    store = GeARVectorStore.from_path(tmp_path / "gear", embed_model=embed_model, embed_triples=True)
    store.add(make_nodes(embed_model))
    yield store
    store.close()


async def retrieve_both_ways(retriever: BaseRetriever, question: str | QueryBundle = QUESTION) -> list[NodeWithScore]:
    """Return a retriever's result, after checking that sync and async agree on it to the last digit."""
    found = retriever.retrieve(question)
    awaited = await retriever.aretrieve(question)
    assert [(node.node.node_id, node.score, node.node.metadata) for node in found] == [
        (node.node.node_id, node.score, node.node.metadata) for node in awaited
    ]
    return found


async def test_the_graph_finds_what_the_base_cannot(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    base = index.as_retriever(similarity_top_k=4, vector_store_query_mode="hybrid")
    assert "tech" not in list_ids(base.retrieve(QUESTION)) and "dell" not in list_ids(base.retrieve(QUESTION))
    found = await retrieve_both_ways(NaiveGERetriever(store, similarity_top_k=6))
    base_ranks = {node.node.node_id: node.node.metadata["gear_ranks"].get("base") for node in found}
    assert base_ranks["dell"] is None or base_ranks["tech"] is None
    assert {"stephen", "dell"} <= set(list_ids(found))
    chains = {node.node.node_id: node.node.metadata["gear_chain"] for node in found}
    assert chains["dell"] == [["Stephen", "father", "Dell Curry"], ["Dell Curry", "went to", "Virginia Tech"]]


async def test_the_explanation_is_hidden_from_models(store: GeARVectorStore) -> None:
    for node in await retrieve_both_ways(NaiveGERetriever(store)):
        for mode in (MetadataMode.LLM, MetadataMode.EMBED):
            assert "gear_" not in node.node.get_content(metadata_mode=mode)
        assert json.loads(node.node.to_json())["metadata"]["gear_ranks"] == node.node.metadata["gear_ranks"]


async def test_sync_ge_starts_from_what_the_reader_notes(store: GeARVectorStore) -> None:
    reply = '{"triples": [["Dell Curry", "went to", "Virginia Tech"]]}'
    llm = ScriptedLLM([reply, reply])
    found = await retrieve_both_ways(SyncGERetriever(store, llm=llm, similarity_top_k=5))
    assert {"dell", "tech"} <= set(list_ids(found))
    first = found[0].node
    assert first.metadata["gear_chain"][0] == ["Dell Curry", "went to", "Virginia Tech"]
    assert QUESTION in llm.history[0] and "[1] " in llm.history[0] and "gear_" not in llm.history[0]


@pytest.mark.parametrize(
    ("replies", "fallback"),
    [
        (['{"triples": []}'], "the reader noted no fact"),
        (["What a question.", "Still chatting."], "no triples can be read"),
    ],
)
def test_a_reader_without_facts_falls_back_to_naive_and_says_so(
    store: GeARVectorStore, replies: list[Any], fallback: str
) -> None:
    naive, step = NaiveGERetriever(store).retrieve(QUESTION), SyncGERetriever(store, llm=ScriptedLLM(2 * replies))
    assert step.retrieve(QUESTION) == naive and naive[0].metadata["gear_chain"]
    _, trace = PaperGeARRetriever(step, calls="single").retrieve_with_trace(QUESTION)
    assert fallback in trace.steps[0].fallback


def test_a_reader_that_fails_raises(store: GeARVectorStore) -> None:
    with pytest.raises(PermissionError, match="down"):
        SyncGERetriever(store, llm=ScriptedLLM([PermissionError("down")])).retrieve(QUESTION)


# -- PageRank ---------------------------------------------------------------------------------------------------------


async def test_pagerank_is_a_third_list(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    """PageRank reaches passages over any number of triples, and its list counts like the other two."""
    base = RankBM25Retriever(make_nodes(embed_model)[:1], similarity_top_k=1)
    found = await retrieve_both_ways(
        NaiveGERetriever(store, base, beam_search=BeamSearch(beam_length=1), pagerank=LocalPageRank())
    )
    ranks = {result.node.node_id: result.node.metadata["gear_ranks"] for result in found}
    assert ranks == {
        "stephen": {"base": 1, "graph": 1, "pagerank": 1},
        "dell": {"pagerank": 2},
        "tech": {"pagerank": 3},
    }
    for node in found:
        assert node.score == pytest.approx(
            sum(1 / (60 + rank) for rank in ranks[node.node.node_id].values()), abs=1e-12
        )
    assert list_ids(await retrieve_both_ways(NaiveGERetriever(store, base, beam_search=BeamSearch(beam_length=1)))) == [
        "stephen"
    ]
    few = NaiveGERetriever(
        store, base, beam_search=BeamSearch(beam_length=1), similarity_top_k=2, pagerank=LocalPageRank()
    )
    assert list_ids(await retrieve_both_ways(few)) == ["stephen", "dell"]


async def test_pagerank_starts_from_what_the_reader_notes(store: GeARVectorStore) -> None:
    reply = '{"triples": [["Dell Curry", "went to", "Virginia Tech"]]}'
    llm = ScriptedLLM([reply, reply])
    found = await retrieve_both_ways(
        SyncGERetriever(
            store, llm=llm, similarity_top_k=7, beam_search=BeamSearch(beam_length=1), pagerank=LocalPageRank()
        )
    )
    ranks = {node.node.node_id: node.node.metadata["gear_ranks"] for node in found}
    assert ranks["dell"]["pagerank"] == 1 and ranks["tech"]["pagerank"] <= 3


@pytest.mark.parametrize("scorer", ["novelty", "exact"])  # one starts from all triples of the base
def test_without_a_reader_a_triple_counts_as_it_resembles_the_question(
    store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch, scorer: Any
) -> None:
    started: list[tuple[StoredTriple, float]] = []

    def note_and_rank(reads: Any, start: Any, *arguments: Any) -> Any:
        started.extend(start)
        return local_pagerank_flow(reads, start, *arguments)

    monkeypatch.setattr(graph_walk, "local_pagerank_flow", note_and_rank)
    retriever = NaiveGERetriever(store, beam_search=BeamSearch(beam_size=3, scorer=scorer), pagerank=LocalPageRank())
    retriever.retrieve(QUESTION)
    scores = [triple.score for triple, _ in started]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True) and scores[0] > scores[-1] > 0
    assert [counts for _, counts in started] == pytest.approx([score / scores[0] for score in scores])
    started.clear()
    texts = [" ".join(slots) for _, triples in PASSAGES.values() for slots in triples]
    vectors = WordEmbedding().get_text_embedding_batch(texts)
    opposite = QueryBundle("zzz", embedding=[-sum(column) for column in zip(*vectors, strict=True)])
    assert retriever.retrieve(opposite) and started == []  # nothing resembles it: the base passages alone


async def test_pagerank_everywhere(store: GeARVectorStore, embed_model: WordEmbedding, tmp_path: Path) -> None:
    """The postprocessor and the agent take PageRank too; an external graph refuses it."""
    base = RankBM25Retriever(make_nodes(embed_model)[:1], similarity_top_k=1)
    search = DiverseTripleBeamSearch(store, pagerank=LocalPageRank())
    expected = NaiveGERetriever(store, base, pagerank=LocalPageRank()).retrieve(QUESTION)
    assert await search.apostprocess_nodes(base.retrieve(QUESTION), query_str=QUESTION) == expected
    agent = PaperGeARRetriever(
        SyncGERetriever(
            store, base, llm=ScriptedLLM(["[]"]), beam_search=BeamSearch(beam_length=1), pagerank=LocalPageRank()
        ),
        calls="single",
    )
    nodes_, trace = agent.retrieve_with_trace(QUESTION)
    assert set(list_ids(nodes_)) == {"stephen", "dell", "tech"} and trace.steps[0].pagerank[0] == "stephen"
    few = PaperGeARRetriever(
        SyncGERetriever(
            store,
            llm=ScriptedLLM(["[]"]),
            similarity_top_k=2,
            beam_search=BeamSearch(beam_length=1),
            pagerank=LocalPageRank(),
        ),
        calls="single",
    )
    (step,) = few.retrieve_with_trace(QUESTION)[1].steps
    assert len(step.pagerank) == len(step.base) == 2 < len(trace.steps[0].pagerank)
    graph = ExternalTripleStore.from_path(tmp_path / "graph", embed_model=embed_model)
    with pytest.raises(ArgumentError, match="leave it out, or leave out graph"):
        NaiveGERetriever(store, graph=graph, pagerank=LocalPageRank())


# -- filters ----------------------------------------------------------------------------------------------------------


def test_what_the_store_s_own_search_found_is_not_fetched_to_apply_filters(
    store: GeARVectorStore, embed_model: WordEmbedding, noted_reads: NotedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They bound the search itself. Passages of another retriever, and those that a caller gives, are checked."""
    only = MetadataFilters(filters=[MetadataFilter(key="group", operator=FilterOperator.NE, value="dell")])
    foreign = VectorStoreIndex.from_vector_store(store, embed_model=embed_model).as_retriever(similarity_top_k=7)
    reply = '{"triples": [["Stephen", "father", "Dell Curry"], ["cheese", "made of", "milk"]]}'
    searched, search_flow = set[str](), Backends.base_search_flow

    def noting_flow(backends: Backends, query: QueryBundle) -> Flow[list[NodeWithScore]]:
        found = yield from search_flow(backends, query)
        searched.update(list_ids(found))
        return found

    monkeypatch.setattr(Backends, "base_search_flow", noting_flow)
    retrievers: list[tuple[Callable[..., Any], int]] = [
        (NaiveGERetriever, 1),
        (lambda *given, **more: SyncGERetriever(*given, llm=ScriptedLLM([reply]), **more), 1),
        (
            lambda *given, similarity_top_k=10, **more: PaperGeARRetriever(
                SyncGERetriever(*given, llm=ScriptedLLM([reply]), **more),
                calls="single",
                similarity_top_k=similarity_top_k,
            ),
            2,
        ),
    ]
    for make, checks in retrievers:
        for base, expected in ((None, 0), (foreign, checks)):
            retriever = make(store, base, filters=only, similarity_top_k=7)
            searched.clear()
            noted_reads.clear()
            result = retriever.retrieve(QUESTION)
            assert result and "dell" not in list_ids(result)
            assert sum(not searched.isdisjoint(ids) for ids in list_fetches(noted_reads)) == expected
    given = foreign.retrieve(QUESTION)
    noted_reads.clear()
    result = DiverseTripleBeamSearch(store, filters=only).postprocess_nodes(given, query_str=QUESTION)
    assert result and "dell" not in list_ids(result)
    assert set(list_fetches(noted_reads)[0]) == set(list_ids(given)) >= {"dell"}


def list_fetches(noted_reads: NotedReads) -> list[Sequence[str]]:
    return [arguments[0] for name, arguments in noted_reads if name == "points_flow"]


# -- bad input --------------------------------------------------------------------------------------------------------


async def test_an_empty_store_finds_nothing(tmp_path: Path, embed_model: WordEmbedding) -> None:
    store = GeARVectorStore.from_path(tmp_path / "empty", embed_model=embed_model, embed_triples=True)
    assert await retrieve_both_ways(NaiveGERetriever(store)) == []
    assert await retrieve_both_ways(SyncGERetriever(store, llm=ScriptedLLM([]))) == []
    assert not (tmp_path / "empty").exists()


async def test_passages_without_triples_are_just_the_base(tmp_path: Path, embed_model: WordEmbedding) -> None:
    store = GeARVectorStore.from_path(tmp_path / "bare", embed_model=embed_model, embed_triples=True)
    store.add([TextNode(id_="a", text="one two", embedding=embed_model.get_text_embedding("one two"))])
    (found,) = await retrieve_both_ways(NaiveGERetriever(store), "two")
    assert (found.node.node_id, found.node.metadata["gear_chain"], found.score) == ("a", [], 1 / 61)
    store.close()


def test_a_dangling_triple_is_left_out(store: GeARVectorStore) -> None:
    """A triple whose passage a crash left unwritten takes no rank."""
    from qdrant_client.http import models

    (point,), _ = store.client.scroll(
        store.collection_name,
        models.Filter(must=[models.FieldCondition(key="group", match=models.MatchValue(value="dell"))]),
    )
    store.client.delete(store.collection_name, models.PointIdsList(points=[point.id]))
    found = NaiveGERetriever(store, similarity_top_k=7, beam_search=BeamSearch(beam_length=3)).retrieve(QUESTION)
    assert "dell" not in list_ids(found)
    assert sorted(
        node.node.metadata["gear_ranks"]["graph"] for node in found if "graph" in node.node.metadata["gear_ranks"]
    ) == list(range(1, 1 + sum("graph" in node.node.metadata["gear_ranks"] for node in found)))


# -- manners ----------------------------------------------------------------------------------------------------------


def test_the_caller_s_bundle_and_nodes_stay_as_they_are(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    own_nodes = make_nodes(embed_model)
    before = [node.to_json() for node in own_nodes]
    bundle = QueryBundle(QUESTION)
    NaiveGERetriever(store, RankBM25Retriever(own_nodes)).retrieve(bundle)
    DiverseTripleBeamSearch(store).postprocess_nodes(
        [NodeWithScore(node=node) for node in own_nodes], query_bundle=bundle
    )
    assert bundle.embedding is None
    assert [node.to_json() for node in own_nodes] == before


class ThinkingLLM(ScriptedLLM):
    """A model that works in a thread while it is awaited, as a client waits for its server."""

    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return await asyncio.to_thread(self.complete, prompt, formatted)


async def test_the_event_loop_runs_on(store: GeARVectorStore) -> None:
    """A reader that takes its time runs in another thread."""
    threads: list[int] = []

    def read(prompt: str) -> str:
        threads.append(threading.get_ident())
        return "[]"

    llm = ThinkingLLM(otherwise=read)  # type: ignore[call-arg]
    await SyncGERetriever(store, llm=llm).aretrieve(QUESTION)
    assert len(llm.history) == len(threads) == 1 and threading.get_ident() not in threads


# -- composed with LlamaIndex -----------------------------------------------------------------------------------------


def make_retriever(store: GeARVectorStore) -> NaiveGERetriever:
    return NaiveGERetriever(store, similarity_top_k=6)


def test_a_fusion_knows_a_passage_again(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    """A passage found by two retrievers, or for two questions by two chains, is one passage with summed shares."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    base = index.as_retriever(similarity_top_k=7)
    parts = [make_retriever(store), base]
    fusion = QueryFusionRetriever(
        parts, llm=ScriptedLLM([]), num_queries=1, mode=FUSION_MODES.RECIPROCAL_RANK, similarity_top_k=7
    )
    ranks: dict[str, float] = {}
    for part in parts:
        for rank, result in enumerate(part.retrieve(QUESTION)):  # LlamaIndex counts from 0
            ranks[result.node.node_id] = ranks.get(result.node.node_id, 0.0) + 1 / (60 + rank)
    assert {node.node.node_id: node.score for node in fusion.retrieve(QUESTION)} == pytest.approx(ranks)
    (one,) = [node.node for node in make_retriever(store).retrieve(QUESTION) if node.node.node_id == "dell"]
    (other,) = [node.node for node in base.retrieve(QUESTION) if node.node.node_id == "dell"]
    assert one.hash == other.hash
    assert one.metadata["gear_chain"] and json.loads(one.to_json())["metadata"]["gear_chain"]


async def test_what_a_query_transform_wrote_is_what_is_embedded(store: GeARVectorStore) -> None:
    """The question's embedding is the mean of `custom_embedding_strs`, which HyDE and its like fill."""
    retriever = NaiveGERetriever(store, similarity_top_k=1)
    cheese = QueryBundle(QUESTION, custom_embedding_strs=["Cheese is made of milk", "cheese milk"])
    assert list_ids(await retrieve_both_ways(retriever, cheese)) == ["noise-4"]
    assert list_ids(await retrieve_both_ways(retriever)) != ["noise-4"]


async def test_a_foreign_base_embeds_the_question_itself(store: GeARVectorStore) -> None:
    """A foreign base gets no embedding of ours, since its model may differ; the caller's own embedding is passed on."""
    seen: list[QueryBundle] = []

    class Foreign(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            seen.append(query_bundle)
            return []

    retriever = NaiveGERetriever(store, Foreign())
    retriever.retrieve(QUESTION)
    retriever.retrieve(QueryBundle(QUESTION, custom_embedding_strs=["a", "b"]))
    retriever.retrieve(QueryBundle(QUESTION, embedding=[1.0] + [0.0] * 255))
    assert [(bundle.embedding, bundle.custom_embedding_strs) for bundle in seen] == [
        (None, None),
        (None, ["a", "b"]),
        ([1.0] + [0.0] * 255, None),
    ]


def test_a_foreign_base_may_write_into_its_bundle(store: GeARVectorStore) -> None:
    class Scribbler(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            query_bundle.embedding = [0.0] * 256
            query_bundle.query_str = "scribbled"
            return []

    bundle = QueryBundle(QUESTION, custom_embedding_strs=["a"])
    NaiveGERetriever(store, Scribbler()).retrieve(bundle)
    assert (bundle.query_str, bundle.embedding, bundle.custom_embedding_strs) == (QUESTION, None, ["a"])


async def test_no_filters_are_no_filter(store: GeARVectorStore) -> None:
    stranger = NodeWithScore(node=TextNode(id_="stranger", text="unknown to the store"), score=1.0)

    class Strange(BaseRetriever):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            return [stranger]

    found = await retrieve_both_ways(NaiveGERetriever(store, Strange(), filters=MetadataFilters(filters=[])))
    assert "stranger" in list_ids(found)


def test_a_native_filter_binds_through_an_index(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    match_ = models.FieldCondition(key="group", match=models.MatchValue(value="dell"))
    options = {"qdrant_filters": models.Filter(must=[match_])}
    assert list_ids(index.as_retriever(vector_store_kwargs=options, similarity_top_k=7).retrieve(QUESTION)) == ["dell"]
    wrongs: list[dict[str, Any]] = [{"qdrant_filters": "group == dell"}, {"search_params": {}}]
    for wrong in wrongs:
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            index.as_retriever(vector_store_kwargs=wrong).retrieve(QUESTION)


def test_a_postprocessor_has_filters_of_its_own(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    """The postprocessor does not see the engine's filters; given the same ones, it adds nothing forbidden."""
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    only = MetadataFilters(filters=[MetadataFilter(key="group", value="stephen")])

    def query_filtered(*, filters: MetadataFilters | None) -> list[str]:
        engine = index.as_query_engine(
            llm=ScriptedLLM(["?"]),
            filters=only,
            node_postprocessors=[DiverseTripleBeamSearch(store, filters=filters)],
        )
        return list_ids(engine.query(QUESTION).source_nodes)

    assert set(query_filtered(filters=None)) > {"stephen"}
    assert query_filtered(filters=only) == ["stephen"]


def test_every_triple_that_a_fact_is_linked_to_is_a_start(store: GeARVectorStore) -> None:
    note = '{"triples": [["Stephen", "father", "Dell Curry"]]}'
    for top_k in (1, 3):
        step = SyncGERetriever(store, llm=ScriptedLLM([note]), link_top_k=top_k)
        _, trace = PaperGeARRetriever(step, calls="single").retrieve_with_trace(QUESTION)
        assert len(trace.steps[0].linked) == top_k


def test_a_text_scorer_sees_all_triples_of_the_base(store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def noting_flow(*arguments: Any) -> Any:
        seen.append(len(arguments[3]))
        return diverse_triple_beam_search_flow(*arguments)

    monkeypatch.setattr(graph_walk, "diverse_triple_beam_search_flow", noting_flow)
    for scorer, expected in (("exact", len(PASSAGES)), ("additive", 2)):
        search = BeamSearch(scorer=scorer, beam_size=2)  # type: ignore[arg-type]  # a name of the list above
        NaiveGERetriever(store, beam_search=search, similarity_top_k=7).retrieve(QUESTION)
        assert seen.pop() == expected


async def test_as_a_postprocessor_of_any_engine(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    llm = ScriptedLLM(["1982", "1982"])
    index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model)
    engine = index.as_query_engine(
        llm=llm, similarity_top_k=4, node_postprocessors=[DiverseTripleBeamSearch(store, top_n=6)]
    )
    answered = engine.query(QUESTION)
    awaited = await engine.aquery(QUESTION)
    assert list_ids(answered.source_nodes) == list_ids(awaited.source_nodes)
    assert "dell" in list_ids(answered.source_nodes) and len(answered.source_nodes) == 5


async def test_postprocessor_equals_retriever(store: GeARVectorStore, embed_model: WordEmbedding) -> None:
    base = VectorStoreIndex.from_vector_store(store, embed_model=embed_model).as_retriever(
        similarity_top_k=5, vector_store_query_mode="hybrid"
    )
    reply = '{"triples": [["Dell Curry", "went to", "Virginia Tech"]]}'
    for llm, retriever in (
        (None, NaiveGERetriever(store, base, similarity_top_k=5)),
        (ScriptedLLM([reply, reply]), SyncGERetriever(store, base, llm=ScriptedLLM([reply]), similarity_top_k=5)),
    ):
        search = DiverseTripleBeamSearch(store, llm=llm, top_n=5)
        expected = retriever.retrieve(QUESTION)
        given = base.retrieve(QUESTION)
        assert search.postprocess_nodes(given, query_str=QUESTION) == expected
        assert await search.apostprocess_nodes(given, query_str=QUESTION) == expected

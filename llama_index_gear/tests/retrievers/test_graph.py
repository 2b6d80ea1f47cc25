"""`GraphRetriever` on real embedded stores: the pool, foreign retrievers, filters, tenants, and what it asks for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQueryMode

import llama_index_gear.expansion.pagerank as pagerank
import llama_index_gear.expansion.pool_retrieval as pool_retrieval
from llama_index_gear import GeARVectorStore, GraphRetriever, LocalPageRank, PassageRanker, RankingWeights
from llama_index_gear.errors import ArgumentError
from llama_index_gear.expansion.pool_retrieval import POOL_TOP_K
from llama_index_gear.flow import EmbedQuery, run
from llama_index_gear.store.schema import to_node
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.asking import list_ids
from llama_index_gear.tests.store_contract import contents, passage

EMBED = WordEmbedding()
NotedReads: TypeAlias = list[tuple[str, tuple[Any, ...]]]
QUESTION = "Where did the father of Stephen play"
FACTS: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "stephen": ("Stephen plays; his father is Dell Curry", [("Stephen", "has the father", "Dell Curry")]),
    "dell": ("Dell Curry was in Charlotte", [("Dell Curry", "was in", "Charlotte")]),
    "charlotte": ("A large city", [("Charlotte", "lies in", "North Carolina")]),
    "milk": ("Cheese is made of milk", [("Cheese", "made of", "milk")]),
}
PLAIN = RankingWeights({"tied": 3.0, "new_words": 1.0, "named": 9.0, "linked": 1.0})
"""Weights that don't change with those of the package."""
OPEN = MetadataFilters(filters=[MetadataFilter(key="open", value="yes")])


def make_nodes() -> list[BaseNode]:
    """Make the four passages, and so many others that no list holds them all; half of these are open."""
    nodes = [
        passage(name, text, facts, embed_model=EMBED, metadata={"open": "yes"}) for name, (text, facts) in FACTS.items()
    ]
    for number in range(2 * POOL_TOP_K):
        text = f"Filler {number} may play as nearly all notes with this many other words do, number {number % 7}"
        facts = [(f"Filler {number}", "is like", f"Filler {(number * 3 + 1) % (2 * POOL_TOP_K)}")]
        metadata = {"open": "yes" if number % 2 else "no"}
        nodes.append(passage(f"filler-{number}", text, facts, embed_model=EMBED, metadata=metadata))
    return nodes


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GeARVectorStore]:
    with GeARVectorStore.from_path(tmp_path_factory.mktemp("store"), embed_model=EMBED) as made:
        made.add(make_nodes())
        yield made


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[GeARVectorStore]:
    with GeARVectorStore.from_path(tmp_path / "store", embed_model=EMBED) as made:
        yield made


class Fixed(BaseRetriever):
    """A foreign retriever that returns given results, and records what it was asked."""

    def __init__(self, *results: NodeWithScore) -> None:
        super().__init__()
        self.results = results
        self.asked: list[QueryBundle] = []

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.asked.append(query_bundle)
        return list(self.results)


def make_results(*names: str, score: float | None = None) -> list[NodeWithScore]:
    """Make results with ids and texts only, as a foreign retriever has them."""
    return [NodeWithScore(node=TextNode(id_=name, text=FACTS[name][0]), score=score) for name in names]


def explain(found: list[NodeWithScore]) -> list[tuple[str, float | None, dict[str, Any]]]:
    return [(result.node.node_id, result.score, result.node.metadata) for result in found]


async def retrieve_both_ways(retriever: BaseRetriever, question: str | QueryBundle = QUESTION) -> list[NodeWithScore]:
    """Return a retriever's result, after checking that sync and async agree on it to the last digit."""
    found = retriever.retrieve(question)
    assert explain(found) == explain(await retriever.aretrieve(question))
    return found


# -- the pool ---------------------------------------------------------------------------------------------------------


async def test_fewer_passages_are_the_first_of_more(store: GeARVectorStore) -> None:
    whole = await retrieve_both_ways(GraphRetriever(store, similarity_top_k=1000))
    assert len(whole) > POOL_TOP_K and len(set(list_ids(whole))) == len(whole)
    assert sum(result.score or 0 for result in whole) == pytest.approx(1.0)
    for top_k in (1, 5, 40):
        found = await retrieve_both_ways(GraphRetriever(store, similarity_top_k=top_k))
        assert explain(found) == explain(whole)[:top_k] and len(found) == top_k
    scores = [result.score or 0 for result in whole]
    assert scores == sorted(scores, reverse=True) and min(scores) > 0


async def test_the_graph_brings_what_no_list_has(store: GeARVectorStore) -> None:
    """Charlotte's passage has no word of the question; two facts lead to it."""
    found = await retrieve_both_ways(GraphRetriever(store, weights=PLAIN, similarity_top_k=1000))
    by_id = {result.node.node_id: result.node.metadata for result in found}
    assert "pagerank" in by_id["charlotte"]["gear_ranks"] and "bm25" not in by_id["charlotte"]["gear_ranks"]
    assert {"stephen", "dell"} <= set(list_ids(found)[:10])
    assert by_id["dell"]["gear_chain"] == [
        ["Stephen", "has the father", "Dell Curry"],
        ["Dell Curry", "was in", "Charlotte"],
    ]
    reasons = {reason["signal"]: reason["reason"] for reason in by_id["dell"]["gear_reasons"]}
    fact = "Stephen — has the father — Dell Curry"
    assert reasons["named"] == f"names “Dell Curry”, as another passage does: {fact}"
    for metadata in by_id.values():
        assert metadata["gear_ranks"] and all(rank >= 1 for rank in metadata["gear_ranks"].values())


@pytest.mark.parametrize(
    ("mode", "lists"),
    [
        (None, {"dense", "bm25", "pagerank"}),
        (VectorStoreQueryMode.HYBRID, {"dense", "bm25", "pagerank"}),
        (VectorStoreQueryMode.DEFAULT, {"dense", "pagerank"}),
        (VectorStoreQueryMode.SPARSE, {"bm25", "pagerank"}),
    ],
)
async def test_modes(store: GeARVectorStore, mode: VectorStoreQueryMode | None, lists: set[str]) -> None:
    retriever = GraphRetriever(store, vector_store_query_mode=mode, weights=PLAIN)
    pool = retriever.gather_pool(QUESTION)
    assert set(pool.lists) == lists and all(len(places) <= POOL_TOP_K for places in pool.lists.values())
    assert retriever.gather_pool(QueryBundle(QUESTION)).lists == pool.lists
    assert {"stephen", "dell"} <= set(list_ids(await retrieve_both_ways(retriever)))


@pytest.mark.parametrize(
    ("mode", "base"),
    [
        (VectorStoreQueryMode.HYBRID, False),
        (VectorStoreQueryMode.DEFAULT, False),
        (VectorStoreQueryMode.SPARSE, False),
        (None, True),
    ],
)
def test_what_a_question_asks_for(store: GeARVectorStore, noted_reads: NotedReads, mode: Any, base: bool) -> None:
    """One embedding, one search, PageRank's reads, and at most one fetch of what it found."""
    foreign = Fixed(*make_results("stephen")) if base else None
    retriever = GraphRetriever(store, foreign, vector_store_query_mode=mode)
    retrieval, asked = retriever._retrieval, []

    def answer(request: Any) -> Any:
        asked.append(type(request))
        return retrieval.backends.answer(request)

    found = run(retrieval.retrieve_flow(QueryBundle(QUESTION)), answer)
    steps = [name for name, _ in noted_reads]
    assert foreign is None or len(foreign.asked) == 1
    assert explain(found) == explain(retriever.retrieve(QUESTION))
    assert asked.count(EmbedQuery) == 1 and steps.count("incident_flow") >= 1
    search = ["points_flow"] if base else ["lists_flow"]
    rest = [name for name in steps if name != "incident_flow"]
    assert rest in (search, [*search, "points_flow"])


def test_a_question_takes_seven_round_trips_at_most(
    new_store: GeARVectorStore, noted_reads: NotedReads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walks go far in a sparse graph: without reading ahead some questions would take more."""
    chance, questions = random.Random(0), [f"Entity{part}n{number}" for part in range(12) for number in range(7)]
    nodes: list[BaseNode] = []
    for number in range(540):
        names = [f"Entity{number // 45}n{entity}" for entity in range(60)]  # forty-five passages have these in common
        facts = [(chance.choice(names), f"relation{number}", chance.choice(names)) for _ in range(2)]
        text = ". ".join(" ".join(fact) for fact in facts)
        nodes.append(passage(f"p{number}", text, facts, embed_model=EMBED))
    new_store.add(nodes)
    retriever = GraphRetriever(new_store)

    def count_round_trips(question: str) -> int:
        """Count the reads, each of which takes one call of Qdrant, but for ties."""
        noted_reads.clear()
        retriever.retrieve(question)
        return len(noted_reads)

    assert max(map(count_round_trips, questions)) == 7
    monkeypatch.setattr(pagerank, "_FEW_REQUESTS", 100)
    assert max(map(count_round_trips, questions)) > 7


def test_pagerank_starts_from_the_first_of_a_ranking(store: GeARVectorStore, noted_reads: NotedReads) -> None:
    """Stephen's passage is the last of twelve; words of the question make it the ranking's first."""
    names = [f"filler-{number}" for number in range(11)]
    foreign = Fixed(*(NodeWithScore(node=node) for node in store.get_nodes([*names, "stephen"])))
    weights = RankingWeights({"tied": 0.01, "new_words": 9.0})
    GraphRetriever(store, foreign, weights=weights).retrieve(QUESTION)
    groups = next(arguments[0] for name, arguments in noted_reads if name == "incident_flow" and arguments[0][0][1])
    starts = [passage_id for _, passage_ids in groups for passage_id in passage_ids]
    assert starts[0] == "stephen" and len(starts) == 10 and set(starts[1:]) < set(names)


async def test_the_caller_s_embedding_and_custom_texts_are_searched_by(store: GeARVectorStore) -> None:
    retriever = GraphRetriever(store, vector_store_query_mode=VectorStoreQueryMode.DEFAULT)
    for bundle in (
        QueryBundle(QUESTION, embedding=EMBED.get_query_embedding("Cheese is made of milk")),
        QueryBundle(QUESTION, custom_embedding_strs=["Cheese is made of milk"]),
    ):
        assert retriever.gather_pool(bundle).lists["dense"][0] == "milk"
        await retrieve_both_ways(retriever, bundle)


# -- what a store may lack --------------------------------------------------------------------------------------------


async def test_an_empty_store_finds_nothing(new_store: GeARVectorStore) -> None:
    assert await retrieve_both_ways(GraphRetriever(new_store)) == []
    foreign = GraphRetriever(new_store, Fixed(*make_results("stephen", "milk")), weights=PLAIN)
    assert list_ids(await retrieve_both_ways(foreign)) == ["stephen", "milk"]
    new_store.add([make_nodes()[0]])
    new_store.delete_nodes(["stephen"])
    assert await retrieve_both_ways(GraphRetriever(new_store)) == []


async def test_passages_without_triples_are_ranked_by_search_and_words(new_store: GeARVectorStore) -> None:
    new_store.add([passage(name, text, embed_model=EMBED) for name, (text, _) in FACTS.items()])
    found = await retrieve_both_ways(GraphRetriever(new_store, weights=PLAIN))
    assert len(found) == 4 and list_ids(found)[0] == "stephen"
    assert all(result.node.metadata["gear_chain"] == [] for result in found)


async def test_long_passages_empty_ones_and_other_scripts(new_store: GeARVectorStore) -> None:
    facts = [(f"Thing {number}", "plays with", f"Thing {number + 1}") for number in range(64)]
    new_store.add(
        [
            passage("long", "father play Stephen token " * 256, facts, embed_model=EMBED),
            passage("empty", "", embed_model=EMBED),
            passage("chinese", "斯蒂芬的父亲是戴尔", [("斯蒂芬", "父亲是", "戴尔")], embed_model=EMBED),
            passage("dell", "戴尔在夏洛特", [("戴尔", "在", "夏洛特")], embed_model=EMBED),
        ]
    )
    for question in (QUESTION, "the of and", "?", "斯蒂芬的父亲是戴尔"):
        found = await retrieve_both_ways(GraphRetriever(new_store, weights=PLAIN), question)
        assert sum(result.score or 0 for result in found) == pytest.approx(1.0) and len(found) == 4
    chains = {result.node.node_id: result.node.metadata["gear_chain"] for result in found}
    assert chains["dell"] == [["斯蒂芬", "父亲是", "戴尔"], ["戴尔", "在", "夏洛特"]]


@pytest.mark.parametrize("question", ["", "  ", "\n"])
def test_an_empty_question_is_refused(store: GeARVectorStore, question: str) -> None:
    for retriever in (GraphRetriever(store), GraphRetriever(store, Fixed(*make_results("milk")))):
        with pytest.raises(ArgumentError, match="the question is empty"):
            retriever.retrieve(question)
        with pytest.raises(ArgumentError, match="the question is empty"):
            retriever.gather_pool(question)


# -- a foreign base retriever -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [None, 0.5])
async def test_a_foreign_retriever_s_order_counts_and_its_scores_do_not(
    store: GeARVectorStore, score: float | None
) -> None:
    by_order = RankingWeights({"tied": 1.0})
    for names in (["milk", "stephen"], ["stephen", "milk"]):
        scored, bare = (Fixed(*make_results(*names, score=given)) for given in (score, None))
        found = await retrieve_both_ways(GraphRetriever(store, scored, weights=by_order), "Who is it?")
        assert [name for name in list_ids(found) if name in names] == names and len(found) > 2
        assert explain(found) == explain(GraphRetriever(store, bare, weights=by_order).retrieve("Who is it?"))


async def test_a_passage_that_only_has_its_id_and_text_gains_the_stored_triples(store: GeARVectorStore) -> None:
    """The foreign nodes carry no triples; the chain comes from the store, and the passage that it leads to."""
    retriever = GraphRetriever(store, Fixed(*make_results("stephen")), weights=PLAIN)
    found = await retrieve_both_ways(retriever)
    metadata = {result.node.node_id: result.node.metadata for result in found}
    assert metadata["dell"]["gear_chain"][0] == ["Stephen", "has the father", "Dell Curry"]
    assert "base" in metadata["stephen"]["gear_ranks"] and "base" not in metadata["dell"]["gear_ranks"]
    assert "gear_triples" not in metadata["stephen"]  # the caller's node, as it is


async def test_an_unknown_passage_stays_and_a_repeated_one_is_one(store: GeARVectorStore) -> None:
    unknown = NodeWithScore(node=TextNode(id_="unknown", text="Nobody knows the father of Stephen"), score=None)
    carrying = passage("carrying", "Stephen again", [("Stephen", "is in", "Oakland")], embed_model=EMBED)
    results = [unknown, *make_results("stephen"), NodeWithScore(node=carrying), *make_results("stephen"), unknown]
    found = await retrieve_both_ways(GraphRetriever(store, Fixed(*results), weights=PLAIN, similarity_top_k=1000))
    assert len(set(list_ids(found))) == len(found) and {"unknown", "carrying", "stephen", "dell"} <= set(
        list_ids(found)
    )
    ranks = {result.node.node_id: result.node.metadata["gear_ranks"].get("base") for result in found}
    assert (ranks["unknown"], ranks["stephen"], ranks["carrying"], ranks["dell"]) == (1, 2, 3, None)


async def test_a_foreign_retriever_that_finds_nothing(store: GeARVectorStore) -> None:
    assert await retrieve_both_ways(GraphRetriever(store, Fixed())) == []
    assert GraphRetriever(store, Fixed()).gather_pool(QUESTION).passages == []


def test_a_foreign_retriever_is_asked_with_the_caller_s_query(store: GeARVectorStore) -> None:
    base = Fixed(*make_results("milk"))
    own = QueryBundle(f" {QUESTION} ", embedding=[1.0, 2.0])
    GraphRetriever(store, base).retrieve(own)
    (asked,) = base.asked
    assert (asked.query_str, asked.embedding) == (QUESTION, [1.0, 2.0]) and asked is not own


# -- filters and tenants ----------------------------------------------------------------------------------------------


async def test_a_filter_binds_pagerank(new_store: GeARVectorStore) -> None:
    """Dell's passage is closed: PageRank neither returns it nor walks over its facts."""
    closed = {"dell"}
    new_store.add(
        [
            passage(name, text, facts, embed_model=EMBED, metadata={"open": "no" if name in closed else "yes"})
            for name, (text, facts) in FACTS.items()
        ]
    )
    base = Fixed(*make_results("stephen", "dell"))
    free = GraphRetriever(new_store, base)
    bound = GraphRetriever(new_store, base, filters=OPEN)
    assert {*free.gather_pool(QUESTION).lists["pagerank"]} == {"stephen", "dell", "charlotte"}
    assert {*bound.gather_pool(QUESTION).lists["pagerank"]} == {"stephen"}
    assert list_ids(await retrieve_both_ways(bound)) == ["stephen"]


# -- the explanation --------------------------------------------------------------------------------------------------


async def test_the_explanation_is_hidden_from_models(store: GeARVectorStore) -> None:
    for result in await retrieve_both_ways(GraphRetriever(store)):
        assert {"gear_chain", "gear_ranks", "gear_reasons"} <= set(result.node.metadata)
        for mode in (MetadataMode.LLM, MetadataMode.EMBED):
            assert "gear_" not in result.node.get_content(metadata_mode=mode)


def test_a_result_that_is_stored_again_is_stored_without_its_explanation(new_store: GeARVectorStore) -> None:
    new_store.add(make_nodes()[:4])
    before = contents(new_store)
    found = [result.node for result in GraphRetriever(new_store).retrieve(QUESTION)]
    for node in found:
        node.embedding = EMBED.get_text_embedding(FACTS[node.node_id][0])
    new_store.add(found)
    assert contents(new_store) == before


def test_over_another_ranked_retriever_the_last_explanation_stands(store: GeARVectorStore) -> None:
    """The ranks and reasons are those of the outer ranking."""
    inner = GraphRetriever(store, similarity_top_k=20)
    found = GraphRetriever(store, inner).retrieve(QUESTION)
    assert all(set(result.node.metadata["gear_ranks"]) <= {"base", "pagerank"} for result in found)
    ranked = PassageRanker().postprocess_nodes(inner.retrieve(QUESTION), query_str=QUESTION)
    assert all(set(result.node.metadata["gear_ranks"]) == {"base"} for result in ranked)


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_change_what_they_say(store: GeARVectorStore) -> None:
    reversed_ = RankingWeights({"tied": -1.0})
    base = Fixed(*make_results("milk", "stephen"))
    last = GraphRetriever(store, base, weights=reversed_).retrieve("Who is it?")
    assert [name for name in list_ids(last) if name in ("milk", "stephen")] == ["stephen", "milk"]
    near = GraphRetriever(store, pagerank=LocalPageRank(restart=1.0)).gather_pool(QUESTION).lists["pagerank"]
    far = GraphRetriever(store, pagerank=LocalPageRank(restart=0.2)).gather_pool(QUESTION).lists["pagerank"]
    assert near != far


def test_what_is_kept_of_passages_is_never_stale(new_store: GeARVectorStore, tmp_path: Path) -> None:
    """Passages are read once and kept: whatever is written in between, a question sees what is stored."""
    rng = random.Random(0)
    kept = GraphRetriever(new_store, similarity_top_k=2 * POOL_TOP_K)
    new_store.add(make_nodes())
    for step in range(4):
        kept.retrieve(QUESTION)
        names = rng.sample(sorted(FACTS), 2)
        new_text, facts = f"Stephen, step {step}, did play in Rome", [("Stephen", "did play in", f"Rome {step}")]
        metadata = {"open": rng.choice(["yes", "no"]), "title": f"Step {step}"}
        new_store.add([passage(names[0], new_text, facts, embed_model=EMBED, metadata=metadata)])
        new_store.delete_nodes([names[1]])
        with GeARVectorStore.from_path(tmp_path / f"fresh-{step}", embed_model=EMBED) as fresh:
            stored = new_store.get_nodes()
            fresh.add(stored)
            for filters in (None, OPEN):
                now, anew = (
                    GraphRetriever(of, similarity_top_k=2 * POOL_TOP_K, filters=filters) for of in (new_store, fresh)
                )
                results, expected = now.retrieve(QUESTION), anew.retrieve(QUESTION)
                assert {result.node.node_id for result in results} == {result.node.node_id for result in expected}
                assert explain(results) == explain(expected)
                assert [result.text for result in results] == [result.text for result in expected]
                assert names[1] not in {result.node.node_id for result in results}


def test_returned_nodes_are_the_callers(store: GeARVectorStore) -> None:
    retriever = GraphRetriever(store)
    first = retriever.retrieve(QUESTION)
    before = [result.node.to_json() for result in first]
    for result in first:
        result.node.metadata["gear_triples"].clear()
        result.node.relationships.clear()
        result.node.excluded_llm_metadata_keys.append("open")
        result.node.set_content("other")
    assert [result.node.to_json() for result in retriever.retrieve(QUESTION)] == before


def test_long_passages_are_read_but_not_kept(new_store: GeARVectorStore) -> None:
    text = "Stephen plays; his father is Dell Curry " * 1_000
    new_store.add([passage("long", text, [("Stephen", "has the father", "Dell Curry")], embed_model=EMBED)])
    pool_retrieval._kept.clear()
    (result,) = GraphRetriever(new_store).retrieve(QUESTION)
    assert result.node.node_id == "long" and not pool_retrieval._kept
    new_store.add([passage("short", "Stephen", embed_model=EMBED)])
    assert len(GraphRetriever(new_store).retrieve(QUESTION)) == 2
    assert len(pool_retrieval._kept) == 1


def test_what_is_kept_of_passages_is_kept_for_each_language(new_store: GeARVectorStore) -> None:
    """Two stores of one client read the same points, and number their words each in its own way."""
    new_store.add(make_nodes())
    german = GeARVectorStore(client=new_store.client, embed_model=EMBED, language="german")
    expected = explain(GraphRetriever(german).retrieve(QUESTION))
    new_store.close()
    english = explain(GraphRetriever(new_store).retrieve(QUESTION))
    assert explain(GraphRetriever(german).retrieve(QUESTION)) == expected != english


def test_what_is_kept_of_passages_is_bounded(new_store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch) -> None:
    new_store.add([passage(f"p{n}", f"Stephen plays {'well ' * n}", embed_model=EMBED) for n in range(30)])
    expected = explain(GraphRetriever(new_store, similarity_top_k=30).retrieve(QUESTION))
    payloads, _ = new_store.client.scroll("gear", limit=30)
    sizes = [len(point.payload["_node_content"]) for point in payloads]
    monkeypatch.setattr(pool_retrieval, "_KEPT", 4 * max(sizes))
    pool_retrieval._kept.clear()
    for _ in range(3):
        assert explain(GraphRetriever(new_store, similarity_top_k=30).retrieve(QUESTION)) == expected
        assert 0 < len(pool_retrieval._kept) <= 4 * max(sizes) // min(sizes)


def test_nodes_are_made_of_those_alone_that_are_returned(
    store: GeARVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever, made = GraphRetriever(store, similarity_top_k=2), list[str]()
    retriever.retrieve(QUESTION)

    def note(point: Any) -> Any:
        made.append(str(point.id))
        return to_node(point)

    monkeypatch.setattr(pool_retrieval, "to_node", note)
    assert len(retriever.retrieve(QUESTION)) == len(made) == 2

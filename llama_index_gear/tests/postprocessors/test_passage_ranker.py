"""`PassageRanker` behind indexes and retrievers that know nothing of our store."""

from __future__ import annotations

import copy
import json
import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode, TransformComponent
from llama_index_instrumentation import get_dispatcher

from llama_index_gear import PassageRanker, RankingWeights, Triple, attach_triples
from llama_index_gear.errors import ArgumentError, TripleError
from llama_index_gear.nodes import without_explanation
from llama_index_gear.ranking.learning import fit_ranking
from llama_index_gear.testing import ScriptedLLM, WordEmbedding
from llama_index_gear.tests.asking import list_ids

QUESTION = "Where did the father of Stephen Curry play?"
TEXTS = {
    "stephen": "Stephen Curry is a player. His father is Dell Curry.",
    "player": "A player who did play where a father may play.",
    "milk": "Cheese is made of milk.",
    "dell": "Dell Curry was with the Charlotte Hornets.",
}
WEIGHTS = RankingWeights({"tied": 1.0, "named": 9.0})


def make_node(name: str, text: str) -> TextNode:
    return TextNode(id_=name, text=text, metadata={"title": "Dell Curry"} if name == "dell" else {})


NODES = [make_node(*item) for item in TEXTS.items()]
RESULTS = [NodeWithScore(node=node, score=None) for node in NODES]


async def rank_both_ways(ranker: PassageRanker, nodes: list[NodeWithScore], question: str = QUESTION) -> list[Any]:
    found = ranker.postprocess_nodes(nodes, query_str=question)
    assert found == await ranker.apostprocess_nodes(nodes, query_str=question)
    return found


async def test_in_a_query_engine_over_a_plain_index() -> None:
    """Dell's passage shares little with the question; the first passage's fact leads to it."""
    index = VectorStoreIndex(NODES, embed_model=WordEmbedding())
    llm = ScriptedLLM(["Charlotte", "Charlotte"])
    engine = index.as_query_engine(
        llm=llm, similarity_top_k=4, node_postprocessors=[PassageRanker(top_n=2, weights=WEIGHTS)]
    )
    for response in (engine.query(QUESTION), await engine.aquery(QUESTION)):
        assert str(response) == "Charlotte" and "dell" in list_ids(response.source_nodes)
        assert len(response.source_nodes) == 2
    assert "Charlotte Hornets" in llm.history[0] and "gear_" not in llm.history[0]


async def test_facts_are_extracted_where_nodes_carry_none() -> None:
    found = await rank_both_ways(PassageRanker(weights=WEIGHTS), RESULTS)
    assert list_ids(found)[0] == "dell" and sum(result.score for result in found) == pytest.approx(1.0)
    metadata = found[0].node.metadata
    assert metadata["gear_chain"][0][0] == "Stephen Curry" and metadata["gear_ranks"] == {"base": 4}
    assert "gear_triples" not in metadata and "gear_triples" not in NODES[3].metadata  # nodes stay as they are
    assert json.loads(json.dumps(metadata["gear_reasons"])) == metadata["gear_reasons"] != []


async def test_facts_that_nodes_carry_are_not_extracted_again() -> None:
    asked: list[str] = []

    class Recording(TransformComponent):
        def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
            asked.extend(node.node_id for node in nodes)
            return [attach_triples(node, [Triple("Nobody", "knows", node.node_id)]) for node in reversed(nodes)]

    carrying = attach_triples(NODES[0], [Triple("Stephen Curry", "loves", "Milk")])
    nodes = [NodeWithScore(node=carrying), *RESULTS[1:]]
    ranker = PassageRanker(weights=WEIGHTS, extractor=Recording())
    await rank_both_ways(ranker, nodes)
    assert asked == 2 * ["player", "milk", "dell"]
    pool = ranker.gather_pool(nodes, QUESTION)
    assert [list(passage.triples) for passage in pool.passages][:2] == [
        [Triple("Stephen Curry", "loves", "Milk")],
        [Triple("Nobody", "knows", "player")],
    ]


async def test_edges_of_a_list() -> None:
    ranker = PassageRanker(weights=WEIGHTS, top_n=3)
    assert await rank_both_ways(ranker, []) == []
    assert list_ids(await rank_both_ways(ranker, RESULTS[:1])) == ["stephen"]
    assert len(await rank_both_ways(ranker, RESULTS)) == 3
    twice = [*RESULTS[:2], *RESULTS[:2]]
    assert sorted(list_ids(await rank_both_ways(ranker, twice))) == ["player", "stephen"]
    other = NodeWithScore(node=TextNode(id_="stephen", text="Something else, found later under the same id."))
    (first, *_) = await rank_both_ways(ranker, [RESULTS[0], other])
    assert first.node.get_content() == TEXTS["stephen"]
    odd = [
        *RESULTS,
        NodeWithScore(node=TextNode(id_="empty", text="")),
        NodeWithScore(node=TextNode(id_="long", text="Stephen Curry met Dell Curry again. " * 200)),
    ]
    for question in (QUESTION, "the of and", "斯蒂芬的父亲是谁？", ""):
        whole = await rank_both_ways(PassageRanker(weights=WEIGHTS), odd, question)
        assert sorted(list_ids(whole)) == sorted(list_ids(odd))
        assert sum(result.score for result in whole) == pytest.approx(1.0)


async def test_half_a_character_in_a_passage_of_another_store_is_no_error() -> None:
    node = TextNode(id_="broken", text="Dell Curry \ud800 did play.", metadata={"title": "\ud800"})
    found = await rank_both_ways(PassageRanker(weights=WEIGHTS), [*RESULTS, NodeWithScore(node=node)])
    assert sorted(list_ids(found)) == sorted([*TEXTS, "broken"])
    assert node in [without_explanation(result.node) for result in found]


def test_scores_of_the_retriever_say_nothing() -> None:
    ranker = PassageRanker()
    scored = [NodeWithScore(node=node, score=number) for number, node in enumerate(NODES)]
    assert ranker.postprocess_nodes(scored, query_str=QUESTION) == ranker.postprocess_nodes(RESULTS, query_str=QUESTION)


def test_it_ranks_in_another_language() -> None:
    german = [NodeWithScore(node=TextNode(id_=name, text=text)) for name, text in (("a", "Käse"), ("b", "Häuser"))]
    words = RankingWeights({"new_words": 1.0})
    ranker = PassageRanker(weights=words, language="german")
    assert list_ids(ranker.postprocess_nodes(german, query_str="Das Haus"))[0] == "b"
    assert list_ids(PassageRanker(weights=words).postprocess_nodes(german, query_str="Das Haus"))[0] == "a"


async def test_events() -> None:
    seen: list[Any] = []

    class Collect(BaseEventHandler):
        def handle(self, event: Any, **kwargs: Any) -> None:
            if isinstance(event, ReRankStartEvent | ReRankEndEvent):
                seen.append(event)

    handler, dispatcher = Collect(), get_dispatcher()
    dispatcher.add_event_handler(handler)
    try:
        found = await rank_both_ways(PassageRanker(top_n=2), RESULTS)
    finally:
        dispatcher.event_handlers.remove(handler)
    assert [type(event) for event in seen] == 2 * [ReRankStartEvent, ReRankEndEvent]
    start, end = seen[:2]
    assert (start.top_n, start.model_name, start.nodes, end.nodes) == (2, "PassageRanker", RESULTS, found)


def test_weights_can_be_learned_for_it() -> None:
    ranker = PassageRanker(weights=WEIGHTS)
    fitted = fit_ranking(lambda question: ranker.gather_pool(RESULTS, question), [QUESTION] * 12, [["dell"]] * 12)
    assert fitted.questions == 12 and PassageRanker(weights=fitted.weights).weights == fitted.weights


# -- copies -----------------------------------------------------------------------------------------------------------


COPIES: list[Callable[[PassageRanker], PassageRanker]] = [
    lambda ranker: pickle.loads(pickle.dumps(ranker)),
    copy.deepcopy,
    copy.copy,
]


@pytest.mark.parametrize("make_copy", COPIES)
def test_a_copy_ranks_as_the_original(make_copy: Any, caplog: pytest.LogCaptureFixture) -> None:
    ranker = PassageRanker(top_n=3, weights=WEIGHTS, language="german")
    with caplog.at_level(logging.WARNING):
        made = make_copy(ranker)
    assert caplog.records == []  # nothing was left out
    assert (made.top_n, made.weights, made.language) == (3, WEIGHTS, "german") and made.to_dict() == ranker.to_dict()
    assert made.postprocess_nodes(RESULTS, query_str=QUESTION) == ranker.postprocess_nodes(RESULTS, query_str=QUESTION)


# -- bad arguments ----------------------------------------------------------------------------------------------------


async def test_bad_arguments_are_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"top_n": 0}, "top_n must be a whole number"),
        ({"language": "klingon"}, "language='klingon'"),
        ({"language": 5}, "language must be a str"),
    ]
    for arguments, message in wrong:
        with pytest.raises(ArgumentError, match=message):
            PassageRanker(**arguments)
    ranker = PassageRanker()
    with pytest.raises(ArgumentError, match="needs the question"):
        ranker.postprocess_nodes(RESULTS)
    with pytest.raises(ArgumentError, match="needs the question"):
        await ranker.apostprocess_nodes(RESULTS)
    for question, message in (("x" * 100_001, "100,001 characters"), ("\ud800", "surrogate")):
        with pytest.raises(ArgumentError, match=message):
            ranker.postprocess_nodes(RESULTS, query_bundle=QueryBundle(question))
        with pytest.raises(ArgumentError, match=message):
            ranker.gather_pool(RESULTS, question)
    nobody: Any
    for nobody in (None, 5):
        with pytest.raises(ArgumentError, match="a question must be text"):
            ranker.gather_pool(RESULTS, nobody)
    broken = TextNode(id_="broken", text="x", metadata={"gear_triples": [{"subject": "a"}]})
    with pytest.raises(TripleError, match="of node 'broken' must be a list"):
        ranker.postprocess_nodes([NodeWithScore(node=broken)], query_str=QUESTION)

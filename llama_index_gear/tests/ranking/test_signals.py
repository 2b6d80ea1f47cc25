"""Signals, by values that are computed by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.ranking.pool import MAX_LINK_PASSAGES, Pool, PoolPassage, RankedPassage
from llama_index_gear.ranking.ranker import second_signals
from llama_index_gear.ranking.signals import _ABSENT_RANK as ABSENT
from llama_index_gear.ranking.signals import _FLOOR as FLOOR
from llama_index_gear.ranking.signals import _LEAST as LEAST
from llama_index_gear.ranking.signals import Company, list_signals
from llama_index_gear.ranking.weights import COMPANY_SIGNALS, SIGNALS
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.triple import Triple

ENCODER = make_encoder("english", 1.0)


def make_passage(passage_id: str, text: str, *facts: tuple[str, str, str]) -> PoolPassage:
    return PoolPassage(passage_id, text, [Triple(*fact) for fact in facts])


def make_pool(question: str, *passages: PoolPassage) -> Pool:
    return Pool(question, passages, {"base": [RankedPassage(passage.id) for passage in passages]}, ENCODER)


# -- lists ------------------------------------------------------------------------------------------------------------

PLACES = {"a": 0, "b": 1, "c": 2}


def make_list(**scores: float | None) -> list[RankedPassage]:
    return [RankedPassage(*item) for item in scores.items()]


def test_ranks_of_a_list() -> None:
    """The list has b first and a second; c is absent."""
    signals = list_signals("base", make_list(b=None, a=None), PLACES)
    assert signals == {
        "base.reciprocal_rank": pytest.approx([1 / 2, 1, 1 / (1 + ABSENT)]),
        "base.log_rank": pytest.approx([-math.log(2), 0, -math.log(1 + ABSENT)]),
    }


def test_scores_of_lists() -> None:
    cosines = list_signals("dense", make_list(b=0.9, a=0.6), PLACES)["dense.score"]
    assert cosines == pytest.approx([-0.3, 0.0, -0.3])  # an absent one has the last one's
    assert list_signals("bm25", make_list(b=8.0, a=2.0), PLACES)["bm25.score"] == pytest.approx([0.25, 1.0, 0.0])
    shares = list_signals("pagerank", make_list(b=0.4, a=0.1), PLACES)["pagerank.score"]
    assert shares == pytest.approx([math.log(0.25 + FLOOR), math.log(1 + FLOOR), math.log(FLOOR)])


@pytest.mark.parametrize("name", ["dense", "bm25", "pagerank", "base"])
def test_a_list_of_nothing_tells_no_passage_from_another(name: str) -> None:
    for places in (list_signals(name, [], PLACES), list_signals(name, make_list(unknown=0.5), PLACES)):
        assert all(len(set(values)) == 1 for values in places.values())
    assert all(values == [] for values in list_signals(name, [], {}).values())


def test_a_passage_that_a_list_has_twice_has_its_first_place() -> None:
    twice = [RankedPassage("b", 0.9), RankedPassage("a", 0.8), RankedPassage("b", 0.1)]
    once = list_signals("dense", twice[:2], {"a": 0, "b": 1})
    assert list_signals("dense", twice, {"a": 0, "b": 1}) == once


def test_passages_that_the_pool_lacks_keep_their_rank() -> None:
    """A deleted passage still was the first of the list."""
    signals = list_signals("base", make_list(unknown=None, a=None), PLACES)
    assert signals["base.reciprocal_rank"][0] == 1 / 2


@pytest.mark.parametrize("scores", [{"a": 0.0, "b": 0.0}, {"a": -1.0, "b": -2.0}, {"a": None, "b": None}])
@pytest.mark.parametrize("name", ["dense", "bm25", "pagerank"])
def test_scores_of_no_worth_are_numbers_too(name: str, scores: dict[str, float | None]) -> None:
    values = list_signals(name, make_list(**scores), PLACES)[f"{name}.score"]
    assert all(math.isfinite(value) for value in values)


@given(st.sampled_from(["dense", "bm25", "pagerank"]), st.lists(st.floats(0.01, 10), min_size=1, max_size=20))
def test_signals_of_a_list_descend_with_its_ranks(name: str, scores: list[float]) -> None:
    ranked = [RankedPassage(str(number), score) for number, score in enumerate(sorted(scores, reverse=True))]
    signals = list_signals(name, ranked, {place.id: number for number, place in enumerate(ranked)})
    assert set(signals) <= set(SIGNALS)
    for values in signals.values():
        assert list(values) == sorted(values, reverse=True)


# -- beside the best passages -----------------------------------------------------------------------------------------

QUESTION = "Where did the father of Stephen play"
STEPHEN = make_passage("stephen", "Stephen, his father", ("Stephen Curry", "has the father", "Dell Curry"))
DELL = make_passage("dell", "Dell could play", ("Dell Curry", "played for", "Hornets"), ("Dell Curry", "born in", "Va"))
HORNETS = make_passage("hornets", "A club", ("Hornets", "founded by", "Shinn"))
CHEESE = make_passage("cheese", "Cheese is made of milk")
POOL = make_pool(QUESTION, STEPHEN, DELL, HORNETS, CHEESE)


def get_signals(pool: Pool, *best: int) -> dict[str, list[float]]:
    return second_signals(pool, Company(pool, best))


def test_the_names_of_the_signals_are_those_of_the_weights() -> None:
    assert set(get_signals(POOL, 0)) == set(COMPANY_SIGNALS)


def test_named_by_the_best_passage() -> None:
    """Stephen's passage is the best. It names Dell, in a fact with "father" and "Stephen" of the question."""
    signals = get_signals(POOL, 0)
    assert signals["named"] == [0, 1, 0, 0]
    likeness = POOL.triple_coverage(POOL.group_facts(0)["dell curry"][0]) + LEAST
    assert 0.4 < likeness < 1
    assert signals["named_likeness"] == pytest.approx([0, likeness, 0, 0])
    assert signals["linked"] == pytest.approx([0, likeness / math.log2(1 + 2), 0, 0])


def test_linked_by_what_is_not_the_topic() -> None:
    """Dell's passage is the best: it names Hornets, a topic; and Stephen's names Dell, whom it is about."""
    signals = get_signals(POOL, 1)
    assert signals["named"] == [0, 0, 1, 0]
    likeness = max(map(POOL.triple_coverage, POOL.group_facts(1)["dell curry"])) + LEAST
    assert signals["linked"][0] == pytest.approx(likeness / math.log2(1 + 2))
    assert signals["linked"][3] == signals["named_likeness"][0] == 0


def test_what_two_passages_are_both_about_is_no_link() -> None:
    """Two chunks of one handbook share its title and every fact's subject; a third passage names the handbook."""
    chunks = [
        PoolPassage(name, "", [Triple("The handbook", "says", name)], title)
        for name, title in (("a", "The handbook"), ("b", "The Handbook (2024)"))
    ]
    signals = get_signals(make_pool("What says the handbook?", *chunks, CHEESE), 0)
    assert signals["named"] == signals["named_likeness"] == signals["linked"] == [0, 0, 0]
    editor = make_passage("c", "", ("Ada", "wrote", "The handbook"))
    signals = get_signals(make_pool("What says the handbook?", *chunks, editor), 0, 2)
    assert signals["named"] == [1, 1, 0] and signals["linked"][2] > 0


def test_a_linked_alias_names_as_well() -> None:
    """Dell Curry is Wardell Curry: what names the one leads to the other, and passages about both are not linked."""
    passages = [
        make_passage("stephen", "Stephen", ("Stephen", "has the father", "Wardell Curry")),
        make_passage("dell", "Dell", ("Dell Curry", "played for", "Hornets")),
        make_passage("wardell", "Wardell", ("Wardell Curry", "was born in", "Va")),
    ]
    apart = make_pool(QUESTION, *passages)
    joined = apart.extend([], {}, [("dell curry", "wardell curry")])
    assert get_signals(apart, 0)["named"] == [0, 0, 1] and get_signals(apart, 0)["linked"][1] == 0
    signals = get_signals(joined, 0)
    assert signals["named"] == [0, 1, 1] and signals["linked"][1] == signals["linked"][2] > 0
    assert get_signals(joined, 1)["named"] == [0, 0, 0] and get_signals(joined, 1)["linked"][2] == 0


def test_a_passage_is_not_compared_with_itself() -> None:
    """The best passage alone has nothing but the words of its own; beside a second, it may be named."""
    signals = get_signals(POOL, 0)
    for name in ("named", "named_likeness", "linked"):
        assert signals[name][0] == 0
    both = get_signals(POOL, 0, 1)
    assert both["named"][1] == 1 and both["linked"][0] > 0


def test_new_words_are_those_that_the_two_best_lack() -> None:
    """Stephen's passage has "Stephen" and "father"; Dell's has "play"; a third best passage covers nothing."""
    masks = [content.words for content in POOL.contents]
    assert get_signals(POOL, 0)["new_words"] == pytest.approx([POOL.coverage(masks[0]), POOL.coverage(masks[1]), 0, 0])
    assert get_signals(POOL, 0, 2)["new_words"] == get_signals(POOL, 0)["new_words"]
    assert get_signals(POOL, 3, 2, 0)["new_words"][0] == pytest.approx(POOL.coverage(masks[0]))
    assert get_signals(POOL, 0, 1)["new_words"][:2] == pytest.approx([POOL.coverage(mask) for mask in masks[:2]])


def test_in_question_takes_all_words_of_the_name() -> None:
    """The topic is "Stephen Curry", of which the question has one word; a topic of both words stands in it."""
    assert get_signals(POOL, 0)["in_question"] == [0, 0, 0, 0]
    pool = make_pool("Where is stephen, CURRY?", STEPHEN, CHEESE)
    assert get_signals(pool, 1)["in_question"] == [1, 0]


@pytest.mark.parametrize("number", [MAX_LINK_PASSAGES, MAX_LINK_PASSAGES + 1])
def test_an_entity_of_many_passages_links_none(number: int) -> None:
    facts = [("Hub", "is", "round")] + [(f"Spoke {n}", "is on", "Hub") for n in range(number - 1)]
    pool = make_pool("?", *(make_passage(str(n), "", fact) for n, fact in enumerate(facts)))
    signals = get_signals(pool, 1)
    is_link = number <= MAX_LINK_PASSAGES
    assert [bool(signals[name][0]) for name in ("named", "named_likeness", "linked")] == [is_link] * 3


def test_a_fact_without_a_word_of_the_question_still_joins() -> None:
    pool = make_pool("zebra", make_passage("a", "", ("A", "is", "B")), make_passage("b", "", ("B", "is", "C")))
    signals = get_signals(pool, 0)
    assert signals["named_likeness"] == pytest.approx([0, LEAST])
    assert signals["linked"] == pytest.approx([0, LEAST / math.log2(3)])


def test_the_most_similar_fact_links_and_the_rarest_entity_counts_most() -> None:
    pool = make_pool(
        "zebra lion",
        make_passage("a", "", ("A", "saw", "B"), ("A", "saw the zebra with", "B"), ("A", "saw a zebra of", "Common")),
        make_passage("b", "", ("B", "met", "Common")),
        make_passage("c", "", ("C", "met", "Common")),
    )
    link = Company(pool, [0]).linked_by(1)
    assert link is not None and (link.place, link.entity) == (0, "b")
    assert link.triple == Triple("A", "saw the zebra with", "B")
    common = Company(pool, [0]).linked_by(2)
    assert common is not None and common.entity == "common"
    signals = get_signals(pool, 0)
    assert signals["linked"][1] == pytest.approx(link.likeness / math.log2(3))
    assert signals["linked"][2] == pytest.approx(common.likeness / math.log2(4))


@pytest.mark.parametrize("question", ["the of and", "?", "谁是导演"])
def test_questions_without_known_words_give_numbers(question: str) -> None:
    signals = get_signals(make_pool(question, STEPHEN, DELL, CHEESE, make_passage("empty", "")), 0, 1)
    assert all(math.isfinite(value) for values in signals.values() for value in values)
    assert signals["new_words"] == [0, 0, 0, 0] and signals["named"] == [0, 1, 0, 0]

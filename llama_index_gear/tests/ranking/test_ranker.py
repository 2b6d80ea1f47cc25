"""The ranking of drawn pools, and of small ones by hand."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from llama_index_gear.ranking.pool import Pool, PoolPassage, RankedPassage
from llama_index_gear.ranking.ranker import first_signals, order, rank, weigh
from llama_index_gear.ranking.signals import BEST
from llama_index_gear.ranking.weights import COMPANY_SIGNALS, FIRST, SIGNALS, RankingWeights
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.triple import Triple

ENCODER = make_encoder("english", 1.0)
WORDS = "alpha beta gamma delta epsilon zeta eta theta the of".split()
NAMES = ["Ada", "Bob", "Carl", "Dora", "Ada Bob", "alpha"]
LISTS = ("dense", "bm25", "pagerank")


def make_passage(passage_id: str, text: str, *facts: tuple[str, str, str]) -> PoolPassage:
    return PoolPassage(passage_id, text, [Triple(*fact) for fact in facts])


def make_pool(question: str, *passages: PoolPassage) -> Pool:
    return Pool(question, passages, {"base": [RankedPassage(passage.id) for passage in passages]}, ENCODER)


@st.composite
def pools(draw: DrawFn) -> Pool:
    """Draw pools in which words, names and lists overlap; some passages are in no list, have no text, or no triples."""
    sentences = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
    names = st.sampled_from(NAMES)
    facts = st.lists(st.builds(Triple, names, sentences.map(lambda text: f"is {text}"), names), max_size=4)
    titles = st.one_of(st.just(""), names)
    contents = draw(st.lists(st.tuples(sentences, facts, titles), min_size=1, max_size=12))
    passages = [PoolPassage(f"p{number}", *content) for number, content in enumerate(contents)]
    lists = {}
    for name in draw(st.sets(st.sampled_from(LISTS))):
        ids = draw(st.lists(st.sampled_from([passage.id for passage in passages]), unique=True))
        scores = draw(st.lists(st.floats(0, 10), min_size=len(ids), max_size=len(ids)))
        lists[name] = [RankedPassage(*item) for item in zip(ids, sorted(scores, reverse=True), strict=True)]
    base = draw(st.permutations([passage.id for passage in passages]))
    return Pool(draw(sentences), passages, {**lists, "base": [RankedPassage(name) for name in base]}, ENCODER)


def tables(names: Any) -> st.SearchStrategy[dict[str, float]]:
    return st.dictionaries(st.sampled_from(sorted(names)), st.floats(-3, 3))


WEIGHTS = st.builds(RankingWeights, tables(set(SIGNALS) - set(COMPANY_SIGNALS)), tables({FIRST, *COMPANY_SIGNALS}))


def test_a_pool_without_a_list_is_ranked_by_what_its_passages_are_beside_one_another() -> None:
    passages = [make_passage("a", "cheese"), make_passage("b", "alpha", ("Alpha", "is", "b"))]
    ranked = rank(Pool("alpha?", passages, {}, ENCODER), RankingWeights.default())
    assert [place.id for place in ranked] == ["b", "a"] and sum(place.score for place in ranked) == pytest.approx(1.0)
    ranked = rank(Pool("?", passages, {}, ENCODER), RankingWeights({"dense.log_rank": 1.0}, {FIRST: 1.0}))
    assert [(place.id, place.score) for place in ranked] == [("a", 0.5), ("b", 0.5)]


@given(pools(), WEIGHTS)
def test_a_ranking_shares_the_pool_out(pool: Pool, weights: RankingWeights) -> None:
    """It is a permutation of the pool. Scores are positive, descend, and sum to 1."""
    ranked = rank(pool, weights)
    assert sorted(place.id for place in ranked) == sorted(pool.places)
    scores = [place.score for place in ranked]
    assert all(score > 0 for score in scores) and scores == sorted(scores, reverse=True)
    assert math.fsum(scores) == pytest.approx(1.0)
    assert rank(pool, weights) == ranked


@given(pools(), WEIGHTS)
def test_scores_are_the_softmax_of_what_lists_and_signals_add(pool: Pool, weights: RankingWeights) -> None:
    """Shares are what lists and signals add, less their mean, so that their sums differ as the scores' logarithms."""
    ranked = rank(pool, weights)
    first, *others = [math.fsum(place.shares.values()) - math.log(place.score) for place in ranked]
    assert others == pytest.approx([first] * len(others))
    for name in {name for place in ranked for name in place.shares}:
        assert math.fsum(place.shares[name] for place in ranked) == pytest.approx(0, abs=1e-9)


@given(pools(), WEIGHTS, st.randoms(use_true_random=False))
def test_the_order_of_passages_and_lists_says_nothing(pool: Pool, weights: RankingWeights, rng: random.Random) -> None:
    """The pool's order decides only between passages of the same score, by either rule."""
    weights = RankingWeights({**weights.first, "base.log_rank": 1.0}, weights.second)
    first_scores = weigh(first_signals(pool), weights.first)
    assume(len(set(first_scores)) == len(first_scores))  # else the order says which are the best
    passages, lists = list(pool.passages), list(pool.lists.items())
    rng.shuffle(passages)
    rng.shuffle(lists)
    shuffled = rank(Pool(pool.question, passages, dict(lists), ENCODER), weights)
    assert {place.id: place.score for place in shuffled} == pytest.approx(
        {place.id: place.score for place in rank(pool, weights)}
    )


@given(pools(), st.booleans())
def test_weights_of_nothing_keep_the_order_of_the_pool(pool: Pool, are_zeros: bool) -> None:
    weights = RankingWeights({}, {})
    if are_zeros:
        first = {name: 0.0 for name in SIGNALS if name not in COMPANY_SIGNALS}
        weights = RankingWeights(first, dict.fromkeys((FIRST, *COMPANY_SIGNALS), 0))
    ranked = rank(pool, weights)
    assert [place.id for place in ranked] == [passage.id for passage in pool.passages]
    assert [place.score for place in ranked] == pytest.approx([1 / len(ranked)] * len(ranked))


@given(pools())
def test_by_one_list_alone_the_ranking_is_the_list(pool: Pool) -> None:
    ranked = rank(pool, RankingWeights({"base.log_rank": 1.0}, {FIRST: 2.0}))
    assert [place.id for place in ranked] == [place.id for place in pool.lists["base"]]


@given(pools(), WEIGHTS)
def test_what_leads_to_a_passage_is_a_fact_of_another_best_one(pool: Pool, weights: RankingWeights) -> None:
    best = order(weigh(first_signals(pool), weights.first))[:BEST]
    for place in rank(pool, weights):
        own = pool.places[place.id]
        for link in filter(None, (place.named_by, place.linked_by)):
            assert link.place in best and link.place != own
            assert link.triple in pool.passages[link.place].triples and link.entity in link.triple.entities
        assert place.linked_by is None or place.linked_by.entity in pool.contents[own].entities
        assert place.named_by is None or place.named_by.entity in pool.contents[own].topics
        assert ("named" in place.signals, "linked" in place.signals) == (
            place.named_by is not None,
            place.linked_by is not None,
        )


def test_nothing_is_ranked_as_nothing() -> None:
    assert rank(make_pool("alpha"), RankingWeights.default()) == []
    assert rank(make_pool(""), RankingWeights({}, {})) == []


def test_one_passage_has_all() -> None:
    (only,) = rank(make_pool("alpha", make_passage("a", "alpha", ("A", "is", "A"))), RankingWeights.default())
    assert (only.id, only.score, only.named_by, only.linked_by) == ("a", 1.0, None, None)
    assert set(only.shares.values()) == {0.0}


def test_the_second_rule_sees_the_best_of_the_first() -> None:
    """By hand: the list's first passage names the third, which outranks the second by a weight of 5 · likeness."""
    pool = make_pool(
        "Who founded the maker of Zed?",
        make_passage("maker", "Zed is a product", ("Zed", "has the maker", "Acme")),
        make_passage("other", "Other"),
        make_passage("founder", "Acme was founded by Ada", ("Acme", "founded by", "Ada")),
    )
    weights = RankingWeights({"base.log_rank": 1.0}, {FIRST: 1.0, "named": 3.0})
    ranked = rank(pool, weights)
    powers = [1.0, 1 / 2, math.exp(3.0) / 3]  # e^(weighted sum): ranks 1, 2, 3 without a score; 3 more for "named"
    expected = {name: power / sum(powers) for name, power in zip(("maker", "other", "founder"), powers, strict=True)}
    assert {place.id: place.score for place in ranked} == pytest.approx(expected)
    assert [place.id for place in ranked] == ["founder", "maker", "other"]
    founder = ranked[0]
    assert founder.named_by is not None and founder.named_by.triple == Triple("Zed", "has the maker", "Acme")
    assert founder.shares == pytest.approx(
        {
            "base": -math.log(3) + (math.log(2) + math.log(3)) / 3,
            "named": 3 - 1,
            **dict.fromkeys(set(COMPANY_SIGNALS) - {"named"}, 0.0),
        }
    )


def test_weights_as_large_as_can_be_rank_too() -> None:
    pool = make_pool("alpha", *(make_passage(str(number), "alpha " * number) for number in range(3)))
    weights = RankingWeights({"base.log_rank": 1e38}, {FIRST: 1e38, "new_words": -1e38})
    ranked = rank(pool, weights)
    assert [place.id for place in ranked] == ["0", "1", "2"]
    assert [place.score for place in ranked] == [1.0, 0.0, 0.0]

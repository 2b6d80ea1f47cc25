"""Reasons: every one holds for the passage that it is given for."""

from __future__ import annotations

import json

import pytest

from llama_index_gear.ranking.pool import Pool, PoolPassage, RankedPassage
from llama_index_gear.ranking.ranker import Ranked, rank
from llama_index_gear.ranking.reasons import build_chain, explain_place, find_ranks
from llama_index_gear.ranking.weights import COMPANY_SIGNALS, FIRST, RankingWeights
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.triple import Triple

ENCODER = make_encoder("english", 1.0)
PASSAGES = {
    "stephen": ("Stephen, his father", [("Stephen Curry", "has the father", "Dell Curry")]),
    "dell": ("Dell Curry could play", [("Dell Curry", "played for", "Hornets"), ("Dell Curry", "is", "tall")]),
    "hornets": ("A club", [("Hornets", "were founded by", "Shinn")]),
    "fan": ("A fan", [("Fan", "likes", "Dell Curry")]),
    "milk": ("Milk of Tuscany", [("Milk", "is", "white")]),
    "cheese": ("Cheese is made of it", []),
}
QUESTION = "Where did the father of Stephen play, and what is milk?"
EQUAL = RankingWeights({"base.log_rank": 1.0}, dict.fromkeys((FIRST, *COMPANY_SIGNALS), 1.0))


def make_pool(*names: str, question: str = QUESTION) -> Pool:
    passages = [PoolPassage(name, PASSAGES[name][0], [Triple(*fact) for fact in PASSAGES[name][1]]) for name in names]
    return Pool(question, passages, {"base": [RankedPassage(name) for name in names]}, ENCODER)


POOL = make_pool(*PASSAGES)


def find(pool: Pool, passage_id: str, weights: RankingWeights = EQUAL) -> Ranked:
    (found,) = [ranked for ranked in rank(pool, weights) if ranked.id == passage_id]
    return found


def explain(passage_id: str, weights: RankingWeights = EQUAL, pool: Pool = POOL) -> dict[str, str]:
    """Return signal → reason."""
    reasons = explain_place(pool, find(pool, passage_id, weights), find_ranks(pool, passage_id))
    return {reason["signal"]: reason["reason"] for reason in reasons}


def test_reasons_in_words() -> None:
    fact = "Stephen Curry — has the father — Dell Curry"
    assert explain("dell") == {
        "base": "rank 2 of base",
        "named": "is about “Dell Curry”, which “Stephen Curry” names",
        "named_likeness": f"“Stephen Curry” says of it: {fact}",
        "linked": f"names “Dell Curry”, as “Stephen Curry” does: {fact}",
        "new_words": "has words of the question that the first two passages lack",
    }
    assert explain("milk")["in_question"] == "is about “Milk”, which the question names"


def test_a_title_that_no_own_fact_names() -> None:
    """The film's facts call it "The film"; its title is what Stephen's passage names, and the question."""
    titled = PoolPassage("film", "A film", [Triple("The film", "was made in", "Rome")], "Hornets (film)")
    others = [PoolPassage("a", "Ada", [Triple("Ada", "acted in", "Hornets")]), PoolPassage("b", "Milk", [])]
    base = {"base": [RankedPassage(name) for name in ("a", "b", "film")]}
    pool = Pool("Who made Hornets?", [*others, titled], base, ENCODER)
    reasons = explain("film", pool=pool)
    assert reasons["named"] == "is about “Hornets”, which “Ada” names"
    assert reasons["in_question"] == "is about “Hornets”, which the question names"
    assert build_chain(pool, find(pool, "film")) == [["Ada", "acted in", "Hornets"]]


def test_the_reason_is_the_topic_that_is_named() -> None:
    """The page is about its title and about its facts' subject; only the second is named, and asked for."""
    page = PoolPassage("page", "", [Triple("Hornets", "were founded by", "Shinn")], "Handbook")
    base = {"base": [RankedPassage(name) for name in ("a", "b", "page")]}
    others = [PoolPassage("a", "Ada", [Triple("Ada", "acted in", "Hornets")]), PoolPassage("b", "Milk", [])]
    reasons = explain("page", pool=Pool("Who made Hornets?", [*others, page], base, ENCODER))
    assert reasons["named"] == "is about “Hornets”, which “Ada” names"
    assert reasons["in_question"] == "is about “Hornets”, which the question names"


def test_what_a_passage_lacks_is_no_reason_for_it() -> None:
    """A signal that is 0 takes a share away where others have it, but has nothing to say."""
    for signal in COMPANY_SIGNALS:
        weights = RankingWeights({}, {signal: 10.0})
        for name in PASSAGES:
            ranked = find(POOL, name, weights)
            assert (signal in explain(name, weights)) == (signal in ranked.signals), (signal, name)
        assert any(signal not in find(POOL, name, weights).signals for name in PASSAGES), signal
        assert any(signal in find(POOL, name, weights).signals for name in PASSAGES), signal
    assert set(explain("cheese")) == {"base"}  # no triples, no word


def test_no_reason_says_that_a_passage_names_itself() -> None:
    """Two passages are about Stephen Curry; one names Dell Curry, whom another is about."""
    facts = {
        "dell": [Triple("Dell Curry", "played for", "Hornets")],
        "stephen": [Triple("Stephen Curry", "is a son of", "Dell Curry")],
        "again": [
            Triple("Stephen Curry", "played with", "Stephen Curry II"),
            Triple("Hornets", "had", "Stephen Curry"),
        ],
    }
    passages = [PoolPassage(name, name, own) for name, own in facts.items()]
    pool = Pool("Who played?", passages, {"base": [RankedPassage(name) for name in facts]}, ENCODER)
    for name in facts:
        for signal, reason in explain(name, pool=pool).items():
            quoted = reason.split(":")[0].split("“")[1:]
            assert len({one.split("”")[0] for one in quoted}) == len(quoted), (name, signal, reason)
    fact = "Dell Curry — played for — Hornets"
    assert explain("stephen", pool=pool)["linked"] == f"names “Dell Curry”, which another passage is about: {fact}"


def test_a_fan_is_linked_and_not_named() -> None:
    """The fan names Dell Curry, as the best passage does; nobody names the fan."""
    reasons = explain("fan")
    assert reasons["linked"].startswith("names “Dell Curry”, as “Stephen Curry” does")
    assert not reasons.keys() & {"named", "named_likeness", "in_question"}


def test_shares_are_those_of_the_ranking_and_descend() -> None:
    for name in PASSAGES:
        ranked = find(POOL, name)
        reasons = explain_place(POOL, ranked, find_ranks(POOL, name))
        shares = [reason["share"] for reason in reasons]
        assert shares == sorted(shares, reverse=True) and all(abs(share) >= 0.05 for share in shares)
        assert shares == [round(ranked.shares[reason["signal"]], 3) for reason in reasons]
        assert json.loads(json.dumps(reasons)) == reasons


def test_a_list_without_the_passage_is_no_reason() -> None:
    lists = {"dense": [RankedPassage("milk", 0.9)], "bm25": [RankedPassage("dell", 2.0), RankedPassage("milk", 1.0)]}
    pool = Pool(QUESTION, make_pool("milk", "dell").passages, lists, ENCODER)
    weights = RankingWeights({"dense.log_rank": 1.0, "bm25.score": 1.0}, {FIRST: 1.0})
    assert find_ranks(pool, "dell") == {"bm25": 1} and find_ranks(pool, "milk") == {"dense": 1, "bm25": 2}
    assert explain("dell", weights, pool) == {"bm25": "rank 1 of bm25"}
    assert explain("milk", weights, pool) == {"dense": "rank 1 of dense", "bm25": "rank 2 of bm25"}
    assert find_ranks(pool, "unknown") == {}


def test_the_first_rank_counts_where_a_list_has_a_passage_twice() -> None:
    pool = Pool("", [], {"base": [RankedPassage("a"), RankedPassage("b"), RankedPassage("a")]}, ENCODER)
    assert find_ranks(pool, "a") == {"base": 1}


CHAINS: dict[str, list[list[str]]] = {
    "dell": [["Stephen Curry", "has the father", "Dell Curry"], ["Dell Curry", "played for", "Hornets"]],
    "hornets": [["Dell Curry", "played for", "Hornets"], ["Hornets", "were founded by", "Shinn"]],
    "fan": [["Stephen Curry", "has the father", "Dell Curry"], ["Fan", "likes", "Dell Curry"]],
    "milk": [],
    "cheese": [],
}


@pytest.mark.parametrize("name", CHAINS)
def test_the_chain_leads_from_a_best_passage_s_fact_to_an_own_one(name: str) -> None:
    assert build_chain(POOL, find(POOL, name)) == CHAINS[name]


def test_a_fact_that_both_state_is_the_whole_chain() -> None:
    fact = [Triple("Ada", "knows", "Bob")]
    pool = Pool("Ada?", [PoolPassage(name, "", fact) for name in "ab"], {"base": [RankedPassage("a")]}, ENCODER)
    assert build_chain(pool, find(pool, "b")) == [["Ada", "knows", "Bob"]]

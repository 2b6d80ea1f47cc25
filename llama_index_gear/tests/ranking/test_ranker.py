"""The ranking of drawn pools, and of small ones by hand."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from llama_index_gear.ranking.pool import Pool, PoolPassage
from llama_index_gear.ranking.ranker import rank, rank_ids
from llama_index_gear.ranking.signals import Company, find_ranks, score_by_lists
from llama_index_gear.ranking.weights import SIGNALS, RankingWeights
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.triple import Triple

ENCODER = make_encoder("english", 1.0)
WORDS = "alpha beta gamma delta epsilon zeta eta theta the of 父亲是谁 \ud800 Zoë".split()
NAMES = ["Ada", "Bob", "Carl", "Dora", "Ada Bob", "alpha"]
LISTS = ("dense", "bm25", "pagerank")


def make_passage(passage_id: str, text: str, *facts: tuple[str, str, str]) -> PoolPassage:
    return PoolPassage(passage_id, text, [Triple(*fact) for fact in facts])


def make_pool(question: str, *passages: PoolPassage) -> Pool:
    return Pool(question, passages, {"base": [passage.id for passage in passages]}, ENCODER)


@st.composite
def pools(draw: DrawFn) -> Pool:
    """Draw pools in which words, names and lists overlap; some passages are in no list, have no text, or no triples."""
    sentences = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
    names = st.sampled_from(NAMES)
    facts = st.lists(st.builds(Triple, names, sentences.map(lambda text: f"is {text}"), names), max_size=4)
    titles = st.one_of(st.just(""), names)
    contents = draw(st.lists(st.tuples(sentences, facts, titles), min_size=1, max_size=12))
    passages = [PoolPassage(f"p{number}", *content) for number, content in enumerate(contents)]
    ids = st.sampled_from([*(passage.id for passage in passages), "deleted"])
    lists = {}
    for name in draw(st.sets(st.sampled_from(LISTS))):
        lists[name] = draw(st.lists(ids, max_size=14))
    if draw(st.booleans()):
        lists["base"] = draw(st.permutations([passage.id for passage in passages]))
    return Pool(draw(sentences), passages, lists, ENCODER)


WEIGHTS = st.builds(RankingWeights, st.dictionaries(st.sampled_from(SIGNALS), st.floats(-3, 3)))


def test_a_pool_without_a_list_is_ranked_by_what_its_passages_are_beside_one_another() -> None:
    passages = [make_passage("a", "cheese"), make_passage("b", "alpha", ("Alpha", "is", "b"))]
    ranked = rank(Pool("alpha?", passages, {}, ENCODER), RankingWeights.default())
    assert [place.id for place in ranked] == ["b", "a"] and sum(place.score for place in ranked) == pytest.approx(1.0)
    ranked = rank(Pool("?", passages, {}, ENCODER), RankingWeights({"phrases": 1.0}))
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
def test_scores_are_the_softmax_of_what_signals_add(pool: Pool, weights: RankingWeights) -> None:
    """Shares are what the signals add, less their mean, so that their sums differ as the scores' logarithms."""
    ranked = rank(pool, weights)
    first, *others = [math.fsum(place.shares.values()) - math.log(place.score) for place in ranked]
    assert others == pytest.approx([first] * len(others))
    for name in {name for place in ranked for name in place.shares}:
        assert math.fsum(place.shares[name] for place in ranked) == pytest.approx(0, abs=1e-9)


@given(pools(), WEIGHTS)
def test_a_passage_adds_up_its_weighted_signals(pool: Pool, weights: RankingWeights) -> None:
    company = Company(pool, weights.signals)
    signals = company.compare()
    sums = [
        math.fsum(weight * signals[name][place] for name, weight in weights.signals.items())
        for place in pool.places.values()
    ]
    powers = [math.exp(value - max(sums)) for value in sums]
    ranked = {place.id: place for place in rank(pool, weights)}
    assert [ranked[id_].score for id_ in pool.places] == pytest.approx([power / sum(powers) for power in powers])
    for id_, place in pool.places.items():
        assert ranked[id_].signals == {name for name, values in signals.items() if values[place]}
        assert ranked[id_].shares.keys() == weights.signals.keys()


@given(pools())
def test_links_between_pages_change_nothing_where_there_are_none(pool: Pool) -> None:
    """To the last digit: not a passage's score, place or reason."""
    weights = RankingWeights.default()
    without = RankingWeights({name: weight for name, weight in weights.signals.items() if name != "page_links"})
    for one, other in zip(rank(pool, weights), rank(pool, without), strict=True):
        assert one.shares.pop("page_links") == 0 and one == other


@given(pools())
def test_signals_are_finite_numbers_within_their_bounds(pool: Pool) -> None:
    for name, values in Company(pool).compare().items():
        assert values.dtype == np.float64 and values.shape == (len(pool.passages),)
        lowest, highest = {"walk": (-9.3, 1e-3), "shared_words": (0, 1.5)}.get(name, (0, 1.01))
        assert all(lowest <= value <= highest for value in values), name


@given(pools(), WEIGHTS, st.randoms(use_true_random=False))
def test_the_order_of_passages_and_lists_says_nothing(pool: Pool, weights: RankingWeights, rng: random.Random) -> None:
    """The pool's order decides only between passages of the same score, and which of these are the best."""
    expected = pytest.approx({place.id: place.score for place in rank(pool, weights)})
    passages, lists = list(pool.passages), list(pool.lists.items())
    rng.shuffle(lists)
    turned = Pool(pool.question, passages, dict(lists), ENCODER)
    assert {place.id: place.score for place in rank(turned, weights)} == expected
    first = score_by_lists([find_ranks(places, pool.places) for _, places in lists], len(passages))
    assume(len({*first.tolist()}) == len(passages))
    rng.shuffle(passages)
    shuffled = Pool(pool.question, passages, dict(lists), ENCODER)
    assert {place.id: place.score for place in rank(shuffled, weights)} == expected


@given(pools(), st.booleans())
def test_weights_of_nothing_keep_the_order_of_the_pool(pool: Pool, are_zeros: bool) -> None:
    table = dict.fromkeys(SIGNALS, 0) if are_zeros else {}
    ranked = rank(pool, RankingWeights(table))
    assert [place.id for place in ranked] == [passage.id for passage in pool.passages]
    assert [place.score for place in ranked] == pytest.approx([1 / len(ranked)] * len(ranked))


@given(pools())
def test_where_nothing_but_a_list_ties_passages_the_ranking_is_the_list(pool: Pool) -> None:
    assume("base" in pool.lists)
    bare = [passage._replace(triples=()) for passage in pool.passages]
    ranked = rank(Pool("?", bare, {"base": pool.lists["base"]}, ENCODER), RankingWeights({"tied": 2.0}))
    assert [place.id for place in ranked] == [*pool.lists["base"]]


@given(pools(), WEIGHTS)
def test_what_leads_to_a_passage_is_a_fact_of_another_best_one(pool: Pool, weights: RankingWeights) -> None:
    company = Company(pool)
    ranked = rank(pool, weights)
    for place in ranked:
        own = pool.places[place.id]
        for link in filter(None, (place.named_by, place.linked_by)):
            assert link.place in company.best and link.place != own
            assert link.triple in pool.passages[link.place].triples and link.entity in link.triple.entities
        assert place.linked_by is None or place.linked_by.entity in pool.contents[own].entities
        assert place.named_by is None or place.named_by.entity in pool.contents[own].topics
        assert ("named" in place.signals, "linked" in place.signals) == (
            place.named_by is not None,
            place.linked_by is not None,
        )
        above = company.order[: company.order.index(own)]
        assert place.leads == [link for link in (place.named_by, place.linked_by) if link and link.place in above]
        assert bool(place.phrases) == ("phrases" in place.signals)
        assert [pool.passages[first].id for first in place.first] == [one.id for one in ranked[:10]]


@given(pools(), WEIGHTS, st.integers(1, 12))
def test_the_first_of_a_ranking_are_those_of_the_whole(pool: Pool, weights: RankingWeights, top_k: int) -> None:
    assert rank(pool, weights, top_k) == rank(pool, weights)[:top_k]
    assert [place.id for place in rank(pool, weights)] == rank_ids(pool, weights)


def test_nothing_is_ranked_as_nothing() -> None:
    assert rank(make_pool("alpha"), RankingWeights.default()) == []
    assert rank_ids(make_pool("alpha"), RankingWeights.default()) == []
    assert rank(make_pool(""), RankingWeights({})) == []


def test_one_passage_has_all() -> None:
    (only,) = rank(make_pool("alpha", make_passage("a", "alpha", ("A", "is", "A"))), RankingWeights.default())
    assert (only.id, only.score, only.named_by, only.linked_by) == ("a", 1.0, None, None)
    assert set(only.shares.values()) == {0.0} and only.leads == []


def test_a_fact_of_the_best_brings_up_what_it_names() -> None:
    """By hand: the list's first passage names the third, whose weighted sum it raises by 30 times its likeness."""
    pool = make_pool(
        "Who founded the maker of Zed?",
        make_passage("maker", "Zed is a product", ("Zed", "has the maker", "Acme")),
        make_passage("other", "Other"),
        make_passage("founder", "Acme was founded by Ada", ("Acme", "founded by", "Ada")),
    )
    likeness = pool.coverage("Zed has the maker Acme") + 0.001
    ranked = rank(pool, RankingWeights({"tied": 1.0, "named": 30.0}))
    sums = {"maker": 1.0, "other": 61 / 62, "founder": 1.0 + 30 * likeness}
    total = math.fsum(map(math.exp, sums.values()))
    assert {place.id: place.score for place in ranked} == pytest.approx(
        {id_: math.exp(s) / total for id_, s in sums.items()}
    )
    assert [place.id for place in ranked] == ["founder", "maker", "other"]
    founder = ranked[0]
    assert founder.named_by is not None and founder.named_by.triple == Triple("Zed", "has the maker", "Acme")
    assert founder.leads == [founder.named_by, founder.linked_by] and ranked[1].leads == []
    assert founder.shares == pytest.approx({"tied": (1 - 61 / 62) / 3, "named": 20 * likeness})
    assert ranked[1].linked_by is not None


def test_a_link_of_the_best_brings_up_one_passage_of_its_page() -> None:
    """The weighted strength is added to the page's best passage, and to nothing else of that page."""
    says = "“Trust the headers behind it as that page says” links to"
    nginx = make_passage("nginx", "Nginx and its headers", ("Nginx", says, "Proxies"))
    others = [make_passage(f"other {number}", f"Headers {number}", ("Other", "is", "x")) for number in range(6)]
    parts = [PoolPassage(f"part {number}", "How many", [], "Proxies", "proxies") for number in range(2)]
    pool = make_pool("Which headers of Nginx can be trusted?", nginx, *others, *parts)
    weights = RankingWeights.default()
    without = RankingWeights({**weights.signals, "page_links": 0.0})
    ranked = {place.id: place for place in rank(pool, weights)}
    before = {place.id: place for place in rank(pool, without)}
    link = ranked["part 0"].page_link
    assert link is not None and (link.place, link.triple, link.entity) == (0, nginx.triples[0], "proxies")
    added = weights.signals["page_links"] * link.likeness
    gains = {id_: math.log(ranked[id_].score / before[id_].score) for id_ in ranked}
    assert added > 1 and gains["part 0"] - gains["part 1"] == pytest.approx(added)
    assert gains["part 1"] == pytest.approx(gains["other 0"])
    assert max(gains, key=gains.__getitem__) == "part 0"
    assert ranked["part 0"].leads[0] is link and ranked["part 1"].page_link is None


@pytest.mark.parametrize("name", SIGNALS)
def test_weights_as_large_as_can_be_rank_too(name: str) -> None:
    passages = [make_passage(str(n), "alpha " * n, ("Ada", "of alpha", f"Bob {n}")) for n in range(3)]
    for lists in (("dense", "bm25", "pagerank"), ("base",)):
        places = [str(n) for n in range(3)]
        for weight in (1e38, -1e38):
            table = {name: weight, "walk": weight}
            ranked = rank(Pool("alpha", passages, dict.fromkeys(lists, places), ENCODER), RankingWeights(table))
            assert math.fsum(place.score for place in ranked) == pytest.approx(1.0)
            assert all(math.isfinite(share) for place in ranked for share in place.shares.values())


def test_passages_are_ranked_whose_text_no_encoding_has() -> None:
    texts = ["alpha \ud800", "\udfff", "alpha 父亲", ""]
    pool = make_pool("alpha \ud800 父亲?", *(make_passage(str(n), text) for n, text in enumerate(texts)))
    ranked = rank(pool, RankingWeights({"new_words": 1.0, "phrases": 1.0}))
    assert ranked[0].id == "2" and math.fsum(place.score for place in ranked) == pytest.approx(1.0)

"""Signals, by values that are computed by hand or by their definitions."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.ranking.pool import MAX_LINK_PASSAGES, Pool, PoolPassage
from llama_index_gear.ranking.signals import Company, Link, find_ranks, order, score_by_lists
from llama_index_gear.ranking.weights import SIGNALS
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.tests.growth import assert_linear
from llama_index_gear.triple import Triple

ENCODER = make_encoder("english", 1.0)
LEAST = 0.001
FILLERS = [PoolPassage(f"filler {number}", "", []) for number in range(4)]
"""Passages without a word, which take the places of the best that a test leaves free."""


def make_passage(passage_id: str, text: str, *facts: tuple[str, str, str]) -> PoolPassage:
    return PoolPassage(passage_id, text, [Triple(*fact) for fact in facts])


def make_pool(question: str, *passages: PoolPassage) -> Pool:
    return Pool(question, [*passages, *FILLERS], {}, ENCODER)


def place_first(pool: Pool, *best: int) -> Company:
    """Return the company of these passages, best first, and of fillers."""
    ids = [passage.id for passage in [*(pool.passages[place] for place in best), *FILLERS]]
    lists = {"pagerank": ids}
    return Company(Pool(pool.question, pool.passages, lists, ENCODER, pool.aliases))


def measure(pool: Pool, *best: int) -> dict[str, list[float]]:
    """Return the signals beside these best passages, but for the fillers'."""
    return {name: values[: -len(FILLERS)].tolist() for name, values in place_first(pool, *best).compare().items()}


# -- lists ------------------------------------------------------------------------------------------------------------

PLACES = {"a": 0, "b": 1, "c": 2}


def test_ranks_of_a_list() -> None:
    """The list has b first and a second; c stands behind its last."""
    assert find_ranks(["b", "a"], PLACES).tolist() == [1, 0, 2]
    assert find_ranks([], PLACES).tolist() == [0, 0, 0] and find_ranks(["a"], {}).tolist() == []


def test_passages_that_the_pool_lacks_keep_their_rank() -> None:
    """A deleted passage still was the first of the list."""
    assert find_ranks(["deleted", "a"], PLACES).tolist() == [1, 2, 2]


def test_a_passage_that_a_list_has_twice_has_its_first_place() -> None:
    twice = ["b", "a", "b"]
    assert find_ranks(twice, PLACES).tolist() == [1, 0, 3]


def test_the_first_score_is_by_all_lists() -> None:
    ranks = [np.array([0.0, 1, 2]), np.array([3.0, 1, 0])]
    assert score_by_lists(ranks, 3) == pytest.approx([-math.log(4), -2 * math.log(2), -math.log(3)])
    assert score_by_lists([], 2).tolist() == [0, 0] and score_by_lists([], 0).tolist() == []


def test_the_same_ranks_in_other_lists_are_the_same_score() -> None:
    """To the last bit: else the order of the lists would decide."""
    for ranks in ([2.0, 4, 6], [10.0, 33, 28], [1.0, 2, 9], [1.0, 3, 4]):
        tables = [np.array(column) for column in zip(*permutations(ranks), strict=True)]
        for lists in permutations(tables):
            assert len(set(score_by_lists(lists, 6).tolist())) == 1


def test_an_order_keeps_equal_scores_in_their_order() -> None:
    assert order(np.array([1.0, 3, 1, 3, 2])) == [1, 3, 4, 0, 2] and order(np.array([])) == []


def test_five_passages_are_the_best_of_all_lists() -> None:
    """Products of 1 + rank: 4 and 5 for the first three, 9, 16, and 25 for what no list has."""
    lists = {"a": ["1", "2", "6", "5"], "b": ["3", "2", "6", "5"]}
    company = Company(Pool("?", [make_passage(str(number), "") for number in range(7)], lists, ENCODER))
    assert company.order == [2, 1, 3, 6, 5, 0, 4] and company.best == company.order[:5]
    assert [*company.compare()] == [*SIGNALS]


# -- words ------------------------------------------------------------------------------------------------------------

WORDS = "alpha beta gamma delta epsilon zeta".split()


def define_words(pool: Pool) -> dict[str, list[float]]:
    """Return the signals of words by their definitions, in plain loops."""
    number = len(pool.passages)
    ranks = [[(*ids, passage.id).index(passage.id) for ids in pool.lists.values()] for passage in pool.passages]
    first = [-math.log(math.prod(1 + rank for rank in of_passage)) for of_passage in ranks]
    counts = [ENCODER.count_words(passage.text) for passage in pool.passages]
    question = ENCODER.split_words(pool.question)
    having = Counter(word for of_passage in counts for word in of_passage)
    rarity = {word: math.log(1 + (number - n + 0.5) / (n + 0.5)) for word, n in having.items()}
    weights = [{word: rarity[word] * f / (f + 1.2) for word, f in of_passage.items()} for of_passage in counts]
    lengths = [math.sqrt(sum(weight**2 for weight in row.values())) or 1.0 for row in weights]
    best = sorted(range(number), key=lambda place: -first[place])[:5]
    links = {word for word, n in having.items() if 2 <= n <= 12} - question

    def compare(one: int, other: int, words: set[int]) -> float:
        both = weights[one].keys() & weights[other].keys() & words
        return sum(weights[one][word] * weights[other][word] for word in both) / lengths[one] / lengths[other]

    def sum_up(place: int, words: set[int]) -> float:
        return sum(compare(place, other, words) / (2 + rank) for rank, other in enumerate(best) if other != place)

    powers = [math.exp(score - max(first)) for score in first]
    asked = {word: rarity[word] / having[word] for word in question & having.keys()}
    passage_start = [power / sum(powers) / 2 for power in powers]
    word_start = {word: asked.get(word, 0.0) / (sum(asked.values()) or 1.0) / 2 for word in having}
    edges = [{word: weight * (0.3 if having[word] > 12 else 1.0) for word, weight in row.items()} for row in weights]
    columns: Counter[int] = Counter()
    for row in edges:
        columns.update(row)
    at_passages, at_words = passage_start, word_start
    for _ in range(12):
        to_words: Counter[int] = Counter()
        for mass, row in zip(at_passages, edges, strict=True):
            to_words.update({word: mass * edge / sum(row.values()) for word, edge in row.items()})
        to_passages = [sum(at_words[word] * edge / columns[word] for word, edge in row.items()) for row in edges]
        at_passages = [(start + come) / 2 for start, come in zip(passage_start, to_passages, strict=True)]
        at_words = {word: (start + to_words[word]) / 2 for word, start in word_start.items()}
    return {
        "shared_words": [sum_up(place, links) for place in range(number)],
        "walk": [math.log(mass / max(at_passages) + 1e-4) for mass in at_passages],
    }


texts = st.lists(st.sampled_from([*WORDS, "the"]), max_size=6).map(" ".join)


@given(texts, st.lists(texts, min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_words_are_compared_as_defined(question: str, drawn: list[str], rng: Any) -> None:
    passages = [make_passage(str(number), text) for number, text in enumerate(drawn)]
    lists = {name: rng.sample([*map(str, range(len(drawn)))], rng.randint(0, len(drawn))) for name in "ab"}
    pool = Pool(question, passages, lists, ENCODER)
    signals = Company(pool).compare()
    for name, expected in define_words(pool).items():
        assert signals[name] == pytest.approx(expected, abs=2e-5), name


@pytest.mark.parametrize("number", [MAX_LINK_PASSAGES, MAX_LINK_PASSAGES + 1])
def test_a_word_of_many_passages_is_no_link_and_counts_less_in_the_walk(number: int) -> None:
    """All of the passages have "alpha", two have "beta" too: a link, unless the question has it."""
    drawn = [f"alpha {'beta' * (n < 2)} word{n} " + "alpha " * n for n in range(number)]
    for question in ("gamma", "beta", "alpha"):
        passages = [make_passage(str(n), text) for n, text in enumerate([*drawn, "gamma"])]
        pool = Pool(question, passages, {"a": [passage.id for passage in passages]}, ENCODER)
        signals = Company(pool).compare()
        for name, expected in define_words(pool).items():
            assert signals[name] == pytest.approx(expected, abs=2e-5), name
        is_link = number <= MAX_LINK_PASSAGES and question != "alpha"
        assert (signals["shared_words"][2] > 0) == is_link
        assert (signals["shared_words"][0] > 0) == (is_link or question != "beta")


def test_two_equal_passages_of_which_one_is_the_best() -> None:
    """By hand: the cosine is 1, and the first of the best counts 1/2; beside itself the best has nothing."""
    signals = measure(make_pool("?", make_passage("a", "alpha beta"), make_passage("b", "beta alpha")), 0)
    assert signals["shared_words"] == pytest.approx([0, 1 / 2])
    signals = measure(make_pool("beta?", make_passage("a", "alpha beta"), make_passage("b", "beta alpha")), 0)
    assert signals["shared_words"] == pytest.approx([0, 1 / 4])


QUESTION = "Where did the father of Stephen play"
STEPHEN = make_passage("stephen", "Stephen, his father", ("Stephen Curry", "has the father", "Dell Curry"))
DELL = make_passage("dell", "Dell could play", ("Dell Curry", "played for", "Hornets"), ("Dell Curry", "born in", "Va"))
HORNETS = make_passage("hornets", "A club", ("Hornets", "founded by", "Shinn"))
CHEESE = make_passage("cheese", "Cheese is made of milk")
POOL = make_pool(QUESTION, STEPHEN, DELL, HORNETS, CHEESE)


def test_new_words_are_those_that_the_two_best_lack() -> None:
    """Stephen's passage has "Stephen" and "father"; Dell's has "play"; a third best passage covers nothing."""
    stephen, dell = POOL.coverage("stephen father"), POOL.coverage("play")
    assert stephen + dell == pytest.approx(1.0) and stephen > dell > 0
    assert measure(POOL, 0, 1)["new_words"] == pytest.approx([stephen, dell, 0, 0])
    assert measure(POOL, 3, 2, 0)["new_words"] == pytest.approx([stephen, dell, 0, 0])
    pool = make_pool(QUESTION, STEPHEN, DELL, STEPHEN._replace(id="again"), CHEESE)
    stephen, dell = pool.coverage("stephen father"), pool.coverage("play")
    assert measure(pool, 0, 3)["new_words"] == pytest.approx([stephen, dell, 0, 0])
    assert measure(pool, 0, 2)["new_words"] == pytest.approx([0, dell, 0, 0])
    assert measure(pool, 0, 3, 1)["new_words"] == pytest.approx([stephen, dell, 0, 0])
    assert measure(pool, 3, 1, 0)["new_words"] == pytest.approx([stephen, dell, stephen, 0])


def test_phrases_are_the_question_s_neighboring_words() -> None:
    """Of "the father", "father of", "of Stephen" and "Stephen play", a passage has the first or the last."""
    pool = make_pool(
        "The father of Stephen, play", make_passage("a", "Is THE Father here?"), make_passage("b", "Stephen-play!"),
        make_passage("c", "the grandfather of Stephenson; stephen or play, father — Stephen"), make_passage("d", ""),
    )  # fmt: skip
    father, stephen, play = (pool.coverage(word) for word in ("father", "stephen", "play"))
    total = 2 * father + 2 * stephen + play
    company = place_first(pool, 0)
    expected = [father / total, (stephen + play) / total, 0, 0]
    assert company.compare()["phrases"][:4] == pytest.approx(expected)
    assert [company.list_phrases(place) for place in range(4)] == [[], ["stephen play"], [], []]


def test_parts_of_the_question_are_as_long_as_they_stand_there() -> None:
    texts = {
        "a": "The father of Stephen Curry's friend",
        "b": "of Stephen, of Stephen: play the",
        "c": "father. Of",
    }
    pool = make_pool("Did the father of Stephen Curry play the flute?", *(make_passage(*one) for one in texts.items()))
    company = place_first(pool, 0)
    assert [company.list_phrases(place) for place in range(3)] == [
        ["father of stephen curry"],
        [],
        [],
    ]


def test_few_short_parts_of_a_long_question_are_listed_in_short_time() -> None:
    """A question that is pasted from a passage had every part of it looked up: 16,000 words took 97 s."""

    def ask(size: int) -> Company:
        question = " ".join(f"w{number}" for number in range(size))
        return place_first(make_pool(question, make_passage("a", question), make_passage("b", "w7 w8, w10")), 0)

    assert_linear(lambda company: company.list_phrases(0), ask, 4_000)
    company = ask(4_000)
    parts = company.list_phrases(0)
    assert [len(part.split()) for part in parts] == [32] * 5 and " ".join(parts).startswith("w0 w1 w2 ")
    assert company.list_phrases(1) == ["w7 w8"]


def test_a_phrase_counts_as_often_as_the_question_has_it_and_once_a_passage() -> None:
    texts = {"a": "alpha beta, alpha beta", "b": "beta", "c": "alpha beta or alpha"}
    pool = make_pool("alpha beta or alpha beta", *(make_passage(*item) for item in texts.items()))
    alpha, beta = pool.coverage("alpha"), pool.coverage("beta")
    share = 2 * (alpha + beta) / (2 * (alpha + beta) + alpha + beta)
    assert measure(pool, 0)["phrases"] == pytest.approx([share, 0, 1])
    assert place_first(pool, 1).list_phrases(0) == ["alpha beta"]


def test_phrases_of_a_pool_that_grew_are_those_of_one_made_at_once() -> None:
    """Its first passages are read for phrases once; the weight of a phrase depends on all passages."""
    question = "alpha beta gamma delta"
    texts = ["alpha beta", "gamma delta, alpha beta", "beta gamma", "none", "alpha beta gamma delta"]
    passages = [make_passage(str(number), text) for number, text in enumerate(texts)]
    few = Pool(question, passages[:2], {"base": ["0", "1"]}, ENCODER)
    before = Company(few).compare()["phrases"].tolist()
    grown = few.extend(passages[2:], {"pagerank": ["4", "2", "3"]})
    at_once = Pool(question, passages, {"base": ["0", "1"], "pagerank": ["4", "2", "3"]}, ENCODER)
    now = Company(grown).compare()["phrases"].tolist()
    assert now == Company(at_once).compare()["phrases"].tolist() and now[:2] != before and min(now[:3]) > 0 == now[3]


def test_neighbors_are_not_of_two_passages() -> None:
    pool = make_pool(
        "alpha beta", make_passage("a", "alpha"), make_passage("b", "beta"), make_passage("c", "alpha beta")
    )
    assert measure(pool, 0)["phrases"] == pytest.approx([0, 0, 1])


# -- facts ------------------------------------------------------------------------------------------------------------


def link_strength(likeness: float, new: float, place: int = 1, passages: int = 2) -> float:
    """Return `linked` of a fact of the best passage at this place, for an entity of so many passages."""
    return math.sqrt((likeness + 0.02) * (new + 0.02) / math.log2(1 + place)) / math.log2(1 + passages)


def test_named_by_the_best_passage() -> None:
    """Stephen's passage is the best. It names Dell, in a fact with "father" and "Stephen" of the question.

    Dell's own fact about him adds "played".
    """
    signals = measure(POOL, 0)
    likeness = POOL.coverage("Stephen Curry has the father Dell Curry") + LEAST
    assert 0.4 < likeness < 1
    assert signals["named"] == pytest.approx([0, likeness, 0, 0])
    assert signals["linked"] == pytest.approx([0, link_strength(likeness, POOL.coverage("played")), 0, 0])
    assert place_first(POOL, 0).named[1] == Link(0, STEPHEN.triples[0], "dell curry", likeness)


def test_of_facts_that_say_as_much_the_first_names() -> None:
    facts = [("Ada", "knew", "Bob"), ("Ada", "met", "Bob")]
    pool = make_pool("Ada", make_passage("a", "Ada", *facts), make_passage("b", "Bob", ("Bob", "is", "here")))
    named = place_first(pool, 0).named[1]
    assert named is not None and named.triple == Triple(*facts[0])


def test_linked_by_what_is_not_the_topic() -> None:
    """Dell's passage is the best: it names Hornets, a topic; and Stephen's names Dell, whom it is about.

    Stephen's fact adds words; that of Hornets adds none.
    """
    signals = measure(POOL, 1)
    likeness = POOL.coverage("Dell Curry played for Hornets") + LEAST
    assert signals["named"] == pytest.approx([0, 0, likeness, 0])
    strengths = [link_strength(likeness, POOL.coverage("Stephen father")), 0, link_strength(likeness, 0), 0]
    assert signals["linked"] == pytest.approx(strengths)


def test_what_two_passages_are_both_about_is_no_link() -> None:
    """Two chunks of one handbook share its title and every fact's subject; a third passage names the handbook."""
    chunks = [
        PoolPassage(name, "", [Triple("The handbook", "says", name)], title)
        for name, title in (("a", "The handbook"), ("b", "The Handbook (2024)"))
    ]
    signals = measure(make_pool("What says the handbook?", *chunks, CHEESE), 0)
    assert signals["named"] == signals["linked"] == [0, 0, 0]
    editor = make_passage("c", "", ("Ada", "wrote", "The handbook"))
    signals = measure(make_pool("What says the handbook?", *chunks, editor), 0, 2)
    assert [value > 0 for value in signals["named"]] == [True, True, False] and signals["linked"][2] > 0


def test_a_linked_alias_names_as_well() -> None:
    """Dell Curry is Wardell Curry: what names the one leads to the other, and passages about both are not linked."""
    passages = [
        make_passage("stephen", "Stephen", ("Stephen", "has the father", "Wardell Curry")),
        make_passage("dell", "Dell", ("Dell Curry", "played for", "Hornets")),
        make_passage("wardell", "Wardell", ("Wardell Curry", "was born in", "Va")),
    ]
    apart = make_pool(QUESTION, *passages)
    joined = apart.extend([], {}, [("dell curry", "wardell curry")])
    signals = measure(apart, 0)
    assert [value > 0 for value in signals["named"]] == [False, False, True] and signals["linked"][1] == 0
    signals = measure(joined, 0)
    assert signals["named"][1] == signals["named"][2] > 0
    assert signals["linked"][1] > signals["linked"][2] > 0  # of Dell's own facts one says "played"
    assert measure(joined, 1)["named"] == [0, 0, 0] and measure(joined, 1)["linked"][2] == 0
    both = make_passage("both", "Both", ("Dell Curry", "is also called", "Wardell Curry"))
    about = make_pool(QUESTION, passages[2], both).extend([], {}, [("dell curry", "wardell curry")])
    assert measure(about, 0)["linked"][1] == 0


def test_a_passage_is_not_compared_with_itself() -> None:
    """The best passage alone has nothing but what is its own; beside a second, it may be named."""
    signals = measure(POOL, 0)
    for name in ("named", "linked", "shared_words"):
        assert signals[name][0] == 0, name
    both = measure(POOL, 0, 1)
    assert both["named"][1] > 0 and both["linked"][0] > 0


def test_in_question_takes_all_words_of_the_name() -> None:
    """The topic is "Stephen Curry", of which the question has one word; a topic of both words stands in it."""
    assert measure(POOL, 0)["in_question"] == [0, 0, 0, 0]
    pool = make_pool("Where is stephen, CURRY?", STEPHEN, CHEESE)
    assert measure(pool, 1)["in_question"] == pytest.approx([pool.coverage("stephen curry"), 0])
    titled = STEPHEN._replace(title="Stephen (player)")
    pool = make_pool("Where is stephen, CURRY, and his game?", titled, CHEESE)
    assert measure(pool, 1)["in_question"][0] == pytest.approx(pool.coverage("stephen curry"))  # not "stephen" alone


@pytest.mark.parametrize("number", [MAX_LINK_PASSAGES, MAX_LINK_PASSAGES + 1])
def test_an_entity_of_many_passages_links_none(number: int) -> None:
    facts = [("Hub", "is", "round")] + [(f"Spoke {n}", "is on", "Hub") for n in range(number - 1)]
    pool = make_pool("?", *(make_passage(str(n), "", fact) for n, fact in enumerate(facts)))
    signals = measure(pool, 1)
    is_link = number <= MAX_LINK_PASSAGES
    assert [bool(signals[name][0]) for name in ("named", "linked")] == [is_link] * 2


def test_a_fact_without_a_word_of_the_question_still_joins() -> None:
    pool = make_pool("zebra", make_passage("a", "", ("A", "is", "B")), make_passage("b", "", ("B", "is", "C")))
    signals = measure(pool, 0)
    assert signals["named"] == pytest.approx([0, LEAST])
    assert signals["linked"] == pytest.approx([0, link_strength(LEAST, 0)])


def test_the_most_similar_fact_links_and_the_rarest_entity_counts_most() -> None:
    pool = make_pool(
        "zebra lion",
        make_passage("a", "", ("A", "saw", "B"), ("A", "saw the zebra with", "B"), ("A", "saw a zebra of", "Common")),
        make_passage("b", "", ("B", "met", "Common")),
        make_passage("c", "", ("C", "met", "Common")),
    )
    company = place_first(pool, 0)
    link, common = company.linked[1], company.linked[2]
    assert link is not None and (link.place, link.entity, link.name) == (0, "b", "B")
    assert link.triple == Triple("A", "saw the zebra with", "B")
    assert common is not None and (common.entity, common.name) == ("common", "Common")
    signals = measure(pool, 0)
    assert signals["linked"][1] == pytest.approx(link_strength(link.likeness, 0))
    assert signals["linked"][2] == pytest.approx(link_strength(common.likeness, 0, passages=3))


def test_a_link_counts_more_for_what_a_fact_about_the_entity_adds() -> None:
    """Of the best passage's facts one names B, the other C. What the best passage says itself adds nothing.

    Nor does a fact that doesn't name the entity, nor the passage's text.
    """
    pool = make_pool(
        "Which zebra saw the lion?",
        make_passage("a", "zebra", ("A", "is a zebra beside", "B"), ("A", "is a zebra beside", "C")),
        make_passage("b", "", ("B", "and a zebra saw a lion with", "D"), ("B", "is", "here")),
        make_passage("c", "saw a lion", ("C", "and a zebra", "E"), ("E", "saw a lion with", "F")),
    )
    signals, said = measure(pool, 0), pool.coverage("zebra") + LEAST
    assert 0 < pool.coverage("zebra") < 1 and pool.coverage("saw lion") > 0.1
    assert signals["linked"][1:] == pytest.approx(
        [link_strength(said, pool.coverage("saw lion")), link_strength(said, 0)]
    )


def test_a_link_of_a_later_passage_counts_less() -> None:
    facts = [("zebra", "met", f"B {number}") for number in range(5)]
    best = [make_passage(f"best {number}", "", fact) for number, fact in enumerate(facts)]
    pool = make_pool("zebra lion", *best, *(make_passage(f[2], "", (f[2], "saw", "a lion")) for f in facts))
    signals = measure(pool, *range(5))
    said, new = pool.coverage("zebra") + LEAST, pool.coverage("lion")
    expected = [link_strength(said, new, place) for place in range(1, 6)]
    assert signals["linked"][5:] == pytest.approx(expected) and expected == sorted(expected, reverse=True)


def test_the_name_of_a_link_is_as_its_fact_writes_it() -> None:
    pool = make_pool(
        "?", make_passage("a", "", ("The ADA", "knows", "Bob")), make_passage("b", "", ("Carl", "of", "the Ada"))
    )
    link = place_first(pool, 0).linked[1]
    assert link is not None and link.name == "The ADA"


def test_the_most_similar_fact_of_all_best_passages_names() -> None:
    pool = make_pool(
        "zebra lion",
        make_passage("a", "", ("A", "saw", "B")),
        make_passage("b", "", ("B", "met", "D")),
        make_passage("c", "", ("C", "saw a zebra of", "B")),
    )
    for best in ((0, 2), (2, 0)):
        named = place_first(pool, *best).named[1]
        assert named is not None and named.place == 2 and measure(pool, *best)["named"][1] == named.likeness


# -- both -------------------------------------------------------------------------------------------------------------


def test_a_passage_is_tied_by_its_place_in_the_first_list() -> None:
    """Of the lists there are, dense counts before the base retriever's, and that before BM25's."""
    passages = [make_passage(name, "") for name in "abc"]
    lists = {"dense": ["b", "a"], "base": ["a"], "bm25": ["c"]}
    near = {"dense": [61 / 62, 1, 0], "base": [1, 0, 0], "bm25": [0, 0, 1]}
    while lists:
        pool = Pool("?", passages, {"pagerank": ["b"], **dict(reversed(lists.items()))}, ENCODER)
        name = next(iter(lists))
        company = Company(pool)
        assert company.first_places == pytest.approx(near[name])
        assert company.compare()["tied"] == pytest.approx(near[name])
        del lists[name]
    company = Company(Pool("?", passages, {"pagerank": ["b"]}, ENCODER))
    assert company.compare()["tied"].tolist() == [0, 0, 0]


def test_a_passage_is_tied_by_a_name_a_link_or_its_words() -> None:
    """Dell is named; Stephen is linked with three times the strength; "play" is a share of the question."""
    signals = measure(POOL, 0)
    assert signals["tied"] == pytest.approx([POOL.coverage("stephen father"), 1, 0, 0])
    signals = measure(POOL, 1)
    weak = POOL.coverage("Dell Curry played for Hornets") + LEAST
    assert 3 * weak / math.log2(3) < POOL.coverage("stephen father") < 1
    assert signals["tied"] == pytest.approx([POOL.coverage("stephen father"), POOL.coverage("play"), 1, 0])
    fan = make_pool(QUESTION, DELL, make_passage("fan", "", ("Fan", "likes", "Hornets")), CHEESE, STEPHEN)
    strength = (fan.coverage("Dell Curry played for Hornets") + LEAST) / math.log2(3)
    assert 0 < 3 * strength < 1
    assert measure(fan, 0)["tied"] == pytest.approx(
        [fan.coverage("play"), 3 * strength, 0, fan.coverage("stephen father")]
    )
    near = make_pool("father?", STEPHEN, make_passage("fan", "", ("Fan", "likes", "Dell Curry")))
    named = near.coverage("has the father") + LEAST
    assert 3 * named / math.log2(3) > 1 == measure(near, 0)["tied"][1]


def test_of_the_facts_that_tie_a_passage_the_strongest_counts() -> None:
    """Each names another entity of it, whichever stands first."""
    facts = [("A", "saw a zebra near", "B"), ("A", "stands beside", "C")]
    for own in (facts, facts[::-1]):
        best = make_passage("best", "zebra", *facts)
        pool = make_pool(
            "Which zebra, crane, heron, lion?", best, make_passage("b", "", *(("D", "met", f[2]) for f in own))
        )
        strength = (pool.coverage("zebra") + LEAST) / math.log2(1 + 2)
        assert 3 * strength < 1 and measure(pool, 0)["tied"][1] == pytest.approx(3 * strength)


# -- links between pages ----------------------------------------------------------------------------------------------

SAYS = "“Behind Nginx, set up proxies, as that page says” links to"


def make_page(passage_id: str, title: str, text: str, *links: tuple[str, str], document: str = "") -> PoolPassage:
    """Make a passage of a document, its own unless another is named, with links: (predicate, target)."""
    triples = [Triple(title, *link) for link in links]
    return PoolPassage(passage_id, text, triples, title, document or passage_id)


def follow(*pages: PoolPassage, question: str = "nginx trust?") -> tuple[Company, dict[str, float]]:
    """Return the company whose list has the pages in this order, which is that of their places, and `page_links`."""
    pool = Pool(question, pages, {"dense": [page.id for page in pages]}, ENCODER)
    company = Company(pool, {"tied": 100.0})
    return company, dict(zip(pool.places, company.compare()["page_links"].tolist(), strict=True))


def test_a_link_counts_for_the_page_and_for_the_passage_that_has_it() -> None:
    """The fourth passage links to the page of the second, and so the second is linked to from place 4."""
    nginx = make_page("nginx", "Nginx", "", (SAYS, "Proxies"))
    others = [make_page("a", "A", ""), make_page("proxies", "Proxies", ""), make_page("b", "B", "")]
    company, strengths = follow(*others, nginx)
    said = math.sqrt(company._pool.coverage(nginx.triples[0].text) / 2 + 0.02)
    assert said > 0.5
    assert strengths == pytest.approx({"a": 0, "proxies": said / 2, "b": 0, "nginx": said / math.sqrt(2)})
    links = [link and link._replace(likeness=0.0) for link in company.page_links]
    link = Link(3, nginx.triples[0], "proxies", 0.0)
    assert links == [None, link, None, link]


def test_a_link_leads_to_one_passage_of_a_page() -> None:
    """The best of the page by the other signals, though all are about it; none of the page that has the link."""
    nginx = make_page("nginx", "Nginx", "", (SAYS, "Proxies"))
    parts = [make_page(f"part {number}", "Proxies", "", document="proxies") for number in range(3)]
    _, strengths = follow(nginx, *parts)
    assert strengths["part 0"] > 0 == strengths["part 1"] == strengths["part 2"]
    own = [part._replace(document="nginx") for part in parts]
    assert set(follow(nginx, *own)[1].values()) == {0}


def test_a_link_to_a_section_leads_to_the_passage_with_its_heading() -> None:
    """Not to one that only has its words; to the best of the page, if none has it, which takes it in any case."""
    texts = [
        "- Trusted Hosts",
        "## Hosts\n\nOf trusted hosts.",
        "Words.\n\n## Trusted `Hosts` {#t}\n\nMore.",
        "## Trust",
    ]
    parts = [make_page(f"{number}", "Proxies", text, document="p") for number, text in enumerate(texts)]
    for heading, number in (("Trusted Hosts", "2"), ("Hosts", "1"), ("Trust", "3"), ("Trusted", "2"), ("Else", "0")):
        nginx = make_page("nginx", "Nginx", "", (f"{SAYS} “{heading}” in", "Proxies"))
        _, strengths = follow(nginx, *parts, question="nginx behind?")
        assert {id_ for id_ in strengths if strengths[id_] > 0} == {"nginx", "0", number}, heading
        assert strengths["0"] == pytest.approx(strengths[number]), heading


def test_a_link_counts_for_the_best_passage_too_of_the_page_that_has_it() -> None:
    proxies, parts = make_page("proxies", "Proxies", ""), [make_page(f"{n}", "Nginx", "", document="n") for n in "abc"]
    linking = make_page("d", "Nginx", "", (SAYS, "Proxies"), document="n")
    company, strengths = follow(proxies, *parts, linking)
    assert strengths["d"] > 0 and strengths == pytest.approx({**strengths, "a": strengths["d"], "b": 0, "c": 0})
    assert company.page_links[1] == Link(4, linking.triples[0], "proxies", strengths["a"])
    apart = [page._replace(document="") for page in (*parts, linking)]  # passages of no document are no page
    assert follow(proxies, *apart)[1] == pytest.approx({**strengths, "a": 0})


def test_a_link_is_the_stronger_the_more_one_end_adds_to_the_other() -> None:
    """Words of the question that both ends have add nothing."""
    for first, second, new in (("", "", ""), ("", "trust", "trust"), ("trust", "trust", ""), ("trust", "", "")):
        nginx = make_page("nginx", "Nginx", first, ("“See there” links to", "Proxies"))
        company, strengths = follow(nginx, make_page("proxies", "Proxies", second), make_page("a", "A", "Nginx"))
        said = company._pool.coverage(nginx.triples[0].text), company._pool.coverage(new)
        assert strengths["proxies"] == pytest.approx(math.sqrt(math.fsum(said) / 2 + 0.02))
        assert said[0] > 0 and (said[1] > 0) == (new != "")


def test_what_a_link_says_and_the_place_of_the_other_end_make_it_strong() -> None:
    ends = [make_page("one", "One", ""), make_page("two", "Two", "")]
    silent, name = "“See there” links to", "“See nginx there” mentions"  # a name alone is no link
    _, strengths = follow(make_page("a", "A", "", (SAYS, "One"), (silent, "Two")), *ends)
    assert strengths["two"] == pytest.approx(math.sqrt(0.02)) and strengths["one"] > strengths["two"]
    _, named = follow(make_page("a", "A", "", (name, "One")), *ends)
    assert set(named.values()) == {0}
    fillers = [make_page(f"filler {number}", f"Filler {number}", "") for number in range(19)]
    last = make_page("last", "Last", "", (SAYS, "One"))
    for number in (18, 19):  # the twentieth place counts, and no later one
        _, strengths = follow(*fillers[:number], make_page("two", "Two", ""), last, ends[0])
        assert (strengths["one"] > 0) == (number == 18)


def test_a_page_is_known_by_its_other_names() -> None:
    pages = [make_page("a", "A", "", (SAYS, "Reverse proxies")), make_page("proxies", "Proxies", "")]
    assert follow(*pages)[1]["proxies"] == 0
    pool = Pool("nginx?", pages, {"dense": ["a"]}, ENCODER).extend([], {}, [("proxies", "reverse proxies")])
    assert Company(pool).compare()["page_links"][1] > 0


# -- what users give --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["the of and", "?", "", "谁是导演", "\ud800", "word " * 500])
def test_questions_without_known_words_give_numbers(question: str) -> None:
    signals = measure(make_pool(question, STEPHEN, DELL, CHEESE, make_passage("empty", "")), 0, 1)
    assert all(math.isfinite(value) for values in signals.values() for value in values)
    assert signals["new_words"] == signals["phrases"] == signals["in_question"] == [0, 0, 0, 0]
    assert signals["named"] == pytest.approx([0, LEAST, 0, 0]) and signals["tied"] == pytest.approx(
        [0.00189, 1, 0, 0], abs=1e-5
    )


def test_scripts_without_spaces_share_pairs_of_letters() -> None:
    passages = [make_passage("a", "斯蒂芬的父亲是谁"), make_passage("b", "他的父亲是戴尔"), make_passage("c", "奶酪")]
    signals = measure(make_pool("谁的儿子?", *passages), 0)
    assert signals["shared_words"][1] > signals["shared_words"][2] == 0
    assert signals["walk"][0] > signals["walk"][1] > signals["walk"][2]


def test_half_characters_separate_words() -> None:
    passages = [
        make_passage("a", "alpha\ud800beta"),
        make_passage("b", "beta \udfff alpha"),
        make_passage("c", "\ud800"),
    ]
    signals = measure(make_pool("alpha \ud800 beta", *passages), 0)
    assert signals["phrases"] == pytest.approx([1, 0, 0])
    assert measure(make_pool("\ud800", *passages), 0)["shared_words"] == pytest.approx([0, 1 / 2, 0])


def test_a_passage_alone() -> None:
    pool = Pool("alpha beta", [make_passage("a", "alpha beta", ("Alpha", "is", "Beta"))], {}, ENCODER)
    signals = {name: values.item() for name, values in Company(pool).compare().items()}
    none = dict.fromkeys(("shared_words", "linked", "named", "page_links"), 0)
    some = {"new_words": 1, "phrases": 1, "in_question": 0.5, "tied": 1, "walk": math.log(1 + 1e-4)}
    assert signals == pytest.approx({**none, **some})


def test_many_links_to_passages_of_one_title_are_followed_in_short_time() -> None:
    """The passages of that title were put in order for each link."""
    links = [Triple("Hall", f"“See it, {number}.” links to", "Yard") for number in range(5)]

    def ask(size: int) -> Company:
        passages = [PoolPassage(str(number), f"w{number}", links, "Yard") for number in range(size)]
        return Company(Pool("See it?", passages, {"base": [passage.id for passage in passages]}, ENCODER))

    assert_linear(lambda company: vars(Company)["page_links"].func(company), ask, 2_400)


def test_passages_of_linked_names_are_counted_in_short_time() -> None:
    """Each name was looked for among all names of each passage."""

    def ask(size: int) -> Pool:
        facts = [Triple(f"A{number}", "is", f"B{number}") for number in range(size)]
        aliases = [(f"a{number}", f"b{number}") for number in range(size)]
        return make_pool("?", PoolPassage("a", "", facts)).extend([], {}, aliases)

    assert_linear(lambda pool: replace(pool).entity_passages, ask, 4_000)

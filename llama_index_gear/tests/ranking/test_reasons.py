"""Reasons: every one holds for the passage that it is given for, and tells a reader something."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.ranking.pool import Pool, PoolPassage
from llama_index_gear.ranking.question_words import spell
from llama_index_gear.ranking.ranker import Ranked, rank
from llama_index_gear.ranking.reasons import _names, build_chain, explain_place, list_ranks
from llama_index_gear.ranking.weights import SIGNALS, RankingWeights
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.triple import Triple, serialize_triples

ENCODER = make_encoder("english", 1.0)
PASSAGES = {
    "stephen": ("Stephen, his father", [("Stephen Curry", "has the father", "Dell Curry")]),
    "dell": ("Dell Curry could play", [("Dell Curry", "played for", "Hornets"), ("Dell Curry", "is", "tall")]),
    "hornets": ("A club", [("Hornets", "were founded by", "Shinn")]),
    "fan": ("He cheers", [("Fan", "likes", "Dell Curry")]),
    "milk": ("Milk of Tuscany", [("Milk", "is", "white")]),
    "cheese": ("Cheese is made of it", []),
}
QUESTION = "Where did the father of Stephen play, and what is milk?"
EQUAL = RankingWeights(dict.fromkeys(SIGNALS, 1.0))
BY_FACTS = RankingWeights({"named": 1e3, "linked": 1e3})
FACT = "Stephen Curry — has the father — Dell Curry"
BESIDE = "which stands beside “father” and “Stephen” of the question in another passage"


def make_pool(*names: str, question: str = QUESTION) -> Pool:
    passages = [PoolPassage(name, PASSAGES[name][0], [Triple(*fact) for fact in PASSAGES[name][1]]) for name in names]
    return Pool(question, passages, {"base": [*names]}, ENCODER)


POOL = make_pool(*PASSAGES)


def find(pool: Pool, passage_id: str, weights: RankingWeights = EQUAL) -> Ranked:
    (found,) = [ranked for ranked in rank(pool, weights) if ranked.id == passage_id]
    return found


def explain(passage_id: str, weights: RankingWeights = EQUAL, pool: Pool = POOL) -> dict[str, str]:
    """Return signal → reason, but for the lists that a passage is in where no signal of a list has a weight."""
    reasons = {one["signal"]: one["reason"] for one in explain_place(pool, find(pool, passage_id, weights))}
    if weights.signals.keys().isdisjoint({"walk", "tied"}):
        found = reasons.pop("tied", "")
        is_alone = reasons.keys() <= {"phrases", "new_words"} and list_ranks(pool, passage_id)
        assert found.startswith("found by ") == bool(is_alone)
    return reasons


def test_reasons_in_words() -> None:
    weights = RankingWeights({name: 1.0 for name in SIGNALS if name != "walk"})
    assert explain("dell", weights) == {
        "named": f"speaks of “Dell Curry”, which another passage names: {FACT}",  # "linked" would say it again
        "new_words": "has “play” of the question",
    }
    assert explain("dell", RankingWeights({"linked": 9.0})) == {"linked": f"names “Dell Curry”, {BESIDE}: {FACT}"}
    milk = explain("milk", weights)
    assert milk["in_question"] == "names “Milk”, as the question does"
    assert milk["new_words"] == "has “milk” of the question"
    stephen = "found by your retriever (place 1); has “father” and “Stephen” of the question"
    assert explain("stephen", RankingWeights({"tied": 9.0})) == {"tied": stephen}


def test_reasons_by_words() -> None:
    texts = {"a": "Alpha beta gamma", "b": "Beta, gamma?", "c": "beta", "d": "zeta", "e": "", "f": "eta theta"}
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    base = {"base": [*texts]}
    pool = Pool("zeta? eta theta", passages, base, ENCODER)
    weights = RankingWeights({"shared_words": 9.0, "walk": 9.0})
    assert find(pool, "b", weights).shares["shared_words"] > 0.05  # which says nothing
    assert explain("b", weights, pool) == {"walk": "found by your retriever (place 2)"}
    others = [PoolPassage("g", "gamma", []), *(PoolPassage(f"empty-{number}", "", []) for number in range(30))]
    far = Pool("zeta", [*passages, *others], {"base": [*texts, *(passage.id for passage in others)]}, ENCODER)
    assert find(far, "g", RankingWeights({"walk": 9.0})).shares["walk"] > 0.05
    assert [*explain("g", RankingWeights({"walk": 9.0}), far)] == ["tied"]  # words led there, no list
    phrases = {"phrases": "has “eta theta” of the question"}
    assert explain("f", RankingWeights({"phrases": 9.0}), pool) == phrases
    assert explain("f", RankingWeights({"phrases": 9.0, "new_words": 9.0}), pool) == phrases  # the same words
    more = Pool("zeta? eta theta zebra", [*passages[:5], PoolPassage("f", "eta theta zebras", [])], base, ENCODER)
    weights = RankingWeights({"phrases": 9.0, "new_words": 9.0})
    assert explain("f", weights, more) == phrases  # “zebras” are not in the question
    more = Pool("Zebras? “Eta”-Theta?", more.passages, base, ENCODER)
    phrases = {"phrases": "has “Eta-Theta” and “Zebras” of the question"}
    assert explain("f", weights, more) == phrases
    (found,) = [one["reason"] for one in explain_place(more, find(more, "f", weights)) if one["signal"] == "tied"]
    assert found == "found by your retriever (place 6)"
    placed = explain_place(more, find(more, "f", RankingWeights({"phrases": 0.3, "tied": 9.0})))
    assert [one["signal"] for one in placed] == ["tied", "phrases"]
    (found,) = explain_place(more, find(more, "f", RankingWeights({})))
    assert found["reason"] == "found by your retriever (place 6); has “Eta-Theta” and “Zebras” of the question"
    long = f"eta {'e' * 1_500}"
    pool = Pool(long, [*passages, PoolPassage("g", long, [])], {"base": [*texts, "g"]}, ENCODER)
    assert len(explain("g", RankingWeights({"phrases": 9.0}), pool)["phrases"]) < 250


def test_pieces_of_addresses_are_not_quoted() -> None:
    address = "https://archive.org/creators www.creators.org ada@creators.org"
    others = {name: f"alpha {' '.join(name * length for length in range(2, 7))}" for name in "cdefg"}
    texts = {"a": f"alpha {address} beta biz", "b": f"alpha {address} beta biz", **others}
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    far = Pool("creators?", passages[1:], {"base": [*"cdefgb"]}, ENCODER)
    asked = RankingWeights({"new_words": 9.0})
    assert find(far, "b", asked).shares["new_words"] > 0.05 and explain("b", asked, far) == {}


def test_words_beside_addresses_and_in_links_are_quoted() -> None:
    texts = {
        "a": "zeta",
        "b": "[refund](https://x.org/a_(b)/store)policy <ada@shop.org>ada, (www.crane.org)grease (ssh://yard) "
        "_Team Fortress 2_",
        "c": "kappa",
    }
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    for question, quoted in (
        ("Refund policy?", "“policy” and “Refund”"),
        ("Buy refunds, a policy?", "“policy”"),
        ("Grease, Ada?", "“Ada” and “Grease”"),
        ("store shop crane yard?", ""),
        ("Team Fortress 2?", "“Team Fortress 2”"),
    ):
        pool = Pool(question, passages, {"base": [*texts]}, ENCODER)
        words = f"; has {quoted} of the question" if quoted else ""
        assert explain("b", RankingWeights({"tied": 9.0}), pool)["tied"] == f"found by your retriever (place 2){words}"


def test_words_that_say_nothing_are_not_quoted() -> None:
    """Function words, words that fit any subject, and short numbers, in phrases, too.

    Nor are words that most of a large pool has, and names that it writes as one word or two.
    """
    texts = {"a": "Refunds since May", "b": "Also a new Steam refund, Li Hua could 3", "c": "kappa"}
    others = {str(number): "Steam, LiHua" for number in range(13)} | {"d": "Li Hua"}
    for more, question, quoted in (
        ({}, "Since new, also refund?", "“refund”"),
        ({}, "Steam refund?", "“Steam refund”"),
        (others, "Steam refund?", "“Steam refund”"),
        (others, "Steam?", ""),
        (others, "Li Hua?", ""),
        ({}, "Li Hua?", "“Li Hua”"),
        ({}, "Could PS 3?", ""),
        (others, "Also a new thing?", ""),
    ):
        passages = [PoolPassage(name, text, []) for name, text in (texts | more).items()]
        pool = Pool(question, passages, {"base": [*texts, *more]}, ENCODER)
        for signals in ({"tied": 9.0}, {"new_words": 99.0, "phrases": 99.0}):
            reasons = explain_place(pool, find(pool, "b", RankingWeights(signals)))
            said = "".join(one["reason"] for one in reasons)
            assert (f"has {quoted} of the question" in said) == bool(quoted) and ("has" in said) == bool(quoted)
    german = Pool("New Refund?", passages, {"base": [*texts]}, make_encoder("german", 1.0))
    assert "“New”" in explain("b", RankingWeights({"tied": 9.0}), german)["tied"]


def make_list(question: str, asked: dict[int, str], *, length: int = 40) -> Pool:
    """Make a pool of one list of passages with a word of their own each, and what else some of them say."""
    passages = [PoolPassage(str(number), f"x{number} {asked.get(number, '')}", []) for number in range(length)]
    return Pool(question, passages, {"bm25": [passage.id for passage in passages]}, ENCODER)


@pytest.mark.parametrize(
    ("places", "is_quoted"),
    [
        ({1, 2, 3, 4}, True),
        ({1, 2, 3, 4, 20}, True),
        ({1, 2, 3, 11, 19, 24}, False),  # scattered
        ({1, 30, 31, 32}, False),
        ({1}, False),  # no other passage tells what it is worth
    ],
)
def test_a_word_is_quoted_that_leads_its_list(places: set[int], is_quoted: bool) -> None:
    """A rare name is, wherever it stands; twelve passages tell nothing about a word."""
    tied = RankingWeights({"tied": 9.0})
    for word, length, is_said in (("made", 40, is_quoted), ("Bern", 40, True), ("made", 12, True)):
        pool = make_list(f"{word}?", dict.fromkeys(places, word), length=length)
        said = "; has “made” of the question" if word == "made" else "; has “Bern” of the question"
        assert explain("1", tied, pool)["tied"] == f"found by its words (place 2){said * is_said}"


def test_a_word_that_most_of_a_pool_has_is_not_quoted_though_it_leads() -> None:
    pool = make_list("Steam?", {number: "Steam" for number in [*range(10), *range(20, 36)]})
    assert pool.is_topical("steam", 1) and explain("1", RankingWeights({"tied": 9.0}), pool)["tied"].endswith("2)")


def test_a_part_of_a_longer_word_or_name_is_not_quoted() -> None:
    for question, text, more, quoted in (
        ("A cross-platform game?", "cross", "", ""),
        ("In October 2013?", "October", "", ""),
        ("In October 2013?", "2013", "", "2013"),
        ("Who, Ada or Bo?", "Ada", "Ada, Bo", "Ada"),
    ):
        pool = Pool(question, [PoolPassage("a", text, []), PoolPassage("b", more, [])], {"bm25": ["a"]}, ENCODER)
        said = f"; has “{quoted}” of the question" if quoted else ""
        assert explain("a", RankingWeights({"tied": 9.0}), pool)["tied"] == f"found by its words (place 1){said}"


def test_a_part_of_a_name_is_quoted_that_leads_or_stands_for_it() -> None:
    for places, more, is_quoted in (
        ({1, 2, 3, 4}, "Simon Carless", True),
        ({1, 11, 12, 13}, "Simon Carless", False),
        ({1, 11, 12, 13}, "Simon and Carless", True),
    ):
        pool = make_list("What did Simon Carless say?", dict.fromkeys(places, "Carless") | {30: more})
        said = "; has “Carless” of the question" * is_quoted
        assert explain("1", RankingWeights({"tied": 9.0}), pool)["tied"] == f"found by its words (place 2){said}"


def test_what_leads_by_its_words_leads_by_its_meaning_too() -> None:
    for meant, is_quoted in (({1, 2, 3}, True), ({1, 20, 21, 30}, False), (set(), False)):
        pool = make_list("made?", dict.fromkeys((1, 2, 3, 4), "made"))
        others = [PoolPassage(f"m{number}", "made" if number in meant else "", []) for number in range(40)]
        pool = pool.extend(others, {"dense": [other.id for other in others]})
        assert ("made" in explain("1", RankingWeights({"tied": 9.0, "new_words": 9.0}), pool)["tied"]) == is_quoted


def test_lists_that_have_a_passage_far_down_are_not_said_beside_others() -> None:
    ids = [str(number) for number in range(40)]
    passages = [PoolPassage(name, f"x{name}", []) for name in ids]
    for shift, said in ((3, "its meaning (place 4)"), (20, "names that other passages share (place 11)")):
        lists = {"dense": [*ids[-shift:], "0", *ids[1:-shift]], "pagerank": [*ids[1:11], "0"]}
        pool = Pool("Who?", passages, lists, ENCODER)
        assert explain("0", RankingWeights({"tied": 9.0}), pool)["tied"] == f"found by {said}"


def test_names_that_few_passages_share_are_said_where_they_found_a_passage() -> None:
    facts = {"0": ("Ada", "met", "Bo"), "1": ("Bo", "saw", "Cy"), "2": ("Cy", "knew", "pie"), "3": ("pie", "is", "Cy")}
    facts |= {str(number): ("Ada", "met", f"X{number}") for number in range(4, 20)}
    passages = [PoolPassage(name, f"x{name}", [Triple(*slots)]) for name, slots in facts.items()]
    pool = Pool("Who?", passages, {"pagerank": [*facts]}, ENCODER)
    for name, said in (("0", "what other passages say of “Bo”"), ("9", "names that other passages share")):
        found = f"found by {said} (place {int(name) + 1})"
        assert explain(name, RankingWeights({"tied": 9.0}), pool)["tied"] == found
    weights = RankingWeights({"tied": 9.0})
    assert "“Cy” (place 3)" in explain("2", weights, pool)["tied"]  # "pie" is no name
    pages = [passage._replace(document="page" if passage.id in "123" else "") for passage in passages]
    assert "names that" in explain("2", weights, Pool("Who?", pages, {"pagerank": [*facts]}, ENCODER))["tied"]
    longer = {"a": ("Ann Lee", "met", "Lee"), "b": ("Ann Lee", "saw", "May 5"), "c": ("Lee", "left", "May 5")}
    passages = [PoolPassage(name, name, [Triple(*slots)]) for name, slots in longer.items()]
    pool = Pool("Who?", passages, {"pagerank": [*longer]}, ENCODER)
    found_by = [explain(name, weights, pool)["tied"] for name in longer]
    assert [reason.count("“") for reason in found_by] == [1, 1, 1] and not any("May" in reason for reason in found_by)


def test_a_name_is_a_reason_beside_words_of_the_question() -> None:
    """The words stand in what is quoted; a name that the question has is no link."""
    passages = [
        PoolPassage("a", "x", [Triple("Ada", "met", "Bo")]),
        PoolPassage("b", "y", [Triple("Bo", "is", "tall")]),
    ]
    passages.append(PoolPassage("c", "z", [Triple("Carl", "knows", "Bo")]))
    for question, signals in (("Who met?", {"linked"}), ("Who saw?", set()), ("Who met Bo?", set())):
        pool = Pool(question, passages, {"base": [*"abc"]}, ENCODER)
        assert explain("c", BY_FACTS, pool).keys() == signals
        assert explain("b", BY_FACTS, pool).keys() == ({"named"} if "met" in question else set())


def test_a_speaker_of_most_passages_is_no_reason() -> None:
    """What the question names as a title is."""
    facts = [Triple("Ada", "met", "Bo")]
    for title, said in (("", {}), ("Ada", {"in_question": "is about “Ada”, which the question names"})):
        passages = [PoolPassage(str(number), "Ada spoke", facts, title) for number in range(14)]
        pool = Pool("What says Ada?", passages, {"base": [passage.id for passage in passages]}, ENCODER)
        weights = RankingWeights({"in_question": 9e3})
        pool = pool.extend([PoolPassage("x", "", [])], {})
        assert explain("3", weights, pool) == said


def test_a_name_that_the_question_has_is_not_quoted_once_more() -> None:
    passages = [PoolPassage(name, f"{name} zeta", [], name) for name in ("Eta theta", "kappa", "iota")]
    said = {"in_question": "is about “Eta theta”, which the question names"}
    found = "found by your retriever (place 1)"
    for question, more in (
        ("Eta theta?", {}),
        ("Eta theta zeta?", {"phrases": "has “Eta theta zeta” of the question"}),
    ):
        pool = Pool(question, passages, {"base": ["Eta theta", "kappa"]}, ENCODER)
        assert explain("Eta theta", RankingWeights({"in_question": 9.0, "phrases": 9.0}), pool) == said | more
        both = explain("Eta theta", RankingWeights({"in_question": 9.0, "tied": 9.0}), pool)
        assert both["in_question"] == said["in_question"] and both["tied"].startswith(found)
        assert ("zeta" in both["tied"]) == bool(more)


def test_a_part_of_a_name_is_not_what_the_question_names() -> None:
    """And what links a passage to another one is not said once more."""
    facts = [Triple("Real Madrid", "Real Madrid beat Madrid FC.", "Madrid FC"), Triple("Madrid", "is", "large")]
    facts.append(Triple("Madrid", "saw", "Bo"))
    passages = [PoolPassage("a", "", [Triple("Ada", "saw", "Real Madrid")]), PoolPassage("b", "Real Madrid", facts)]
    passages.append(PoolPassage("c", "kappa", []))
    weights = RankingWeights({"phrases": 9.0, "in_question": 9.0, "linked": 9.0})
    for question, signals in (
        ("Who coached Real Madrid?", {"phrases"}),
        ("Who saw Madrid?", {"in_question", "linked"}),
    ):
        pool = Pool(question, passages, {"base": [*"abc"]}, ENCODER)
        assert explain("b", weights, pool).keys() == signals


def test_a_phrase_stands_in_one_sentence() -> None:
    texts = {"a": "zeta", "b": "Through Steam, users will. A user-base: 2\nbeta", "c": "kappa"}
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    for question, phrases in (
        ("Steam users?", set()),
        ("Steam, users?", {"“Steam, users”"}),
        ("User base?", {"“User base”"}),
        ("2 beta?", {"“2 beta”"}),
        ("A user? A user base?", {"“user base”"}),
    ):
        pool = Pool(question, passages, {"base": [*texts]}, ENCODER)
        seen = explain("b", RankingWeights({"phrases": 99.0}), pool).values()
        assert {*seen} == {f"has {phrase} of the question" for phrase in phrases}


def test_a_web_address_is_no_name() -> None:
    for name, is_said in (("https://a.example/b", False), ("a.example", True)):
        pool = make_pair(Triple("Ada", "wrote", name), Triple("Carl", "read", name))
        assert ("linked" in explain("b", RankingWeights({"linked": 999.0}), pool)) == is_said


def test_another_part_of_a_document_is_no_other_passage() -> None:
    facts = {"a": [Triple("Ada", "met", "Bo")], "b": [Triple("Carl", "knows", "Bo")]}
    passages = [PoolPassage(name, "", facts[name], "Page", "page") for name in "ab"] + [PoolPassage("c", "", [])]
    pool = Pool("Whom met?", passages, {"base": [*"abc"]}, ENCODER)
    weights = RankingWeights({"linked": 999.0})
    beside = "which stands beside “met” of the question in another part of the document"
    assert explain("b", weights, pool) == {"linked": f"names “Bo”, {beside}: Ada — met — Bo"}
    assert build_chain(pool, find(pool, "b", weights)) == []


def test_a_sentence_without_its_subject_leads_nowhere_unless_a_title_says_it() -> None:
    """A speaker stands in front of what is said."""
    said = Triple("Thane", "Hydration helps Bo too!", "Bo")
    passages = [PoolPassage("a", "", [said]), PoolPassage("b", "", [Triple("Carl", "knows", "Bo")])]
    cases = {
        ("", "Thane: Hydration"): 0,
        ("Thane (cook)", ""): 2,
        ("", "Thane cooks. Hydration"): 2,
        ("", "It is noon.\nDoc-Eve: Thane cooks. Hydration"): 0,
    }
    for (title, text), length in cases.items():
        pool = Pool("?", [passages[0]._replace(title=title, text=text), passages[1]], {"base": ["a", "b"]}, ENCODER)
        assert len(build_chain(pool, find(pool, "b"))) == length
    own = Triple("Bo", "Welcome to Bern!", "Bern")
    met = Triple("Ada", "met", "Bo")
    for triples in ([own], [own, Triple("Bo", "lives in", "Bonn")]):
        pool = Pool("?", [PoolPassage("a", "", [met]), PoolPassage("b", "", triples)], {"base": ["a", "b"]}, ENCODER)
        assert [met, *triples[1:]] == [Triple(*fact) for fact in build_chain(pool, find(pool, "b"))]


def test_words_of_a_script_whose_words_cannot_be_told_apart_are_not_quoted() -> None:
    for question, text in (("พระนเรศวรเกิดที่ไหน", "พระนเรศวรเกิดที่พิษณุโลก"), ("父亲是谁", "他的父亲")):
        passages = [PoolPassage("a", "", []), PoolPassage("b", text, [])]
        pool = Pool(question, passages, {"base": ["a"]}, ENCODER)
        reason = explain("b", RankingWeights({"new_words": 9.0}), pool)["new_words"]
        assert reason == "has words of the question"


def test_a_passage_is_called_by_its_title() -> None:
    """It is about that, and another one is named by it; a title is what two passages share, or not."""
    passages = [
        PoolPassage(
            "a", "Ada acted", [Triple("Ada", "acted in", "Hornets"), Triple("Ada", "met", "Bo")], "Ada (actor)"
        ),
        PoolPassage("film", "A film", [Triple("Bo", "played with", "Ada")], "Hornets (film)"),
        PoolPassage("b", "", [Triple("Carl", "knows", "Bo")]),
    ]
    pool = Pool("Who made Hornets?", passages, {"base": ["a", "b", "film"]}, ENCODER)
    film = explain("film", pool=pool)
    assert film["in_question"] == "is about “Hornets”, which the question names" and "named" not in film
    unasked = Pool("Who made it?", pool.passages, pool.lists, ENCODER)
    named = "is about “Hornets”, which “Ada (actor)” names: Ada — acted in — Hornets"
    assert explain("film", BY_FACTS, unasked)["named"] == named
    weights = RankingWeights({"linked": 99.0})
    assert (
        explain("film", weights, pool)["linked"]
        == "names “Ada”, which another passage is about: Ada — acted in — Hornets"
    )
    both = Pool("Who met?", [passages[0], passages[2]], {"base": []}, ENCODER)
    beside = "which stands beside “met” of the question in “Ada (actor)”"
    assert explain("b", weights, both)["linked"] == f"names “Bo”, {beside}: Ada — met — Bo"
    assert build_chain(pool, find(pool, "film")) == [["Ada", "acted in", "Hornets"]]


def test_a_link_is_said_to_be_one() -> None:
    """With the sentence around it, which may be long, and where it leads; a known name is named."""
    long = f"Grease is kept {'in tins of lead ' * 20}beside the crane"
    crane = PoolPassage("crane", "", [Triple("North Crane", "is", "tall")], "North Crane")
    for predicate, title, verb, said in (
        ("“See it.” links to", "Yard", "which “Yard” links to", "“See it.” links to North Crane"),
        (
            "“North Crane is near.” links to",
            "",
            "which another passage links to",
            "“North Crane is near.” links to North",
        ),
        (f"“{long}” links to", "Yard", "which “Yard” links to", "beside the crane” links to North Crane"),
        ("“The north crane.” mentions", "Yard", "which “Yard” names", "“The north crane.” mentions North Crane"),
    ):
        yard = PoolPassage("yard", "Grease", [Triple("Hall", predicate, "North Crane")], title)
        pool = Pool("Where is grease?", [yard, crane], {"base": ["yard", "crane"]}, ENCODER)
        named = explain("crane", BY_FACTS, pool)["named"]
        assert named.startswith(f"is about “North Crane”, {verb}: “") and said in named and len(named) < 300


def test_the_reason_is_the_topic_that_is_named() -> None:
    """The page is about its title and about its facts' subject; only the second is named, and asked for."""
    page = PoolPassage("page", "", [Triple("Hornets", "were founded by", "Shinn")], "Handbook")
    base = {"base": ["a", "b", "page"]}
    others = [PoolPassage("a", "Ada", [Triple("Ada", "acted in", "Hornets")]), PoolPassage("b", "Milk", [])]
    asked = explain("page", pool=Pool("Who made Hornets?", [*others, page], base, ENCODER))
    assert asked["in_question"] == "names “Hornets”, as the question does" and "named" not in asked
    named = explain("page", pool=Pool("Who acted?", [*others, page], base, ENCODER))["named"]
    assert named == "speaks of “Hornets”, which another passage names: Ada — acted in — Hornets"


def make_pair(fact: Triple, *own: Triple, text: str = "x") -> Pool:
    """Make a pool whose first passage states a fact, and whose second states others."""
    passages = [PoolPassage("a", text, [fact]), PoolPassage("b", "y", own), PoolPassage("c", "z", [])]
    return Pool("Which Server or adviser knows Ada?", passages, {"base": ["a", "b", "c"]}, ENCODER)


@pytest.mark.parametrize(
    ("fact", "own", "text"),
    [
        (Triple("Bo", "buys PCs of", "PCs"), Triple("Bob", "built", "PCs"), ""),
        (Triple("Server", "has an", "API"), Triple("API", "is by", "Bob"), "APIs"),
        (Triple("API", "the API of", "API"), Triple("Bob", "built the", "API"), ""),
        (Triple("Server", "has an", "API"), Triple("API", "is by", "Bob"), "its api"),
        (Triple("Ada", "works as a", "doctor"), Triple("doctor", "is", "Bob"), ""),
        (Triple("LiHua", "Nice, thanks!", "Nice"), Triple("Nice", "said", "Bob"), "so nice to meet"),
    ],
)
def test_a_common_noun_is_no_reason(fact: Triple, own: Triple, text: str) -> None:
    """One that a passage writes in small letters, or in the plural; nor is a fact that joins a thing with itself."""
    pool = make_pair(fact, own, text=text)
    ranked = find(pool, "b")
    assert ranked.linked_by is not None and ranked.leads
    assert explain("b", BY_FACTS, pool) == {} and build_chain(pool, ranked) == []


@pytest.mark.parametrize(
    ("fact", "own"),
    [
        (Triple("LiHua", "Merry Christmas!", "Merry Christmas"), Triple("Bob", "Bob said it.", "Merry Christmas")),
        (Triple("Ada", "— Bob —", "Bob"), Triple("Carl", "met", "Bob")),
    ],
)
def test_a_sentence_that_is_a_name_alone_is_no_reason(fact: Triple, own: Triple) -> None:
    pool = make_pair(fact, own)
    assert explain("b", BY_FACTS, pool) == {} and build_chain(pool, find(pool, "b")) == []


def test_a_sentence_without_the_shared_name_is_no_reason() -> None:
    """The passage speaks of Hotel California, but its sentence about Hymn says nothing of that; a title does."""
    fact = Triple("Hotel California", "How about we add Hymn?", "Hymn")
    pool = make_pair(fact, Triple("Bob", "Bob sang Hotel California.", "Hotel California"))
    assert explain("b", BY_FACTS, pool) == {}
    assert build_chain(pool, find(pool, "b")) == []
    titled = [PoolPassage("a", "x", [fact], "Hotel California"), *pool.passages[1:]]
    pool = Pool("Ada?", titled, {"base": ["a", "b", "c"]}, ENCODER)
    assert explain("b", BY_FACTS, pool)["linked"] == "names “Hotel California”, which another passage is about"
    assert build_chain(pool, find(pool, "b"))[0] == ["Hotel California", "How about we add Hymn?", "Hymn"]


def test_a_name_is_a_reason_where_no_passage_writes_it_small() -> None:
    pool = make_pair(Triple("Server", "has an", "API"), Triple("API", "is by", "Bob"))
    assert explain("b", BY_FACTS, pool).keys() == {"named"} and len(build_chain(pool, find(pool, "b"))) == 2


def test_a_sentence_is_quoted_and_the_words_between_the_names_stay() -> None:
    sentence = (
        "Richard Feynman, an American theoretical physicist born in New York in the borough of Queens, who played the "
        "bongos and cracked safes in Los Alamos, wrote to his adviser, John Archibald Wheeler, every week"
    )
    pool = make_pair(
        Triple("Richard Feynman", sentence, "John Archibald Wheeler"), Triple("John Archibald Wheeler", "x", "Bo")
    )
    quoted = explain("b", RankingWeights({"linked": 999.0}), pool)["linked"].partition(": ")[2]
    kept = sentence.removeprefix("Richard Feynman, ").removesuffix(", John Archibald Wheeler, every week")
    assert quoted == f"Richard Feynman — … {kept} … — John Archibald Wheeler"
    far = "A poet who wrote of cranes, ships and quays" + " and of all that lay there in those years" * 3
    for long in (f"{far}, knows Bob well", f"She knows Bob well. {far}"):
        pool = make_pair(Triple("Ada", long, "Bob"), Triple("Carl", "met", "Bob"))
        said = explain("b", RankingWeights({"linked": 999.0}), pool)["linked"].partition(": ")[2]
        assert "Ada" not in said and said.count("Bob") == 1 and len(said) < len(long)
    short = make_pair(Triple("Ada", "Ada, a poet, knows Bob well.", "Bob"), Triple("Carl", "met", "Bob"))
    assert (
        explain("b", RankingWeights({"linked": 999.0}), short)["linked"]
        == "names “Bob”, which stands beside “knows” and “Ada” of the question in another passage: “Ada, a poet, knows "
        "Bob well.”"
    )


def test_reasons_of_links_between_pages() -> None:
    links = {"a": ("“Set up a proxy first” links to", "Proxies"), "c": ("“Proxies, and more” mentions", "Proxies")}
    passages = [
        PoolPassage(name, "Set up", [Triple(f"Page {name}", *links[name])] if name in links else [], title, name)
        for name, title in {"a": "Page a", "b": "Proxies", "c": "", "d": "Page d"}.items()
    ]
    pool = Pool("Set up a proxy?", passages, {"base": ["a", "d", "b", "c"]}, ENCODER)
    weights = RankingWeights({"page_links": 9.0})
    said = ": “Set up a proxy first”"
    assert explain("b", weights, pool)["page_links"] == (
        f"“Page a”, which stands high without its links, links to its page{said}"
    )
    assert explain("a", weights, pool)["page_links"] == (
        f"links to “Proxies”, a page that stands high without its links{said}"
    )
    assert find(pool, "c", weights).page_link is None and explain("d", weights, pool) == {}
    first = PoolPassage("0", "Set up", [], "Page a", "a")
    pool = Pool("Set up a proxy?", [first, *passages], {"base": ["0", "a", "d", "b", "c"]}, ENCODER)
    assert explain("0", weights, pool)["page_links"] == (
        f"another passage of its page links to “Proxies”, a page that stands high without its links{said}"
    )


def test_what_a_passage_lacks_is_no_reason_for_it() -> None:
    """A signal that is 0 takes a share away where others have it, but has nothing to say."""
    for signal in SIGNALS:
        weights = RankingWeights({signal: 10.0})
        lacking = [name for name in PASSAGES if signal not in find(POOL, name, weights).signals]
        assert not any(explain(name, weights) for name in lacking), signal


def test_what_holds_a_passage_back_is_no_reason() -> None:
    weights = RankingWeights({"linked": -10.0, "new_words": 1.0})
    assert find(POOL, "dell", weights).shares["linked"] < -0.05 and explain("dell", weights) == {}


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
    pool = Pool("Who played?", passages, {"base": [*facts]}, ENCODER)
    for name in facts:
        for signal, reason in explain(name, pool=pool).items():
            quoted = reason.split(":")[0].split("“")[1:]
            assert len({one.split("”")[0] for one in quoted}) == len(quoted), (name, signal, reason)


def test_a_fan_is_linked_and_not_named() -> None:
    """The fan names Dell Curry, as the best passage does; nobody names the fan."""
    reasons = explain("fan")
    assert reasons["linked"] == f"names “Dell Curry”, {BESIDE}: {FACT}"
    assert not reasons.keys() & {"named", "in_question"}


def test_shares_are_those_of_the_ranking_and_descend() -> None:
    for name in PASSAGES:
        ranked = find(POOL, name)
        reasons = explain_place(POOL, ranked)
        shares = [reason["share"] for reason in reasons]
        found = [reason["share"] for reason in reasons if reason["reason"].startswith("found by ")]
        assert shares == sorted(shares, reverse=True) and all(share >= 0.05 for share in shares if share not in found)
        assert shares == [round(ranked.shares[reason["signal"]], 3) for reason in reasons]
        assert json.loads(json.dumps(reasons)) == reasons


def test_what_moved_a_passage_little_is_no_reason_beside_what_moved_it_much() -> None:
    for weight, is_said in ((1.0, True), (20.0, False)):
        seen = explain("milk", RankingWeights({"in_question": weight, "new_words": 1.0}))
        assert ("new_words" in seen) == is_said and "in_question" in seen


def test_parts_of_the_question_are_a_reason_however_small() -> None:
    texts = {"a": "eta theta", "b": "zeta", "c": "kappa"}
    passages = [PoolPassage(name, text, [], text) for name, text in texts.items()]
    pool = Pool("Eta theta, zeta?", passages, {"base": [*texts]}, ENCODER)
    seen = explain("a", RankingWeights({"tied": 90.0, "phrases": 0.2, "in_question": 0.2}), pool)
    assert [*seen] == ["tied", "phrases"]


def test_the_rarest_words_that_question_and_passage_write_alike_stand_beside_the_places() -> None:
    texts = {
        "a": "alpha beta gamma delta of us https://x.org/pi",
        "b": "alpha",
        "c": "alpha beta",
        "d": "beta gamma pi",
    }
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    question = "Alphabeta? Delta! (Of) them, Gamma; by Beta, for alpha, pi?"
    pool = Pool(question, passages, {"bm25": [*"abcd"]}, ENCODER)
    for signals in ({"walk": 9.0, "tied": 9.0}, {"new_words": 9.0}, {}):
        (found,) = explain_place(pool, find(pool, "a", RankingWeights(signals)))
        assert found["reason"] == "found by its words (place 1); has “Delta”, “Gamma” and “alpha” of the question"


def test_a_passage_is_tied_by_its_place_in_the_first_list() -> None:
    """Not by a fact or by words, which have reasons of their own, and not by a list that lacks it."""
    lists = {
        "bm25": ["dell", "cheese", "milk"],
        "dense": ["milk", "deleted", "dell"],
    }
    pool = Pool(QUESTION, make_pool("milk", "dell", "cheese").passages, lists, ENCODER)
    weights = RankingWeights({"tied": 9.0})
    assert list_ranks(pool, "dell") == {"bm25": 1, "dense": 3} and list_ranks(pool, "cheese") == {"bm25": 2}
    milk = "found by its words (place 3) and its meaning (place 1); has “milk” of the question"
    assert explain("milk", weights, pool) == {"tied": milk}
    dell = "found by its words (place 1) and its meaning (place 3); has “play” of the question"
    assert explain("dell", weights, pool) == {"tied": dell}
    both = explain("milk", RankingWeights({"tied": 9.0, "walk": 9.0}), pool)
    assert [*both.values()] == [milk]  # not said twice
    both = explain("milk", RankingWeights({"tied": 9.0, "new_words": 9.0}), pool)
    assert [*both] == ["tied"]  # which has the new word, too
    assert find(pool, "cheese", weights).tied_by is None
    by_words = Pool(QUESTION, pool.passages, {"bm25": ["milk", "dell"]}, ENCODER)
    assert explain("dell", weights, by_words) == {"tied": "found by its words (place 2); has “play” of the question"}
    named = find(POOL, "dell", weights)
    assert named.shares["tied"] > 0.05 and named.tied_by is None
    (asked,) = rank(Pool("milk?", [pool.passages[0]], {"bm25": []}, ENCODER), weights)
    assert "tied" in asked.signals and asked.tied_by is None
    assert list_ranks(pool, "unknown") == {}


def test_the_first_rank_counts_where_a_list_has_a_passage_twice() -> None:
    pool = Pool("", [], {"base": ["a", "b", "a"]}, ENCODER)
    assert list_ranks(pool, "a") == {"base": 1}


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
    pool = Pool("Ada?", [PoolPassage(name, "", fact) for name in "ab"], {"base": ["a"]}, ENCODER)
    assert build_chain(pool, find(pool, "b")) == [["Ada", "knows", "Bob"]]


@pytest.mark.parametrize(
    "own",
    [
        Triple("Dell", "is the father of", "Stephen"),
        Triple("Dell", "calls himself", "DELL"),
        Triple("Dell", "is", "tall"),
    ],
    ids=["back", "nowhere", "a common noun"],
)
def test_a_chain_does_not_end_with_a_fact_that_leads_nowhere(own: Triple) -> None:
    lead = Triple("Stephen", "has the father", "Dell")
    on = Triple("Dell", "played for", "Hornets")
    for facts, chain in (([own], [lead]), ([own, on], [lead, on])):
        pool = make_pair(lead, *facts)
        assert build_chain(pool, find(pool, "b")) == serialize_triples(chain)


def test_words_are_quoted_as_a_pattern_finds_them() -> None:
    draw = random.Random(0)
    for _ in range(2_000):
        text = "".join(
            draw.choice(["the", "Sea", "SEA", "of", "_x", "9", " ", " ", " ", "-", "'", "?"]) for _ in range(14)
        )
        phrase = " ".join(draw.choices(["the", "sea", "of", "_x", "9", "thesea"], k=draw.randint(1, 3)))
        words = r"\W+".join(phrase.split())
        found = re.search(rf"\b{words}\b", text, re.IGNORECASE)
        assert spell(text, phrase) == (found[0] if found else phrase)


@given(st.text("ab :\n_é", max_size=12), st.text("ab :é", min_size=1, max_size=3))
def test_a_name_in_a_passage_is_found_as_a_pattern_finds_it(text: str, name: str) -> None:
    assert _names(text, name) == bool(re.search(rf"{re.escape(name)}(?!\w|\s*:)", text))

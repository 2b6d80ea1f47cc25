"""Reasons: every one holds for the passage that it is given for, and tells a reader something."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.ranking.pool import Pool, PoolPassage
from llama_index_gear.ranking.question_words import QuestionWords, spell
from llama_index_gear.ranking.ranker import Ranked, rank
from llama_index_gear.ranking.reasons import _names, build_chain, explain_place, list_ranks
from llama_index_gear.ranking.weights import SIGNALS, RankingWeights
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.tests.growth import assert_linear
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


def make_pool(*names: str, question: str = QUESTION) -> Pool:
    passages = [PoolPassage(name, PASSAGES[name][0], [Triple(*fact) for fact in PASSAGES[name][1]]) for name in names]
    return Pool(question, passages, {"base": [*names]}, ENCODER)


POOL = make_pool(*PASSAGES)


def find(pool: Pool, passage_id: str, weights: RankingWeights = EQUAL) -> Ranked:
    (found,) = [ranked for ranked in rank(pool, weights) if ranked.id == passage_id]
    return found


def list_reasons(pool: Pool, ranked: Ranked) -> list[dict[str, Any]]:
    return explain_place(pool, ranked, QuestionWords(pool, ranked.first), build_chain(pool, ranked))


def explain(passage_id: str, weights: RankingWeights = EQUAL, pool: Pool = POOL) -> dict[str, str]:
    """Return signal → reason, but for the one that every passage has: the lists that found it, and its words."""
    reasons = list_reasons(pool, find(pool, passage_id, weights))
    others = [one for one in reasons if not is_of_lists(one)]
    assert len(reasons) - len(others) == (passage_id in {one for ids in pool.lists.values() for one in ids})
    return {one["signal"]: one["reason"] for one in others}


def is_of_lists(reason: dict[str, Any]) -> bool:
    return re.match(r"found by |has [“w]", reason["reason"]) is not None


def say_words(pool: Pool, passage_id: str, weights: RankingWeights = EQUAL) -> str:
    """Return what is said of the passage's words."""
    (found,) = filter(is_of_lists, list_reasons(pool, find(pool, passage_id, weights)))
    return found["reason"].rpartition("; ")[2] if "; has " in found["reason"] else ""


def test_reasons_in_words() -> None:
    """`linked` does not repeat what `named` says."""
    assert explain("dell") == {"named": f"names “Dell Curry”, as another passage does: {FACT}"}
    assert explain("dell", RankingWeights({"linked": 9.0})) == {
        "linked": f"names “Dell Curry”, as another passage does: {FACT}"
    }
    (milk,) = list_reasons(POOL, find(POOL, "milk"))
    assert milk["reason"] == "found by your retriever (place 5); has “milk” of the question"
    (stephen,) = list_reasons(POOL, find(POOL, "stephen", RankingWeights({"tied": 9.0})))
    assert stephen["reason"] == "found by your retriever (place 1); has “father” and “Stephen” of the question"
    assert stephen["signal"] == "tied"


def test_the_lists_and_words_of_a_passage_are_one_reason() -> None:
    """It has the signal of these with the largest share, however small that is."""
    texts = {"a": "Alpha beta gamma", "b": "Beta, gamma?", "c": "beta", "d": "zeta", "e": "", "f": "eta theta"}
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    pool = Pool("zeta? eta theta", passages, {"base": [*texts]}, ENCODER)
    for signals, signal in (
        ({"tied": 9.0}, "tied"),
        ({"tied": 1.0, "phrases": 9.0}, "phrases"),
        ({"new_words": 9.0, "phrases": 1.0}, "new_words"),
        ({}, "walk"),
    ):
        (found,) = list_reasons(pool, find(pool, "f", RankingWeights(signals)))
        assert found["signal"] == signal
        assert found["reason"] == "found by your retriever (place 6); has “eta theta” of the question"
    (bare,) = list_reasons(pool, find(pool, "b", RankingWeights({"shared_words": 9.0})))
    assert bare["reason"] == "found by your retriever (place 2)"
    unlisted = Pool(pool.question, passages, {}, ENCODER)
    (words,) = list_reasons(unlisted, find(unlisted, "f"))
    assert words["reason"] == "has “eta theta” of the question" and list_reasons(unlisted, find(unlisted, "b")) == []


def test_words_are_quoted_as_the_question_writes_them() -> None:
    texts = {"a": "Alpha", "b": "zeta", "f": "eta theta zebras"}
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    for question, said in (
        ("zeta? eta theta zebra", "has “eta theta” and “zebras” (for “zebra”) of the question"),
        ("Zebras? “Eta”-Theta?", "has “Eta-Theta” and “Zebras” of the question"),
        ("A zebra?", "has “zebras” (for “zebra”) of the question"),
        ("Theta, that etas?", "has “Theta” and “eta” (for “etas”) of the question"),  # and not “Theta eta”
    ):
        pool = Pool(question, passages, {"base": [*texts]}, ENCODER)
        assert say_words(pool, "f") == said
    long = f"eta {'e' * 1_500}"
    pool = Pool(long, [*passages, PoolPassage("g", long, [])], {"base": ["g"]}, ENCODER)
    assert 100 < len(say_words(pool, "g")) < 250


def test_another_word_that_ends_alike_is_no_form_of_a_word() -> None:
    """BM25 tells them apart, and what it found is quoted."""
    for question, text, said in (
        ("Where are the planes?", "plan, plane", "has “plane” (for “planes”) of the question"),
        ("Which policy?", "police, policies", "has “policies” (for “policy”) of the question"),
        ("Who rated it?", "rat, rate", "has “rate” (for “rated”) of the question"),
        ("Which skies?", "ski, sky", ""),
    ):
        passages = [PoolPassage("a", text, []), PoolPassage("b", "zeta", [])]
        assert say_words(Pool(question, passages, {"base": [*"ab"]}, ENCODER), "a") == said


@pytest.mark.parametrize("word", ["Ab", "слово"])
def test_a_question_as_long_as_a_passage_is_explained_in_short_time(word: str) -> None:
    """Each of its words was looked up in the passage, and those in other letters in the question."""

    def ask(size: int) -> tuple[Pool, Ranked]:
        text = " ".join(f"{word}{number}x" for number in range(size))
        pool = Pool(text, [PoolPassage(one, text, []) for one in "ab"], {"base": ["a"]}, ENCODER)
        return pool, find(pool, "a")

    assert_linear(lambda asked: list_reasons(*asked), ask, 4_000)


def test_pieces_of_addresses_are_not_quoted() -> None:
    address = "https://archive.org/creators www.creators.org ada@creators.org"
    passages = [PoolPassage("a", f"alpha {address} beta biz", []), PoolPassage("b", "gamma", [])]
    pool = Pool("creators?", passages, {"base": [*"ab"]}, ENCODER)
    assert "new_words" in find(pool, "a").signals and say_words(pool, "a") == ""


def test_words_beside_addresses_and_in_links_are_quoted() -> None:
    texts = {
        "a": "zeta",
        "b": "[refund](https://x.org/a_(b)/store)policy <ada@shop.org>ada, (www.crane.org)grease (ssh://yard) "
        "_Team Fortress 2_",
        "c": "kappa",
    }
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    for question, quoted in (
        ("Refund policy?", "“Refund” and “policy”"),
        ("Buy refunds, a policy?", "“policy”"),
        ("Grease, Ada?", "“Grease” and “Ada”"),
        ("store shop crane yard?", ""),
        ("Team Fortress 2?", "“Team Fortress 2”"),
    ):
        pool = Pool(question, passages, {"base": [*texts]}, ENCODER)
        assert say_words(pool, "b") == (f"has {quoted} of the question" if quoted else "")


def test_words_that_say_nothing_are_not_quoted() -> None:
    """Function words, words that fit any subject, and short numbers, in phrases, too; nor a name that all have."""
    texts = {"a": "Refunds since May", "b": "Also a new Steam refund, Li Hua could 3", "c": "kappa"}
    others = {str(number): "Steam, LiHua" for number in range(13)}
    for more, question, quoted in (
        ({}, "Since new, also refund?", "“refund”"),
        ({}, "Steam refund?", "“Steam refund”"),
        (others, "Steam refund?", "“Steam refund”"),
        (others, "Steam?", ""),
        ({}, "Li Hua?", "“Li Hua”"),
        ({}, "Could PS 3?", ""),
        (others, "Also a new thing?", ""),
    ):
        passages = [PoolPassage(name, text, []) for name, text in (texts | more).items()]
        pool = Pool(question, passages, {"base": [*texts, *more]}, ENCODER)
        assert say_words(pool, "b") == (f"has {quoted} of the question" if quoted else "")
    german = Pool("New Refund?", passages, {"base": [*texts]}, make_encoder("german", 1.0))
    assert "“New" in say_words(german, "b")


def test_who_speaks_everywhere_is_no_reason_unless_words_found_the_passage() -> None:
    talks = [PoolPassage(str(number), f"x{number}\nLiHua: kappa", []) for number in range(14)]
    for name in ("Li Hua", "LiHua"):
        asked = PoolPassage("a", f"LiHua: {name} met Bo", [])
        for question, listed, said in (
            (f"{name}, Bo?", "base", "has “Bo” of the question"),
            (f"{name}?", "base", ""),
            (f"{name}?", "bm25", f"has “{name}” of the question"),
        ):
            pool = Pool(question, [asked, *talks], {listed: ["a"]}, ENCODER)
            assert say_words(pool, "a") == said


def make_list(question: str, asked: dict[int, str], *, length: int = 40) -> Pool:
    """Make a pool of one list of passages with a word of their own each, and what else some of them say."""
    passages = [PoolPassage(str(number), f"x{number} {asked.get(number, '')}", []) for number in range(length)]
    return Pool(question, passages, {"bm25": [passage.id for passage in passages]}, ENCODER)


def test_the_words_of_the_first_passages_come_first() -> None:
    """By hand: "rent" is in 10 of 10 and 20 of 40, ln 2 = 0.69; "made" in 3 of 10 and 5 of 40, 0.3 · ln 2.4 = 0.26;
    "sent" in 3 of 10 and 12 of 40, 0."""
    asked = {number: "rent" for number in range(20)}
    for number in (1, 2, 3, 30, 31):
        asked[number] = f"made {asked.get(number, '')}"
    for number in (*range(1, 4), *range(20, 29)):
        asked[number] = f"sent {asked.get(number, '')}"
    pool = make_list("Made? Sent? Rent?", asked)
    by_list = RankingWeights({"tied": 9.0})
    assert say_words(pool, "1", by_list) == "has “Rent” and “Made” of the question"
    assert say_words(pool, "25", by_list) == "has “Sent” of the question"


def test_a_rare_word_and_a_name_are_quoted_beside_a_word_that_tells_more() -> None:
    asked = {number: "rent" for number in range(10)}
    for word, others, is_quoted in (
        ("made", (1,), True),  # in no more passages than above
        ("made", (1, *range(10, 24)), False),
        ("Bern", (1, *range(10, 24)), True),
        ("Bern", (1, *range(10, 39)), False),  # most have it
    ):
        pool = make_list(f"Was the rent {word}?", asked | {n: f"{asked.get(n, '')}. {word}" for n in others})
        more = f" and “{word}”" if is_quoted else ""
        assert say_words(pool, "1", RankingWeights({"tied": 9.0})) == f"has “rent”{more} of the question"


def test_what_most_of_a_pool_has_is_quoted_if_words_found_the_passage_and_nothing_else_is_there() -> None:
    asked = dict.fromkeys(range(5, 40), "made")
    for name, said in (("bm25", "has “made” of the question"), ("dense", "")):
        pool = make_list("Was it made?", asked)
        pool = Pool(pool.question, pool.passages, {name: pool.lists["bm25"]}, ENCODER)
        assert say_words(pool, "6", RankingWeights({"tied": 9.0})) == said
        (found,) = list_reasons(pool, find(pool, "6"))
        assert found["reason"].startswith(f"found by its {'words' if said else 'meaning'} (place 7)")


def test_a_word_in_another_form_weighs_half() -> None:
    pool = make_list("Zebras? Rent?", dict.fromkeys(range(5), "zebra rent"))
    said = "has “Rent” and “zebra” (for “Zebras”) of the question"
    assert say_words(pool, "1", RankingWeights({"tied": 9.0})) == said


def test_of_words_that_the_first_passages_lack_the_best_is_quoted() -> None:
    asked = dict.fromkeys(range(20, 26), "sent made") | dict.fromkeys(range(26, 32), "made")
    pool = make_list("What is sent or made?", asked)
    assert say_words(pool, "25", RankingWeights({})) == "has “sent” of the question"


@pytest.mark.parametrize(
    "places",
    [range(35), (*range(6), *range(20, 37))],
    ids=["nearly all of the pool has it", "hardly more of the first passages than of the others have it"],
)
def test_a_frequent_word_that_tells_little_is_not_quoted(places: Sequence[int]) -> None:
    pool = make_list("Was it made?", dict.fromkeys(places, "made"))
    pool = Pool(pool.question, pool.passages, {"dense": pool.lists["bm25"]}, ENCODER)
    assert say_words(pool, "1", RankingWeights({})) == ""


def test_who_speaks_often_in_one_passage_is_quoted() -> None:
    others = [PoolPassage(str(number), f"x{number}", []) for number in range(14)]
    pool = Pool("LiHua?", [PoolPassage("a", "LiHua: kappa\n" * 14, []), *others], {"dense": ["a"]}, ENCODER)
    assert say_words(pool, "a") == "has “LiHua” of the question"


def test_a_part_of_a_longer_word_a_date_or_a_name_is_not_quoted() -> None:
    for question, text, more, quoted in (
        ("A cross-platform game?", "cross", "", ""),
        ("In October 2013?", "October", "", ""),
        ("In October 2013?", "2013", "", ""),
        ("In 2013?", "2013", "", "2013"),
        ("Who, Ada or Bo?", "Ada", "Ada, Bo", "Ada"),
        ("What did Simon Carless say?", "So Carless did", "Simon Carless", "Carless"),
        ("What did Simon Carless say?", "So Ada Carless did", "Simon Carless", ""),
        ("Who sees Horizon West?", "Horizon Zero", "Horizon West", ""),
        ("Who sees Horizon West?", "Horizon Zero", "", "Horizon"),
        ("Who sees Horizon West?", "at Horizon. Zero", "Horizon West", "Horizon"),
    ):
        pool = Pool(question, [PoolPassage("a", text, []), PoolPassage("b", more, [])], {"dense": ["a"]}, ENCODER)
        assert say_words(pool, "a") == (f"has “{quoted}” of the question" if quoted else "")


def test_lists_that_have_a_passage_far_down_are_not_said_beside_others() -> None:
    ids = [str(number) for number in range(40)]
    passages = [PoolPassage(name, f"x{name}", []) for name in ids]
    shared = "names that other passages share (place 11)"
    for shift, said in ((3, "its meaning (place 4)"), (20, f"its meaning (place 21) and {shared}")):
        lists = {"dense": [*ids[-shift:], "0", *ids[1:-shift]], "pagerank": [*ids[1:11], "0"]}
        pool = Pool("Who?", passages, lists, ENCODER)
        assert [one["reason"] for one in list_reasons(pool, find(pool, "0"))] == [f"found by {said}"]


def test_words_found_a_passage_only_if_there_are_some_to_quote_or_no_other_list_has_it() -> None:
    passages = [PoolPassage("a", "Eta theta", [], "Eta theta"), PoolPassage("b", "kappa", [])]
    for lists, said in ((["dense", "bm25"], "its meaning (place 1)"), (["bm25"], "its words (place 1)")):
        pool = Pool("Eta theta?", passages, {name: ["a"] for name in lists}, ENCODER)
        (found,) = filter(is_of_lists, list_reasons(pool, find(pool, "a")))
        assert found["reason"] == f"found by {said}"


def test_what_pagerank_found_is_said_by_the_facts_that_lead_to_it() -> None:
    facts = {"0": ("Ada", "met", "Bo"), "1": ("Bo", "saw", "Cy"), "2": ("Dan", "knew", "Eve")}
    passages = [PoolPassage(name, f"x{name}", [Triple(*slots)]) for name, slots in facts.items()]
    pool = Pool("Who?", passages, {"pagerank": [*facts]}, ENCODER)
    for name, said in (("1", "the facts that lead to it"), ("2", "names that other passages share")):
        (found,) = list_reasons(pool, find(pool, name, RankingWeights({"tied": 9.0})))
        assert found["reason"] == f"found by {said} (place {int(name) + 1})"


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
        assert explain("b", BY_FACTS, pool).keys() == ({"named"} if signals else set())


def test_a_title_that_the_question_names_is_not_quoted_once_more() -> None:
    """And a name that is no title is quoted with the other words alone."""
    said = {"in_question": "is about “Eta theta”, which the question names"}
    for title, question, words, reasons in (
        ("Eta theta", "Eta theta?", "", said),
        ("Eta theta", "Eta theta zeta?", "has “Eta theta zeta” of the question", said),
        ("Eta theta", "Zeta? Eta theta!", "has “Zeta” of the question", said),
        ("", "Eta theta?", "has “Eta theta” of the question", {}),
    ):
        own = PoolPassage("a", "Eta theta zeta", [Triple("Eta theta", "has", "zeta")], title)
        pool = Pool(question, [own, *(PoolPassage(name, name, [], name) for name in ("kappa", "iota"))], {}, ENCODER)
        reasons_of = list_reasons(pool, find(pool, "a"))
        assert {one["signal"]: one["reason"] for one in reasons_of if not is_of_lists(one)} == reasons
        assert [one["reason"] for one in reasons_of if is_of_lists(one)] == ([words] if words else [])


def test_a_name_that_the_question_has_is_no_link() -> None:
    facts = [Triple("Madrid", "is", "large"), Triple("Madrid", "saw", "Bo")]
    passages = [PoolPassage("a", "", [Triple("Ada", "met", "Madrid")]), PoolPassage("b", "Madrid", facts)]
    for question, signals in (("Who met Madrid?", set()), ("Who met?", {"named"})):
        pool = Pool(question, [*passages, PoolPassage("c", "kappa", [])], {"base": [*"abc"]}, ENCODER)
        assert explain("b", pool=pool).keys() == signals


def test_a_phrase_stands_in_one_sentence() -> None:
    texts = {"a": "zeta", "b": "Through Steam, users will. A user-base: 2\nbeta", "c": "kappa"}
    passages = [PoolPassage(name, text, []) for name, text in texts.items()]
    for question, phrases in (
        ("Steam users?", "“Steam” and “users”"),
        ("Steam, users?", "“Steam, users”"),
        ("User base?", "“User base”"),
        ("2 beta?", "“2 beta”"),
        ("A user? A user base?", "“user base”"),
    ):
        pool = Pool(question, passages, {"base": [*texts]}, ENCODER)
        assert say_words(pool, "b") == (f"has {phrases} of the question" if phrases else "")


def test_a_web_address_is_no_name() -> None:
    for name, is_said in (("https://a.example/b", False), ("a.example", True)):
        pool = make_pair(Triple("Ada", "wrote", name), Triple("Carl", "read", name))
        assert ("linked" in explain("b", RankingWeights({"linked": 999.0}), pool)) == is_said


def test_another_part_of_a_document_is_no_reason() -> None:
    facts = {"a": [Triple("Ada", "met", "Bo")], "b": [Triple("Carl", "knows", "Bo")]}
    for document, is_said in (("page", False), ("", True)):
        passages = [PoolPassage(name, "", facts[name], "Page", document) for name in "ab"] + [PoolPassage("c", "", [])]
        pool = Pool("Whom met?", passages, {"base": [*"abc"]}, ENCODER)
        weights = RankingWeights({"linked": 999.0})
        assert bool(explain("b", weights, pool)) == bool(build_chain(pool, find(pool, "b", weights))) == is_said


def test_a_sentence_that_both_passages_have_is_no_reason() -> None:
    """It is what a site writes below every page."""
    below = "His work appeared in Eurogamer and The Observer."
    for text, is_said in ((below, False), ("His work is in The Observer.", True)):
        facts = [Triple("Page a", below, "The Observer")], [Triple("Page b", text, "The Observer")]
        pages = [PoolPassage("a", below, facts[0], "Page a"), PoolPassage("b", text, facts[1], "Page b")]
        pool = Pool("Whose work?", [*pages, PoolPassage("c", "", [])], {"base": [*"abc"]}, ENCODER)
        assert bool(explain("b", BY_FACTS, pool)) == bool(build_chain(pool, find(pool, "b"))) == is_said


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
        assert say_words(Pool(question, passages, {"base": ["b"]}, ENCODER), "b") == "has words of the question"


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
    assert explain("b", weights, both)["linked"] == "names “Bo”, as “Ada (actor)” does: Ada — met — Bo"
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
    assert asked == {}
    named = explain("page", pool=Pool("Who acted?", [*others, page], base, ENCODER))["named"]
    assert named == "names “Hornets”, as another passage does: Ada — acted in — Hornets"


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
        == "names “Bob”, as another passage does: “Ada, a poet, knows Bob well.”"
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
    """The fan names Dell Curry, as the best passage does, and adds "play"; nobody names the fan."""
    fan = PoolPassage("fan", "He cheers", [Triple("Fan", "saw the play of", "Dell Curry")])
    passages = [fan if passage.id == "fan" else passage for passage in POOL.passages]
    pool = Pool(QUESTION, passages, POOL.lists, ENCODER)
    reasons = explain("fan", RankingWeights({**EQUAL.signals, "linked": 4.0}), pool)
    assert reasons["linked"] == f"names “Dell Curry”, as another passage does: {FACT}"
    assert not reasons.keys() & {"named", "in_question"}


def test_shares_are_those_of_the_ranking_and_descend() -> None:
    for name in PASSAGES:
        ranked = find(POOL, name)
        reasons = list_reasons(POOL, ranked)
        shares = [reason["share"] for reason in reasons]
        found = [reason["share"] for reason in reasons if reason["reason"].startswith("found by ")]
        assert shares == sorted(shares, reverse=True) and all(share >= 0.05 for share in shares if share not in found)
        assert shares == [round(ranked.shares[reason["signal"]], 3) for reason in reasons]
        assert json.loads(json.dumps(reasons)) == reasons


def test_what_moved_a_passage_little_is_no_reason_beside_what_moved_it_much() -> None:
    for named, other, is_said in ((9.0, 1.0, True), (0.09, 1.0, False), (9.0, 900.0, False)):
        weights = RankingWeights({"named": named, "new_words": other})
        assert (find(POOL, "dell", weights).shares["named"] >= 0.05) == (named == 9.0)
        assert ("named" in explain("dell", weights)) == is_said


def test_where_a_passage_stands_in_the_lists() -> None:
    lists = {"bm25": ["dell", "cheese", "milk"], "dense": ["milk", "deleted", "dell"]}
    pool = Pool(QUESTION, make_pool("milk", "dell", "cheese").passages, lists, ENCODER)
    assert list_ranks(pool, "dell") == {"bm25": 1, "dense": 3} and list_ranks(pool, "cheese") == {"bm25": 2}
    for name, places, word in (("milk", (3, 1), "milk"), ("dell", (1, 3), "play")):
        found = f"found by its words (place {places[0]}) and its meaning (place {places[1]})"
        (reason,) = list_reasons(pool, find(pool, name))
        assert reason["reason"] == f"{found}; has “{word}” of the question"
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


def test_names_that_passages_share_are_told_where_no_fact_leads() -> None:
    """The rarest two; none that the question has, no common noun, no address, no part of another, none of its page."""
    shared = ("Bea Bo", "Cid", "Bea", "Kappa", "http://x.org/Di", "page", "Eve")
    best = PoolPassage("a", "alpha page", [Triple("A", "is beside", name) for name in shared])
    own = PoolPassage("b", "its page", [Triple("B", "is here with", name) for name in (*shared, "Fay")])
    more = [PoolPassage(f"c{n}", "", [Triple(f"C{n}", "met", name) for name in ("Cid", "Eve")[n:]]) for n in range(2)]
    page = PoolPassage("p", "alpha", [Triple("P", "met", "Fay")], document="d")
    pool = Pool("Alpha kappa?", [best, own._replace(document="d"), *more, page], {"base": ["a", "p"]}, ENCODER)
    bare = Pool("Alpha kappa?", [best, PoolPassage("b", "", [])], {"base": ["a"]}, ENCODER)
    for of, names in ((pool, ": “Bea Bo” and “Cid”"), (bare, "")):
        of = of.extend([], {"pagerank": ["b"]})
        ranked = find(of, "b")
        (reason,) = filter(is_of_lists, explain_place(of, ranked, QuestionWords(of, ranked.first), []))
        assert reason["reason"] == f"found by names that other passages share{names} (place 1)"

"""The pool: what its passages have in common, counted by hand."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_gear.nodes import attach_triples
from llama_index_gear.ranking.pool import MAX_LINK_PASSAGES, Pool, PoolPassage, write_line
from llama_index_gear.ranking.reasons import to_pool_passage
from llama_index_gear.ranking.signals import Company
from llama_index_gear.store.bm25 import make_encoder
from llama_index_gear.triple import Triple

ENCODER = make_encoder("english", 1.0)


def make_passage(passage_id: str, text: str, *facts: tuple[str, str, str]) -> PoolPassage:
    return PoolPassage(passage_id, text, [Triple(*fact) for fact in facts])


def make_pool(question: str, *passages: PoolPassage) -> Pool:
    return Pool(question, passages, {"base": [passage.id for passage in passages]}, ENCODER)


def count_weight(number: int, having: int) -> float:
    """Return BM25's inverse document frequency."""
    return math.log(1 + (number - having + 0.5) / (having + 0.5))


def test_coverage_is_the_share_of_the_words_weights() -> None:
    """Of three passages, two have "curry" and one has "colleges", which is the same word as "college"."""
    pool = make_pool(
        "Which college did Curry attend?",
        make_passage("a", "Curry went to colleges"),
        make_passage("b", "Curry"),
        make_passage("c", "cheese"),
    )
    curry, college, attend = count_weight(3, 2), count_weight(3, 1), count_weight(3, 0)
    total = curry + college + attend
    texts = [passage.text for passage in pool.passages]
    assert [pool.coverage(text) for text in texts] == pytest.approx([(curry + college) / total, curry / total, 0.0])
    assert pool.coverage("curry colleges, college") == pool.coverage(texts[0])
    assert pool.coverage("attended") == pytest.approx(attend / total)
    assert sorted(pool.question_weights.values()) == pytest.approx(sorted(w / total for w in (curry, college, attend)))


@given(
    st.lists(st.text(st.sampled_from("aB 's-ßẞé東京한글ﬁ\u0301\u200d"), min_size=1, max_size=9), min_size=3, max_size=3)
)
def test_a_fact_covers_what_its_text_does(slots: Sequence[str]) -> None:
    """In any script, with letters that would join others: the parts of a fact are read apart."""
    assume(all(slot.strip() for slot in slots))
    fact = Triple(*slots)
    pool = make_pool(fact.text, make_passage("a", "ab 東京"), make_passage("b", "B's"))
    assert pool.fact_coverage(fact) == pool.coverage(fact.text) == pytest.approx(1.0 if pool.question_weights else 0.0)


@pytest.mark.parametrize("question", ["the of and", "", "?!", "…"])
def test_a_question_without_words_is_covered_by_nothing(question: str) -> None:
    pool = make_pool(question, make_passage("a", "the of and", ("The Of", "and", "the")))
    assert pool.coverage(pool.passages[0].text) == pool.coverage("") == 0.0 and pool.question_weights == {}


@given(st.lists(st.lists(st.sampled_from("alpha beta gamma delta the".split()), max_size=6), max_size=6))
def test_all_words_together_are_the_whole_question(texts: Sequence[Sequence[str]]) -> None:
    passages = [make_passage(str(number), " ".join(words)) for number, words in enumerate(texts)]
    pool = make_pool("the alpha of beta", *passages)
    whole = make_pool("the alpha of beta", make_passage("whole", "beta alpha"), *passages)
    assert whole.coverage("alpha, beta") == pytest.approx(1.0)
    assert all(0 <= pool.coverage(passage.text) <= 1 + 1e-12 for passage in passages)


def test_the_words_of_a_pool_are_weighed_as_bm25_weighs_them() -> None:
    """Without a norm of length; "alpha" stands three times in the first passage."""
    pool = make_pool(
        "Alphas?", make_passage("a", "alpha, the alpha alphas beta"), make_passage("b", "beta"), make_passage("c", "")
    )
    terms = pool.terms
    columns = {word: terms.words.tolist().index(*ENCODER.split_words(word)) for word in ("alpha", "beta")}
    alpha, beta = count_weight(3, 1), count_weight(3, 2)
    expected = {"alpha": [alpha * 3 / 4.2, 0, 0], "beta": [beta / 2.2, beta / 2.2, 0]}
    for word, column in columns.items():
        assert terms.weights[:, column] == pytest.approx(expected[word])
    assert terms.asked.tolist() == [columns["alpha"]] and terms.weights.shape == (3, 2)
    assert terms.passages[[*columns.values()]].tolist() == [1, 2]
    assert terms.rarity[[*columns.values()]] == pytest.approx([alpha, beta])


@pytest.mark.parametrize(("spoken", "is_speaker"), [(4, True), (3, False)])
def test_who_speaks_in_more_passages_than_a_number(spoken: int, is_speaker: bool) -> None:
    """The first line of all counts, and so does a passage in which somebody speaks twice, once."""
    texts = ["Ann: Hello\nAnn: Again", *["Bo: Hi\nAnn: Hello"] * (spoken - 1), "Joann: Hi, Ann: hello"]
    pool = make_pool("?", *(make_passage(str(number), text) for number, text in enumerate(texts)))
    assert pool.is_speaker(["Ann"], 3.5) == is_speaker
    one = make_pool("?", *(make_passage(str(number), "Ann: Hello") for number in range(spoken)))
    assert one.is_speaker(["Ann"], 3.5) == is_speaker and not one.is_speaker(["Hello"], 0.5)


def test_a_line_has_a_text_s_words_between_single_spaces() -> None:
    assert write_line("Zoë's\n3.5 “Über”—e\ud800f ") == " zoë s 3 5 über e f " and write_line("…") == "  "
    assert write_line("Gro\u0308\xadße") == write_line("GRÖße") == " größe "


@pytest.mark.parametrize(
    ("name", "is_ordinary"),
    [
        ("API", True), ("Api", True), ("api", True), ("doctor", True), ("Nice", True), ("Ada", False),
        ("ledger-sync", False), ("the API", False), ("Method 2", False), ("父亲", False), ("Apis", False),
        ("", False), ("Öl", True), ("PCs", True), ("PC", True), ("US", False), ("Us", False), ("X", False),
    ],
)  # fmt: skip
def test_a_word_that_a_passage_writes_small_is_ordinary(name: str, is_ordinary: bool) -> None:
    """So is an abbreviation with a plural."""
    texts = ["Ada likes the api, of 父亲.", "It's nice and öl", "Ledger-sync of adam", "PCs, Xs"]
    assert make_pool("?", *(make_passage(text, text) for text in texts)).is_ordinary(name) == is_ordinary


@example(["aa a"], "a")
@given(st.lists(st.text("aBc-_.é \n", max_size=12), max_size=3), st.text("abcé", min_size=1, max_size=3))
def test_a_small_word_stands_between_other_characters(texts: Sequence[str], name: str) -> None:
    pool = make_pool("?", *(make_passage(str(number), text) for number, text in enumerate(texts)))
    expected = any(re.search(rf"\b{name}\b", text) for text in texts)
    assert pool.is_ordinary(name.capitalize()) == expected


def test_entities_are_counted_by_the_passages_that_name_them() -> None:
    """A passage that names an entity in three ways and five facts is one passage."""
    pool = make_pool(
        "?",
        make_passage("a", "", ("Dell Curry", "is", "tall"), ("DELL-CURRY", "is", "old"), ("x", "of", "Dell  Curry")),
        make_passage("b", "", ("Stephen", "son of", "dell curry")),
        make_passage("c", ""),
    )
    assert pool.entity_passages["dell curry"] == 2
    assert [len(pool.group_facts(place).get("dell curry", ())) for place in range(3)] == [3, 1, 0]
    assert pool.contents[0].entities == ("dell curry", "tall", "old", "x")
    assert pool.entity_passages == {"dell curry": 2, "tall": 1, "old": 1, "x": 1, "stephen": 1}


@pytest.mark.parametrize("number", [1, MAX_LINK_PASSAGES, MAX_LINK_PASSAGES + 1])
def test_an_entity_of_many_passages_is_no_link(number: int) -> None:
    pool = make_pool("?", *(make_passage(str(n), "", ("Hub", "has", f"spoke {n}")) for n in range(number)))
    assert pool.is_link("hub") == (number <= MAX_LINK_PASSAGES) and pool.is_link("spoke 0")


def test_a_passage_is_about_its_most_frequent_subject() -> None:
    pool = make_pool(
        "?",
        make_passage("a", "", ("A", "is", "x"), ("B-B", "is", "y"), ("B-B", "is", "z")),
        make_passage("b", "", ("First", "is", "x"), ("Second", "is", "x")),
        make_passage("c", ""),
    )
    assert [content.topics for content in pool.contents] == [{"b b": "B-B"}, {"first": "First"}, {}]


def test_a_passage_is_about_its_title_first() -> None:
    """A title counts without its last parenthesis. A subject that is the title is no second topic."""
    facts = [Triple("The film", "is", "long")]
    titles = ["Titanic (1997 film)", "(Untitled)", " ", "THE FILM"]
    pool = make_pool("?", *(PoolPassage(title, "", facts, title) for title in titles))
    assert [list(content.topics.items()) for content in pool.contents] == [
        [("titanic", "Titanic"), ("the film", "The film")],
        [("untitled", "(Untitled)"), ("the film", "The film")],
        [("the film", "The film")],
        [("the film", "THE FILM")],
    ]


def test_a_longer_pool_counts_again() -> None:
    """Contents that were read are kept; frequencies are those of the longer pool."""
    small = make_pool("alpha beta", make_passage("a", "alpha", ("E", "is", "x")), make_passage("b", "beta"))
    before = small.coverage("alpha"), small.entity_passages["e"]
    further = [make_passage("c", "alpha", ("E", "is", "y")), make_passage("d", "alpha")]
    longer = small.extend(further, {"pagerank": ["c"]})
    assert list(longer.places) == ["a", "b", "c", "d"] and set(longer.lists) == {"base", "pagerank"}
    fresh = make_pool("alpha beta", *longer.passages)
    assert [content.words.tolist() for content in longer.contents] == [c.words.tolist() for c in fresh.contents]
    assert longer.coverage("alpha") == fresh.coverage("alpha") < before[0]
    assert longer.contents[0] is small.contents[0] and longer.entity_passages["e"] == 2
    assert (small.coverage("alpha"), small.entity_passages["e"]) == before
    assert set(small.lists) == {"base"} and len(small.passages) == 2


def test_a_pool_of_nothing() -> None:
    pool = make_pool("alpha")
    assert pool.contents == [] and pool.places == {} and pool.coverage("alpha") == pytest.approx(1.0)
    assert pool.entity_passages == {} and pool.is_in_question("alpha") and pool.terms.weights.shape == (0, 0)


def test_words_of_scripts_without_spaces() -> None:
    pool = make_pool("斯蒂芬·库里的父亲是谁？", make_passage("a", "斯蒂芬 plays"), make_passage("b", "库里的父亲是谁"))
    assert all(pool.coverage(passage.text) > 0 for passage in pool.passages)
    assert all(pool.is_in_question(name) for name in ("斯蒂芬", "库里", "库里的父亲是谁"))


@pytest.mark.parametrize(
    ("question", "subject", "is_named"),
    [
        ("斯蒂芬·库里的父亲是谁?", "斯蒂芬·库里", True),
        ("量子力学的创立者是谁", "量子力学", True),
        ("夏目漱石はどこで生まれましたか", "夏目漱石", True),
        ("สมเด็จพระนเรศวรเกิดที่ไหน", "พระนเรศวร", True),
        ("Ada认识谁", "Ada", True),
        ("谁写了Hello World程序", "Hello World", True),
        ("水力学的创立者是谁", "水", False),  # one character is a part of too many words
        ("量子力学的创立者是谁", "相对论", False),
        ("Which Adam met Eve?", "Ada", False),
        ("Wer kennt Äda?", "Äd", False),
        ("who?", "", False),
    ],
)
def test_a_name_stands_in_a_question_of_any_script(question: str, subject: str, is_named: bool) -> None:
    facts = [(subject, "is", "x")] if subject else []
    pool = make_pool(question, make_passage("a", "x", *facts), make_passage("b", "y"))
    assert bool(Company(pool).compare()["in_question"][0]) == is_named


def test_spellings_of_one_entity_are_one_subject() -> None:
    """Ada is written in three ways, none of them as often as Bob."""
    subjects = ["Bob", "Bob", "Ada.", "ADA", "Ada.", "“Ada”"]
    pool = make_pool("Ada?", make_passage("a", "x", *((name, f"is {n}", "y") for n, name in enumerate(subjects))))
    assert pool.contents[0].topics == {"ada": "Ada."}


def test_a_node_is_read_as_it_is_searched() -> None:
    """Its text has the metadata that the embedding model sees, and not its triples."""
    node = TextNode(id_="n", text="went to Tech", metadata={"title": "Dell Curry", "secret": "hidden"})
    node.excluded_embed_metadata_keys = ["secret"]
    fact = Triple("Dell Curry", "went to", "Tech")
    read = to_pool_passage(attach_triples(node, [fact]))
    assert read.id == "n" and list(read.triples) == [fact] and read.title == "Dell Curry"
    assert "Dell Curry" in read.text and "went to Tech" in read.text and "hidden" not in read.text
    assert "gear_triples" not in read.text
    assert read.document == ""
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="the book")
    assert to_pool_passage(node).document == "the book"


def test_a_passage_counts_once_for_all_names_of_an_entity() -> None:
    pool = make_pool(
        "Who drafted Dell?",
        make_passage("both", "Dell", ("Dell Curry", "is", "Wardell Curry")),
        make_passage("one", "Wardell", ("Wardell Curry", "joined", "Utah Jazz")),
        make_passage("none", "Utah", ("Utah Jazz", "is", "a club")),
    ).extend([], {}, [("dell curry", "wardell curry")])
    counts = {entity: pool.entity_passages[entity] for entity in ("dell curry", "wardell curry", "utah jazz")}
    assert counts == {"dell curry": 2, "wardell curry": 2, "utah jazz": 2}

import itertools
import re
import unicodedata
import uuid

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llama_index_gear.errors import TripleError
from llama_index_gear.triple import NAMESPACE, StoredTriple, Triple, chain_text, contains_word, entity_key

ANY = st.text(st.characters(exclude_categories=()))  # lone surrogates, controls, unassigned: all of Unicode
TRICKY = st.text("aAİıßſﬃǆΣςΐ́̈̇ͅ゛ﾞガ①Ⅳ´¨‾､\u00ad\u200b\u200d\u202e\ufeff\u00a0\u3000 .,-_'’!…\t\n\x00\x1f\x85", min_size=1)


@settings(max_examples=500)
@given(ANY | TRICKY)
@example("a\u200d\u0301")  # a format character between a letter and its accent
@example("\u0345\u0301")
@example("…!")
@example("\u200b")
def test_entity_key_is_idempotent_and_never_empty(mention: str) -> None:
    key = entity_key(mention)
    assert entity_key(key) == key
    assert bool(key) == bool(mention)
    assert entity_key(f" {mention}\t") == key or not any(map(str.isalnum, mention))


def test_entity_key_is_idempotent_for_every_character() -> None:
    """Every character of the Basic Multilingual Plane that Unicode changes keeps its key, alone and after a letter."""
    for character in map(chr, range(0x10000)):
        if unicodedata.normalize("NFKC", character.casefold()) != character:
            for mention in (character, f"o{character}"):
                assert entity_key(entity_key(mention)) == entity_key(mention) != ""


@pytest.mark.parametrize(
    "mentions",
    [
        ["Café", "cafe\u0301", "CAFÉ", " café ", "ca\u200bfé", "ca\u034ffé", "café\ufe0f", "cafe\u200d\u0301"],
        ["New York", "new  york", "New\u00a0York", "NEW\nYORK", "New-York", "new_york", "New, York.", "“New York”"],
        ["Straße", "STRASSE", "strasse", "ſtraße"],
        ["İzmir", "I\u0307zmir", "i̇zmir", "İZMIR"],
        ["ΟΔΟΣ", "οδος", "οδοσ"],
        ["Ｔｏｋｙｏ", "Tokyo", "TOKYO"],
        ["ガンダム", "ｶﾞﾝﾀﾞﾑ"],
        ["ﬃ", "ffi"],
        ["Ⅳ", "IV"],
        ["soft\u00adhyphen", "softhyphen"],
        ["\u202eעברית\u202c", "עברית"],
        ["O'Neil", "O’Neil", "o neil"],
        ["St. John's", "st john s"],
    ],
)
def test_mentions_of_one_entity_share_a_key(mentions: list[str]) -> None:
    assert {entity_key(mention) for mention in mentions} == {entity_key(mentions[0])}


@settings(max_examples=500)
@given(st.text(st.characters(max_codepoint=127)))
@example(" Dell-Curry\x00, Jr.")
@example("...\t!")
@example("\x7f")
def test_the_short_way_of_ascii_leads_to_the_same_key(mention: str) -> None:
    """An invisible character, which vanishes from keys, sends a mention the long way."""
    key = entity_key(f"{mention}\u200b")
    assert entity_key(mention) == key or not mention.strip()  # white space alone is its own key


def test_mentions_of_different_entities_keep_different_keys() -> None:
    different = [
        "Curry",
        "Currys",
        "Dell Curry",
        "DellCurry",
        "1988",
        "1,988",
        "é",
        "e",
        "東京",
        "京東",
        "...",
        "!",
        "C++",
        "C",
    ]
    assert len({entity_key(mention) for mention in different}) == len(different)


def test_entity_key_by_hand() -> None:
    assert entity_key("  The “Rolling  Stones”, Ltd.") == "the rolling stones ltd"
    assert entity_key("…") == "..."
    assert entity_key("\u200b") == "\u200b"
    assert entity_key("") == ""


def test_id_is_stable_across_runs_and_releases() -> None:
    triple = Triple("Dell Curry", "played for", "Charlotte Hornets")
    assert str(NAMESPACE) == "7b1d5f0a-8c0e-5d5c-9b1e-6f2f3d3a9c41"
    assert triple.id("passage-1") == "72b1cec7-cd8f-54bd-b801-a7f61b850ba3"
    assert uuid.UUID(triple.id("passage-1")).version == 5


def test_id_tells_apart_what_is_split_differently() -> None:
    slots = [
        ("a b", "c", "d"),
        ("a", "b c", "d"),
        ("a", "b", "c d"),
        ('a", "b', "c", "d"),
        ("a,b", "c", "d"),
        ("A b", "c", "d"),
    ]
    ids = [Triple(*texts).id(passage) for texts, passage in itertools.product(slots, ["p", "p a", 'p", "a b', "P", ""])]
    assert len(set(ids)) == len(ids)


@given(st.tuples(ANY, ANY, ANY, ANY), st.tuples(ANY, ANY, ANY, ANY))
def test_id_is_a_function_of_passage_and_slots(one: tuple[str, ...], two: tuple[str, ...]) -> None:
    def try_triple(passage: str, *slots: str) -> tuple[Triple | None, str]:
        try:
            return Triple(*slots), passage
        except TripleError:
            return None, passage

    (first, passage_id), (second, other) = try_triple(*one), try_triple(*two)
    if first and second:
        assert (first.id(passage_id) == second.id(other)) == ((first, passage_id) == (second, other))


def test_white_space_collapses_and_nothing_else_changes() -> None:
    triple = Triple("  Dell\n Curry ", "played\u00a0for", "“Hornets”, the\tTEAM")
    assert triple == Triple("Dell Curry", "played for", "“Hornets”, the TEAM")
    assert triple.text == "Dell Curry played for “Hornets”, the TEAM"
    assert triple.id("p") == Triple("Dell Curry", "played for", "“Hornets”, the TEAM").id("p")


def test_entities_are_the_keys_of_subject_and_object() -> None:
    assert Triple("Dell CURRY", "father of", "Stephen Curry").entities == ("dell curry", "stephen curry")
    assert Triple("Dell Curry", "is", "dell-curry").entities == ("dell curry",)


@pytest.mark.parametrize("blank", ["", " ", "\t\n\u00a0"])
@pytest.mark.parametrize("slot", range(3))
def test_an_empty_slot_is_an_error_that_names_it(slot: int, blank: str) -> None:
    slots = ["Dell Curry", "played for", "Hornets"]
    slots[slot] = blank
    with pytest.raises(TripleError, match=f"the {('subject', 'predicate', 'object')[slot]} of a triple is empty"):
        Triple(*slots)


def test_triples_are_frozen_and_hashable() -> None:
    triple = Triple("a", "b", "c")
    with pytest.raises(AttributeError):
        triple.subject = "x"  # type: ignore[misc]
    assert {triple, Triple("a", "b", " c")} == {triple}
    assert StoredTriple("id", triple, "p", 0.5) == StoredTriple("id", Triple("a", "b", "c"), "p", 0.5)


@given(st.text("aé 库里カแ水", max_size=9), st.text("aé库カแ水", min_size=1, max_size=3))
@example("aa库里", "aa")
@example("aéa é", "a")
def test_a_word_stands_between_spaces_or_beside_letters_of_a_script_without_them(text: str, word: str) -> None:
    """This is the same as to look for the word with a pattern."""
    has_spaceless = any(letter in "库里カแ水" for letter in word)
    border = r"\S" if has_spaceless else r"[^\s库里カแ水]"
    pattern = word if has_spaceless and len(word) > 1 else f"(?<!{border}){word}(?!{border})"
    assert contains_word(text, word) == bool(re.search(pattern, text))


def test_chain_text() -> None:
    assert chain_text([Triple("a", "b", "c"), Triple("c", "d", "e")]) == "a b c. c d e"
    assert chain_text([Triple("a", "b", "c")]) == Triple("a", "b", "c").text
    assert chain_text([]) == ""

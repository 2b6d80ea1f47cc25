"""Clues and their unknowns: states, values, and statements assigned to clues."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_gear.agents.t2rag.clues import Clues, build_proposition, unknowns_in, unknowns_of
from llama_index_gear.agents.t2rag.resolution import Material, Statement, apply_statements
from llama_index_gear.tests.growth import assert_linear
from llama_index_gear.triple import Triple


def make_triple(text: str) -> Triple:
    return Triple(*(slot.strip() for slot in text.split("|")))


def make_clues(*texts: str) -> Clues:
    made = Clues()
    made.add(map(make_triple, texts), 0, 32)
    return made


def make_statements(*texts: str) -> list[Statement]:
    """Parse "2: subject | predicate | object", with the number of a clue or without, into statements."""
    found = []
    for text in texts:
        number, _, rest = text.partition(": ")
        found.append(Statement(make_triple(rest), int(number)) if rest else Statement(make_triple(text)))
    return found


def list_current(known: Clues) -> list[str]:
    return [
        " | ".join((clue_triple.subject, clue_triple.predicate, clue_triple.object))
        for clue_triple in map(known.current, known.clues)
    ]


def list_states(known: Clues) -> list[str]:
    return [known.state(clue) for clue in known.clues]


@pytest.mark.parametrize(
    ("slot", "names"),
    [
        ("?", ()),
        ("?director", ("director",)),
        ("?Director_A", ("directora",)),
        ("?director's father", ("director",)),
        ("the father of (?x) and ?y", ("x", "y")),
        ("?x and ?X", ("x",)),
        ("??x", ("x",)),
        ("What?", ()),
        ("What?x", ()),
        ("Who is it ?", ()),
        ("?年", ("年",)),
        ("¿Qué?", ()),
    ],
)
def test_where_an_unknown_stands_in_a_slot(slot: str, names: tuple[str, ...]) -> None:
    assert unknowns_in(slot) == names


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("Paris | capital of | France", "given"),
        ("Paris | capital of | ?", "searchable"),
        ("? | capital of | ?", "fuzzy"),
        ("?x | brother of | ?y", "fuzzy"),
        ("?x | ?how | France", "fuzzy"),
        ("?x | killed | ?x", "searchable"),
        ("?x's father | lives in | Rome", "searchable"),
        ("What? | is a film of | 1972", "given"),
        ("?birth year | of | Ann", "searchable"),
        ("(?) | of | Ann", "searchable"),
        ('"?" | of | Ann', "searchable"),
        ("??? | of | Ann", "searchable"),
    ],
)
def test_a_clue_is_what_its_unknowns_make_it(text: str, state: str) -> None:
    assert list_states(make_clues(text)) == [state]


def test_lone_question_marks_are_different_unknowns_and_names_are_not() -> None:
    known = make_clues("A | is | ?", "B | is | ?", "?who | is | C", "?Who | was | D")
    assert known.open_unknowns() == ["?1", "?2", "?who"]
    known = make_clues("A | is | ?1", "B | is | ?")
    assert known.open_unknowns() == ["?1", "?2"]


def test_an_unknown_that_is_found_is_found_everywhere() -> None:
    known = make_clues(
        "Gift | directed by | ?director", "?Director | born in | ?town", "?direc_tor's wife | born in | ?town"
    )
    learnt = apply_statements(known, make_statements("1: Gift | directed by | Curtiz"), 1, 32)
    assert learnt.values == {"?director": "Curtiz"}
    assert list_current(known) == [
        "Gift | directed by | Curtiz",
        "Curtiz | born in | ?town",
        "Curtiz's wife | born in | ?town",
    ]
    assert list_states(known) == ["resolved", "searchable", "searchable"]
    apply_statements(known, make_statements("3: Curtiz's wife | born in | Rome"), 2, 32)
    assert known.open_unknowns() == [] and list_current(known)[1] == "Curtiz | born in | Rome"


def test_one_unknown_of_several_may_be_filled() -> None:
    known = make_clues("?who | joined | ?club")
    learnt = apply_statements(known, make_statements("1: Dell Curry | joined | ?club"), 1, 32)
    assert (learnt.facts, list_states(known), known.open_unknowns()) == ([], ["searchable"], ["?club"])
    learnt = apply_statements(known, make_statements("1: Dell Curry | joined | the Hornets"), 2, 32)
    assert [fact.triple for fact in learnt.facts] == [make_triple("Dell Curry | joined | the Hornets")]


def test_a_value_inside_a_slot() -> None:
    known = make_clues("the father of ?x | lives in | Rome", "?x | born in | ?year")
    apply_statements(known, make_statements("1: The father of Ann | lives in | Rome"), 1, 32)
    assert known.values == {"x": "Ann"} and list_current(known)[1] == "Ann | born in | ?year"
    other = make_clues("the father of ?x | lives in | Rome")
    learnt = apply_statements(other, make_statements("1: Bob | lives in | Rome"), 1, 32)  # says it, but not who ?x is
    assert (other.values, list_states(other)) == ({}, ["resolved"])
    assert [fact.triple for fact in learnt.facts] == [make_triple("Bob | lives in | Rome")]


@pytest.mark.parametrize(
    "nothing",
    "unknown|Unknown.|not specified|not mentioned in the passages|N/A|n/a|none|None|null|?|-|unspecified|(not given)"
    "|No information available|is not stated|not found|unclear|undetermined".split("|"),
)
def test_a_way_to_say_nothing_is_no_value(nothing: str) -> None:
    known = make_clues("Gift | costs | ?sum")
    learnt = apply_statements(known, make_statements(f"1: Gift | costs | {nothing}"), 1, 32)
    assert (known.open_unknowns(), learnt.facts, learnt.new_clues) == (["?sum"], [], [])


@pytest.mark.parametrize("value", ["no", "0", "Nothing but Trouble", "Nonesuch", "Unknown Pleasures", "n", "1886"])
def test_short_and_odd_values_are_values(value: str) -> None:
    known = make_clues("Gift | is | ?x")
    apply_statements(known, make_statements(f"1: Gift | is | {value}"), 1, 32)
    assert known.values == {"x": value}


def test_a_value_of_a_page_is_none() -> None:
    known = make_clues("Gift | is | ?x")
    apply_statements(known, make_statements(f"1: Gift | is | {'very ' * 200}long"), 1, 32)
    assert known.open_unknowns() == ["?x"]


# -- where a statement belongs ----------------------------------------------------------------------------------------


def test_names_outweigh_a_wrong_number() -> None:
    known = make_clues("Gift | directed by | ?a", "Annet | directed by | ?b")
    apply_statements(
        known, make_statements("2: Gift | directed by | Curtiz", "1: Annet | directed by | Carlmar"), 1, 32
    )
    assert known.values == {"a": "Curtiz", "b": "Carlmar"}


def test_a_value_found_in_one_helps_to_place_another_whatever_their_order() -> None:
    for order in (1, -1):
        known = make_clues(
            "Gift | directed by | ?a", "Annet | directed by | ?b", "?a | born in | ?x", "?b | born in | ?y"
        )
        told = ("3: Carlmar | born in | 1911", "1: Gift | directed by | Curtiz", "2: Annet | directed by | Carlmar")
        apply_statements(known, make_statements(*told[::order]), 1, 32)
        assert list_current(known)[2:] == ["Curtiz | born in | ?x", "Carlmar | born in | 1911"]


def test_without_numbers_names_and_predicate_say_where() -> None:
    known = make_clues("Gift | was directed by | ?a", "?a | was born in | ?x")
    apply_statements(known, make_statements("Curtiz | born on | 1886", "Gift | directed by | Curtiz"), 1, 32)
    assert list_current(known) == ["Gift | was directed by | Curtiz", "Curtiz | was born in | 1886"]


def test_without_a_number_another_predicate_is_another_fact() -> None:
    known = make_clues("Curtiz | born in | ?year")
    learnt = apply_statements(known, make_statements("Curtiz | nationality | Hungarian"), 1, 32)
    assert known.open_unknowns() == ["?year"] and [(fact.number, fact.triple.object) for fact in learnt.facts] == [
        (None, "Hungarian")
    ]


def test_a_numbered_statement_about_other_names_is_not_an_answer() -> None:
    known = make_clues("Gift | directed by | ?a")
    learnt = apply_statements(known, make_statements("1: Casablanca | directed by | Curtiz"), 1, 32)
    assert known.open_unknowns() == ["?a"] and [fact.number for fact in learnt.facts] == [None]


def test_a_name_may_be_written_in_another_way() -> None:
    known = make_clues("God's Gift To Women | is directed by | ?a")
    apply_statements(known, make_statements("1: God’s Gift to Women (film) | was directed by | Curtiz"), 1, 32)
    assert list_current(known) == ["God's Gift To Women | is directed by | Curtiz"]


def test_a_statement_the_other_way_round() -> None:
    known = make_clues("?who | director of | Gift")
    learnt = apply_statements(known, make_statements("1: Gift | directed by | Curtiz"), 1, 32)
    assert known.values == {"who": "Curtiz"}
    assert [fact.triple for fact in learnt.facts] == [make_triple("Curtiz | director of | Gift")]


def test_the_first_word_stands() -> None:
    known = make_clues("Curtiz | born in | ?year")
    apply_statements(known, make_statements("1: Curtiz | born in | 1886"), 1, 32)
    learnt = apply_statements(known, make_statements("1: Curtiz | born in | 1888"), 2, 32)
    assert (learnt.facts, known.values) == ([], {"year": "1886"})
    learnt = apply_statements(
        known, make_statements("1: curtiz | born in | 1886"), 2, 32
    )  # the same again: another passage may state it
    assert [fact.triple for fact in learnt.facts] == [make_triple("Curtiz | born in | 1886")]


def test_two_statements_that_meet_in_one_value() -> None:
    """The value that the first statement gives an unknown answers the second clue too."""
    known = make_clues("Gift | directed by | ?who", "Bess | married | ?who")
    learnt = apply_statements(
        known, make_statements("1: Gift | directed by | Curtiz", "2: Bess | married | Curtiz"), 1, 32
    )
    assert [fact.number for fact in learnt.facts] == [1, 2]


def test_a_given_clue_is_a_fact_when_it_is_stated() -> None:
    known = make_clues("Paris | capital of | France")
    assert known.open_unknowns() == [] and list_states(known) == ["given"]
    learnt = apply_statements(known, make_statements("1: Paris | is the capital of | France"), 1, 32)
    assert list_states(known) == ["resolved"] and len(learnt.facts) == 1


def test_new_clues() -> None:
    known = make_clues("Gift | directed by | ?a")
    learnt = apply_statements(
        known, make_statements("?a | grew up in | ?town", "9: Annet | made by | ?", "1: Gift | directed by | ?a"), 1, 32
    )
    assert [(clue.number, clue.round) for clue in learnt.new_clues] == [(2, 1), (3, 1)]
    assert known.open_unknowns() == ["?a", "?town", "?1"]
    learnt = apply_statements(known, make_statements("?A | grew up in | ?town"), 2, 32)
    assert learnt.new_clues == []
    assert apply_statements(known, make_statements("?b | made | ?c"), 2, 3).new_clues == []  # no more than three


def test_the_same_question_twice_is_one_clue() -> None:
    known = make_clues("Gift | directed by | ?a", "gift | Directed by | ?A", "Gift | directed by | ?a")
    assert len(known.clues) == 1


@pytest.mark.parametrize(
    ("names", "values", "stated"),
    [
        (["Gift"], ["Michael Curtiz"], True),
        (["The Gift (1931 film)"], ["Curtiz"], True),
        (["Gift"], ["15 November 1911"], True),
        (["Gift"], ["Dvorák"], True),
        (["Gift"], ["Michael Dvořák"], True),
        (["Annet"], ["Curtiz"], False),
        (["Gift"], ["Carlmar"], False),
        (["Gift"], ["Edith Curtiz"], False),
        (["of the"], ["Curtiz"], True),
        ([], ["Carlmar"], True),
        ([], [], True),
        ([], ["191"], False),
    ],
)
def test_what_a_material_states(names: list[str], values: list[str], stated: bool) -> None:
    one = "The gift: a film of the year 1931 by Michael CURTIZ, a friend of Dvořák's, born November 15, 1911."
    assert Material([one, "Annet is by Edith Carlmar"]).states(names, values) is stated
    assert not Material([]).states([], [])


def test_only_what_the_material_states_is_learnt() -> None:
    known = make_clues("Gift | directed by | ?who", "?who | born in | ?town")
    material = Material(["Gift is by Curtiz", "Rome is old"])
    told = make_statements("1: Gift | directed by | Curtiz", "2: Curtiz | born in | Rome", "Curtiz | died in | Rome")
    learnt = apply_statements(known, told, 1, 32, material)
    assert known.values == {"who": "Curtiz"} and len(learnt.facts) == 1
    assert [statement.triple.predicate for statement in learnt.ungrounded] == ["born in", "died in"]


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        ("Gift | directed by | ?a", "Gift directed by"),
        ("?a's father | directed | Gift", "'s father directed Gift"),
        ("?a | born in | 1886", "born in 1886"),
        ("What? | is | ?x", "What? is"),
        ("?a | ?b | ?c", ""),
    ],
)
def test_what_a_clue_is_searched_by(text: str, searched: str) -> None:
    assert build_proposition(make_triple(text)) == searched


# -- what a review found ----------------------------------------------------------------------------------------------


def test_a_clue_that_others_filled_is_not_confirmed_by_that() -> None:
    known = make_clues("Gift | directed by | ?who", "?who | born in | 1911")
    apply_statements(known, make_statements("1: Gift | directed by | Curtiz"), 1, 32)
    assert (list_states(known), list_current(known)[1]) == (["resolved", "unconfirmed"], "Curtiz | born in | 1911")
    apply_statements(
        known, make_statements("2: Curtiz | born in | 1888"), 2, 32
    )  # of the same name, but not what the clue says
    assert list_states(known)[1] == "unconfirmed"
    learnt = apply_statements(known, make_statements("2: Curtiz | was born in | 1911"), 3, 32)
    assert list_states(known) == ["resolved"] * 2 and len(learnt.facts) == 1


def test_a_clue_without_a_name_does_not_tell_what_an_anchored_one_asks() -> None:
    known = make_clues("Gift | directed by | ?who", "?who | born in | ?year")
    learnt = apply_statements(known, make_statements("2: Carlmar | born in | 1911"), 1, 32)
    assert known.open_unknowns() == ["?who", "?year"] and [fact.number for fact in learnt.facts] == [None]
    apply_statements(known, make_statements("2: Curtiz | born in | 1886", "1: Gift | directed by | Curtiz"), 2, 32)
    assert known.values == {"who": "Curtiz", "year": "1886"}


def test_a_resolved_clue_said_again_fills_no_sibling() -> None:
    known = make_clues("Curtiz | born in | ?place", "Curtiz | born on | ?date")
    told = make_statements(
        "1: Curtiz | born in | Budapest", "1: Curtiz | born in | Budapest", "1: Curtiz | born in | Vienna"
    )
    learnt = apply_statements(known, told, 1, 32)
    assert known.open_unknowns() == ["?date"] and [fact.number for fact in learnt.facts] == [1, 1]
    apply_statements(known, make_statements("Curtiz | born in | Budapest"), 2, 32)
    assert known.open_unknowns() == ["?date"]


def test_one_shared_surname_is_not_the_same_name() -> None:
    known = make_clues("Dell Curry | born in | ?place")
    learnt = apply_statements(known, make_statements("1: Stephen Curry | born in | Akron"), 1, 32)
    assert known.open_unknowns() == ["?place"] and [fact.triple.subject for fact in learnt.facts] == ["Stephen Curry"]
    for name in ("Curry", "Wardell Dell Curry", "Dell Curry (basketball player)"):
        known = make_clues("Dell Curry | born in | ?place")
        apply_statements(known, make_statements(f"1: {name} | born in | Grottoes"), 1, 32)
        assert known.open_unknowns() == []


def test_the_predicate_outweighs_a_wrong_number() -> None:
    known = make_clues("Gift | directed by | ?a", "Gift | released in | ?y")
    apply_statements(known, make_statements("1: Gift | released in | 1931"), 1, 32)
    assert (known.values, known.open_unknowns()) == ({"y": "1931"}, ["?a"])


def test_a_claim_takes_both_its_names_to_be_confirmed() -> None:
    known = make_clues("Carlmar | made | Gift")
    apply_statements(known, make_statements("1: Carlmar | born in | 1911"), 1, 32)
    assert list_states(known) == ["given"]


@pytest.mark.parametrize(
    "unknown",
    ["?film-director", "(?director)", '"?director"', "?director?", "?director.", "the ?director",
     "?director (person)", "?the director of the film", "?director_of_film"],
)  # fmt: skip
def test_an_unknown_that_is_a_whole_slot_however_it_is_written(unknown: str) -> None:
    known = make_clues(f"Gift | directed by | {unknown}", f"{unknown} | born in | ?year")
    apply_statements(known, make_statements("1: Gift | directed by | Curtiz"), 1, 32)
    assert list_current(known)[1] == "Curtiz | born in | ?year"
    assert build_proposition(make_clues(f"Gift | directed by | {unknown}").clues[0].triple) == "Gift directed by"


def test_words_behind_an_unknown_that_has_its_name_elsewhere_are_no_part_of_it() -> None:
    known = make_clues("Gift | made in | ?country", "Bob | king of | ?country at that time", "?birth year | of | Bob")
    assert known.open_unknowns() == ["?country", "?birth_year"]
    apply_statements(known, make_statements("1: Gift | made in | France"), 1, 32)
    assert list_current(known)[1] == "Bob | king of | France at that time"


@pytest.mark.parametrize("clue", ["a | is | ?a a ?b a ?c a ?d a ?e b", "a | is | ?a a ?b a ?c b"])
def test_long_slots_with_many_unknowns_take_linear_time(clue: str) -> None:
    def apply(statements: list[Statement]) -> None:
        apply_statements(make_clues(clue), statements, 1, 32)

    assert_linear(apply, lambda size: [Statement(Triple("a", "is", "a " * size + "c"), 1)], 3_000)


def test_a_citation_is_no_part_of_a_value() -> None:
    known = make_clues("Gift | directed by | ?who")
    apply_statements(
        known, make_statements("1: Gift | directed by | Curtiz [1] [2]"), 1, 32, Material(["Gift is by Curtiz"])
    )
    assert known.values == {"who": "Curtiz"}


def test_scripts_without_spaces() -> None:
    material = Material(["礼物是柯蒂斯导演的电影"])
    assert material.states(["礼物"], ["柯蒂斯"]) and not material.states(["礼物"], ["卡尔马"])
    assert not Material(["カサブランカ"]).states([], ["カサ ブランカ城"])


def test_more_than_half_of_a_name() -> None:
    material = Material(["Stephen Curry was born in Akron", "Robert Oppenheimer taught"])
    assert not material.states(["Dell Curry"], ["Akron"])
    assert material.states(["J. Robert Oppenheimer"])


def test_a_lone_question_mark_takes_no_name_that_is_taken_later() -> None:
    assert make_clues("B | is | ?", "A | is | ?1").open_unknowns() == ["?2", "?1"]


def test_a_chain_told_from_its_end() -> None:
    known = make_clues("Gift | made by | ?a", "?a | knew | ?b", "?b | lived in | ?c", "?c | lies on | ?d")
    told = make_statements(
        "Rome | lies on | Tiber", "Bob | lived in | Rome", "Ann | knew | Bob", "Gift | made by | Ann"
    )
    apply_statements(known, told, 1, 32)
    assert list_states(known) == ["resolved"] * 4


def test_clues_beyond_those_there_may_be_are_counted() -> None:
    known = make_clues("Gift | made by | ?a")
    learnt = apply_statements(known, make_statements("?b | made | ?c", "?d | made | ?e"), 1, 2)
    assert (len(learnt.new_clues), learnt.left_out) == (1, 1)


SLOT = st.sampled_from("Ann Bob Rome ? ?a ?b ?a's unknown the_father_of_?b What?".split()).map(
    lambda slot: slot.replace("_", " ")
)
TRIPLES = st.builds(Triple, SLOT, st.sampled_from(["knows", "?how", "lives in"]), SLOT)


@given(
    st.lists(TRIPLES, min_size=1, max_size=6),
    st.lists(st.lists(st.builds(Statement, TRIPLES, st.one_of(st.none(), st.integers(0, 7))), max_size=6), max_size=4),
)
def test_what_always_holds(asked: list[Triple], rounds: list[list[Statement]]) -> None:
    known = Clues()
    known.add(asked, 0, 32)
    for number, stated in enumerate(rounds, start=1):
        resolved = {clue.number: known.current(clue) for clue in known.in_state("resolved")}
        values, names = dict(known.values), set(known.open_unknowns())
        learnt = apply_statements(known, stated, number, 32)
        assert all(known.current(clue) == resolved[clue.number] for clue in known.clues if clue.number in resolved)
        assert values.items() <= known.values.items()
        new_clues = _find_names(known, (clue.triple for clue in learnt.new_clues))
        assert set(known.open_unknowns()) <= names | new_clues
        assert not any(unknowns_of(fact.triple) for fact in learnt.facts)
        told = [(fact.number, fact.triple) for fact in learnt.facts]
        for clue in known.clues:  # what is resolved was stated, now or before
            if known.state(clue) == "resolved" and clue.number not in resolved:
                assert (clue.number, known.current(clue)) in told


def _find_names(known: Clues, triples: Iterable[Triple]) -> set[str]:
    fresh = Clues()
    fresh.add(triples, 0, 32)
    return set(fresh.open_unknowns())

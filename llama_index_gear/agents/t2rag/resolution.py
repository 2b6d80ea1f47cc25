"""Triple resolution: a model's statements become values, facts and new clues, if the material states them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from llama_index_gear.agents.t2rag.clues import (
    LONE_UNKNOWN,
    Clue,
    Clues,
    clue_key,
    match_values,
    slots_of,
    unknowns_in,
    unknowns_of,
)
from llama_index_gear.triple import StoredTriple, Triple, entity_key, fact_key

_NO_VALUE = re.compile(
    r"\W*(?:(?:is |was |are )?(?:not|un|in)[ -]?"
    r"(?:known|specified|stated|mentioned|given|provided|found|available|clear|determined|answerable|resolved)"
    r"(?: (?:in|by|from) .*)?|n/?a|none|null|nil|nothing|no (?:information|answer|data)(?: .*)?|tbd)?\W*",
    re.IGNORECASE,
)
_MAX_VALUE_LENGTH = 300  # characters
_PASSES = 8  # over the statements: a value from one may tell which clue the next is about
_FUNCTION_WORDS = frozenset(
    "a an the is are was were be been being has have had did does do of in by to at on for with as from and".split()
)
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""Scripts that put no spaces between words, or attach endings to them."""


@dataclass(frozen=True)
class Statement:
    """A triple that a language model states about the clues.

    Attributes:
        triple: a clue with unknowns filled in, a fact about no clue, or a new clue.
        number: the clue's number; None if the model named none.
        passages: numbers of the passages that state it, in the numbering of the prompt.

    """

    triple: Triple
    number: int | None = None
    passages: tuple[int, ...] = ()


@dataclass
class ResolutionResult:
    """The facts, values and clues that a model's statements added.

    Attributes:
        facts: triples without unknowns: resolved clues, and facts about no clue (`number` None).
        values: unknown → value.
        new_clues: clues that the model brought up.
        ungrounded: statements that were rejected, since no text of the material states them.
        left_out: number of new clues that were rejected, since there are `max_clues` already.

    """

    facts: list[Statement] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    new_clues: list[Clue] = field(default_factory=list)
    ungrounded: list[Statement] = field(default_factory=list)
    left_out: int = 0


class Material:
    """Texts to check a model's statements against, word by word; case and accents make no difference."""

    def __init__(self, texts: Iterable[str]) -> None:
        folded = [_strip_accents(text) for text in texts]
        self._texts = [(text, set(text.split())) for text in folded]

    def states(self, names: Sequence[str], values: Sequence[str] = ()) -> bool:
        """Return True if one text has all words of every value, and more than half of the words of every name."""
        return any(
            all(_word_share(value, *text) == 1 for value in values)
            and all(_word_share(name, *text) > 0.5 for name in names)
            for text in self._texts
        )


def apply_statements(
    clues: Clues, statements: Sequence[Statement], round: int, max_clues: int, material: Material | None = None
) -> ResolutionResult:
    """Apply a model's statements to the clues, and return what they added (T²RAG §4.3, step 2.3).

    A statement belongs to the clue whose number it bears, unless its names or its predicate say otherwise: models mix
    numbers up. Statements about known names come first, since a value found in one helps to place the next.

    Args:
        clues: the question's; changed in place.
        statements: what the model stated.
        round: the round of retrieval, from 1.
        max_clues: the limit on all clues together.
        material: texts of which one must have a value and the names beside it; None: the model's word counts.

    """
    placer = _Placer(clues, round, max_clues, material)
    waiting = [replace(statement, triple=clues.normalize_unknowns(statement.triple)) for statement in statements]
    waiting.sort(key=lambda statement: -placer.find_clue(statement)[1])
    for _ in range(_PASSES):
        unplaced = [statement for statement in waiting if not placer.apply_to_clue(statement)]
        if len(unplaced) == len(waiting):
            break
        waiting = unplaced
    for statement in waiting:
        placer.add_fact_or_clue(statement)
    return placer.result


@dataclass
class _Placer:
    """Finds the clue that a statement is about, and applies the statement to it; collects what is new."""

    clues: Clues
    round: int
    max_clues: int
    material: Material | None
    result: ResolutionResult = field(default_factory=ResolutionResult)

    def find_clue(self, statement: Statement) -> tuple[Clue | None, int]:
        """Return the clue that a statement is about, and the number of names that both have in the same slot."""
        best: tuple[Clue | None, tuple[int, ...]] = (None, ())
        for clue in self.clues.clues:
            is_numbered = clue.number == statement.number
            if self.clues.state(clue) == "resolved" and not is_numbered:
                continue
            shared = self._count_shared_names(clue, statement.triple)
            if not is_numbered and not (shared and _share_a_word(clue.triple.predicate, statement.triple.predicate)):
                continue
            is_same_predicate = _fold(clue.triple.predicate) == _fold(statement.triple.predicate)
            score = (shared, int(is_same_predicate), int(is_numbered))
            if score > best[1]:
                best = clue, score
        return best[0], best[1][0] if best[1] else 0

    def apply_to_clue(self, statement: Statement) -> bool:
        """Apply a statement to the clue that it is about; return False if no clue fits, as things stand."""
        key = clue_key(statement.triple)
        repeated = [clue for clue in self.clues.in_state("resolved") if clue_key(self.clues.current(clue)) == key]
        if repeated:  # another passage may state it
            self._add_fact(repeated[0], statement)
            return True
        clue, _ = self.find_clue(statement)
        if clue is None:
            return False
        if self.clues.state(clue) == "resolved":  # a contradiction: the first statement stands
            return True
        triple = self._align(clue, statement.triple)
        if triple is None:
            return False
        self._fill_in(clue, triple, statement)
        return True

    def add_fact_or_clue(self, statement: Statement) -> None:
        """Add a statement that is about no clue: as a new clue if it has an unknown, else as a fact."""
        slots = slots_of(statement.triple)
        if any(unknowns_in(slot) or LONE_UNKNOWN.fullmatch(slot) for slot in slots):
            added = self.clues.add([statement.triple], self.round, self.max_clues)
            self.result.new_clues += added
            self.result.left_out += not added and len(self.clues.clues) >= self.max_clues
        elif not any(map(says_nothing, slots)):
            names = [statement.triple.subject, statement.triple.object]
            kept = self.result.facts if self._is_grounded(names, names) else self.result.ungrounded
            kept.append(Statement(statement.triple, None, statement.passages))

    def _fill_in(self, clue: Clue, triple: Triple, statement: Statement) -> None:
        """Fill the clue's unknowns in from the aligned triple of a statement, if the material states its values."""
        current = self.clues.current(clue)
        values = {name: value for name, value in match_values(current, triple).items() if not says_nothing(value)}
        names = [slot for clue_slot, slot in _pair_ends(current, triple) if not unknowns_in(clue_slot)]
        answers = [
            slot for clue_slot, slot in zip(slots_of(current), slots_of(triple), strict=True) if unknowns_in(clue_slot)
        ]
        is_whole = not unknowns_of(triple) and not any(map(says_nothing, answers))
        if not values and not is_whole:
            return  # it repeats the clue, with nothing filled in
        if not self._is_grounded(names if values else [triple.subject, triple.object], list(values.values())):
            self.result.ungrounded.append(statement)
            return
        self.clues.bind(values)
        self.result.values.update({self.clues.written_name(name): value for name, value in values.items()})
        current = self.clues.current(clue)
        if not unknowns_of(current):
            self.clues.settle(clue, current if values else statement.triple)
        elif is_whole:
            self.clues.settle(clue, statement.triple)  # it answers the clue in a shape of its own
        if self.clues.state(clue) == "resolved":
            self._add_fact(clue, statement)

    def _add_fact(self, clue: Clue, statement: Statement) -> None:
        self.result.facts.append(Statement(self.clues.current(clue), clue.number, statement.passages))

    def _is_grounded(self, names: Sequence[str], values: Sequence[str]) -> bool:
        return self.material is None or self.material.states(names, values)

    def _count_shared_names(self, clue: Clue, triple: Triple) -> int:
        ends = _pair_ends(self.clues.current(clue), triple)
        return sum(not unknowns_in(clue_slot) and _fold(clue_slot) == _fold(slot) for clue_slot, slot in ends)

    def _align(self, clue: Clue, triple: Triple) -> Triple | None:
        """Return the triple in the clue's direction, or None if it is about something else.

        A clue that names nothing takes a triple only if no other open clue can determine its unknowns.
        """
        current = self.clues.current(clue)
        if all(unknowns_in(slot) for slot in (current.subject, current.object)):
            return None if self._is_determined_elsewhere(clue) else triple
        for candidate in (triple, Triple(triple.object, triple.predicate, triple.subject)):
            ends = _pair_ends(current, candidate)
            if all(unknowns_in(clue_slot) or _is_same_name(clue_slot, slot) for clue_slot, slot in ends):
                return candidate
        return None

    def _is_determined_elsewhere(self, clue: Clue) -> bool:
        """Return True if another open clue shares an unknown with this one, and names something."""
        names = set(unknowns_of(self.clues.current(clue)))
        open_clues = self.clues.in_state("searchable", "fuzzy")
        others = (self.clues.current(other) for other in open_clues if other is not clue)
        return any(
            names & set(unknowns_of(other)) and not all(map(unknowns_in, (other.subject, other.object)))
            for other in others
        )


def supporting_passages(
    statement: Statement, texts: Mapping[str, str], propositions: Sequence[StoredTriple]
) -> list[str]:
    """Return ids of the passages that state a fact, without repetition.

    These are the passages that the model named and those of an equal proposition; without any, all passages that were
    shown. Of the named and the shown ones only those count that have more than half of the words of each of the fact's
    names, whatever the model says.

    Args:
        statement: the fact, and the numbers of the passages that the model named.
        texts: id → text of the passages, in the order in which the model was shown them.
        propositions: the propositions that the model was shown.

    """
    ids = list(texts)
    names = [statement.triple.subject, statement.triple.object]
    stating = {passage_id for passage_id, text in texts.items() if Material([text]).states(names)}
    named = [ids[number - 1] for number in statement.passages if 1 <= number <= len(ids)]
    supporting = [passage_id for passage_id in named if passage_id in stating]
    key = fact_key(slots_of(statement.triple))
    supporting += [
        proposition.passage_id for proposition in propositions if fact_key(slots_of(proposition.triple)) == key
    ]
    return list(dict.fromkeys(supporting or (passage_id for passage_id in ids if passage_id in stating)))


def says_nothing(value: str) -> bool:
    """Return True if a slot is a way to say that there is no value, or too long to be one."""
    return len(value) > _MAX_VALUE_LENGTH or bool(_NO_VALUE.fullmatch(value))


def _pair_ends(one: Triple, two: Triple) -> list[tuple[str, str]]:
    """Return the two subjects and the two objects, as pairs."""
    return [(one.subject, two.subject), (one.object, two.object)]


@lru_cache(4096)
def _fold(text: str) -> str:
    return entity_key(text)


@lru_cache(4096)
def _content_words(text: str) -> tuple[str, ...]:
    """Return the words of a text, folded, without function words; all of them if it has no others."""
    words = _strip_accents(text).split()
    return tuple(word for word in words if word not in _FUNCTION_WORDS) or tuple(words)


def _strip_accents(text: str) -> str:
    """Fold a text and remove its accents."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", _fold(text)) if not unicodedata.combining(mark))


def _word_share(name: str, text: str, words: set[str]) -> float:
    """Return the share of a name's words that a text has, from 0 to 1."""
    if _UNSPACED.search(name) and _strip_accents(name) in text:
        return 1.0
    name_words = _content_words(name)
    return sum(word in words for word in name_words) / len(name_words) if name_words else 1.0


def _share_a_word(one: str, two: str) -> bool:
    """Return True if two predicates share a content word, or have the same words."""
    words, others = set(_fold(one).split()), set(_fold(two).split())
    return bool((words & others) - _FUNCTION_WORDS) or words == others


def _is_same_name(one: str, two: str) -> bool:
    """Return True if one name has all words of the other."""
    words, others = set(_content_words(one)), set(_content_words(two))
    return words <= others or others <= words

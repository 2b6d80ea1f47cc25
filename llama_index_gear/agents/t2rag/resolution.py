"""What a model says of clues, put where it belongs: values, facts, new clues; only what the material states counts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from llama_index_gear.agents.t2rag.clues import LONE, Clue, Clues, key, names_in, slots_of, unknowns, values_in
from llama_index_gear.triple import StoredTriple, Triple, entity_key, plain

_NO_VALUE = re.compile(
    r"\W*(?:(?:is |was |are )?(?:not|un|in)[ -]?"
    r"(?:known|specified|stated|mentioned|given|provided|found|available|clear|determined|answerable|resolved)"
    r"(?: (?:in|by|from) .*)?|n/?a|none|null|nil|nothing|no (?:information|answer|data)(?: .*)?|tbd)?\W*",
    re.IGNORECASE,
)
_LONGEST_VALUE = 300  # characters
_PASSES = 8  # over statements whose place others may yet make clear
_EMPTY_WORDS = frozenset(
    "a an the is are was were be been being has have had did does do of in by to at on for with as from and".split()
)
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]")
"""Scripts whose words are not set apart by spaces, or carry endings."""


@dataclass(frozen=True)
class Statement:
    """What a language model says of the clues.

    Attributes:
        triple: a clue with unknowns filled in, or a fact or clue of its own.
        number: of the clue; None if the model named none.
        passages: numbers of the passages that state it, as the model was shown them.

    """

    triple: Triple
    number: int | None = None
    passages: tuple[int, ...] = ()


@dataclass
class ResolutionResult:
    """What was new in what a model said.

    Attributes:
        facts: triples without unknowns: clues that are resolved by it, and facts beside them (`number` None).
        values: unknown → what it turned out to be.
        introduced: clues that the model brought up.
        doubted: what was not taken, since no text of the material states it.
        left_out: clues that the model brought up beyond those that there may be.

    """

    facts: list[Statement] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    new_clues: list[Clue] = field(default_factory=list)
    ungrounded: list[Statement] = field(default_factory=list)
    left_out: int = 0


class Material:
    """Texts in which what a model says is looked for, word by word, without regard to case and accents."""

    def __init__(self, texts: Iterable[str]) -> None:
        bare = [_bare(text) for text in texts]
        self._texts = [(text, set(text.split())) for text in bare]

    def states(self, names: Sequence[str], values: Sequence[str] = ()) -> bool:
        """Whether one of the texts has all words of each value, and more than half of those of each name."""
        return any(
            all(_share(value, *text) == 1 for value in values) and all(_share(name, *text) > 0.5 for name in names)
            for text in self._texts
        )


def apply_statements(
    clues: Clues, stated: Sequence[Statement], since: int, most: int, material: Material | None = None
) -> ResolutionResult:
    """Take in what a model says.

    A statement belongs to the clue whose number it bears, unless its names or its predicate say otherwise: models mix
    numbers up. Statements about names that are known go first, and a value found in one helps to place the next.

    Args:
        clues: of the question.
        stated: what the model says.
        since: the round.
        most: clues that there may be.
        material: where a value must be found, beside the names that it is a value for; None: the model's word counts.

    """
    work = _Placing(clues, since, most, material)
    waiting = [replace(each, triple=clues.spelled(each.triple)) for each in stated]
    waiting.sort(key=lambda each: -work.fit(each)[1])
    for _ in range(_PASSES):
        later = [each for each in waiting if not work.take(each)]
        if len(later) == len(waiting):
            break
        waiting = later
    for each in waiting:
        work.take_beside(each)
    return work.learnt


@dataclass
class _Placing:
    clues: Clues
    since: int
    most: int
    material: Material | None
    learnt: ResolutionResult = field(default_factory=ResolutionResult)

    def fit(self, said: Statement) -> tuple[Clue | None, int]:
        """The clue that a statement is about, and how many names the two have in the same place."""
        best: tuple[Clue | None, tuple[int, ...]] = (None, ())
        for clue in self.clues.clues:
            is_numbered = clue.number == said.number
            if self.clues.state(clue) == "resolved" and not is_numbered:
                continue
            shared = self._shared(clue, said.triple)
            if not is_numbered and not (shared and _alike(clue.triple.predicate, said.triple.predicate)):
                continue
            is_worded_so = _folded(clue.triple.predicate) == _folded(said.triple.predicate)
            mark = (shared, int(is_worded_so), int(is_numbered))
            if mark > best[1]:
                best = clue, mark
        return best[0], best[1][0] if best[1] else 0

    def take(self, said: Statement) -> bool:
        """Take a statement as one about a clue; False if there is none that it can be about, as things stand."""
        same = [clue for clue in self.clues.of("resolved") if key(self.clues.now(clue)) == key(said.triple)]
        if same:  # said again: another passage may state it
            self._fact(same[0], said)
            return True
        clue, _ = self.fit(said)
        if clue is None:
            return False
        if self.clues.state(clue) == "resolved":  # said otherwise: the first word stands
            return True
        triple = self._aligned(clue, said.triple)
        if triple is None:
            return False
        now = self.clues.now(clue)
        values = {name: value for name, value in values_in(now, triple).items() if not says_nothing(value)}
        names = [theirs for mine, theirs in _ends(now, triple) if not names_in(mine)]
        asked = [theirs for mine, theirs in zip(slots_of(now), slots_of(triple), strict=True) if names_in(mine)]
        is_whole = not unknowns(triple) and not any(map(says_nothing, asked))
        if not values and not is_whole:
            return True  # the clue again, nothing filled in
        if not self._is_grounded(names if values else [triple.subject, triple.object], list(values.values())):
            self.learnt.ungrounded.append(said)
            return True
        self.clues.bind(values)
        self.learnt.values.update({self.clues.written(name): value for name, value in values.items()})
        now = self.clues.now(clue)
        if not unknowns(now):
            self.clues.settle(clue, now if values else said.triple)
        elif is_whole:
            self.clues.settle(clue, said.triple)  # it says what was asked in a shape of its own
        if self.clues.state(clue) == "resolved":
            self._fact(clue, said)
        return True

    def take_beside(self, said: Statement) -> None:
        """Take a statement that is about no clue: a fact of its own, or a new clue."""
        if any(names_in(slot) or LONE.fullmatch(slot) for slot in slots_of(said.triple)):
            added = self.clues.add([said.triple], self.since, self.most)
            self.learnt.new_clues += added
            self.learnt.left_out += not added and len(self.clues.clues) >= self.most
        elif not any(map(says_nothing, slots_of(said.triple))):
            names = [said.triple.subject, said.triple.object]
            kept = self.learnt.facts if self._is_grounded(names, names) else self.learnt.ungrounded
            kept.append(Statement(said.triple, None, said.passages))

    def _fact(self, clue: Clue, said: Statement) -> None:
        self.learnt.facts.append(Statement(self.clues.now(clue), clue.number, said.passages))

    def _is_grounded(self, names: Sequence[str], values: Sequence[str]) -> bool:
        return self.material is None or self.material.states(names, values)

    def _shared(self, clue: Clue, triple: Triple) -> int:
        ends = _ends(self.clues.now(clue), triple)
        return sum(not names_in(mine) and _folded(mine) == _folded(theirs) for mine, theirs in ends)

    def _aligned(self, clue: Clue, triple: Triple) -> Triple | None:
        """The triple, turned round if the clue says it the other way; None if it is about something else.

        A clue that names nothing takes what is said only if no other clue could tell what its unknowns are.
        """
        now = self.clues.now(clue)
        if all(names_in(mine) for mine in (now.subject, now.object)):
            return None if self._is_told_elsewhere(clue) else triple
        for each in (triple, Triple(triple.object, triple.predicate, triple.subject)):
            if all(names_in(mine) or _same_name(mine, theirs) for mine, theirs in _ends(now, each)):
                return each
        return None

    def _is_told_elsewhere(self, clue: Clue) -> bool:
        mine = set(unknowns(self.clues.now(clue)))
        others = (self.clues.now(other) for other in self.clues.of("searchable", "fuzzy") if other is not clue)
        return any(
            mine & set(unknowns(other)) and not all(map(names_in, (other.subject, other.object))) for other in others
        )


def same(triple: Triple) -> tuple[str, ...]:
    """What two triples that state the same fact have in common."""
    return tuple(entity_key(slot) for slots in plain([triple]) for slot in slots)


def supporting_passages(said: Statement, texts: Mapping[str, str], propositions: Sequence[StoredTriple]) -> list[str]:
    """Ids of the passages that state a fact: of those named, and those of an equal proposition, else of all shown.

    A passage that has not more than half of the words of each of its names does not state it, whatever the model says.

    Args:
        said: the fact, and the numbers of the passages that the model named.
        texts: id → text of the passages, in the order in which the model was shown them.
        propositions: that the model was shown.

    """
    ids = list(texts)
    names = [said.triple.subject, said.triple.object]
    stated = {passage_id for passage_id, text in texts.items() if Material([text]).states(names)}
    named = [ids[number - 1] for number in said.passages if 1 <= number <= len(ids)]
    told = [passage_id for passage_id in named if passage_id in stated]
    told += [each.passage_id for each in propositions if same(each.triple) == same(said.triple)]
    return list(dict.fromkeys(told or (passage_id for passage_id in ids if passage_id in stated)))


def says_nothing(value: str) -> bool:
    """Whether a slot is a way to say that there is no value."""
    return len(value) > _LONGEST_VALUE or bool(_NO_VALUE.fullmatch(value))


def _ends(one: Triple, two: Triple) -> list[tuple[str, str]]:
    return [(one.subject, two.subject), (one.object, two.object)]


@lru_cache(4096)
def _folded(text: str) -> str:
    return entity_key(text)


@lru_cache(4096)
def _words(text: str) -> tuple[str, ...]:
    """The words of a text that say something, without accents; all of them if none does."""
    words = _bare(text).split()
    return tuple(word for word in words if word not in _EMPTY_WORDS) or tuple(words)


def _bare(text: str) -> str:
    """The text folded, without accents."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", _folded(text)) if not unicodedata.combining(mark))


def _share(name: str, text: str, words: set[str]) -> float:
    """The share of a name's words that a text has."""
    if _UNSPACED.search(name) and _bare(name) in text:
        return 1.0
    mine = _words(name)
    return sum(word in words for word in mine) / len(mine) if mine else 1.0


def _alike(one: str, two: str) -> bool:
    """Whether two predicates share a word that says something, or every word."""
    words, others = set(_folded(one).split()), set(_folded(two).split())
    return bool((words & others) - _EMPTY_WORDS) or words == others


def _same_name(one: str, two: str) -> bool:
    """Whether one name has all words of the other."""
    words, others = set(_words(one)), set(_words(two))
    return words <= others or others <= words

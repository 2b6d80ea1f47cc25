"""A question as triples with unknowns in them (T²RAG §4.3), and what has become known of them; pure, no model.

An unknown is written `?name` wherever it stands, in a slot of its own or inside one ("?director's father"); the same
name is the same unknown in all triples, up to case and underscores. A lone `?` is an unknown of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

from llama_index_gear.triple import Triple, entity_key

State = Literal["resolved", "searchable", "fuzzy", "given"]
"""A clue without an unknown, with one, with several (T²RAG §4.3); "given": it had none from the first."""

_UNKNOWN = re.compile(r"(?<![\w?])\?+(\w+)")
_LONE = re.compile(r"[\s\"'“”‘’(\[{<_]*\?+[\s\"'“”‘’)\]}>_.]*")
_SPACED = re.compile(r"\?+\s*(\w+(?:\s+\w+){0,3})")  # a slot that is one name of several words: "?birth year"
_NO_VALUE = re.compile(
    r"\W*(?:(?:is |was |are )?(?:not|un|in)[ -]?"
    r"(?:known|specified|stated|mentioned|given|provided|found|available|clear|determined|answerable|resolved)"
    r"(?: (?:in|by|from) .*)?|n/?a|none|null|nil|nothing|no (?:information|answer|data)(?: .*)?|tbd)?\W*",
    re.IGNORECASE,
)
_LONGEST_VALUE = 500  # characters
_EMPTY_WORDS = frozenset(
    "a an the is are was were be been being has have had did does do of in by to at on for with as from and".split()
)


@dataclass(frozen=True)
class Clue:
    """A triple of the question.

    Attributes:
        number: from 1, in the order in which clues came up.
        triple: as it came up, unknowns and all.
        since: the round in which it came up; 0 for the question's own.

    """

    number: int
    triple: Triple
    since: int


@dataclass(frozen=True)
class Stated:
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
class Clues:
    """The clues of a question and what is known of their unknowns.

    What a clue is follows from its unknowns: it can be in one state only, and a value that fills an unknown in one
    clue fills it in all. Values stay: what is resolved stays resolved.

    Attributes:
        clues: in the order in which they came up.
        values: unknown → what it is.

    """

    clues: list[Clue] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    _stated: dict[int, Triple] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _known: dict[int, tuple[Triple, State]] = field(
        default_factory=dict
    )  # what follows from the rest, until it changes

    def add(self, triples: Iterable[Triple], since: int, most: int) -> list[Clue]:
        """Take new clues, as long as there are no more than `most`; return those that were taken."""
        added = []
        known = {_key(clue.triple) for clue in self.clues} | {_key(self.now(clue)) for clue in self.clues}
        for triple in dict.fromkeys(triples):
            named = self._named(triple)
            if _key(named) in known or len(self.clues) >= most:
                continue
            known.add(_key(named))
            clue = Clue(len(self.clues) + 1, named, since)
            self.clues.append(clue)
            added.append(clue)
        return added

    def now(self, clue: Clue) -> Triple:
        """The clue with what is known filled in."""
        return self._follows(clue)[0]

    def state(self, clue: Clue) -> State:
        """What the clue is now."""
        return self._follows(clue)[1]

    def of(self, *states: State) -> list[Clue]:
        """The clues in one of these states, in order."""
        return [clue for clue in self.clues if self.state(clue) in states]

    def open(self) -> list[str]:
        """The unknowns of the clues that are not resolved, as the model wrote them, each once, in order."""
        return list(dict.fromkeys(name for clue in self.of("searchable", "fuzzy") for name in self.open_in(clue)))

    def open_in(self, clue: Clue) -> list[str]:
        """The unknowns of a clue that nothing is known of, as the model wrote them."""
        return [f"?{self._names[name]}" for name in unknowns(self.now(clue))]

    def learn(self, stated: Sequence[Stated], since: int, most: int, material: Material | None = None) -> Learnt:
        """Take in what a model says: values, facts, new clues.

        A statement belongs to the clue whose number it bears, unless its names say otherwise: models mix numbers up.
        Statements about names that are known go first, so that a value found in one helps to place the next.

        Args:
            stated: what it says.
            since: the round.
            most: clues that there may be.
            material: where values must be found, beside the names that they are values for; None: the model's word
                is taken.

        """
        learnt = Learnt(material=material)
        spelled = [replace(each, triple=_spelled(each.triple)) for each in stated]
        first = {id(each): self._placed(each)[1] for each in spelled}
        unplaced = []
        for each in sorted(spelled, key=lambda each: -first[id(each)]):
            clue, _ = self._placed(each)
            if clue is None or not self._fill(clue, each, learnt):
                unplaced.append(each)
        for each in unplaced:  # the values of others may have made a place for it
            clue, _ = self._placed(each)
            if clue is None or not self._fill(clue, each, learnt):
                self._take_beside(each, learnt, since, most)
        return learnt

    # -- how ------------------------------------------------------------------------------------------------------

    def _follows(self, clue: Clue) -> tuple[Triple, State]:
        if clue.number not in self._known:
            now = self._stated.get(clue.number) or Triple(*(self._filled(slot) for slot in slots_of(clue.triple)))
            state: State = "resolved"
            if clue.number not in self._stated:
                count = len(unknowns(now))
                state = "fuzzy" if count > 1 else "searchable" if count else "resolved"
                state = state if unknowns(clue.triple) else "given"
            self._known[clue.number] = now, state
        return self._known[clue.number]

    def _placed(self, said: Stated) -> tuple[Clue | None, int]:
        """The clue that a statement is about, and how many of its names the two share in the same place."""
        waiting = self.of("searchable", "fuzzy", "given")
        best = next((clue for clue in waiting if clue.number == said.number), None)
        most = 0 if best is None else self._shared(best, said.triple)
        for clue in waiting:
            shared = self._shared(clue, said.triple)
            if shared > most and _alike(clue.triple.predicate, said.triple.predicate):
                best, most = clue, shared
        return best, most

    def _shared(self, clue: Clue, triple: Triple) -> int:
        now = self.now(clue)
        pairs = ((now.subject, triple.subject), (now.object, triple.object))
        return sum(not names_in(mine) and _folded(mine) == _folded(theirs) for mine, theirs in pairs)

    def _fill(self, clue: Clue, said: Stated, learnt: Learnt) -> bool:
        """Take a statement as one about this clue; False if it can't be."""
        triple = self._aligned(clue, said.triple)
        if triple is None:
            return False
        values = self._values(clue, triple)
        names = [name for name in (triple.subject, triple.object) if not names_in(name)]
        if not learnt.is_grounded(names, list(values.values())):
            learnt.doubted.append(said)
            return True
        for name, value in values.items():
            self.values[name] = value
            self._known.clear()
            learnt.values[f"?{self._names[name]}"] = value
        asked = [theirs for mine, theirs in zip(slots_of(clue.triple), slots_of(triple), strict=True) if names_in(mine)]
        if self.state(clue) != "resolved" and not unknowns(triple) and not any(map(_says_nothing, asked)):
            self._known.clear()
            self._stated[clue.number] = said.triple  # in another shape than asked, or a given one that is confirmed
        if self.state(clue) == "resolved":
            learnt.facts.append(Stated(self.now(clue), clue.number, said.passages))
        return True

    def _aligned(self, clue: Clue, triple: Triple) -> Triple | None:
        """The triple, turned round if the clue says it the other way; None if it is about other names."""
        now = self.now(clue)
        for each in (triple, Triple(triple.object, triple.predicate, triple.subject)):
            pairs = ((now.subject, each.subject), (now.object, each.object))
            named = [_alike(mine, theirs) for mine, theirs in pairs if not names_in(mine)]
            if any(named) or not named:
                return each
        return None

    def _take_beside(self, said: Stated, learnt: Learnt, since: int, most: int) -> None:
        """Take a statement that is about no open clue: a fact of its own, or a new clue."""
        resolved = next((clue for clue in self.of("resolved") if clue.number == said.number), None)
        if resolved is not None:  # said again, or otherwise: the first word stands
            if _key(self.now(resolved)) == _key(said.triple):
                learnt.facts.append(replace(said, triple=self.now(resolved)))
            return
        if any(names_in(slot) or _LONE.fullmatch(slot) for slot in slots_of(said.triple)):
            learnt.introduced += self.add([said.triple], since, most)
        elif not any(map(_says_nothing, slots_of(said.triple))):
            names = [said.triple.subject, said.triple.object]
            kept = learnt.facts if learnt.is_grounded(names, names) else learnt.doubted
            kept.append(Stated(said.triple, None, said.passages))

    def _values(self, clue: Clue, triple: Triple) -> dict[str, str]:
        """The values that a triple gives to the clue's unknowns."""
        values: dict[str, str] = {}
        for mine, theirs in zip(slots_of(self.now(clue)), slots_of(triple), strict=True):
            names = list(map(_canonical, _UNKNOWN.findall(mine)))
            if not names or names_in(theirs) or _LONE.fullmatch(theirs):
                continue
            literals = (re.escape(part) for part in _UNKNOWN.split(mine)[::2])
            match = re.fullmatch("(.+?)".join(literals), theirs, re.IGNORECASE)
            for name, value in zip(names, match.groups() if match else (), strict=False):
                if not _says_nothing(value):
                    values.setdefault(name, value.strip())
        return values

    def _filled(self, slot: str) -> str:
        return _UNKNOWN.sub(lambda found: self.values.get(_canonical(found[1]), found[0]), slot)

    def _named(self, triple: Triple) -> Triple:
        """The triple with a name for every unknown."""
        slots = []
        for slot in slots_of(_spelled(triple)):
            if _LONE.fullmatch(slot):
                number = 1
                while str(number) in self._names:
                    number += 1
                slot = f"?{number}"
            for name in _UNKNOWN.findall(slot):
                self._names.setdefault(_canonical(name), name)
            slots.append(slot)
        return Triple(*slots)


class Material:
    """Texts in which what a model says is looked for, word by word, without regard to case and accents."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = [set(_bare(text).split()) for text in texts]

    def states(self, names: Sequence[str], values: Sequence[str]) -> bool:
        """Whether one of the texts has all words of the values, and of each name at least one."""
        wanted = {word for value in values for word in _words(value)}
        return any(wanted <= text and all(not text.isdisjoint(_words(name)) for name in names) for text in self._texts)


@dataclass
class Learnt:
    """What was new in what a model said.

    Attributes:
        facts: triples without unknowns: clues that are resolved by it, and facts beside them (`number` None).
        values: unknown → what it turned out to be.
        introduced: clues that the model brought up.
        doubted: what was not taken, since no text of the material states it.
        material: where that was looked for; None: nowhere.

    """

    facts: list[Stated] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    introduced: list[Clue] = field(default_factory=list)
    doubted: list[Stated] = field(default_factory=list)
    material: Material | None = None

    def is_grounded(self, names: Sequence[str], values: Sequence[str]) -> bool:
        """Whether the material states these values of these names."""
        return self.material is None or self.material.states(names, values)


def _spelled(triple: Triple) -> Triple:
    """The triple with `?birth year` as `?birth_year` where that is a whole slot."""
    slots = []
    for slot in slots_of(triple):
        spaced = _SPACED.fullmatch(slot)
        slots.append(f"?{'_'.join(spaced[1].split())}" if spaced else slot)
    return Triple(*slots)


def unknowns(triple: Triple) -> list[str]:
    """The unknowns of a clue, each once, in order."""
    return list(dict.fromkeys(name for slot in slots_of(triple) for name in names_in(slot)))


@lru_cache(4096)
def names_in(slot: str) -> tuple[str, ...]:
    """The unknowns in a slot, each once, in order."""
    return tuple(dict.fromkeys(map(_canonical, _UNKNOWN.findall(slot))))


def proposition(triple: Triple) -> str:
    """What a clue is searched by: its text without the unknowns (T²RAG §4.3, step 2.1); may be empty."""
    return " ".join(_UNKNOWN.sub(" ", triple.text).split())


def slots_of(triple: Triple) -> tuple[str, str, str]:
    """Subject, predicate, object."""
    return triple.subject, triple.predicate, triple.object


def _canonical(name: str) -> str:
    return name.replace("_", "").casefold() or name


def _key(triple: Triple) -> tuple[tuple[str, ...], ...]:
    """Equal for two clues that ask the same of the same."""
    return tuple((*names_in(slot), entity_key(_UNKNOWN.sub("?", slot))) for slot in slots_of(triple))


def _says_nothing(value: str) -> bool:
    """Whether a slot is a way to say that there is no value."""
    return bool(_NO_VALUE.fullmatch(value)) or len(value) > _LONGEST_VALUE


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


def _alike(one: str, two: str) -> bool:
    """Whether two slots share a word that says something, or every word."""
    words, others = set(_folded(one).split()), set(_folded(two).split())
    return bool((words & others) - _EMPTY_WORDS) or words == others

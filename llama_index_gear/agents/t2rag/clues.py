"""A question as triples with unknowns in them (T²RAG §4.3), and what has become known of them; pure, no model.

An unknown is written `?name` wherever it stands, in a slot of its own or inside one ("?director's father"); the same
name is the same unknown in all triples, up to case and underscores. A lone `?` is an unknown of its own.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Literal

from llama_index_gear.triple import Triple, entity_key

State = Literal["resolved", "searchable", "fuzzy", "given", "unconfirmed"]
"""A clue that was stated; else one with one unknown, or with several (T²RAG §4.3); "given": it had none from the first;
"unconfirmed": its unknowns were filled by other clues, and nothing has stated it."""

_UNKNOWN = re.compile(r"(?<![\w?])\?+(\w+(?:-\w+)*)")
LONE = re.compile(r"[\s\"'“”‘’(\[{<_]*\?+[\s\"'“”‘’)\]}>_.]*")
_CITATION = re.compile(r"(?:\s*\[\d+\])+$")
_MOST_IN_A_SLOT = 3  # unknowns; the time to tell their values apart grows with each of them
_LONGEST_SLOT = 500  # characters
_WHOLE = re.compile(
    r"(?:an? |the )?[\"'“”‘’(\[{<]*\?+\s*(\w+(?:[\s-]+\w+){0,5})[?.!,;:\"'“”‘’)\]}>]*(?:\s*\(.*\))?", re.IGNORECASE
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


@dataclass
class Clues:
    """The clues of a question and what is known of their unknowns.

    What a clue is follows from its unknowns and from what was stated: it is in one state only, and a value that fills
    an unknown in one clue fills it in all. Values stay, and so does what is resolved.

    Attributes:
        clues: in the order in which they came up.
        values: unknown → what it is.

    """

    clues: list[Clue] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    _stated: dict[int, Triple] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _known: dict[int, tuple[Triple, State]] = field(default_factory=dict)  # follows from the rest

    def add(self, triples: Iterable[Triple], since: int, most: int) -> list[Clue]:
        """Take new clues, as long as there are no more than `most`; return those that were taken."""
        given = list(islice(dict.fromkeys(triples), 8 * most))
        single = {_canonical(slot[1:]) for triple in given for slot in slots_of(triple) if _UNKNOWN.fullmatch(slot)}
        spelled_out = [spelled(triple, single | set(self._names)) for triple in given]
        for name in (name for triple in spelled_out for slot in slots_of(triple) for name in _UNKNOWN.findall(slot)):
            self._names.setdefault(_canonical(name), name)
        added = []
        known = {key(clue.triple) for clue in self.clues} | {key(self.now(clue)) for clue in self.clues}
        for triple in spelled_out:
            if len(self.clues) >= most:
                break
            if key(triple) in known:
                continue
            known.add(key(triple))
            clue = Clue(len(self.clues) + 1, Triple(*map(self._named, slots_of(triple))), since)
            self.clues.append(clue)
            added.append(clue)
        return added

    def now(self, clue: Clue) -> Triple:
        """The clue as it was stated, else with what is known filled in."""
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
        return [self.written(name) for name in unknowns(self.now(clue))]

    def spelled(self, triple: Triple) -> Triple:
        """A triple with its unknowns written as those of the clues are."""
        return spelled(triple, self._names)

    def written(self, name: str) -> str:
        """An unknown as the model wrote it."""
        return f"?{self._names[name]}"

    def bind(self, values: Mapping[str, str]) -> None:
        """Say what unknowns are."""
        self.values.update(values)
        self._known.clear()

    def settle(self, clue: Clue, triple: Triple) -> None:
        """Say that a clue was stated, as this triple."""
        self._stated[clue.number] = triple
        self._known.clear()

    def _follows(self, clue: Clue) -> tuple[Triple, State]:
        if clue.number not in self._known:
            stated = self._stated.get(clue.number)
            now = stated or Triple(*(self._filled(slot) for slot in slots_of(clue.triple)))
            count = len(unknowns(now))
            state: State = "resolved"
            if stated is None:
                without: State = "unconfirmed" if unknowns(clue.triple) else "given"
                state = "fuzzy" if count > 1 else "searchable" if count else without
            self._known[clue.number] = now, state
        return self._known[clue.number]

    def _filled(self, slot: str) -> str:
        return _UNKNOWN.sub(lambda found: self.values.get(_canonical(found[1]), found[0]), slot)

    def _named(self, slot: str) -> str:
        """The slot; a lone `?` gets a name of its own."""
        if not LONE.fullmatch(slot):
            return slot
        number = 1
        while str(number) in self._names:
            number += 1
        self._names[str(number)] = str(number)
        return f"?{number}"


def spelled(triple: Triple, names: Container[str]) -> Triple:
    """The triple with `?name` wherever a whole slot is an unknown: "(?director)", "the ?birth-year", "?film?".

    Where the first of several words is one of the names, the rest is not part of it: "?country at that time".
    """
    slots = []
    for slot in slots_of(triple):
        whole = _WHOLE.fullmatch(slot)
        words = re.findall(r"\w+", whole[1]) if whole else []
        joined = "_".join(words)
        is_one = len(words) == 1 or _canonical(joined) in names or (words and _canonical(words[0]) not in names)
        slots.append(f"?{joined}" if is_one else slot)
    return Triple(*slots)


def unknowns(triple: Triple) -> list[str]:
    """The unknowns of a clue, each once, in order."""
    return list(dict.fromkeys(name for slot in slots_of(triple) for name in names_in(slot)))


@lru_cache(4096)
def names_in(slot: str) -> tuple[str, ...]:
    """The unknowns in a slot, each once, in order."""
    return tuple(dict.fromkeys(map(_canonical, _UNKNOWN.findall(slot))))


def values_in(clue: Triple, triple: Triple) -> dict[str, str]:
    """The values that a triple gives to a clue's unknowns, slot by slot; `[2]` behind one is no part of it."""
    values: dict[str, str] = {}
    for mine, theirs in zip(slots_of(clue), slots_of(triple), strict=True):
        names = list(map(_canonical, _UNKNOWN.findall(mine)))
        if not names or names_in(theirs) or LONE.fullmatch(theirs):
            continue
        if len(names) > _MOST_IN_A_SLOT or len(theirs) > _LONGEST_SLOT:
            continue
        literals = (re.escape(part) for part in _UNKNOWN.split(mine)[::2])
        match = re.fullmatch("(.+?)".join(literals), _CITATION.sub("", theirs), re.IGNORECASE)
        for name, value in zip(names, match.groups() if match else (), strict=False):
            values.setdefault(name, value.strip())
    return values


def proposition(triple: Triple) -> str:
    """What a clue is searched by: its text without the unknowns (T²RAG §4.3, step 2.1); may be empty."""
    return " ".join(_UNKNOWN.sub(" ", triple.text).split())


def slots_of(triple: Triple) -> tuple[str, str, str]:
    """Subject, predicate, object."""
    return triple.subject, triple.predicate, triple.object


def _canonical(name: str) -> str:
    return re.sub(r"[_-]", "", name).casefold() or name


def key(triple: Triple) -> tuple[tuple[str, ...], ...]:
    """Equal for two clues that ask the same of the same."""
    return tuple((*names_in(slot), entity_key(_UNKNOWN.sub("?", slot))) for slot in slots_of(triple))

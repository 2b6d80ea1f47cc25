"""The clues of a question: triples with unknowns in them, and the values known so far (T²RAG §4.3).

An unknown is written `?name`. It fills a slot, or stands inside one ("?director's father"). The same name is the same
unknown in all triples, up to case, hyphens and underscores. A lone `?` is an unknown of its own.
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
"""The state of a clue (T²RAG §4.3).

- "resolved": the material stated it.
- "searchable": it has one unknown.
- "fuzzy": it has several unknowns.
- "given": it came up without an unknown, and nothing has stated it.
- "unconfirmed": the values of other clues filled its unknowns, and nothing has stated it.
"""

_UNKNOWN = re.compile(r"(?<![\w?])\?+(\w+(?:-\w+)*)")
LONE_UNKNOWN = re.compile(r"[\s\"'“”‘’(\[{<_]*\?+[\s\"'“”‘’)\]}>_.]*")
_CITATION = re.compile(r"(?:\s*\[\d+\])+$")
_MAX_UNKNOWNS_IN_SLOT = 3  # the time to tell their values apart grows with their number
_MAX_SLOT_LENGTH = 500  # characters
_WHOLE = re.compile(
    r"(?:an? |the )?[\"'“”‘’(\[{<]*\?+\s*(\w+(?:[\s-]+\w+){0,5})[?.!,;:\"'“”‘’)\]}>]*(?:\s*\(.*\))?", re.IGNORECASE
)


@dataclass(frozen=True)
class Clue:
    """A triple of the question.

    Attributes:
        number: from 1, in the order in which clues came up.
        triple: as it came up, with its unknowns.
        round: the round in which it came up; 0 for the question's own.

    """

    number: int
    triple: Triple
    round: int


@dataclass
class Clues:
    """The clues of a question and the values of their unknowns.

    A clue is in exactly one state, which follows from its unknowns and from the statements about it. A value fills its
    unknown in all clues. Values and resolved clues never change again.

    Attributes:
        clues: in the order in which they came up.
        values: unknown → value.

    """

    clues: list[Clue] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    _stated: dict[int, Triple] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _derived: dict[int, tuple[Triple, State]] = field(default_factory=dict)  # cache: follows from the other fields

    def add(self, triples: Iterable[Triple], round: int, max_clues: int) -> list[Clue]:
        """Add triples as clues, until there are `max_clues`; return the clues that were added.

        A triple that asks what a clue already asks is left out.

        Args:
            triples: the candidates, in order.
            round: the round in which they came up; 0 for the question's own.
            max_clues: the limit on all clues together.

        """
        given = list(islice(dict.fromkeys(triples), 8 * max_clues))
        single = {_fold_name(slot[1:]) for triple in given for slot in slots_of(triple) if _UNKNOWN.fullmatch(slot)}
        normalized = [normalize_unknowns(triple, single | set(self._names)) for triple in given]
        for name in (name for triple in normalized for slot in slots_of(triple) for name in _UNKNOWN.findall(slot)):
            self._names.setdefault(_fold_name(name), name)
        added = []
        known = {clue_key(clue.triple) for clue in self.clues} | {clue_key(self.current(clue)) for clue in self.clues}
        for triple in normalized:
            if len(self.clues) >= max_clues:
                break
            if clue_key(triple) in known:
                continue
            known.add(clue_key(triple))
            clue = Clue(len(self.clues) + 1, Triple(*map(self._name_lone_unknown, slots_of(triple))), round)
            self.clues.append(clue)
            added.append(clue)
        return added

    def current(self, clue: Clue) -> Triple:
        """Return the triple that stated the clue; until there is one, the clue with the known values filled in."""
        return self._derive(clue)[0]

    def state(self, clue: Clue) -> State:
        """Return the clue's current state."""
        return self._derive(clue)[1]

    def in_state(self, *states: State) -> list[Clue]:
        """Return the clues in any of these states, in order."""
        return [clue for clue in self.clues if self.state(clue) in states]

    def open_unknowns(self) -> list[str]:
        """Return the unknowns without a value in clues that are not resolved.

        They are spelled as the model wrote them, in order, without repetition.
        """
        return list(
            dict.fromkeys(name for clue in self.in_state("searchable", "fuzzy") for name in self.open_unknowns_of(clue))
        )

    def open_unknowns_of(self, clue: Clue) -> list[str]:
        """Return the unknowns of a clue that have no value, spelled as the model wrote them."""
        return [self.written_name(name) for name in unknowns_of(self.current(clue))]

    def normalize_unknowns(self, triple: Triple) -> Triple:
        """Rewrite a triple's unknowns as `?name`; see the function of this name."""
        return normalize_unknowns(triple, self._names)

    def written_name(self, name: str) -> str:
        """Return `?name` in the spelling in which the model wrote it first."""
        return f"?{self._names[name]}"

    def bind(self, values: Mapping[str, str]) -> None:
        """Set the values of unknowns."""
        self.values.update(values)
        self._derived.clear()

    def settle(self, clue: Clue, triple: Triple) -> None:
        """Mark a clue as resolved, stated by this triple."""
        self._stated[clue.number] = triple
        self._derived.clear()

    def _derive(self, clue: Clue) -> tuple[Triple, State]:
        """Return the clue's current triple and state, from the cache where it has them."""
        if clue.number not in self._derived:
            stated = self._stated.get(clue.number)
            current = stated or Triple(*(self._fill_in(slot) for slot in slots_of(clue.triple)))
            count = len(unknowns_of(current))
            state: State = "resolved"
            if stated is None:
                without: State = "unconfirmed" if unknowns_of(clue.triple) else "given"
                state = "fuzzy" if count > 1 else "searchable" if count else without
            self._derived[clue.number] = current, state
        return self._derived[clue.number]

    def _fill_in(self, slot: str) -> str:
        return _UNKNOWN.sub(lambda match: self.values.get(_fold_name(match[1]), match[0]), slot)

    def _name_lone_unknown(self, slot: str) -> str:
        """Return the slot; if it is a lone `?`, the unknown `?1`, `?2`, … of a new number instead."""
        if not LONE_UNKNOWN.fullmatch(slot):
            return slot
        number = 1
        while str(number) in self._names:
            number += 1
        self._names[str(number)] = str(number)
        return f"?{number}"


def normalize_unknowns(triple: Triple, names: Container[str]) -> Triple:
    """Rewrite every slot that is an unknown as a whole as `?name`: "(?director)", "the ?birth-year", "?film?".

    Several words make one name, "?birth year" → `?birth_year`, unless the first word alone is among `names`: in
    "?country at that time" the rest says something about `?country`, and the slot stays.
    """
    slots = []
    for slot in slots_of(triple):
        whole = _WHOLE.fullmatch(slot)
        words = re.findall(r"\w+", whole[1]) if whole else []
        name = "_".join(words)
        is_name = len(words) == 1 or _fold_name(name) in names or (words and _fold_name(words[0]) not in names)
        slots.append(f"?{name}" if is_name else slot)
    return Triple(*slots)


def unknowns_of(triple: Triple) -> list[str]:
    """Return the names of a triple's unknowns, in order, without repetition."""
    return list(dict.fromkeys(name for slot in slots_of(triple) for name in unknowns_in(slot)))


@lru_cache(4096)
def unknowns_in(slot: str) -> tuple[str, ...]:
    """Return the names of the unknowns in a slot, in order, without repetition."""
    return tuple(dict.fromkeys(map(_fold_name, _UNKNOWN.findall(slot))))


def match_values(clue: Triple, triple: Triple) -> dict[str, str]:
    """Match a triple with a clue, slot by slot, and return the values of the clue's unknowns.

    A citation such as `[2]` behind a value is not part of it.
    """
    values: dict[str, str] = {}
    for clue_slot, slot in zip(slots_of(clue), slots_of(triple), strict=True):
        names = list(map(_fold_name, _UNKNOWN.findall(clue_slot)))
        if not names or unknowns_in(slot) or LONE_UNKNOWN.fullmatch(slot):
            continue
        if len(names) > _MAX_UNKNOWNS_IN_SLOT or len(slot) > _MAX_SLOT_LENGTH:
            continue
        literals = (re.escape(part) for part in _UNKNOWN.split(clue_slot)[::2])
        match = re.fullmatch("(.+?)".join(literals), _CITATION.sub("", slot), re.IGNORECASE)
        for name, value in zip(names, match.groups() if match else (), strict=False):
            values.setdefault(name, value.strip())
    return values


def build_proposition(triple: Triple) -> str:
    """Return the text that a clue is searched by: its own without the unknowns (T²RAG §4.3, step 2.1); may be empty."""
    return " ".join(_UNKNOWN.sub(" ", triple.text).split())


def slots_of(triple: Triple) -> tuple[str, str, str]:
    """Return subject, predicate and object."""
    return triple.subject, triple.predicate, triple.object


def _fold_name(name: str) -> str:
    """Fold the name of an unknown: case, hyphens and underscores make no difference."""
    return re.sub(r"[_-]", "", name).casefold() or name


def clue_key(triple: Triple) -> tuple[tuple[str, ...], ...]:
    """Return a key that two clues share if they ask the same."""
    return tuple((*unknowns_in(slot), entity_key(_UNKNOWN.sub("?", slot))) for slot in slots_of(triple))

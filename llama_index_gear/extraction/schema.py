"""The schema of an extraction: the types of entities and the relations that are allowed, and the domain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from llama_index_gear.characters import count
from llama_index_gear.errors import ArgumentError, ReplyError, check_kinds, format_value
from llama_index_gear.llm.escaping import escape_fences
from llama_index_gear.triple import Triple, entity_key

_SEPARATORS = re.compile(r"[\W_]+")
_NAMED = 3  # refused names that a record quotes, of each kind
_MAX_LENGTH = 40  # characters of a refused name in a record


class Selected(NamedTuple):
    """The triples of a reply that a schema allows.

    Attributes:
        triples: the triples, with predicates as the schema writes them.
        refused: number of the others.
        problem: what was refused, in words; empty if nothing was.

    """

    triples: tuple[Triple, ...]
    refused: int
    problem: str


@dataclass(frozen=True, kw_only=True)
class ExtractionSchema:
    """The types and relations that an extraction may state.

    Names are compared without regard to case, spaces, hyphens and underscores: "BORN_IN" is "born in".

    Args:
        entity_types: types of the entities that triples may have at their ends, `["person", "place"]`. The reply then
            names the type of each entity, and triples with other ends are refused. Default: all.
        relation_types: predicates that triples may have, written as they shall be stored, `["born in", "works for"]`.
            Triples with others are refused. Default: all.
        domain: what the passages are about, in a line. Default: the model is not told.

    Raises:
        ArgumentError: a list is none, or a name has no letter, or a text has several lines or braces.

    """

    entity_types: Sequence[str] = ()
    relation_types: Sequence[str] = ()
    domain: str = ""

    def __post_init__(self) -> None:
        for argument in ("entity_types", "relation_types"):
            names = getattr(self, argument)
            check_kinds(str, hint="write ['person', 'place']", **{argument: names})
            for name in names:
                if not _fold(name):
                    raise ArgumentError(f"{argument} has a name without a letter: {format_value(name)}")
                _check_line(argument, name)
            object.__setattr__(self, argument, tuple(names))
        if self.domain:
            _check_line("domain", self.domain)
        object.__setattr__(self, "domain", self.domain.strip())

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a prompt that say what the schema allows; none of a schema that allows all."""
        lists = {
            "entity_types": ", ".join(self.entity_types),
            "relation_types": ", ".join(self.relation_types),
            "domain": self.domain,
        }
        return {name: escape_fences(text) for name, text in lists.items() if text}

    def select(self, triples: Sequence[Triple], types: Mapping[str, str]) -> Selected:
        """Return the triples that the schema allows.

        Args:
            triples: those of a reply.
            types: key of an entity → its type, as the reply says.

        Raises:
            ReplyError: there are triples, their entities should have types, and not one has.

        """
        if self.entity_types and triples and not types:
            raise ReplyError('the entities have no types: write them as {"entities": {name: type, …}, …}')
        relations, kinds = _index(self.relation_types), _index(self.entity_types)
        kept: dict[Triple, None] = {}
        wrong_relations: dict[str, None] = {}
        wrong_types: dict[str, None] = {}
        refused = untyped = 0
        for triple in triples:
            predicate = relations.get(_fold(triple.predicate)) if relations else triple.predicate
            ends = [types.get(entity_key(end)) for end in (triple.subject, triple.object)] if kinds else []
            wrong = [kind for kind in ends if kind is not None and _fold(kind) not in kinds]
            if predicate is None:
                wrong_relations[triple.predicate] = None
            wrong_types.update(dict.fromkeys(wrong))
            if predicate is None or wrong or None in ends:
                refused += 1
                untyped += predicate is not None and not wrong
            else:
                kept[triple if predicate == triple.predicate else replace(triple, predicate=predicate)] = None
        reasons = [_list_names("relations", wrong_relations), _list_names("types", wrong_types)]
        if untyped:
            reasons.append(f"{untyped} with an end that is not among the entities")
        return Selected(
            tuple(kept),
            refused,
            f"{count(refused, 'triple')} refused: {'; '.join(filter(None, reasons))}" if refused else "",
        )


ALL_ALLOWED = ExtractionSchema()
"""The schema that allows everything."""


def _index(names: Sequence[str]) -> dict[str, str]:
    """Return folded name → name; of several that fold alike, the first."""
    return {_fold(name): name for name in reversed(names)}


def _fold(name: str) -> str:
    return _SEPARATORS.sub(" ", name).strip().casefold()


def _check_line(argument: str, text: str) -> None:
    if not text.strip() or len(text.splitlines()) > 1 or set(text) & set("{}"):
        raise ArgumentError(f"{argument} must be text of one line, without braces; got {format_value(text)}")


def _list_names(kind: str, names: Mapping[str, None]) -> str:
    if not names:
        return ""
    shown = ", ".join(repr(name[:_MAX_LENGTH]) for name in list(names)[:_NAMED])
    return f"{kind} {shown}{', …' if len(names) > _NAMED else ''}"

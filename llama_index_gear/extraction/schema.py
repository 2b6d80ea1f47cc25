"""The schema of an extraction: the types of entities and the relations that are allowed, and the domain."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from llama_index.core.bridge.pydantic import BaseModel, Field, create_model

from llama_index_gear.characters import count
from llama_index_gear.errors import ArgumentError, ReplyError, check_kinds, format_value
from llama_index_gear.llm.escaping import escape_fences
from llama_index_gear.triple import Triple, entity_key

_SEPARATORS = re.compile(r"[\W_]+")
_NAMED = 3  # refused names that a record quotes, of each kind
_MAX_LENGTH = 40  # characters of a refused name in a record


class Fact(BaseModel):
    """One fact of the passage."""

    subject: str = Field(description="name of who or what the fact is about")
    predicate: str = Field(description="short: what is said of the subject")
    object: str = Field(description="name, date, number or thing that the predicate leads to")


class PassageFacts(BaseModel):
    """The named entities and the facts of the passage."""

    entities: list[str] = Field(description="named entities of the passage")
    triples: list[Fact] = Field(description="facts, each with at least one of the entities")


class NumberedFacts(BaseModel):
    """The named entities and the facts of one of the passages."""

    passage: int = Field(description="the passage's number")
    entities: list[str] = Field(description="named entities of the passage")
    triples: list[Fact] = Field(description="facts, each with at least one of the entities")


class PassagesFacts(BaseModel):
    """The named entities and the facts of each passage."""

    passages: list[NumberedFacts] = Field(description="one entry a passage, in order")


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

    def form(self, *, is_shared: bool) -> type[BaseModel]:
        """Return the form of structured output, for one passage, or for several that share a call."""
        if not self.entity_types and not self.relation_types:
            return PassagesFacts if is_shared else PassageFacts
        return _build_form(tuple(self.entity_types), tuple(self.relation_types), is_shared)


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


@lru_cache(maxsize=16)
def _build_form(entity_types: tuple[str, ...], relation_types: tuple[str, ...], is_shared: bool) -> type[BaseModel]:
    """Build a form whose predicates and types are enumerations. It differs from the usual one in these alone."""
    fact: type[BaseModel] = Fact
    if relation_types:
        description = Fact.model_fields["predicate"].description
        fact = _derive("Fact", Fact, predicate=(Literal[relation_types], Field(description=description)))
    changed: dict[str, Any] = {"triples": (list[fact], _field_of(PassageFacts, "triples"))}  # type: ignore[valid-type]
    if entity_types:
        parts: dict[str, Any] = {
            "name": (str, Field(description="name, as in the passage")),
            "type": (Literal[entity_types], Field(description="type")),
        }
        entity = create_model("Entity", __doc__="A named entity.", **parts)
        changed["entities"] = (list[entity], _field_of(PassageFacts, "entities"))  # type: ignore[valid-type]
    if not is_shared:
        return _derive("PassageFacts", PassageFacts, **changed)
    numbered = _derive("NumberedFacts", NumberedFacts, **changed)
    return _derive(
        "PassagesFacts",
        PassagesFacts,
        passages=(list[numbered], _field_of(PassagesFacts, "passages")),  # type: ignore[valid-type]
    )


def _derive(name: str, base: type[BaseModel], **changed: Any) -> type[BaseModel]:
    """Return a model with the fields of another, in their order, some of them changed."""
    kept = {field: (info.annotation, _field_of(base, field)) for field, info in base.model_fields.items()}
    fields: dict[str, Any] = {**kept, **changed}
    return create_model(name, __doc__=base.__doc__, **fields)


def _field_of(model: type[BaseModel], name: str) -> Any:
    return Field(description=model.model_fields[name].description)

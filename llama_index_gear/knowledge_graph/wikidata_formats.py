"""Parsers of Wikidata's entities: a line of JSON each, or a block of truthy N-Triples each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from llama_index_gear.errors import ArgumentError
from llama_index_gear.knowledge_graph.triples_file import Position, ReadReport

_NUMBER = re.compile(r"([PQ])([1-9]\d{0,17})")
_ENTITY = re.compile(rb"<http://www\.wikidata\.org/entity/([PQ][1-9]\d{0,17})>")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"@([\w-]+)')
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
_TRIPLE = re.compile(
    rb"(?:<[^<>\s]*>|_:[^\s<>\"]+)[ \t]*"  # subject
    rb"(<[^<>\s]*>)[ \t]*"
    rb"(<[^<>\s]*>|_:[^\s<>\"]*[^\s<>\".]|\"(?:[^\"\\]|\\.)*\"(?:@[\w-]+|\^\^[ \t]*<[^<>\s]*>)?)"
    rb"[ \t]*\.[ \t]*(?:\#.*)?"
)
"""An N-Triple, as its grammar allows it: with or without blanks, and with a comment behind the dot."""
_DIRECT = b"<http://www.wikidata.org/prop/direct/"
_LABEL = b"<http://www.w3.org/2000/01/rdf-schema#label>"
_ALTERNATIVE = b"<http://www.w3.org/2004/02/skos/core#altLabel>"
_SAME = b"<http://www.w3.org/2002/07/owl#sameAs>"


@dataclass
class Entity:
    """An entity of a dump. Items have Wikidata's numbers (42 is Q42), properties their negatives (−31 is P31).

    Attributes:
        id: number of the entity.
        label: label in the best language that has one; empty if none has.
        language: rank of that language among the chosen ones, from 0.
        aliases: aliases in the best language that has some.
        statements: (property, item) pairs, each once.
        target: number of the item that this one redirects to; None: no redirect.

    """

    id: int
    label: str = ""
    language: int = 0
    aliases: Sequence[str] = ()
    statements: dict[tuple[int, int], None] = field(default_factory=dict)
    target: int | None = None


@dataclass(frozen=True)
class EntitySelection:
    """The selection from each entity, by the options of `WikidataDump`."""

    languages: tuple[str, ...]
    aliases: int
    allow: frozenset[int] | None
    deny: frozenset[int]

    def to_json(self) -> dict[str, Any]:
        """Return the options as plain JSON."""
        allow = None if self.allow is None else sorted(self.allow)
        return {
            "languages": list(self.languages),
            "aliases": self.aliases,
            "allow": allow,
            "deny": sorted(self.deny),
        }

    def add_statement(self, entity: Entity, property_: int, item: int, report: ReadReport) -> None:
        """Add a statement to the entity, or count the reason why it is dropped."""
        if property_ in self.deny or (self.allow is not None and property_ not in self.allow):
            report.drop("property left out")
        elif (property_, item) in entity.statements:
            report.drop("said twice")
        else:
            entity.statements[property_, item] = None

    def set_names(self, entity: Entity, labels: Mapping[str, str], aliases: Mapping[str, Sequence[str]]) -> None:
        """Set an entity's label and aliases, each in the best language that has some."""
        labels = {language.lower(): label for language, label in labels.items()}
        aliases = {language.lower(): names for language, names in aliases.items()}
        for rank, language in reversed(list(enumerate(self.languages))):
            if labels.get(language):
                entity.label, entity.language = labels[language], rank
            if aliases.get(language):
                entity.aliases = aliases[language]
        distinct = dict.fromkeys(alias for alias in entity.aliases if alias != entity.label)
        entity.aliases = list(distinct)[: self.aliases]


Parsed: TypeAlias = Iterator[tuple[Entity, Position]]
"""Entities, each with the position in the file after it."""


def parse_json_dump(
    lines: Iterable[bytes], selection: EntitySelection, report: ReadReport, position: Position
) -> Parsed:
    """Parse the entities of a JSON dump."""
    for line in lines:
        report.lines = position.lines
        if not line:
            report.complain_of_length()
        text = line.strip().rstrip(b",")
        if text in (b"", b"[", b"]"):
            continue
        try:
            entity = _parse_entity(json.loads(text), selection, report)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            report.complain(f"{type(error).__name__}: {error}")
            continue
        report.entities += 1
        yield entity, replace(position)


def _parse_entity(record: Mapping[str, Any], selection: EntitySelection, report: ReadReport) -> Entity:
    if "redirect" in record:
        return Entity(_parse_number(record["entity"]), target=_parse_number(record["redirect"]))
    entity = Entity(_parse_number(record["id"]))
    labels = {language: _clean_text(text["value"]) for language, text in _list_entries(record, "labels", selection)}
    aliases = {
        language: list(filter(None, (_clean_text(text["value"]) for text in texts)))
        for language, texts in _list_entries(record, "aliases", selection)
    }
    selection.set_names(entity, labels, aliases)
    if entity.id > 0:
        for name, statements in _list_entries(record, "claims"):
            is_chosen = any(isinstance(one, dict) and one.get("rank") == "preferred" for one in statements)
            for statement in statements:
                try:
                    if is_chosen and statement["rank"] == "normal":
                        report.drop("another preferred")
                        continue
                    _parse_statement(entity, _parse_number(name), statement, selection, report)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    report.complain(f"a statement of {record['id']}, {name}: {type(error).__name__}: {error}")
    return entity


def _parse_statement(
    entity: Entity, property_: int, statement: Mapping[str, Any], selection: EntitySelection, report: ReadReport
) -> None:
    snak = statement["mainsnak"]
    if statement["rank"] == "deprecated":
        report.drop("deprecated")
    elif snak["snaktype"] != "value":
        report.drop("no or some value")
    elif snak["datavalue"]["type"] != "wikibase-entityid":
        report.drop("literal")
    else:
        value = snak["datavalue"]["value"]
        if value["entity-type"] != "item":
            report.drop("not an item")
        else:  # dumps of before 2017 have no "id"
            item = _parse_number(value["id"] if "id" in value else f"Q{value['numeric-id']}")
            selection.add_statement(entity, property_, item, report)


def _list_entries(
    record: Mapping[str, Any], name: str, selection: EntitySelection | None = None
) -> list[tuple[str, Any]]:
    """List an object's entries; with a selection, only its languages. Dumps write an empty object as an empty list."""
    entries = (record.get(name) or {}).items()
    return [(key, value) for key, value in entries if selection is None or key.lower() in selection.languages]


def parse_triples_dump(
    lines: Iterable[bytes], selection: EntitySelection, report: ReadReport, position: Position
) -> Parsed:
    """Parse the entities of a truthy dump, where consecutive lines of one subject make an entity."""
    block: _Block | None = None
    for line in lines:
        if line[:1] in b" \t":
            line = line.lstrip(b" \t")
        subject = _ENTITY.match(line)
        number = None if subject is None else _parse_number(subject[1].decode())
        if block is not None and number != block.entity.id:
            yield block.to_entity(selection), block.end
            block = None
        report.lines = position.lines
        if number is None:
            if not line:
                report.complain_of_length()
            elif line.strip() and not line.startswith(b"#") and _split_triple(line) is None:
                report.complain("no N-Triple")
            continue
        if block is None:
            report.entities += 1
            block = _Block(Entity(number), replace(position))
        try:
            block.add_line(line, selection, report)
        except (ValueError, OverflowError) as error:
            report.complain(f"{type(error).__name__}: {error}")
        block.end = replace(position)
    if block is not None:
        yield block.to_entity(selection), block.end


@dataclass
class _Block:
    """Consecutive lines of one subject: the entity so far, and the position after the last line."""

    entity: Entity
    end: Position
    labels: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)

    def add_line(self, line: bytes, selection: EntitySelection, report: ReadReport) -> None:
        parts = _split_triple(line)
        if parts is None:
            raise ValueError("no N-Triple")
        predicate, object_ = parts
        item = _ENTITY.fullmatch(object_)
        if predicate.startswith(_DIRECT):
            if self.entity.id < 0:  # statements about properties are left out
                return
            if item is not None and item[1].startswith(b"Q"):
                property_ = _parse_number(predicate[len(_DIRECT) : -1].decode())
                selection.add_statement(self.entity, property_, _parse_number(item[1].decode()), report)
            else:
                report.drop(_name_drop_reason(object_))
        elif predicate == _SAME and item is not None:
            self.entity.target = _parse_number(item[1].decode())
        elif predicate in (_LABEL, _ALTERNATIVE):
            literal = _LITERAL.fullmatch(object_.decode("utf-8"))
            if literal is None:
                raise ValueError("no literal with a language")
            text = _clean_text(_ESCAPE.sub(_unescape, literal[1]))
            if predicate == _LABEL:
                self.labels[literal[2]] = text
            elif text:
                self.aliases.setdefault(literal[2], []).append(text)

    def to_entity(self, selection: EntitySelection) -> Entity:
        selection.set_names(self.entity, self.labels, self.aliases)
        return self.entity


def _split_triple(line: bytes) -> tuple[bytes, bytes] | None:
    """Return predicate and object of an N-Triple; None if the line is not one."""
    text = line.strip()
    has_comment = b" #" in text or b".#" in text or b"\t#" in text  # perhaps: it may be in a text
    parts = text[:-1].split(None, 2) if text.endswith(b".") and not has_comment else []
    is_plain = len(parts) == 3 and parts[0].startswith((b"<", b"_:")) and parts[1].startswith(b"<")
    if is_plain and parts[1].find(b">") == len(parts[1]) - 1:  # as Wikidata writes them
        return parts[1], parts[2].rstrip()
    found = _TRIPLE.fullmatch(text)
    return None if found is None else (found[1], found[2])


def _name_drop_reason(object_: bytes) -> str:
    """Return the reason why an object is dropped."""
    if object_.startswith(b"_:") or b"/.well-known/genid/" in object_:
        return "no or some value"
    return "not an item" if _ENTITY.fullmatch(object_) else "literal"


def _clean_text(text: str) -> str:
    """Collapse white space and pair surrogates; replace a lone surrogate, which is no character."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(text.split())


def _unescape(match_: re.Match[str]) -> str:
    code = match_[1] or match_[2]
    return chr(int(code, 16)) if code else _ESCAPES.get(match_[3], match_[3])


def _parse_number(name: str) -> int:
    """Return the number of an item or property: Q42 is 42, P31 is −31.

    Raises:
        ValueError: the name is that of neither.

    """
    match_ = _NUMBER.fullmatch(name)
    if match_ is None:
        raise ValueError(f"{name!r} names no item and no property")
    return int(match_[2]) if match_[1] == "Q" else -int(match_[2])


def parse_properties(names: Iterable[str]) -> frozenset[int]:
    """Return the numbers of properties.

    Raises:
        ArgumentError: a name is not that of a property.

    """
    names = list(names)
    numbers = {name: _NUMBER.fullmatch(name) for name in names}
    if wrong := [name for name, match_ in numbers.items() if match_ is None or match_[1] != "P"]:
        raise ArgumentError(f"properties are named like P22, not {wrong[0]!r}")
    return frozenset(_parse_number(name) for name in numbers)

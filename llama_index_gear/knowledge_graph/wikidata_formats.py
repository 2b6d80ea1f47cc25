"""How Wikidata writes entities: a line of JSON, or a block of truthy N-Triples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from llama_index_gear.errors import ArgumentError, check_kinds
from llama_index_gear.knowledge_graph.files import Position, ReadReport
from llama_index_gear.knowledge_graph.wikidata_index import Entity

_NUMBER = re.compile(r"([PQ])([1-9]\d{0,17})")
_ENTITY = re.compile(rb"<http://www\.wikidata\.org/entity/([PQ][1-9]\d{0,17})>")
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"@([\w-]+)')
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_ESCAPES = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
_DIRECT = b"<http://www.wikidata.org/prop/direct/"
_LABEL = b"<http://www.w3.org/2000/01/rdf-schema#label>"
_ALTERNATIVE = b"<http://www.w3.org/2004/02/skos/core#altLabel>"
_SAME = b"<http://www.w3.org/2002/07/owl#sameAs>"


@dataclass(frozen=True)
class Wanted:
    """What is taken of an entity: the options of `WikidataDump`."""

    languages: tuple[str, ...]
    aliases: int
    allow: frozenset[int] | None
    deny: frozenset[int]

    def noted(self) -> dict[str, Any]:
        """As plain JSON."""
        allow = None if self.allow is None else sorted(self.allow)
        return {
            "languages": list(self.languages),
            "aliases": self.aliases,
            "allow": allow,
            "deny": sorted(self.deny),
        }

    def state(self, entity: Entity, property_: int, item: int, report: ReadReport) -> None:
        """Take a statement, or count why not."""
        if property_ in self.deny or (self.allow is not None and property_ not in self.allow):
            report.drop("property left out")
        elif (property_, item) in entity.statements:
            report.drop("said twice")
        else:
            entity.statements[property_, item] = None

    def call(self, entity: Entity, labels: Mapping[str, str], aliases: Mapping[str, Sequence[str]]) -> None:
        """Give an entity its label and aliases, of the best languages that there are."""
        labels = {language.lower(): label for language, label in labels.items()}
        aliases = {language.lower(): several for language, several in aliases.items()}
        for place, language in reversed(list(enumerate(self.languages))):
            if labels.get(language):
                entity.label, entity.language = labels[language], place
            if aliases.get(language):
                entity.aliases = aliases[language]
        others = dict.fromkeys(alias for alias in entity.aliases if alias != entity.label)
        entity.aliases = list(others)[: self.aliases]


Parsed: TypeAlias = Iterator[tuple[Entity, Position]]
"""Entities, each with how far the file had been read when it ended."""


def from_json(lines: Iterable[bytes], wanted: Wanted, report: ReadReport, position: Position) -> Parsed:
    """Entities of a JSON dump."""
    for line in lines:
        report.lines = position.lines
        if not line:
            report.complain_of_length()
        text = line.strip().rstrip(b",")
        if text in (b"", b"[", b"]"):
            continue
        try:
            entity = _entity(json.loads(text), wanted, report)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            report.complain(f"{type(error).__name__}: {error}")
            continue
        report.entities += 1
        yield entity, replace(position)


def _entity(found: Mapping[str, Any], wanted: Wanted, report: ReadReport) -> Entity:
    if "redirect" in found:
        return Entity(_number(found["entity"]), target=_number(found["redirect"]))
    entity = Entity(_number(found["id"]))
    labels = {language: _tidied(each["value"]) for language, each in _named(found, "labels", wanted)}
    aliases = {
        language: list(filter(None, (_tidied(each["value"]) for each in several)))
        for language, several in _named(found, "aliases", wanted)
    }
    wanted.call(entity, labels, aliases)
    if entity.id > 0:
        for name, statements in _named(found, "claims"):
            for statement in statements:
                try:
                    _state(entity, _number(name), statement, wanted, report)
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    report.complain(f"a statement of {found['id']}, {name}: {type(error).__name__}: {error}")
    return entity


def _state(entity: Entity, property_: int, statement: Mapping[str, Any], wanted: Wanted, report: ReadReport) -> None:
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
            item = _number(value["id"] if "id" in value else f"Q{value['numeric-id']}")
            wanted.state(entity, property_, item, report)


def _named(found: Mapping[str, Any], name: str, wanted: Wanted | None = None) -> list[tuple[str, Any]]:
    """An object's entries, by language those that are wanted; an empty object is written as an empty list."""
    entries = (found.get(name) or {}).items()
    return [(key, value) for key, value in entries if wanted is None or key.lower() in wanted.languages]


def from_triples(lines: Iterable[bytes], wanted: Wanted, report: ReadReport, position: Position) -> Parsed:
    """Entities of a truthy dump: what stands together of one subject is one."""
    block: _Block | None = None
    for line in lines:
        subject = _ENTITY.match(line)
        number = None if subject is None else _number(subject[1].decode())
        if block is not None and number != block.entity.id:
            yield block.ended(wanted), block.end
            block = None
        report.lines = position.lines
        if number is None:
            if not line:
                report.complain_of_length()
            elif line.strip() and not line.startswith(b"#") and _parts(line) is None:
                report.complain("no N-Triple")
            continue
        if block is None:
            report.entities += 1
            block = _Block(Entity(number), replace(position))
        try:
            block.take(line, wanted, report)
        except (ValueError, OverflowError) as error:
            report.complain(f"{type(error).__name__}: {error}")
        block.end = replace(position)
    if block is not None:
        yield block.ended(wanted), block.end


@dataclass
class _Block:
    """What stands together of one subject, and where it ends."""

    entity: Entity
    end: Position
    labels: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, list[str]] = field(default_factory=dict)

    def take(self, line: bytes, wanted: Wanted, report: ReadReport) -> None:
        parts = _parts(line)
        if parts is None:
            raise ValueError("no N-Triple")
        predicate, object_ = parts
        item = _ENTITY.fullmatch(object_)
        if predicate.startswith(_DIRECT):
            if self.entity.id < 0:  # statements about properties are left out
                return
            if item is not None and item[1].startswith(b"Q"):
                property_ = _number(predicate[len(_DIRECT) : -1].decode())
                wanted.state(self.entity, property_, _number(item[1].decode()), report)
            else:
                report.drop(_kind_of(object_))
        elif predicate == _SAME and item is not None:
            self.entity.target = _number(item[1].decode())
        elif predicate in (_LABEL, _ALTERNATIVE):
            literal = _LITERAL.fullmatch(object_.decode("utf-8"))
            if literal is None:
                raise ValueError("no literal with a language")
            text = _tidied(_ESCAPE.sub(_unescaped, literal[1]))
            if predicate == _LABEL:
                self.labels[literal[2]] = text
            elif text:
                self.aliases.setdefault(literal[2], []).append(text)

    def ended(self, wanted: Wanted) -> Entity:
        wanted.call(self.entity, self.labels, self.aliases)
        return self.entity


def _parts(line: bytes) -> tuple[bytes, bytes] | None:
    """Predicate and object of an N-Triple; None if it is none."""
    text = line.strip()
    parts = text[:-1].split(None, 2) if text.endswith(b".") else []
    if len(parts) != 3 or not parts[0].startswith((b"<", b"_:")) or not parts[1].startswith(b"<"):
        return None
    return (parts[1], parts[2].rstrip()) if parts[1].endswith(b">") else None


def _kind_of(object_: bytes) -> str:
    """Why an object is not taken."""
    if object_.startswith(b"_:") or b"/.well-known/genid/" in object_:
        return "no or some value"
    return "not an item" if _ENTITY.fullmatch(object_) else "literal"


def _tidied(text: str) -> str:
    """White space collapsed, surrogates paired; a lone one, which is no character, replaced."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return " ".join(text.split())


def _unescaped(found: re.Match[str]) -> str:
    code = found[1] or found[2]
    return chr(int(code, 16)) if code else _ESCAPES.get(found[3], found[3])


def _number(name: str) -> int:
    """Q42 is 42, P31 is −31.

    Raises:
        ValueError: it is neither.

    """
    found = _NUMBER.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} names no item and no property")
    return int(found[2]) if found[1] == "Q" else -int(found[2])


def properties_of(names: Iterable[str]) -> frozenset[int]:
    """The numbers of properties.

    Raises:
        ArgumentError: one is none.

    """
    is_list = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    names = list(names) if is_list else names
    check_kinds(str, hint="they are named like P22, write ['P22']", properties=names)
    numbers = {name: _NUMBER.fullmatch(name) for name in names}
    if wrong := [name for name, found in numbers.items() if found is None or found[1] != "P"]:
        raise ArgumentError(f"properties are named like P22, not {wrong[0]!r}")
    return frozenset(_number(name) for name in numbers)

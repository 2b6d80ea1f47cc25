"""The types of the entities in a reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llama_index_gear.llm.json_scan import ScannedReply, find_objects
from llama_index_gear.llm.parsing import is_entity_list
from llama_index_gear.triple import entity_key

_NAMES = ("name", "entity", "text")
_TYPES = ("type", "label", "entity_type")


def read_types(reply: ScannedReply) -> dict[str, str]:
    """Return the types of the entities that a reply lists: key of an entity → type.

    A list of entities may be an object, `{"Ada": "person"}` or `{"person": ["Ada"]}`, or have pairs, `["Ada",
    "person"]`, or objects, `{"name": "Ada", "type": "person"}`. It is read also in a reply that was cut off behind it.
    """
    types: dict[str, str] = {}
    for span in reply.spans:
        if not span.is_read:
            continue
        if is_entity_list(reply.text, span.start):
            types.update(_read_list(span.value))
        else:
            types.update(_find_types(span.value))
    return types


def _find_types(value: Any) -> dict[str, str]:
    """Return the types in all lists of entities inside a value."""
    types: dict[str, str] = {}
    for fields in find_objects([value]):
        for key, entities in fields.items():
            if "entit" in key.lower():
                types.update(_read_list(entities))
    return types


def _read_list(entities: Any) -> Iterator[tuple[str, str]]:
    if isinstance(entities, dict):
        for key, value in entities.items():
            if isinstance(value, str):
                yield from _pair(key, value)
            elif isinstance(value, list):
                for name in value:
                    yield from _pair(name, key)
    elif isinstance(entities, list):
        for entity in entities:
            if isinstance(entity, list) and len(entity) == 2:
                yield from _pair(*entity)
            elif isinstance(entity, dict):
                name, kind = (next((entity[key] for key in keys if key in entity), None) for keys in (_NAMES, _TYPES))
                yield from _pair(name, kind)


def _pair(name: Any, kind: Any) -> Iterator[tuple[str, str]]:
    if isinstance(name, str) and isinstance(kind, str) and (key := entity_key(name)):
        yield key, str(kind)

"""Builds the points of passages and triples, and refuses what an engine could not read back. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from llama_index.core.schema import BaseNode
from pydantic_core import to_jsonable_python
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, format_value, is_whole
from llama_index_gear.nodes import attach_triples
from llama_index_gear.store.average_length import get_embedded_text
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.schema import (
    DENSE,
    SPARSE,
    build_alias_payload,
    build_passage_payload,
    build_triple_payload,
    point_id_of,
)
from llama_index_gear.triple import Triple

MAX_LEVELS = 100
"""Maximum depth of a payload. Qdrant reads 122 levels; it writes a 123rd, and then never opens the collection again."""
_INTEGERS = range(-(2**63), 2**64)  # what an engine keeps as an integer; others come back as floats
_MAX_PATH = 60  # characters of a path in a message

Path: TypeAlias = tuple[str | int, ...]


class Unstorable(ArgumentError):
    """A value cannot be stored; the message says where it stands, and why."""


def check_storable(owner: str, fields: Mapping[str, Any], checked: set[tuple[int, int]] | None = None) -> None:
    """Refuse a value that an engine could not read back, before it is written.

    Args:
        owner: what the fields belong to, for the message.
        fields: a payload, or parts of one. A value that is not JSON is checked as what Pydantic writes for it; a date,
            for example, as its text.
        checked: containers that passed, by identity and level; kept up to date. A container in several payloads that
            are alive at the same time is checked once. Default: none.

    Raises:
        ArgumentError: a payload nests more than 100 levels deep, a key is not text, an integer is beyond 64 bits, a
            float is not finite, a text holds a lone surrogate, or a value has no JSON.

    """
    _check(owner, fields, (), set() if checked is None else checked)


def _check(owner: str, value: Any, path: Path, checked: set[tuple[int, int]]) -> None:
    kind = type(value)
    if kind is str:
        if not value.isascii():
            _check_text(owner, value, path)
    elif value is None or kind is bool:
        return
    elif kind is int:
        if value not in _INTEGERS:
            raise _make_error(owner, path, "is an integer beyond 64 bits: store it as text")
    elif kind is float:
        if not math.isfinite(value):
            raise _make_error(
                owner, path, f"is {value}, which JSON has no number for: leave it out, or store it as text"
            )
    elif isinstance(value, dict | list | tuple):
        key = (id(value), len(path))
        if key not in checked:
            _check_members(owner, value, path, checked)
            checked.add(key)
    else:
        converted = _to_json(owner, value, path)
        # With a set of its own: the converted value is freed afterwards, and others may get its identities.
        _check(owner, converted, path, set())


def _check_members(
    owner: str, value: dict[Any, Any] | list[Any] | tuple[Any, ...], path: Path, checked: set[tuple[int, int]]
) -> None:
    if len(path) == MAX_LEVELS:
        raise _make_error(owner, path, f"nests more than {MAX_LEVELS} levels deep: flatten it, or store it as text")
    if not isinstance(value, dict):
        for position, member in enumerate(value):
            if type(member) is not str or not member.isascii():  # nearly all members are texts in ASCII
                _check(owner, member, (*path, position), checked)
        return
    for key, member in value.items():
        if type(key) is type(member) is str and key.isascii() and member.isascii():
            continue
        if not isinstance(key, str):
            raise _make_error(owner, path, f"has the key {format_value(key)}, which is no text: JSON would change it")
        if not key.isascii():
            _check_text(owner, key, (*path, key))
        _check(owner, member, (*path, key), checked)


def _check_text(owner: str, text: str, path: Path) -> None:
    if not is_whole(text):
        raise Unstorable(
            f"{owner} holds a lone surrogate in {_format_path(path)}, which is no character and cannot be stored: "
            'repair the text first, e.g. text.encode("utf-8", "replace").decode()'
        )


def _to_json(owner: str, value: Any, path: Path) -> Any:
    """Convert a value that is not JSON to the JSON that Pydantic writes for it."""
    if isinstance(value, Iterator):
        raise _make_error(owner, path, "can be read only once: make it a list")
    try:
        return to_jsonable_python(value)
    except (TypeError, ValueError) as error:
        raise_interrupt(error)
        raise _make_error(owner, path, f"has no JSON: {error}") from error


def raise_interrupt(error: Exception) -> None:
    """Raise the interrupt that Pydantic reported as a failure to serialize; it keeps only the interrupt's name.

    Raises:
        KeyboardInterrupt: the error's message names it.

    """
    if "`: KeyboardInterrupt" in str(error):
        raise KeyboardInterrupt from error


def _make_error(owner: str, path: Path, problem: str) -> Unstorable:
    return Unstorable(f"{owner} cannot be written as JSON and read back: {_format_path(path)} {problem}")


def _format_path(path: Path) -> str:
    """Format the path as in code, cut short if it is long."""
    name = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    safe = name.encode("utf-8", "backslashreplace").decode()
    return safe if len(safe) <= _MAX_PATH else f"{safe[:_MAX_PATH]}…"


def build_passage_points(
    encoder: WordEncoder, nodes: Sequence[BaseNode], triples_by_node: dict[str, list[Triple]]
) -> list[models.PointStruct]:
    """Build the points of passages, with their triples in the node's JSON; `encoder` weighs their words."""
    points = []
    for node in nodes:
        triples = triples_by_node[node.node_id]
        payload = _build_payload(attach_triples(node, triples) if triples else node)
        text = get_embedded_text(node)
        points.append(_build_point(encoder, point_id_of(node.node_id), node.get_embedding(), text, payload))
    return points


def require_storable(node: BaseNode, triples: Sequence[Triple]) -> None:
    """Refuse a passage that an engine could not read back, itself or its metadata in a triple's payload."""
    metadata = attach_triples(node, triples).metadata if triples else node.metadata
    relations = [
        relation for info in node.relationships.values() for relation in (info if isinstance(info, list) else [info])
    ]
    fields = {
        "node_id": node.node_id,
        "ref_doc_id": node.ref_doc_id,
        "text": node.get_content(),
        "metadata": metadata,
        "relationships": [info.metadata for info in relations],
    }
    check_storable(f"node {node.node_id!r}", fields)
    check_storable(
        f"node {node.node_id!r}", {**_build_payload(node), "text for the embedding": get_embedded_text(node)}
    )


def _build_payload(node: BaseNode) -> dict[str, Any]:
    """Build the payload of a passage.

    Raises:
        ArgumentError: the node has no JSON.

    """
    try:
        return build_passage_payload(node)
    except (TypeError, ValueError) as error:
        raise_interrupt(error)
        raise _make_json_error(node, error) from error


def _make_json_error(node: BaseNode, error: Exception) -> ArgumentError:
    return ArgumentError(f"metadata of node {node.node_id!r} holds what cannot be written as JSON: {error}")


def _build_point(
    bm25: WordEncoder, point_id: str, vector: Sequence[float] | None, text: str, payload: dict[str, Any]
) -> models.PointStruct:
    vectors: dict[str, Any] = {SPARSE: bm25.embed_document(text)}
    if vector is not None:
        vectors[DENSE] = vector
    # Not validated again: the fields are of the right kind, and a dense vector is long.
    return models.PointStruct.model_construct(id=point_id, vector=vectors, payload=payload)


def build_triple_points(
    collections: Collections,
    wanted: dict[str, tuple[Triple, BaseNode]],
    vectors: Mapping[str, Sequence[float]],
    aliases: Mapping[str, Sequence[tuple[str, str]]],
) -> list[models.PointStruct]:
    """Build the points of passages' triples.

    Args:
        collections: the store's.
        wanted: point id → the triple, and its passage.
        vectors: point id → its vector, of those that have one.
        aliases: point id → its links.

    Raises:
        EmbeddingError: a vector has another dimension than the collections.

    """
    owners = {node.node_id: node for _, node in wanted.values()}
    payloads = {node_id: build_triple_payload(node) for node_id, node in owners.items()}
    points = []
    for point_id, (triple, node) in wanted.items():
        vector = vectors.get(point_id)
        if vector is not None:
            collections.check_dimension(
                vector, f"the embedding of the triple {triple.text!r} (embed_model of the store)"
            )
        links: dict[str, list[str]] = {}
        for key, alias in aliases.get(point_id, ()):
            links.setdefault(key, []).append(alias)
        payload = {
            **payloads[node.node_id],
            "subject": triple.subject,
            "predicate": triple.predicate,
            "object": triple.object,
            **build_alias_payload(triple.entities, links),
        }
        points.append(_build_point(collections.triple_bm25, point_id, vector, triple.text, payload))
    return points

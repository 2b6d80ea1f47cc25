"""Comparisons of what is stored of a passage with what the passage says. Pure functions, no calls."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from llama_index.core.schema import BaseNode
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, TripleError
from llama_index_gear.nodes import DOC_KEYS, attach_triples, read_triples
from llama_index_gear.store.collections import FORMAT_KEY
from llama_index_gear.store.filters import bound_float, find_index_fault
from llama_index_gear.store.schema import (
    ALIASES,
    DELETED,
    DENSE,
    NODE_FIELDS,
    REPLACED,
    SPARSE,
    WRITE,
    WRITE_FIELDS,
    build_alias_payload,
    build_passage_payload,
    build_triple_payload,
    has_sound_calls,
    has_sound_marks,
    is_triple,
    point_id_of,
    read_passages,
    read_sound_aliases,
    to_stored_triple,
)
from llama_index_gear.store.tenancy import is_name
from llama_index_gear.triple import Triple

_CONTENT, _KIND = NODE_FIELDS
_STATED_KIND = re.compile(r'"class_name": ?"(\w+)"\}$')


@dataclass(frozen=True)
class Owner:
    """A stored passage.

    Attributes:
        node: the passage.
        point: its point, as it is stored.
        corrections: fields of its payload that keep the node from being read as it was written, with the right values.

    """

    node: BaseNode
    point: Any
    corrections: dict[str, Any]

    @cached_property
    def stated(self) -> dict[str, Triple] | None:
        """The triples that the passage states, by the id of their points; None if they cannot be read."""
        try:
            return {triple.id(self.node.node_id): triple for triple in read_triples(self.node)}
        except TripleError:
            return None


def read_owners(points: Sequence[Any]) -> tuple[list[Owner], list[str]]:
    """Read the passages of points; return also the ids of points that hold none, or one of another id."""
    owners, foreign = [], []
    for point in points:
        payload = point.payload or {}
        corrections = _correct_kind(payload)
        readable = point.model_copy(update={"payload": {**payload, **corrections}}) if corrections else point
        read, unread = read_passages([readable])
        foreign += unread
        for node, _ in read:
            if _has_own_id(node, point):
                owners.append(Owner(node, point, corrections))
            else:
                foreign.append(str(point.id))
    return owners, foreign


def _correct_kind(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the field that names the node's class, if the node itself names another."""
    content = payload.get(_CONTENT)
    stated = _STATED_KIND.search(content) if isinstance(content, str) else None
    return {} if stated is None or stated[1] == payload.get(_KIND) else {_KIND: stated[1]}


def _has_own_id(node: BaseNode, point: Any) -> bool:
    """Return True if the passage stands at the point where reads by its id look for it."""
    try:
        return point_id_of(node.node_id) == str(point.id)
    except ArgumentError:  # half a character
        return False


def is_sound(owner: Owner, tenant_field: str | None) -> bool:
    """Return True if writes can read the passage, and see it with the tenant that it names itself."""
    payload = owner.point.payload
    if owner.stated is None or owner.corrections or not has_sound_marks(payload):
        return False
    tenant = payload.get(tenant_field) if tenant_field is not None else None
    return not is_name(tenant) or tenant == owner.node.metadata.get(tenant_field or "")


def is_incomplete(owner: Owner, triples: Mapping[str, Any]) -> bool:
    """Return True if the passage states a triple that is not among these points, by id."""
    return not (owner.stated or {}).keys() <= triples.keys()


def is_outdated(owner: Owner, triples: Mapping[str, Any]) -> bool:
    """Return True if the passage's payload, or that of one of its triples, is not what a write of it makes."""
    payload, wanted = owner.point.payload, owner.stated
    if wanted is None or owner.corrections or not has_sound_marks(payload) or not triples.keys() <= wanted.keys():
        return True
    shared, write = _round_trip(build_triple_payload(owner.node)), payload.get(WRITE)
    return _is_payload_outdated(owner) or any(
        _is_triple_outdated(point.payload, shared, wanted[point_id], write) for point_id, point in triples.items()
    )


def make_writable(owner: Owner, triples: Sequence[Any]) -> tuple[BaseNode, list[Any]]:
    """Return the passage to write again, and the operations that must come first: a write could not read its payload.

    If its own list of triples cannot be read, it gets those of the stored ones that are whole.
    """
    node, fields = owner.node, dict(owner.corrections)
    if owner.stated is None:
        whole = [to_stored_triple(point, 0.0) for point in triples if is_triple(point)]
        node = attach_triples(node, [stored.triple for stored in whole if stored.triple.id(node.node_id) == stored.id])
        fields[_CONTENT] = build_passage_payload(node)[_CONTENT]
    match_ = models.Filter(must=[models.HasIdCondition(has_id=[owner.point.id])])
    operations: list[Any] = []
    if fields:
        change = models.SetPayload(payload=fields, filter=match_)
        operations.append(models.SetPayloadOperation(set_payload=change))
    if not has_sound_marks(owner.point.payload):
        removal = models.DeletePayload(keys=[WRITE, REPLACED], filter=match_)
        operations.append(models.DeletePayloadOperation(delete_payload=removal))
    return node, operations


def _is_triple_outdated(payload: Mapping[str, Any], shared: Mapping[str, Any], triple: Triple, write: Any) -> bool:
    """Return True if the payload is not that of this triple, stored by this write.

    Links are those that the payload has: which ones it should have, other triples tell. That a call is at work on the
    triple, or ended early, is no fault.
    """
    links: dict[str, list[str]] = {}
    for key, alias in read_sound_aliases(payload):
        links.setdefault(key, []).append(alias)
    expected = build_alias_payload(triple.entities, links)
    return (
        (payload.get("subject"), payload.get("predicate"), payload.get("object"))
        != (triple.subject, triple.predicate, triple.object)
        or any(payload.get(name) != expected.get(name) for name in ("entities", ALIASES))
        or payload.get(WRITE) != write
        or bool(payload.get(DELETED))
        or not has_sound_calls(payload)
        or any(not _is_equal(payload.get(key), value) for key, value in shared.items())
    )


def _round_trip(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload as an engine returns it."""
    return json.loads(json.dumps(payload))  # type: ignore[no-any-return]


def _is_payload_outdated(owner: Owner) -> bool:
    """Return True if filters see another value than the passage has.

    LlamaIndex's own store writes "None" where a passage has no document; that is no fault.
    """
    payload, expected = owner.point.payload, _round_trip(build_passage_payload(owner.node))
    keys = (payload.keys() | expected.keys()) - {*NODE_FIELDS, *WRITE_FIELDS}
    if owner.node.ref_doc_id is None:
        keys -= {key for key in DOC_KEYS if payload.get(key) == "None"}
    return any(not _is_equal(payload.get(key), expected.get(key)) for key in keys)


def _is_equal(stored: Any, expected: Any) -> bool:
    """Return True if the stored value is the expected one; floats may differ in the last places."""
    if stored == expected:
        return True
    match stored, expected:
        case dict(), dict():
            return stored.keys() == expected.keys() and all(_is_equal(stored[key], expected[key]) for key in expected)
        case list(), list():
            return len(stored) == len(expected) and all(map(_is_equal, stored, expected))
        case (float(), int() | float()) | (int(), float()):
            low, high = bound_float(float(expected))
            return low <= float(stored) <= high
    return False


def find_settings_faults(name: str, info: models.CollectionInfo, fields: Sequence[tuple[str, Any]]) -> list[str]:
    """Return what searches of a collection lack in its settings, a sentence each.

    A client in memory (`:memory:`) knows no index at all: where there is none, none is missing. Words that LlamaIndex's
    own store weighs have another encoder, and mostly no IDF.
    """
    params, indexes = info.config.params, info.payload_schema or {}
    dense = params.vectors.get(DENSE) if isinstance(params.vectors, dict) else None
    sparse = (params.sparse_vectors or {}).get(SPARSE)
    faults = []
    if dense is None or dense.distance != models.Distance.COSINE:
        faults.append(f"{name} has no vector {DENSE!r} that is compared by cosine")
    if sparse is None:
        faults.append(f"{name} has no vector {SPARSE!r}: no search by words finds anything in it")
    elif FORMAT_KEY in (info.config.metadata or {}) and sparse.modifier != models.Modifier.IDF:
        faults.append(f"{name} has no IDF in {SPARSE!r}")
    wrong = [find_index_fault(indexes, path) for path, _ in fields] if indexes else []
    return faults + [f"{name} has {fault}" for fault in wrong if fault]

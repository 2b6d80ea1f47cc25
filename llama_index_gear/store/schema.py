"""The form of passages and triples in Qdrant: ids, payloads and vectors. Pure translation, no calls."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from llama_index.vector_stores.qdrant.base import (
    DEFAULT_DENSE_VECTOR_NAME,
    DEFAULT_SPARSE_VECTOR_NAME,
    DOCUMENT_ID_KEY,
)
from qdrant_client.http import models

from llama_index_gear.errors import StoreError, TripleError, check_characters
from llama_index_gear.nodes import (
    DOC_KEYS,
    EXTRACTION_KEY,
    SOURCE_KEY,
    TRIPLES_KEY,
    triple_metadata_keys,
    without_explanation,
)
from llama_index_gear.triple import NAMESPACE, Incidence, StoredTriple, Triple

DENSE = DEFAULT_DENSE_VECTOR_NAME
SPARSE = DEFAULT_SPARSE_VECTOR_NAME
DOC_ID = DOCUMENT_ID_KEY
NODE_FIELDS = ["_node_content", "_node_type"]
"""Payload fields that are read to make a passage's node."""
HIDDEN_FIELDS = (*NODE_FIELDS, TRIPLES_KEY, SOURCE_KEY)
"""Payload fields of a passage that filters do not see."""
OUTCOME = "outcome"
"""The field of a passage's extraction record that filters see."""
ALIASES = "aliases"
"""The field of a triple's payload that holds its links: `{"entity": key of an end, "alias": key linked with it}`."""
WRITE = "gear_write"
"""The field of both payloads that names the write that stored the point; see `commits`."""
REPLACED = "gear_replaced"
"""The field of a passage's payload that names the write that its own replaced."""
DELETED = "gear_deleted"
"""The field of a triple's payload that is True once its passage is being deleted."""
UNFINISHED = "gear_unfinished"
"""The field of a triple's payload that says which call is at work on it: a list of `ANY_CALL` and the call's name."""
ANY_CALL = "call"
"""The member of `UNFINISHED` that is the same for all calls: by it the index finds all such triples at once."""
WRITE_FIELDS = (WRITE, REPLACED, DELETED, UNFINISHED)
"""The fields by which writers of several processes know each other's points."""
TRIPLE_FIELDS = ["passage_id", "subject", "predicate", "object", "entities", "names", ALIASES]
"""Payload fields that are read to make a triple."""
INCIDENCE_FIELDS = ["entities", "passage_id", ALIASES]
"""Payload fields of a triple that are read to walk over it."""
_TEXT = frozenset([str])
_QUERY = models.QueryRequest(with_vector=False)


def build_vectors_config(dimension: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Build the vectors' settings of a new collection: dense vectors (cosine) and BM25 weights (with IDF)."""
    dense = models.VectorParams(**{**options, "size": dimension, "distance": models.Distance.COSINE})
    return {
        "vectors_config": {DENSE: dense},
        "sparse_vectors_config": {SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
    }


def build_query(
    vector: Any,
    limit: int,
    match_: models.Filter | None,
    *,
    payload: bool | list[str],
    using: str = DENSE,
) -> models.QueryRequest:
    """Build one query of a batch, for the points nearest to a dense or sparse vector.

    Without a vector the query returns the points that match, by id.
    """
    fields = {"query": vector, "using": using, "limit": limit, "filter": match_, "with_payload": payload}
    return _QUERY.model_copy(update=fields)  # not validated again, and twice as fast as `model_construct`


def to_sparse_vector(vector: Any) -> models.SparseVector:
    """Convert Edge's sparse vector to Qdrant's."""
    return models.SparseVector.model_construct(indices=vector.indices, values=vector.values)


def point_id_of(node_id: str) -> str:
    """Return the node's id if Qdrant takes it (a UUID), else a UUID derived from it."""
    check_characters(node_id=node_id)
    try:
        if str(uuid.UUID(node_id)) == node_id:
            return node_id
    except ValueError:
        pass
    return str(uuid.uuid5(NAMESPACE, node_id))


def to_node(point: Any) -> BaseNode:
    """Read the node from a passage's point, with its embedding if that was requested.

    Raises:
        StoreError: the point holds no passage.

    """
    try:
        node = metadata_dict_to_node(point.payload or {})
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise make_foreign_error(point, "passage", error) from error
    if isinstance(point.vector, dict):
        node.embedding = point.vector.get(DENSE)
    return node


def read_passages(points: Sequence[Any]) -> tuple[list[tuple[BaseNode, Any]], list[str]]:
    """Read the nodes from points, each with its point; return also the ids of points that hold no passage."""
    read, foreign = [], []
    for point in points:
        try:
            read.append((to_node(point), point))
        except StoreError:
            foreign.append(str(point.id))
    return read, foreign


def make_foreign_error(point: Any, kind: str, error: Exception) -> StoreError:
    """Make the error of a point that cannot be read."""
    reason = str(error).partition("\n")[0]
    return StoreError(
        f"point {str(point.id)!r} holds no {kind} ({type(error).__name__}: {reason}): another program wrote it. "
        "repair() makes the triples of stored passages anew. check() names all such points: delete them with the "
        "store's client, or choose another collection_name and ingest into it"
    )


def to_stored_triple(point: Any, score: float) -> StoredTriple:
    """Read the triple from a point.

    Raises:
        StoreError: the point holds no triple.

    """
    payload = point.payload or {}
    try:
        triple = Triple(payload["subject"], payload["predicate"], payload["object"])
        entities = own_entities(payload) or tuple(payload.get("names", ()))
        aliases = read_aliases(payload)
    except (TripleError, TypeError, KeyError) as error:
        raise make_foreign_error(point, "triple", error) from error
    return StoredTriple(str(point.id), triple, payload.get("passage_id", ""), score, entities, aliases)


def to_incidence(point: Any) -> Incidence:
    """Read from a triple's point what it joins.

    Raises:
        StoreError: the point holds no triple.

    """
    payload = point.payload
    try:
        if not has_sound_entities(payload):
            raise TypeError("its entities are no list of texts")
        if not payload.get(ALIASES):  # most triples have none
            return Incidence(str(point.id), tuple(payload["entities"]), payload["passage_id"])
        return Incidence(str(point.id), own_entities(payload), payload["passage_id"], read_aliases(payload))
    except (AttributeError, TypeError, KeyError) as error:
        raise make_foreign_error(point, "triple", error) from error


def read_aliases(payload: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the links of a triple: the key of one of its ends, and a key that means the same.

    Raises:
        TypeError: they have another form.
        KeyError: one of them lacks a key.

    """
    links = payload.get(ALIASES)
    if not links:  # most triples have none
        return ()
    aliases = tuple((link["entity"], link["alias"]) for link in links)
    if not all(isinstance(key, str) for pair in aliases for key in pair):
        raise TypeError("a link joins two texts")
    return aliases


def read_sound_aliases(payload: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the links of a triple; none if they have another form."""
    try:
        return read_aliases(payload)
    except (TypeError, KeyError):
        return ()


def has_sound_entities(payload: Mapping[str, Any]) -> bool:
    """Return True for the payload of a triple whose entities, and links if it has some, can be read."""
    entities = payload.get("entities")
    are_texts = isinstance(entities, list) and _TEXT.issuperset(map(type, entities))
    return are_texts and bool(not payload.get(ALIASES) or read_sound_aliases(payload))


def has_sound_links(payload: Mapping[str, Any]) -> bool:
    """Return True for the payload of a triple with links that can be read; most triples have none."""
    return bool(payload.get(ALIASES) and read_sound_aliases(payload)) and isinstance(payload.get("entities"), list)


def drop_links(payload: Mapping[str, Any], hidden: Collection[str]) -> dict[str, Any]:
    """Return the payload of a triple without its links with some keys."""
    links = [link for link in payload[ALIASES] if link["alias"] not in hidden]
    dropped = {alias for _, alias in read_aliases(payload)} & set(hidden)
    kept = [key for key in payload["entities"] if not (isinstance(key, str) and key in dropped)]
    return {**payload, "entities": kept, ALIASES: links}


def own_entities(payload: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the entities at a triple's ends, without those that are linked with them."""
    if not payload.get(ALIASES):  # most triples have none
        return tuple(payload["entities"])
    linked = {alias for _, alias in read_aliases(payload)}
    return tuple(entity for entity in payload["entities"] if entity not in linked)


def build_alias_payload(entities: Sequence[str], partners: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Build the fields of a triple's payload that hold its entities and their links.

    Args:
        entities: keys of the triple's ends.
        partners: key → keys that mean the same. Those that stand at the other end are left out.

    """
    links = [
        {"entity": key, "alias": alias}
        for key in (entities if partners else ())  # most triples have none
        for alias in sorted(partners.get(key, ()))
        if alias not in entities
    ]
    if not links:
        return {"entities": list(entities)}
    return {"entities": list(dict.fromkeys([*entities, *(link["alias"] for link in links)])), ALIASES: links}


def is_triple(point: Any) -> bool:
    """Return True if the point holds a triple of a passage."""
    try:
        owner: Any = to_stored_triple(point, 0.0).passage_id
    except StoreError:
        return False
    return isinstance(owner, str) and bool(owner)


def get_passage_id(point: Any) -> str:
    """Return the id of the passage that a triple's point names; "" if it names none, or several."""
    passage_id = (point.payload or {}).get("passage_id")
    return passage_id if isinstance(passage_id, str) else ""


def has_sound_marks(payload: Mapping[str, Any]) -> bool:
    """Return True if the names of writes in a payload are texts, or missing."""
    return all(isinstance(payload.get(name), str | None) for name in (WRITE, REPLACED))


def can_be_replaced(point: Any) -> bool:
    """Return True if a write can read which passage and which write a triple's point names."""
    return bool(get_passage_id(point)) and has_sound_marks(point.payload)


def read_calls(payload: Mapping[str, Any]) -> list[Any]:
    """Return the names of the calls that are at work on a triple, as they are stored."""
    calls = payload.get(UNFINISHED)
    return calls if isinstance(calls, list) else []


def has_sound_calls(payload: Mapping[str, Any]) -> bool:
    """Return True if `UNFINISHED` is as a call writes it, or missing."""
    calls = payload.get(UNFINISHED)
    return calls is None or (read_calls(payload)[:1] == [ANY_CALL] and list(map(type, calls)) == [str, str])


def build_triple_payload(node: BaseNode) -> dict[str, Any]:
    """Build what the payloads of a passage's triples share: the passage's id and what filters see of it."""
    metadata = node_to_metadata_dict(without_explanation(node), remove_text=True, flat_metadata=False)
    document = get_document_id(node)
    for key in (*HIDDEN_FIELDS, *triple_metadata_keys(node)):
        metadata.pop(key, None)
    if isinstance(record := metadata.get(EXTRACTION_KEY), dict):
        metadata[EXTRACTION_KEY] = {OUTCOME: record.get(OUTCOME)}
    return {"passage_id": node.node_id, DOC_ID: document, "metadata": {**metadata, **dict.fromkeys(DOC_KEYS, document)}}


def build_passage_payload(node: BaseNode) -> dict[str, Any]:
    """Build the payload of a passage's point: the node as JSON, and the fields that filters see."""
    payload = node_to_metadata_dict(without_explanation(node), flat_metadata=False)
    payload.pop(TRIPLES_KEY, None)  # they are in the node's own JSON
    payload.update(dict.fromkeys(DOC_KEYS, get_document_id(node)))
    return payload


def get_document_id(node: BaseNode) -> str:
    """Return the id of a passage's document; a passage that was never split from one is its own document."""
    return node.ref_doc_id or node.node_id


def match_any(key: str, values: Collection[str]) -> models.FieldCondition:
    """Build the condition that the field has one of these values."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def match_lacking(vector: str) -> models.Filter:
    """Build the condition that a point lacks a vector."""
    return models.Filter(must_not=[models.HasVectorCondition(has_vector=vector)])


def match_writes(writes: Collection[str], point_ids: Sequence[Any] = ()) -> models.Filter:
    """Build the condition that a point is of one of these writes, or names none, or has one of these ids."""
    should: list[Any] = [models.IsEmptyCondition(is_empty=models.PayloadField(key=WRITE))]
    if writes:
        should.insert(0, match_any(WRITE, writes))
    if point_ids:
        should.append(models.HasIdCondition(has_id=list(point_ids)))
    return models.Filter(should=should)

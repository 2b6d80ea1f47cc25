"""How passages and triples look in Qdrant: ids, payloads, vectors; pure translation, no calls."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
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
from llama_index_gear.nodes import DOC_KEYS, EXTRACTION_KEY, TRIPLES_KEY, triple_metadata_keys, without_explanation
from llama_index_gear.triple import NAMESPACE, StoredTriple, Triple

DENSE = DEFAULT_DENSE_VECTOR_NAME
SPARSE = DEFAULT_SPARSE_VECTOR_NAME
DOC_ID = DOCUMENT_ID_KEY
NODE = ["_node_content", "_node_type"]
"""What is read of a passage's payload to make its node."""
EXTRACTED_NODE = [*NODE, EXTRACTION_KEY]
"""The same, and how its extraction went."""
UNSEEN = (*NODE, TRIPLES_KEY)
"""What filters don't see of a passage."""
OUTCOME = "outcome"
"""What filters see of its extraction."""
FACT = ["passage_id", "subject", "predicate", "object", "entities", "names"]
"""What is read of a triple's payload."""


def vectors_config(dimension: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Dense cosine vectors and BM25 weights with inverse document frequency, for a new collection."""
    dense = models.VectorParams(**{**options, "size": dimension, "distance": models.Distance.COSINE})
    return {
        "vectors_config": {DENSE: dense},
        "sparse_vectors_config": {SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
    }


def nearest(
    vector: Any,
    limit: int,
    match_: models.Filter | None,
    *,
    payload: bool | list[str],
    using: str = DENSE,
) -> models.QueryRequest:
    """One query of a batch: the points nearest to a dense or sparse vector; without one, those that match, by id."""
    return models.QueryRequest.model_construct(
        query=vector, using=using, limit=limit, filter=match_, with_payload=payload, with_vector=False
    )


def sparse_vector(vector: Any) -> models.SparseVector:
    """Edge's sparse vector as Qdrant's."""
    return models.SparseVector.model_construct(indices=vector.indices, values=vector.values)


def point_id_of(node_id: str) -> str:
    """The node's id if Qdrant takes it (a UUID), else a UUID made of it."""
    check_characters(node_id=node_id)
    try:
        if str(uuid.UUID(node_id)) == node_id:
            return node_id
    except ValueError:
        pass
    return str(uuid.uuid5(NAMESPACE, node_id))


def to_node(point: Any) -> BaseNode:
    """The node that a passage point holds, with its embedding if it was asked for.

    Raises:
        StoreError: it holds none.

    """
    try:
        node = metadata_dict_to_node(point.payload or {})
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise _foreign(point, "passage", error) from error
    if isinstance(point.vector, dict):
        node.embedding = point.vector.get(DENSE)
    return node


def read_passages(points: Sequence[Any]) -> tuple[list[tuple[BaseNode, Any]], list[str]]:
    """The nodes that points hold, each with its point; and the ids of the points that hold none."""
    read, foreign = [], []
    for point in points:
        try:
            read.append((to_node(point), point))
        except StoreError:
            foreign.append(str(point.id))
    return read, foreign


def _foreign(point: Any, kind: str, error: Exception) -> StoreError:
    why = str(error).partition("\n")[0]
    return StoreError(
        f"point {str(point.id)!r} holds no {kind} ({type(error).__name__}: {why}): another program wrote it. check() "
        "names all such points: delete them with the store's client, or choose another collection_name and ingest "
        "into it"
    )


def shared_call(point: Any) -> str:
    """The call of an extractor that a passage shared with others; empty if none."""
    record = point.payload.get(EXTRACTION_KEY)
    return str(record.get("shared_call_id") or "") if isinstance(record, dict) else ""


def to_stored_triple(point: Any, score: float) -> StoredTriple:
    """The triple that a point holds.

    Raises:
        StoreError: it holds none.

    """
    payload = point.payload or {}
    try:
        triple = Triple(payload["subject"], payload["predicate"], payload["object"])
        entities = tuple(payload["entities"] or payload.get("names", ()))
    except (TripleError, TypeError, KeyError) as error:
        raise _foreign(point, "triple", error) from error
    return StoredTriple(str(point.id), triple, payload.get("passage_id", ""), score, entities)


def is_triple(point: Any) -> bool:
    """Whether a point holds a triple of a passage."""
    try:
        owner: Any = to_stored_triple(point, 0.0).passage_id
    except StoreError:
        return False
    return isinstance(owner, str) and bool(owner)


def triple_payload(node: BaseNode) -> dict[str, Any]:
    """What a passage's triples have in common: whose they are, and all that filters see of the passage."""
    metadata = node_to_metadata_dict(without_explanation(node), remove_text=True, flat_metadata=False)
    document = document_of(node)
    for key in (*UNSEEN, *triple_metadata_keys(node)):
        metadata.pop(key, None)
    if isinstance(record := metadata.get(EXTRACTION_KEY), dict):
        metadata[EXTRACTION_KEY] = {OUTCOME: record.get(OUTCOME)}
    return {"passage_id": node.node_id, DOC_ID: document, "metadata": {**metadata, **dict.fromkeys(DOC_KEYS, document)}}


def passage_payload(node: BaseNode) -> dict[str, Any]:
    """What a passage's point holds: the node as JSON, and beside it what filters see."""
    payload = node_to_metadata_dict(without_explanation(node), flat_metadata=False)
    payload.pop(TRIPLES_KEY, None)  # they stay in the node's own JSON
    payload.update(dict.fromkeys(DOC_KEYS, document_of(node)))
    return payload


def document_of(node: BaseNode) -> str:
    """The document that a passage belongs to; a passage that was never split from one is its own."""
    return node.ref_doc_id or node.node_id


def any_of(key: str, values: Sequence[str]) -> models.FieldCondition:
    """The field has one of these values."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))

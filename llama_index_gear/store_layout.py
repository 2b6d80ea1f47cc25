"""How passages and triples look in Qdrant: ids, payloads, vectors, filters; pure translation, no calls."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
from llama_index.vector_stores.qdrant import QdrantVectorStore
from llama_index.vector_stores.qdrant.base import (
    DEFAULT_DENSE_VECTOR_NAME,
    DEFAULT_SPARSE_VECTOR_NAME,
    DOCUMENT_ID_KEY,
)
from qdrant_client.http import models

from llama_index_gear.errors import UnsupportedFilter
from llama_index_gear.nodes import DOC_KEYS, EXTRACTION_KEY, TRIPLES_KEY, carriers, unexplained
from llama_index_gear.triple import NAMESPACE, StoredTriple, Triple

DENSE = DEFAULT_DENSE_VECTOR_NAME
SPARSE = DEFAULT_SPARSE_VECTOR_NAME
DOC_ID = DOCUMENT_ID_KEY
NODE = ["_node_content", "_node_type"]
"""What is read of a passage's payload to make its node."""
EXTRACTED_NODE = [*NODE, EXTRACTION_KEY]
"""The same, and how its extraction went."""
_UNSEEN = (*NODE, TRIPLES_KEY)
_OUTCOME = "outcome"
_PLAIN_PATH = re.compile(r"[\w-]+(?:\[\d*\])*(?:\.[\w-]+(?:\[\d*\])*)*", re.ASCII)
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
    try:
        if str(uuid.UUID(node_id)) == node_id:
            return node_id
    except ValueError:
        pass
    return str(uuid.uuid5(NAMESPACE, node_id))


def to_node(point: Any) -> BaseNode:
    """The node that a passage point holds, with its embedding if it was asked for."""
    node = metadata_dict_to_node(point.payload)
    if isinstance(point.vector, dict):
        node.embedding = point.vector.get(DENSE)
    return node


def shared_call(point: Any) -> str:
    """The call of an extractor that a passage shared with others; empty if none."""
    record = point.payload.get(EXTRACTION_KEY)
    return str(record.get("together") or "") if isinstance(record, dict) else ""


def to_stored_triple(point: Any, score: float) -> StoredTriple:
    """The triple that a point holds."""
    payload = point.payload
    triple = Triple(payload["subject"], payload["predicate"], payload["object"])
    entities = payload["entities"] or payload.get("names", ())
    return StoredTriple(str(point.id), triple, payload.get("passage_id", ""), score, tuple(entities))


def triple_payload(node: BaseNode) -> dict[str, Any]:
    """What a passage's triples have in common: whose they are, and all that filters see of the passage."""
    metadata = node_to_metadata_dict(unexplained(node), remove_text=True, flat_metadata=False)
    document = document_of(node)
    for key in (*_UNSEEN, *carriers(node)):
        metadata.pop(key, None)
    if isinstance(record := metadata.get(EXTRACTION_KEY), dict):
        metadata[EXTRACTION_KEY] = {_OUTCOME: record.get(_OUTCOME)}
    return {"passage_id": node.node_id, DOC_ID: document, "metadata": {**metadata, **dict.fromkeys(DOC_KEYS, document)}}


def passage_payload(node: BaseNode) -> dict[str, Any]:
    """What a passage's point holds: the node as JSON, and beside it what filters see."""
    payload = node_to_metadata_dict(unexplained(node), flat_metadata=False)
    payload.pop(TRIPLES_KEY, None)  # they stay in the node's own JSON
    payload.update(dict.fromkeys(DOC_KEYS, document_of(node)))
    return payload


def document_of(node: BaseNode) -> str:
    """The document that a passage belongs to; a passage that was never split from one is its own."""
    return node.ref_doc_id or node.node_id


def any_of(key: str, values: Sequence[str]) -> models.FieldCondition:
    """The field has one of these values."""
    return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))


def triple_filter(
    filters: MetadataFilters | None, must: Sequence[Any] = (), exclude: Sequence[str] = ()
) -> models.Filter | None:
    """A filter over triples: conditions of their own, the metadata of their passage, ids left out."""
    musts = [*must, *conditions(filters, under="metadata.")]
    if not musts and not exclude:
        return None
    hidden = models.HasIdCondition(has_id=list(exclude)) if exclude else None
    return models.Filter(must=musts, must_not=hidden)


def _under(prefix: str, filters: MetadataFilters) -> MetadataFilters:
    return MetadataFilters(
        filters=[
            _under(prefix, each)
            if isinstance(each, MetadataFilters)
            else MetadataFilter(key=prefix + _path(_seen(each.key)), value=each.value, operator=each.operator)
            for each in filters.filters
        ],
        condition=filters.condition,
    )


def _seen(key: str) -> str:
    """The key, if a passage's triples have it too: a filter must mean the same of both."""
    first, _, rest = key.partition(".")
    if first in _UNSEEN or (first == EXTRACTION_KEY and rest not in ("", _OUTCOME)):
        raise UnsupportedFilter(
            f"filters don't see {key!r}, which is the store's own: of an extraction they see "
            f"'{EXTRACTION_KEY}.{_OUTCOME}', of the rest your metadata"
        )
    return key


def _path(key: str) -> str:
    """The key as Qdrant addresses it: one that is not of plain letters (a space in it, say) wants quotes."""
    return key if _PLAIN_PATH.fullmatch(key) else f'"{key}"'


def conditions(filters: MetadataFilters | None, *, under: str = "") -> list[Any]:
    """LlamaIndex's own translation of its filters, so that they mean here what they mean in its Qdrant store."""
    seen = None if filters is None else _under(under, filters)
    try:
        query = VectorStoreQuery(filters=seen)
        translated = QdrantVectorStore.model_construct()._build_query_filter(query)
    except (NotImplementedError, ValidationError) as error:
        raise UnsupportedFilter(f"Qdrant's filters cannot express {filters!r}: {error}") from error
    return [] if translated is None else list(translated.must)

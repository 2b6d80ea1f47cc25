"""Builds the points of passages and triples, and refuses what an engine could not read back. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.schema import BaseNode
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError
from llama_index_gear.nodes import attach_triples
from llama_index_gear.store.average_length import get_embedded_text
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.payloads import check_storable, raise_interrupt
from llama_index_gear.store.schema import (
    DENSE,
    SPARSE,
    build_alias_payload,
    build_passage_payload,
    build_triple_payload,
    point_id_of,
)
from llama_index_gear.triple import Triple


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

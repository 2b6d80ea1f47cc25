"""Triples of LlamaIndex's property graphs: from them, with the passages that state them, and to them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from llama_index.core.bridge.pydantic import ConfigDict
from llama_index.core.graph_stores.types import (
    KG_NODES_KEY,
    KG_RELATIONS_KEY,
    TRIPLET_SOURCE_KEY,
    ChunkNode,
    EntityNode,
    LabelledPropertyGraph,
    PropertyGraphStore,
    Relation,
)
from llama_index.core.indices.property_graph import PropertyGraphIndex
from llama_index.core.schema import BaseNode, TextNode, TransformComponent
from llama_index.core.vector_stores.utils import metadata_dict_to_node

from llama_index_gear.nodes import EXTRACTION_KEY, TRIPLES_KEY, attach_triples, read_triples, with_metadata
from llama_index_gear.triple import Triple

logger = logging.getLogger(__name__)

_AT_ONCE = 500  # entities whose triplets are asked for in one call


def from_property_graph(index: PropertyGraphIndex | PropertyGraphStore) -> list[BaseNode]:
    """Return the passages of a property graph, each with the triplets that were extracted from it.

    Nothing is extracted again. Passages keep their ids, and their embeddings if the graph has some: `store.add(nodes)`
    stores them. Otherwise a pipeline embeds them:

        nodes = from_property_graph(index)
        IngestionPipeline(transformations=[embed_model], vector_store=store).run(nodes=nodes)

    A property graph names one passage for each triplet. A fact that several passages state comes with that one. Links
    between passages (`NEXT`, `SOURCE`) are left out. A warning says how many triplets name no passage.

    Args:
        index: a `PropertyGraphIndex`, or its graph store.

    """
    store: PropertyGraphStore = index.property_graph_store if isinstance(index, PropertyGraphIndex) else index
    labelled = store.get()
    nodes = {chunk.id: _to_node(chunk) for chunk in labelled if isinstance(chunk, ChunkNode)}
    entities = [entity.id for entity in labelled if isinstance(entity, EntityNode)]
    stated: dict[str, dict[Triple, None]] = {}
    lost = 0
    for subject, relation, object_ in _read_triplets(store, entities):
        if not isinstance(subject, EntityNode) or not isinstance(object_, EntityNode):
            continue
        if not all(text.strip() for text in (subject.name, relation.label, object_.name)):
            continue
        source = str(relation.properties.get(TRIPLET_SOURCE_KEY))
        if source in nodes:
            stated.setdefault(source, {})[Triple(subject.name, relation.label, object_.name)] = None
        else:
            lost += 1
    if lost:
        logger.warning("%d triplets of the property graph are left out: they name no passage that it has", lost)
    return [
        attach_triples(node, sorted(stated.get(chunk_id, ()), key=lambda triple: triple.text))
        for chunk_id, node in nodes.items()
    ]


def _read_triplets(store: PropertyGraphStore, entities: Sequence[str]) -> Iterable[tuple[Any, Any, Any]]:
    """Return all triplets. LlamaIndex's interface gives those of some entities, its own store has them at hand."""
    graph = getattr(store, "graph", None)
    if isinstance(graph, LabelledPropertyGraph):
        return graph.get_triplets()
    found = (
        triplet
        for start in range(0, len(entities), _AT_ONCE)
        for triplet in store.get_triplets(ids=list(entities[start : start + _AT_ONCE]))
    )
    return {tuple(part.id for part in triplet): triplet for triplet in found}.values()


def _to_node(chunk: ChunkNode) -> BaseNode:
    """Return the LlamaIndex node that a chunk was made from; of another chunk, a node of its text."""
    try:
        node = metadata_dict_to_node(chunk.properties, chunk.text)
    except (TypeError, ValueError, KeyError, AttributeError):
        node = TextNode(id_=chunk.id, text=chunk.text, metadata=dict(chunk.properties))
    node.embedding = chunk.embedding
    return node


class ToPropertyGraph(TransformComponent):
    """Hands extracted triples to LlamaIndex's `PropertyGraphIndex`.

    Put it behind an extractor:
    `PropertyGraphIndex(…, kg_extractors=[GeARTripleExtractor(llm=llm), ToPropertyGraph()])`.
    """

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which the component is serialized."""
        return "GeARToPropertyGraph"

    def __call__(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[BaseNode]:
        """Return copies of the nodes, with their triples as `EntityNode` and `Relation` objects in the metadata."""
        converted = []
        for node in nodes:
            triples = read_triples(node)
            entities = dict.fromkeys(name for triple in triples for name in (triple.subject, triple.object))
            graph = {name: EntityNode(name=name) for name in entities}
            relations = [
                Relation(label=triple.predicate, source_id=graph[triple.subject].id, target_id=graph[triple.object].id)
                for triple in triples
            ]
            values = {KG_NODES_KEY: list(graph.values()), KG_RELATIONS_KEY: relations}
            converted.append(with_metadata(node, values, drop=(TRIPLES_KEY, EXTRACTION_KEY)))
        return converted

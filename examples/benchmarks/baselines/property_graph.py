"""LlamaIndex's own `PropertyGraphIndex` over triples that are there already, to compare with. No language model.

A question leads to the entities that resemble it most (`VectorContextRetriever`), an entity to its triples, a triple to
a passage. Without a language model this is LlamaIndex's whole retrieval: the other retriever that the index has by
default, `LLMSynonymRetriever`, needs one.

The index embeds, scores and names sources as it always does:
- An entity is embedded with its properties, "Max Born ({'triplet_source_id': 'p7'})".
- An entity that several passages name is stored with the last of them. The passage of a triple is that of its subject.
- An entity whose name is a passage's id hides that passage.

The settings are more than LlamaIndex's defaults (4 entities, 30 triples), which find too few passages for forty: the 40
most similar entities, with all of their triples (`path_depth` 1). Passages come in the order of their best triple,
each once. Fewer than asked for may be found.

Two stores in memory take the place of LlamaIndex's, which read the whole graph and compare all vectors one by one for
every question. They return the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from llama_index.core import PropertyGraphIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.graph_stores import SimplePropertyGraphStore
from llama_index.core.graph_stores.types import LabelledNode, Relation, Triplet
from llama_index.core.indices.property_graph import VectorContextRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.core.vector_stores import SimpleVectorStore, VectorStoreQuery, VectorStoreQueryResult
from numpy.typing import NDArray

from llama_index_gear.ingestion.property_graph import ToPropertyGraph

ENTITIES = 40
TRIPLES = 10_000  # at most a question; more than forty entities have


class IndexedGraphStore(SimplePropertyGraphStore):
    """LlamaIndex's graph store in memory, which looks entities and triples up instead of reading through all."""

    def __init__(self) -> None:
        super().__init__()
        self._triplets: dict[str, dict[tuple[str, str, str], None]] = defaultdict(dict)

    def get(self, properties: dict[str, Any] | None = None, ids: list[str] | None = None) -> list[LabelledNode]:
        """Return the nodes that have these ids."""
        if properties or not ids:
            return super().get(properties, ids)
        return [self.graph.nodes[name] for name in dict.fromkeys(ids) if name in self.graph.nodes]

    def upsert_relations(self, relations: list[Relation]) -> None:
        """Add relations."""
        super().upsert_relations(relations)
        for relation in relations:
            key = (relation.source_id, relation.label, relation.target_id)
            self._triplets[relation.source_id][key] = None
            self._triplets[relation.target_id][key] = None

    def get_rel_map(
        self, graph_nodes: list[LabelledNode], depth: int = 2, limit: int = 30, ignore_rels: list[str] | None = None
    ) -> list[Triplet]:
        """Return the triples of these entities, and of their triples' objects if `depth` is more."""
        found: dict[tuple[str, str, str], None] = {}
        names = [node.id for node in graph_nodes]
        for _ in range(depth):
            step = dict.fromkeys(key for name in names for key in self._triplets.get(name, ()) if key not in found)
            found |= step
            names = list(dict.fromkeys(key[2] for key in step))
        kept = [key for key in found if key[1] not in (ignore_rels or [])][:limit]
        relations, nodes = self.graph.relations, self.graph.nodes
        return [(nodes[s], relations[f"{s}_{p}_{o}"], nodes[o]) for s, p, o in kept]


class MatrixVectorStore(SimpleVectorStore):
    """LlamaIndex's vector store in memory, which multiplies one matrix instead of comparing vectors one by one."""

    _ids: list[str] = PrivateAttr(default_factory=list)
    _matrix: NDArray[np.float32] | None = PrivateAttr(default=None)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the ids of the most similar vectors, by cosine."""
        if self._matrix is None or len(self._ids) != len(self.data.embedding_dict):
            self._ids = list(self.data.embedding_dict)
            rows = np.asarray(list(self.data.embedding_dict.values()), dtype=np.float32)
            self._matrix = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        vector = np.asarray(query.query_embedding, dtype=np.float32)
        cosines = self._matrix @ (vector / np.linalg.norm(vector))
        best = np.argsort(-cosines, kind="stable")[: query.similarity_top_k]
        return VectorStoreQueryResult(
            similarities=[float(cosines[number]) for number in best], ids=[self._ids[number] for number in best]
        )


class PropertyGraphRetriever(BaseRetriever):
    """Retriever of passages by a `PropertyGraphIndex`.

    Args:
        nodes: the passages, with triples attached.
        embed_model: the model that embeds entities and passages.
        similarity_top_k: maximum number of passages to return. Default 10.
        entities: number of entities that a question leads to. Default 40.

    """

    def __init__(
        self,
        nodes: Sequence[BaseNode],
        embed_model: BaseEmbedding,
        *,
        similarity_top_k: int = 10,
        entities: int = ENTITIES,
    ) -> None:
        super().__init__()
        self.similarity_top_k = similarity_top_k
        self._nodes = {node.node_id: node for node in nodes}
        store = IndexedGraphStore()
        self.index = PropertyGraphIndex(
            nodes=nodes,
            kg_extractors=[ToPropertyGraph()],
            property_graph_store=store,
            vector_store=MatrixVectorStore(),
            embed_model=embed_model,
            use_async=False,
        )
        context = VectorContextRetriever(
            store,
            include_text=True,
            embed_model=embed_model,
            vector_store=self.index.vector_store,
            similarity_top_k=entities,
            path_depth=1,
            limit=TRIPLES,
        )
        self._retriever = self.index.as_retriever(sub_retrievers=[context])

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        results = self._retriever.retrieve(query_bundle)
        scores: dict[str, float] = {}
        for result in results:
            if result.node_id in self._nodes:
                scores.setdefault(result.node_id, result.get_score())
        first = list(scores.items())[: self.similarity_top_k]
        return [NodeWithScore(node=self._nodes[passage_id], score=score) for passage_id, score in first]

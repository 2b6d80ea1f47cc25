"""Reading a sparse graph: words find triples, embeddings made on the spot rank them. Flows of Qdrant calls."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from qdrant_client.http import models

from llama_index_gear.errors import EmbeddingError, check_counts, check_vector
from llama_index_gear.flow import Flow, ask
from llama_index_gear.fork_safety import free_in_child
from llama_index_gear.requests import (
    Candidate,
    ChainSimilarities,
    EmbedTexts,
    FetchTriples,
    LinkTriples,
    NeighborTriples,
)
from llama_index_gear.store.collections import Collections, WordEncoder
from llama_index_gear.store.filters import triple_filter
from llama_index_gear.store.schema import FACT, SPARSE, any_of, nearest, to_stored_triple
from llama_index_gear.store.triples import TripleReads
from llama_index_gear.triple import StoredTriple

Vector: TypeAlias = NDArray[np.float32]

_NAMED = 300  # triples that share words with a fact's names, from which BM25 chooses


@dataclass
class EmbeddingCache:
    """Unit vectors of triples that were embedded at query time; beyond `most`, the longest unused are forgotten."""

    most: int = 20_000
    _vectors: OrderedDict[str, Vector] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=lambda: free_in_child(threading.Lock()))

    def known(self, triple_ids: Iterable[str]) -> dict[str, Vector]:
        """The vectors of those that are remembered."""
        with self._lock:
            found = {triple_id: self._vectors[triple_id] for triple_id in triple_ids if triple_id in self._vectors}
            for triple_id in found:
                self._vectors.move_to_end(triple_id)
        return found

    def add(self, vectors: Mapping[str, Vector]) -> None:
        """Remember these."""
        with self._lock:
            self._vectors.update(vectors)
            while len(self._vectors) > self.most:
                self._vectors.popitem(last=False)


@dataclass(frozen=True)
class SparseReads:
    """The reading side of a sparse graph; scores are cosines, as in a `GeARVectorStore`."""

    name: str
    bm25: WordEncoder
    collections: Collections
    remembered: EmbeddingCache = field(default_factory=EmbeddingCache)

    def link_flow(self, link: LinkTriples) -> Flow[list[list[StoredTriple]]]:
        """The triples that BM25 ranks first for each text (Millions of GeAR-s Eq. 3)."""
        check_counts(link_top_k=link.top_k)
        requests = [self._by_words(text, link.top_k) for text in link.texts]
        if link.names:  # a predicate's words are in millions of triples, a name's in few
            for request, name in zip(requests, link.names, strict=True):
                request.prefetch = [self._named(name, max(_NAMED, link.top_k))]
        answers = yield from self.collections.batch_flow(self.name, requests)
        if nameless := [number for number, answer in enumerate(answers) if link.names and not answer]:
            again = [self._by_words(link.texts[number], link.top_k) for number in nameless]
            for number, answer in zip(
                nameless, (yield from self.collections.batch_flow(self.name, again)), strict=True
            ):
                answers[number] = answer
        triples = {str(point.id): to_stored_triple(point, 0.0) for answer in answers for point in answer}
        vectors = yield from self._vectors_flow(list(triples), triples)
        scores = _cosines(link.query, vectors)
        scored = {triple.id: replace(triple, score=scores[triple.id]) for triple in triples.values()}
        return [[scored[str(point.id)] for point in answer] for answer in answers]

    def neighbors_flow(self, request: NeighborTriples) -> Flow[list[list[Candidate]]]:
        """Triples that share an entity; of more than the limit, those that share words with the question first."""
        check_counts(neighbors=request.limit)
        matches = [
            triple_filter(None, must=[any_of("entities", entities)], exclude=request.exclude)
            for entities in request.triple_entities
        ]
        plain = [nearest(None, request.limit, match_, payload=False) for match_ in matches]
        answers = yield from self.collections.batch_flow(self.name, plain)
        found = [[str(point.id) for point in answer] for answer in answers]
        crowded = [number for number, near in enumerate(found) if len(near) == request.limit]
        worded = [self._by_words(request.question, request.limit, matches[n], payload=False) for n in crowded]
        answers = yield from self.collections.batch_flow(self.name, worded)
        for number, answer in zip(crowded, answers, strict=True):
            both = dict.fromkeys([*(str(point.id) for point in answer), *found[number]])
            found[number] = list(both)[: request.limit]
        vectors = yield from self._vectors_flow(list(dict.fromkeys(triple_id for near in found for triple_id in near)))
        scores = _cosines(request.query, vectors)
        ranked = [
            [Candidate(triple_id, scores[triple_id]) for triple_id in near if triple_id in scores] for near in found
        ]
        return [sorted(near, key=lambda candidate: (-round(candidate.score, 6), candidate.id)) for near in ranked]

    def similarities_flow(self, request: ChainSimilarities) -> Flow[list[list[float]]]:
        """From what is remembered; what is not, is read and embedded again."""
        ids = list(dict.fromkeys(triple_id for pair in request.pairs for part in pair for triple_id in part))
        vectors = yield from self._vectors_flow(ids)
        products = []
        for chain, near in request.pairs:
            members = [vectors[triple_id] for triple_id in chain if triple_id in vectors]
            summed = np.sum(members, axis=0)
            products.append(
                [float(summed @ vectors[triple_id]) if members and triple_id in vectors else 0.0 for triple_id in near]
            )
        return products

    def _vectors_flow(
        self, ids: Sequence[str], read: Mapping[str, StoredTriple] | None = None
    ) -> Flow[dict[str, Vector]]:
        """The triples' unit vectors: remembered ones, or made now, of those that are `read` already or exist."""
        vectors = self.remembered.known(ids)
        missing = [triple_id for triple_id in ids if triple_id not in vectors]
        if missing:
            facts = read or (yield from TripleReads(self.collections).fetch_flow(FetchTriples(missing)))
            texts = {triple_id: facts[triple_id].triple.text for triple_id in missing if triple_id in facts}
            distinct = list(dict.fromkeys(texts.values()))
            embedded = yield from ask(EmbedTexts(distinct))
            made = dict(zip(distinct, map(_unit, embedded), strict=True))
            new = {triple_id: made[text] for triple_id, text in texts.items()}
            self.remembered.add(new)
            vectors.update(new)
        return vectors

    def _by_words(
        self, text: str, limit: int, match_: models.Filter | None = None, payload: bool = True
    ) -> models.QueryRequest:
        vector = self.bm25.embed_query(text)
        return nearest(vector, limit, match_, payload=FACT if payload else False, using=SPARSE)

    def _named(self, name: str, limit: int) -> models.Prefetch:
        vector = self.bm25.embed_query(name)
        return models.Prefetch.model_construct(query=vector, using=SPARSE, limit=limit)


def _unit(embedding: Sequence[float]) -> Vector:
    vector: Vector = np.asarray(embedding, dtype=np.float32)
    return vector / (np.linalg.norm(vector) or 1.0)


def _cosines(query: Sequence[float], vectors: Mapping[str, Vector]) -> dict[str, float]:
    """The cosine of the query with each unit vector."""
    if not vectors:
        return {}
    check_vector("the question's embedding", query)
    matrix = np.stack(list(vectors.values()))
    if len(query) != matrix.shape[1]:
        raise EmbeddingError(
            f"the question's embedding has {len(query)} dimensions, the graph's embed_model gives {matrix.shape[1]}: "
            "give the graph the embedding model of the passages"
        )
    cosines: list[float] = (matrix @ _unit(query)).tolist()
    return dict(zip(vectors, cosines, strict=True))

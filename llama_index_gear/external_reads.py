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
from qdrant_edge import Bm25

from llama_index_gear.errors import EmbeddingError, check_counts
from llama_index_gear.steps import Candidate, EmbedTexts, Facts, Flow, Link, Neighbours, Similarities
from llama_index_gear.store_collections import Collections
from llama_index_gear.store_layout import FACT, SPARSE, any_of, nearest, sparse_vector, to_stored_triple, triple_filter
from llama_index_gear.store_reads import StoreReads
from llama_index_gear.triple import StoredTriple

Vector: TypeAlias = NDArray[np.float32]


@dataclass
class Remembered:
    """Unit vectors of triples that were embedded at query time; beyond `most`, the longest unused are forgotten."""

    most: int = 20_000
    _vectors: OrderedDict[str, Vector] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def known(self, triple_ids: Iterable[str]) -> dict[str, Vector]:
        """The vectors of those that are remembered."""
        with self._lock:
            found = {each: self._vectors[each] for each in triple_ids if each in self._vectors}
            for each in found:
                self._vectors.move_to_end(each)
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
    bm25: Bm25
    collections: Collections
    remembered: Remembered = field(default_factory=Remembered)

    def linking(self, link: Link) -> Flow[list[list[StoredTriple]]]:
        """The triples that BM25 ranks first for each text (Millions of GeAR-s Eq. 3)."""
        check_counts(link_top_k=link.top_k)
        requests = [self._by_words(text, link.top_k) for text in link.texts]
        answers = yield from self.collections.batch(self.name, requests)
        triples = {str(point.id): to_stored_triple(point, 0.0) for answer in answers for point in answer}
        vectors = yield from self._vectors(triples)
        scored = {each.id: replace(each, score=_cosine(link.query, vectors[each.id])) for each in triples.values()}
        return [[scored[str(point.id)] for point in answer] for answer in answers]

    def neighbours(self, request: Neighbours) -> Flow[list[list[Candidate]]]:
        """Triples that share an entity: those that share words with the question first, then any, up to the limit."""
        check_counts(neighbours=request.limit)
        requests = []
        for entities in request.triple_entities:
            match_ = triple_filter(None, must=[any_of("entities", entities)], exclude=request.exclude)
            requests += [
                self._by_words(request.question, request.limit, match_),
                nearest(None, request.limit, match_, payload=FACT),
            ]
        answers = yield from self.collections.batch(self.name, requests)
        found = []
        for worded, any_ in zip(answers[::2], answers[1::2], strict=True):
            points = {str(point.id): point for point in [*worded, *any_]}
            found.append(list(points.values())[: request.limit])
        triples = {str(point.id): to_stored_triple(point, 0.0) for near in found for point in near}
        vectors = yield from self._vectors(triples)
        scores = {each: _cosine(request.query, vector) for each, vector in vectors.items()}
        ranked = [[Candidate(str(point.id), scores[str(point.id)]) for point in near] for near in found]
        return [sorted(near, key=lambda each: (-round(each.score, 6), each.id)) for near in ranked]

    def similarities(self, request: Similarities) -> Flow[list[list[float]]]:
        """From what is remembered; what is not, is read and embedded again."""
        ids = list(dict.fromkeys(each for pair in request.pairs for part in pair for each in part))
        vectors = self.remembered.known(ids)
        forgotten = [each for each in ids if each not in vectors]
        if forgotten:
            facts = yield from StoreReads(self.collections).facts(Facts(forgotten))
            vectors.update((yield from self._vectors(facts)))
        products = []
        for chain, near in request.pairs:
            members = [vectors[each] for each in chain if each in vectors]
            summed = np.sum(members, axis=0)
            products.append([float(summed @ vectors[each]) if members and each in vectors else 0.0 for each in near])
        return products

    def _vectors(self, triples: Mapping[str, StoredTriple]) -> Flow[dict[str, Vector]]:
        """The triples' unit vectors: remembered ones, or made now."""
        vectors = self.remembered.known(triples)
        missing = [each for each in triples.values() if each.id not in vectors]
        if missing:
            texts = list(dict.fromkeys(each.triple.text for each in missing))
            (embedded,) = yield [EmbedTexts(texts)]
            made = dict(zip(texts, map(_unit, embedded), strict=True))
            new = {each.id: made[each.triple.text] for each in missing}
            self.remembered.add(new)
            vectors.update(new)
        return vectors

    def _by_words(self, text: str, limit: int, match_: models.Filter | None = None) -> models.QueryRequest:
        return nearest(sparse_vector(self.bm25.embed_query(text)), limit, match_, payload=FACT, using=SPARSE)


def _unit(embedding: Sequence[float]) -> Vector:
    vector: Vector = np.asarray(embedding, dtype=np.float32)
    return vector / (np.linalg.norm(vector) or 1.0)


def _cosine(query: Sequence[float], vector: Vector) -> float:
    if len(query) != len(vector):
        raise EmbeddingError(
            f"the question's embedding has {len(query)} dimensions, the graph's embed_model gives {len(vector)}: "
            "give the graph the embedding model of the passages"
        )
    return float(_unit(query) @ vector)

"""Flows that read a sparse graph: words find triples; embeddings made on the spot rank them."""

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
from llama_index_gear.flow import EmbedTexts, Flow, ask
from llama_index_gear.resources import free_in_child
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.filters import build_triple_filter
from llama_index_gear.store.schema import SPARSE, TRIPLE_FIELDS, build_query, match_any, to_stored_triple
from llama_index_gear.store.triples import TripleGraph, TripleReads
from llama_index_gear.triple import Candidate, StoredTriple

Vector: TypeAlias = NDArray[np.float32]

_NAME_LIMIT = 300  # triples that share words with a text's names; BM25 ranks among these


@dataclass
class EmbeddingCache:
    """Unit vectors of triples that were embedded at query time; beyond `max_vectors`, the least recently used go."""

    max_vectors: int = 20_000
    _vectors: OrderedDict[str, Vector] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=lambda: free_in_child(threading.Lock()))

    def get(self, triple_ids: Iterable[str]) -> dict[str, Vector]:
        """Return the vectors of those triples that are cached."""
        with self._lock:
            vectors = {triple_id: self._vectors[triple_id] for triple_id in triple_ids if triple_id in self._vectors}
            for triple_id in vectors:
                self._vectors.move_to_end(triple_id)
        return vectors

    def add(self, vectors: Mapping[str, Vector]) -> None:
        """Cache these vectors."""
        with self._lock:
            self._vectors.update(vectors)
            while len(self._vectors) > self.max_vectors:
                self._vectors.popitem(last=False)


@dataclass(frozen=True)
class SparseReads(TripleGraph):
    """The flows that read a sparse graph; scores are cosines, as in a `GeARVectorStore`."""

    name: str
    bm25: WordEncoder
    collections: Collections
    cache: EmbeddingCache = field(default_factory=EmbeddingCache)

    def link_flow(
        self, texts: Sequence[str], top_k: int, query: Sequence[float], names: Sequence[str] = ()
    ) -> Flow[list[list[StoredTriple]]]:
        """Find the triples that BM25 ranks first for each text (Millions of GeAR-s Eq. 3); see `TripleGraph`."""
        check_counts(link_top_k=top_k)
        requests = [self._build_word_query(text, top_k) for text in texts]
        if names:  # a predicate's words are in millions of triples, a name's in few
            for request, name in zip(requests, names, strict=True):
                request.prefetch = [self._build_name_prefetch(name, max(_NAME_LIMIT, top_k))]
        answers = yield from self.collections.batch_flow(self.name, requests)
        if unanswered := [number for number, answer in enumerate(answers) if names and not answer]:
            retries = [self._build_word_query(texts[number], top_k) for number in unanswered]
            for number, answer in zip(
                unanswered, (yield from self.collections.batch_flow(self.name, retries)), strict=True
            ):
                answers[number] = answer
        triples = {str(point.id): to_stored_triple(point, 0.0) for answer in answers for point in answer}
        vectors = yield from self._vectors_flow(list(triples), triples)
        scores = _compute_cosines(query, vectors)
        scored = {triple.id: replace(triple, score=scores[triple.id]) for triple in triples.values()}
        return [[scored[str(point.id)] for point in answer] for answer in answers]

    def neighbors_flow(
        self,
        triple_entities: Sequence[tuple[str, ...]],
        query: Sequence[float],
        exclude: Sequence[str],
        limit: int,
        question: str = "",
    ) -> Flow[list[list[Candidate]]]:
        """See `TripleGraph`. If there are more than the limit, those that share words with the question come first."""
        check_counts(neighbors=limit)
        matches = [
            build_triple_filter(None, must=[match_any("entities", entities)], exclude=exclude)
            for entities in triple_entities
        ]
        queries = [build_query(None, limit, match_, payload=False) for match_ in matches]
        answers = yield from self.collections.batch_flow(self.name, queries)
        neighbor_ids = [[str(point.id) for point in answer] for answer in answers]
        crowded = [number for number, triple_ids in enumerate(neighbor_ids) if len(triple_ids) == limit]
        word_queries = [self._build_word_query(question, limit, matches[number], payload=False) for number in crowded]
        answers = yield from self.collections.batch_flow(self.name, word_queries)
        for number, answer in zip(crowded, answers, strict=True):
            merged = dict.fromkeys([*(str(point.id) for point in answer), *neighbor_ids[number]])
            neighbor_ids[number] = list(merged)[:limit]
        vectors = yield from self._vectors_flow(
            list(dict.fromkeys(triple_id for triple_ids in neighbor_ids for triple_id in triple_ids))
        )
        scores = _compute_cosines(query, vectors)
        candidates = [
            [Candidate(triple_id, scores[triple_id]) for triple_id in triple_ids if triple_id in scores]
            for triple_ids in neighbor_ids
        ]
        return [sorted(group, key=lambda candidate: (-round(candidate.score, 6), candidate.id)) for group in candidates]

    def fetch_triples_flow(self, ids: Sequence[str]) -> Flow[dict[str, StoredTriple]]:
        """See `TripleGraph`."""
        return TripleReads(self.collections).fetch_triples_flow(ids)

    def similarities_flow(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Flow[list[list[float]]]:
        """See `TripleGraph`. Cached vectors are taken; missing ones are made again."""
        ids = list(dict.fromkeys(triple_id for pair in pairs for part in pair for triple_id in part))
        vectors = yield from self._vectors_flow(ids)
        products = []
        for chain, candidates in pairs:
            members = [vectors[triple_id] for triple_id in chain if triple_id in vectors]
            chain_sum = np.sum(members, axis=0)
            products.append(
                [
                    float(chain_sum @ vectors[triple_id]) if members and triple_id in vectors else 0.0
                    for triple_id in candidates
                ]
            )
        return products

    def _vectors_flow(
        self, ids: Sequence[str], read: Mapping[str, StoredTriple] | None = None
    ) -> Flow[dict[str, Vector]]:
        """Return the triples' unit vectors: cached ones, and new ones for the rest.

        Texts of the rest come from `read`, if given, else from the collection; a triple that does not exist has no
        vector.
        """
        vectors = self.cache.get(ids)
        missing = [triple_id for triple_id in ids if triple_id not in vectors]
        if missing:
            triples = read or (yield from self.fetch_triples_flow(missing))
            texts = {triple_id: triples[triple_id].triple.text for triple_id in missing if triple_id in triples}
            distinct = list(dict.fromkeys(texts.values()))
            embedded = yield from ask(EmbedTexts(distinct))
            vectors_by_text = dict(zip(distinct, map(_normalize, embedded), strict=True))
            new = {triple_id: vectors_by_text[text] for triple_id, text in texts.items()}
            self.cache.add(new)
            vectors.update(new)
        return vectors

    def _build_word_query(
        self, text: str, limit: int, match_: models.Filter | None = None, payload: bool = True
    ) -> models.QueryRequest:
        vector = self.bm25.embed_query(text)
        return build_query(vector, limit, match_, payload=TRIPLE_FIELDS if payload else False, using=SPARSE)

    def _build_name_prefetch(self, name: str, limit: int) -> models.Prefetch:
        vector = self.bm25.embed_query(name)
        return models.Prefetch.model_construct(query=vector, using=SPARSE, limit=limit)


def _normalize(embedding: Sequence[float]) -> Vector:
    vector: Vector = np.asarray(embedding, dtype=np.float32)
    return vector / (np.linalg.norm(vector) or 1.0)


def _compute_cosines(query: Sequence[float], vectors: Mapping[str, Vector]) -> dict[str, float]:
    """Compute the cosine of the query with each unit vector."""
    if not vectors:
        return {}
    check_vector("the question's embedding", query)
    matrix = np.stack(list(vectors.values()))
    if len(query) != matrix.shape[1]:
        raise EmbeddingError(
            f"the question's embedding has {len(query)} dimensions, the graph's embed_model gives {matrix.shape[1]}: "
            "give the graph the embedding model of the passages"
        )
    cosines: list[float] = (matrix @ _normalize(query)).tolist()
    return dict(zip(vectors, cosines, strict=True))

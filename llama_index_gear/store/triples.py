"""Reading triples: linking, propositions, neighbors, incidences, facts, as flows of Qdrant calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import check_counts
from llama_index_gear.flow import Flow, ask
from llama_index_gear.requests import (
    Candidate,
    ChainSimilarities,
    EmbedTexts,
    FetchTriples,
    Incidence,
    IncidentTriples,
    LinkTriples,
    NeighborTriples,
    PassageTriples,
    QdrantCall,
    SearchTriples,
)
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.filters import METADATA, conditions, triple_filter
from llama_index_gear.store.schema import DENSE, FACT, any_of, nearest, to_stored_triple
from llama_index_gear.triple import StoredTriple

_TOGETHER = 300
"""Triples that are read at once, for all nodes of a wave of PageRank; if there are more, each node is asked for."""
_FIRST_HITS = 32  # of each proposition, before more are asked for


@dataclass(frozen=True)
class TripleReads:
    """The reading side of a collection of triples."""

    collections: Collections

    def link_flow(self, link: LinkTriples, filters: MetadataFilters | None = None) -> Flow[list[list[StoredTriple]]]:
        """Answers `LinkTriples`."""
        check_counts(top_k=link.top_k)
        if not link.texts or not (yield from self.collections.triples_exist_flow()):
            return [[] for _ in link.texts]
        match_ = triple_filter(filters)
        vectors = yield from ask(EmbedTexts(link.texts))
        for vector in vectors:
            self.collections.check_dimension(vector, "the embedding of a proximal triple")
        self.collections.check_dimension(link.query, "the query's embedding")
        requests = [nearest(vector, link.top_k, match_, payload=False) for vector in vectors]
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        linked = list(dict.fromkeys(str(point.id) for answer in answers for point in answer))
        if not linked:
            return [[] for _ in answers]
        these = models.Filter(must=[models.HasIdCondition(has_id=list(linked))])
        (scored,) = yield from self.collections.batch_flow(
            self.collections.triples, [nearest(link.query, len(linked), these, payload=FACT)]
        )
        triples = {str(point.id): to_stored_triple(point, float(point.score)) for point in scored}
        # One that was deleted between the two calls is left out.
        return [[triples[str(point.id)] for point in answer if str(point.id) in triples] for answer in answers]

    def search_flow(self, request: SearchTriples, filters: MetadataFilters | None) -> Flow[list[StoredTriple]]:
        """Answer `SearchTriples`: ask for more of each text until what it has not seen could not change the answer."""
        check_counts(passages=request.passages)
        if not (request.texts or request.embeddings) or not (yield from self.collections.triples_exist_flow()):
            return []
        match_ = triple_filter(filters)
        vectors = list(request.embeddings)
        if request.texts:
            embedded = yield from ask(EmbedTexts(request.texts))
            vectors += embedded
        for vector in vectors:
            self.collections.check_dimension(vector, "the embedding of a proposition")
        limit = max(_FIRST_HITS, 2 * request.passages)
        while True:
            requests = [nearest(vector, limit, match_, payload=FACT) for vector in vectors]
            answers = yield from self.collections.batch_flow(self.collections.triples, requests)
            walked, is_complete = _walked_down(answers, request.passages)
            unseen = [answer[-1].score for answer in answers if len(answer) == limit]
            if not unseen or (is_complete and round(max(unseen), 6) <= round(walked[-1].score, 6)):
                return walked
            limit *= 4

    def passage_triples_flow(
        self, request: PassageTriples, filters: MetadataFilters | None
    ) -> Flow[list[StoredTriple]]:
        """Answers `PassageTriples`."""
        if request.limit is not None:
            check_counts(limit=request.limit)
        if not request.passage_ids or not (yield from self.collections.triples_exist_flow()):
            return []
        self.collections.check_dimension(request.query, "the query's embedding")
        match_ = triple_filter(filters, must=[any_of("passage_id", request.passage_ids)])
        limit = request.limit
        if limit is None:
            counted = yield from ask(
                QdrantCall(
                    "count", {"collection_name": self.collections.triples, "count_filter": match_, "exact": True}
                )
            )
            limit = max(1, counted.count)
        (answer,) = yield from self.collections.batch_flow(
            self.collections.triples, [nearest(request.query, limit, match_, payload=FACT)]
        )
        return [to_stored_triple(point, float(point.score)) for point in answer]

    def neighbors_flow(
        self, request: NeighborTriples, filters: MetadataFilters | None = None
    ) -> Flow[list[list[Candidate]]]:
        """Answers `NeighborTriples`."""
        check_counts(neighbors=request.limit)
        if not request.triple_entities or not (yield from self.collections.triples_exist_flow()):
            return [[] for _ in request.triple_entities]
        self.collections.check_dimension(request.query, "the query's embedding")
        requests = []
        for entities in request.triple_entities:
            match_ = triple_filter(filters, must=[any_of("entities", entities)], exclude=request.exclude)
            requests.append(nearest(request.query, request.limit, match_, payload=False))
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        return [[Candidate(str(point.id), float(point.score)) for point in answer] for answer in answers]

    def incident_flow(self, request: IncidentTriples, filters: MetadataFilters | None) -> Flow[list[list[Incidence]]]:
        """Answers `IncidentTriples`."""
        for limit in request.limits:
            check_counts(most=2**32, limit=limit)  # of all together there may be no more than are read at once
        if not request.groups or not (yield from self.collections.triples_exist_flow()):
            return [[] for _ in request.groups]
        musts = conditions(filters, under=METADATA)

        def matching(entities: Sequence[str], passage_ids: Sequence[str]) -> models.Filter:
            either: list[Any] = [any_of("passage_id", passage_ids)] if passage_ids else []
            if entities or not either:  # an empty `should` would match everything
                either.append(any_of("entities", entities))
            return models.Filter(must=musts, should=either)

        def asking(match_: models.Filter, limit: int) -> models.QueryRequest:
            return nearest(None, limit, match_, payload=["entities", "passage_id"])

        # One query for all is far less work than one a group, and most groups are small. To read what is then thrown
        # away is the most work of all: where it could be too much it is counted first, one more round trip to a server.
        # About will do, and takes the same time whatever there is; an exact count would go through it.
        everything = (list(dict.fromkeys(name for group in request.groups for name in group[n])) for n in (0, 1))
        match_, most, are_few = matching(*everything), sum(request.limits), True
        if most > _TOGETHER:
            counted = yield from ask(
                QdrantCall(
                    "count", {"collection_name": self.collections.triples, "count_filter": match_, "exact": False}
                )
            )
            most, are_few = _TOGETHER, counted.count <= _TOGETHER
        if are_few:
            (together,) = yield from self.collections.batch_flow(self.collections.triples, [asking(match_, most + 1)])
            if len(together) <= most:
                return _dealt(map(_incidence, together), request)
        requests = [
            asking(matching(*group), limit) for group, limit in zip(request.groups, request.limits, strict=True)
        ]
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        return [[_incidence(point) for point in answer] for answer in answers]

    def fetch_flow(
        self, request: FetchTriples, filters: MetadataFilters | None = None
    ) -> Flow[dict[str, StoredTriple]]:
        """Answers `FetchTriples`."""
        if not request.ids or not (yield from self.collections.triples_exist_flow()):
            return {}
        records = yield from self._records_flow(request.ids, filters, payload=FACT, vectors=False)
        return {str(record.id): to_stored_triple(record, 0.0) for record in records}

    def _records_flow(
        self, ids: Sequence[str], filters: MetadataFilters | None, *, payload: bool | list[str], vectors: Any
    ) -> Flow[Sequence[Any]]:
        """The triples of these ids that match."""
        name = self.collections.triples
        if filters is not None:
            match_ = triple_filter(filters, must=[models.HasIdCondition(has_id=list(ids))])
            return (yield from self.collections.scroll_flow(name, match_, payload=payload, vectors=vectors))
        reading = {"collection_name": name, "with_payload": payload, "with_vectors": vectors}
        records = yield from ask(QdrantCall("retrieve", {"ids": list(ids), **reading}))
        return records  # type: ignore[no-any-return]

    def similarities_flow(
        self, request: ChainSimilarities, filters: MetadataFilters | None = None
    ) -> Flow[list[list[float]]]:
        """Two round trips: the chains' vectors, then one query a pair. No candidate's vector leaves the engine."""
        members = list(dict.fromkeys(member for chain, _ in request.pairs for member in chain))
        if not members or not (yield from self.collections.triples_exist_flow()):
            return [[0.0] * len(candidates) for _, candidates in request.pairs]
        records = yield from self._records_flow(members, filters, payload=False, vectors=[DENSE])
        vectors = {str(record.id): record.vector[DENSE] for record in records}
        asked = [(number, pair) for number, pair in enumerate(request.pairs) if pair[1]]
        requests, lengths = [], []
        for _, (chain, candidates) in asked:
            # A triple that was deleted since the caller saw it is similar to nothing.
            known = [vectors[member] for member in chain if member in vectors]
            summed = np.sum(known, axis=0) if known else np.zeros(self.collections.dimension or 1)
            lengths.append(float(np.linalg.norm(summed)))
            match_ = triple_filter(filters, must=[models.HasIdCondition(has_id=list(candidates))])
            requests.append(nearest(summed.tolist(), len(candidates), match_, payload=False))
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        products: list[list[float]] = [[] for _ in request.pairs]
        for (number, (_, candidates)), length, answer in zip(asked, lengths, answers, strict=True):
            cosines = {str(point.id): point.score for point in answer}
            products[number] = [length * cosines.get(candidate, 0.0) for candidate in candidates]
        return products


def _walked_down(answers: Sequence[Sequence[Any]], passages: int) -> tuple[list[StoredTriple], bool]:
    """The hits of all queries as one list, down to the last of so many distinct passages; whether they were reached."""
    best: dict[str, StoredTriple] = {}
    for point in (point for answer in answers for point in answer):
        if str(point.id) not in best or best[str(point.id)].score < point.score:
            best[str(point.id)] = to_stored_triple(point, float(point.score))
    walked: list[StoredTriple] = []
    seen: set[str] = set()
    for triple in sorted(best.values(), key=lambda item: (-round(item.score, 6), item.id)):
        walked.append(triple)
        seen.add(triple.passage_id)
        if len(seen) == passages:
            return walked, True
    return walked, False


def _incidence(point: Any) -> Incidence:
    return Incidence(str(point.id), tuple(point.payload["entities"]), point.payload["passage_id"])


def _dealt(triples: Iterable[Incidence], request: IncidentTriples) -> list[list[Incidence]]:
    """To each group its own, in the order given, as many as it may have."""
    of_entity: dict[str, list[int]] = {}
    of_passage: dict[str, list[int]] = {}
    for number, (entities, passage_ids) in enumerate(request.groups):
        for names, of in ((entities, of_entity), (passage_ids, of_passage)):
            for name in names:
                of.setdefault(name, []).append(number)
    answers: list[list[Incidence]] = [[] for _ in request.groups]
    for triple in triples:
        groups = {number for name in triple.entities for number in of_entity.get(name, ())}
        for number in sorted(groups.union(of_passage.get(triple.passage_id, ()))):
            if len(answers[number]) < request.limits[number]:
                answers[number].append(triple)
    return answers

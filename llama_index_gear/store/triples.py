"""Flows of Qdrant calls that read triples: linking, propositions, neighbors, incidences, triples by id."""

from __future__ import annotations

from collections.abc import Sequence
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
from llama_index_gear.store.filters import METADATA, build_conditions, build_triple_filter
from llama_index_gear.store.schema import (
    ALIASES,
    DENSE,
    TRIPLE_FIELDS,
    build_query,
    drop_links,
    has_sound_entities,
    has_sound_links,
    make_foreign_error,
    match_any,
    own_entities,
    read_aliases,
    to_stored_triple,
)
from llama_index_gear.triple import StoredTriple

_INCIDENCE_FIELDS = ["entities", "passage_id", ALIASES]
_FIRST_HITS = 32  # first limit of each proposition
_KEYS = 64  # linked names that a request asks for
_ENDS = 256  # triples that it reads at most


@dataclass(frozen=True)
class TripleReads:
    """The flows that read a collection of triples."""

    collections: Collections

    def _can_search_flow(self) -> Flow[bool]:
        """Return True if there is a collection of triples; warn, once, if there are passages alone."""
        exists = yield from self.collections.triples_exist_flow()
        if not exists:
            yield from self.collections.look_for_triples_flow()
        return exists

    def _hide_links_flow(self, points: Sequence[Any], filters: MetadataFilters | None) -> Flow[None]:
        """Drop from triples that were read the links with names that the filters hide.

        A link shows a name of other triples. It stays if the filters let one of these through. Points that are no
        triples are left to who reads them, and refuses them.
        """
        if filters is None:
            return
        linked = [point for point in points if has_sound_links(point.payload or {})]
        keys = {alias for point in linked for _, alias in read_aliases(point.payload)} - _list_ends(points)
        hidden = (yield from self._find_hidden_flow(sorted(keys), filters)) if keys else set()
        for point in linked if hidden else ():
            point.payload = drop_links(point.payload, hidden)

    def _find_hidden_flow(self, keys: Sequence[str], filters: MetadataFilters) -> Flow[set[str]]:
        """Find those of these entity keys that no triple has at an end which the filters let through.

        Some triples of many keys are read at once; then some of those keys that none of them has, until all are known.
        """
        left, hidden = list(keys), set[str]()
        must = build_conditions(filters, under=METADATA)
        while left:
            asked = left[:_KEYS]
            ends: list[Any] = [_match_end(key) for key in asked]
            points, offset = yield from self.collections.page_flow(
                self.collections.triples,
                models.Filter(must=must, should=ends),
                payload=["entities", ALIASES],
                vectors=False,
                limit=_ENDS,
            )
            seen = _list_ends(points).intersection(asked)
            if offset is None or not seen:  # these are all, or are damaged
                hidden |= set(asked) - seen
                left = left[_KEYS:]
            else:
                left = [key for key in left if key not in seen]
        return hidden

    def link_flow(self, link: LinkTriples, filters: MetadataFilters | None = None) -> Flow[list[list[StoredTriple]]]:
        """Answer `LinkTriples`."""
        check_counts(top_k=link.top_k)
        if not link.texts or not (yield from self._can_search_flow()):
            return [[] for _ in link.texts]
        match_ = build_triple_filter(filters)
        vectors = yield from ask(EmbedTexts(link.texts))
        for vector in vectors:
            self.collections.check_dimension(vector, "the embedding of a proximal triple")
        self.collections.check_dimension(link.query, "the query's embedding")
        requests = [build_query(vector, link.top_k, match_, payload=False) for vector in vectors]
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        triple_ids = list(dict.fromkeys(str(point.id) for answer in answers for point in answer))
        if not triple_ids:
            yield from self.collections.look_for_triples_flow()
            return [[] for _ in answers]
        id_filter = models.Filter(must=[models.HasIdCondition(has_id=list(triple_ids))])
        (points,) = yield from self.collections.batch_flow(
            self.collections.triples, [build_query(link.query, len(triple_ids), id_filter, payload=TRIPLE_FIELDS)]
        )
        yield from self._hide_links_flow(points, filters)
        triples = {str(point.id): to_stored_triple(point, float(point.score)) for point in points}
        # A triple that was deleted between the two calls is left out.
        return [[triples[str(point.id)] for point in answer if str(point.id) in triples] for answer in answers]

    def search_flow(self, request: SearchTriples, filters: MetadataFilters | None) -> Flow[list[StoredTriple]]:
        """Answer `SearchTriples`.

        The limit of each text grows until no unread hit could change the answer.
        """
        check_counts(passages=request.passages)
        if not (request.texts or request.embeddings) or not (yield from self._can_search_flow()):
            return []
        match_ = build_triple_filter(filters)
        vectors = list(request.embeddings)
        if request.texts:
            text_vectors = yield from ask(EmbedTexts(request.texts))
            vectors += text_vectors
        for vector in vectors:
            self.collections.check_dimension(vector, "the embedding of a proposition")
        limit = max(_FIRST_HITS, 2 * request.passages)
        while True:
            requests = [build_query(vector, limit, match_, payload=TRIPLE_FIELDS) for vector in vectors]
            answers = yield from self.collections.batch_flow(self.collections.triples, requests)
            yield from self._hide_links_flow([point for answer in answers for point in answer], filters)
            hits, is_complete = _merge_hits(answers, request.passages)
            last_scores = [answer[-1].score for answer in answers if len(answer) == limit]
            if not last_scores or (is_complete and round(max(last_scores), 6) <= round(hits[-1].score, 6)):
                if not hits:
                    yield from self.collections.look_for_triples_flow()
                return hits
            limit *= 4

    def passage_triples_flow(
        self, request: PassageTriples, filters: MetadataFilters | None
    ) -> Flow[list[StoredTriple]]:
        """Answer `PassageTriples`."""
        if request.limit is not None:
            check_counts(limit=request.limit)
        if not request.passage_ids or not (yield from self._can_search_flow()):
            return []
        self.collections.check_dimension(request.query, "the query's embedding")
        match_ = build_triple_filter(filters, must=[match_any("passage_id", request.passage_ids)])
        limit = request.limit
        if limit is None:
            counted = yield from ask(
                QdrantCall(
                    "count", {"collection_name": self.collections.triples, "count_filter": match_, "exact": True}
                )
            )
            limit = max(1, counted.count)
        (answer,) = yield from self.collections.batch_flow(
            self.collections.triples, [build_query(request.query, limit, match_, payload=TRIPLE_FIELDS)]
        )
        if not answer:
            yield from self.collections.look_for_triples_flow()
        yield from self._hide_links_flow(answer, filters)
        return [to_stored_triple(point, float(point.score)) for point in answer]

    def neighbors_flow(
        self, request: NeighborTriples, filters: MetadataFilters | None = None
    ) -> Flow[list[list[Candidate]]]:
        """Answer `NeighborTriples`."""
        check_counts(neighbors=request.limit)
        if not request.triple_entities or not (yield from self.collections.triples_exist_flow()):
            return [[] for _ in request.triple_entities]
        self.collections.check_dimension(request.query, "the query's embedding")
        requests = []
        for entities in request.triple_entities:
            match_ = build_triple_filter(filters, must=[match_any("entities", entities)], exclude=request.exclude)
            requests.append(build_query(request.query, request.limit, match_, payload=False))
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        return [[Candidate(str(point.id), float(point.score)) for point in answer] for answer in answers]

    def incident_flow(self, request: IncidentTriples, filters: MetadataFilters | None) -> Flow[list[list[Incidence]]]:
        """Answer `IncidentTriples`."""
        for limit in request.limits:
            check_counts(most=2**32, limit=limit)  # a limit may be as high as Qdrant takes
        if not request.groups or not (yield from self.collections.triples_exist_flow()):
            return [[] for _ in request.groups]
        must = build_conditions(filters, under=METADATA)

        # One query a group, in one round trip. To ask for all groups at once would take less work where all are small,
        # but a group with more triples than its limit would then cost a second round trip, or a count before.
        asked, requests = [], []
        for number, ((entities, passage_ids), limit) in enumerate(zip(request.groups, request.limits, strict=True)):
            should: list[Any] = [match_any("passage_id", passage_ids)] if passage_ids else []
            if entities:
                should.append(match_any("entities", entities))
            if should:  # an empty `should` would match everything
                match_ = models.Filter.model_construct(must=must, should=should)
                requests.append(build_query(None, limit, match_, payload=_INCIDENCE_FIELDS))
                asked.append(number)
        answers: list[list[Incidence]] = [[] for _ in request.groups]
        found = yield from self.collections.batch_flow(self.collections.triples, requests)
        yield from self._hide_links_flow([point for points in found for point in points], filters)
        for number, points in zip(asked, found, strict=True):
            answers[number] = [_to_incidence(point) for point in points]
        return answers

    def fetch_flow(
        self, request: FetchTriples, filters: MetadataFilters | None = None, *, are_known: bool = False
    ) -> Flow[dict[str, StoredTriple]]:
        """Answer `FetchTriples`. Triples that are known to match the filters are not compared with them again."""
        if not request.ids or not (yield from self.collections.triples_exist_flow()):
            return {}
        known = None if are_known else filters
        records = yield from self._records_flow(request.ids, known, payload=TRIPLE_FIELDS, vectors=False)
        yield from self._hide_links_flow(records, filters)
        return {str(record.id): to_stored_triple(record, 0.0) for record in records}

    def _records_flow(
        self, ids: Sequence[str], filters: MetadataFilters | None, *, payload: bool | list[str], vectors: Any
    ) -> Flow[Sequence[Any]]:
        """Read the triples that have these ids and match the filters."""
        name = self.collections.triples
        if filters is not None:
            match_ = build_triple_filter(filters, must=[models.HasIdCondition(has_id=list(ids))])
            return (yield from self.collections.scroll_flow(name, match_, payload=payload, vectors=vectors))
        options = {"collection_name": name, "with_payload": payload, "with_vectors": vectors}
        records = yield from ask(QdrantCall("retrieve", {"ids": list(ids), **options}))
        return records  # type: ignore[no-any-return]

    def similarities_flow(
        self, request: ChainSimilarities, filters: MetadataFilters | None = None
    ) -> Flow[list[list[float]]]:
        """Answer `ChainSimilarities`.

        This takes two round trips: one for the chains' vectors, one with a query a pair. No candidate's vector leaves
        the engine.
        """
        members = list(dict.fromkeys(member for chain, _ in request.pairs for member in chain))
        if not members or not (yield from self.collections.triples_exist_flow()):
            return [[0.0] * len(candidates) for _, candidates in request.pairs]
        records = yield from self._records_flow(members, filters, payload=False, vectors=[DENSE])
        vectors = {str(record.id): record.vector[DENSE] for record in records}
        nonempty = [(number, pair) for number, pair in enumerate(request.pairs) if pair[1]]
        requests, lengths = [], []
        for _, (chain, candidates) in nonempty:
            # A triple that was deleted since the caller saw it is similar to nothing.
            known = [vectors[member] for member in chain if member in vectors]
            chain_sum = np.sum(known, axis=0) if known else np.zeros(self.collections.dimension or 1)
            lengths.append(float(np.linalg.norm(chain_sum)))
            match_ = build_triple_filter(filters, must=[models.HasIdCondition(has_id=list(candidates))])
            requests.append(build_query(chain_sum.tolist(), len(candidates), match_, payload=False))
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        products: list[list[float]] = [[] for _ in request.pairs]
        for (number, (_, candidates)), length, answer in zip(nonempty, lengths, answers, strict=True):
            cosines = {str(point.id): point.score for point in answer}
            products[number] = [length * cosines.get(candidate, 0.0) for candidate in candidates]
        return products


def _merge_hits(answers: Sequence[Sequence[Any]], passages: int) -> tuple[list[StoredTriple], bool]:
    """Merge the hits of all queries into one list, best first, each triple once.

    The list ends with the first triple of the last of so many distinct passages. Return also True if that many were
    reached.
    """
    best: dict[str, StoredTriple] = {}
    for point in (point for answer in answers for point in answer):
        if str(point.id) not in best or best[str(point.id)].score < point.score:
            best[str(point.id)] = to_stored_triple(point, float(point.score))
    hits: list[StoredTriple] = []
    seen: set[str] = set()
    for hit in sorted(best.values(), key=lambda hit: (-round(hit.score, 6), hit.id)):
        hits.append(hit)
        seen.add(hit.passage_id)
        if len(seen) == passages:
            return hits, True
    return hits, False


def _list_ends(points: Sequence[Any]) -> set[str]:
    """List the entity keys at the ends of triples; those of damaged triples are left out."""
    sound = [point.payload for point in points if has_sound_entities(point.payload or {})]
    return {key for payload in sound for key in own_entities(payload)}


def _match_end(key: str) -> models.Filter:
    """Build the condition that a triple has the entity key at an end: it then has no link with it."""
    return models.Filter(must=[match_any("entities", [key])], must_not=[match_any(f"{ALIASES}[].alias", [key])])


def _to_incidence(point: Any) -> Incidence:
    payload = point.payload
    try:
        return Incidence(str(point.id), own_entities(payload), payload["passage_id"], read_aliases(payload))
    except (TypeError, KeyError) as error:
        raise make_foreign_error(point, "triple", error) from error

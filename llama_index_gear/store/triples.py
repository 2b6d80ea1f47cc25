"""Flows that read triples: linking, propositions, neighbors, incidences, triples by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, check_counts
from llama_index_gear.flow import EmbedTexts, Flow, QdrantCall, ask
from llama_index_gear.store.collections import ALL, EMBEDDED_KEY, Collections
from llama_index_gear.store.filters import METADATA, build_conditions, build_triple_filter
from llama_index_gear.store.schema import (
    ALIASES,
    DENSE,
    INCIDENCE_FIELDS,
    SPARSE,
    TRIPLE_FIELDS,
    build_query,
    drop_links,
    has_sound_entities,
    has_sound_links,
    match_any,
    match_lacking,
    own_entities,
    read_aliases,
    to_incidence,
    to_stored_triple,
)
from llama_index_gear.store.text_indexes import TextIndexes
from llama_index_gear.triple import Candidate, Incidence, StoredTriple

_FIRST_HITS = 32  # first limit of each proposition
_KEYS = 64  # linked names that a request asks for
_ENDS = 256  # triples that it reads at most


class TripleGraph(Protocol):
    """A graph that a beam search walks: the triples of a store, or those of a knowledge graph."""

    def link_flow(
        self, texts: Sequence[str], top_k: int, query: Sequence[float], names: Sequence[str] = ()
    ) -> Flow[list[list[StoredTriple]]]:
        """Find the `top_k` triples most similar to each text: tripleLink (GeAR Eq. 2).

        Args:
            texts: of facts, or a question.
            top_k: triples a text.
            query: the question's embedding.
            names: each text's words without the predicate. A sparse graph searches only triples that share some of
                these. Default: it searches all.

        Returns:
            A list a text, most similar first; the scores are cosines with `query`.

        """

    def neighbors_flow(
        self,
        triple_entities: Sequence[tuple[str, ...]],
        query: Sequence[float],
        exclude: Sequence[str],
        limit: int,
        question: str = "",
    ) -> Flow[list[list[Candidate]]]:
        """Find the neighbors of each triple: the triples that share an entity with it (GeAR §4.2).

        Args:
            triple_entities: each triple's entity keys.
            query: the question's embedding.
            exclude: ids of triples that are no neighbors.
            limit: neighbors a triple, the most similar to `query`.
            question: its text, for a graph that is searched by words.

        Returns:
            A list a triple, most similar first.

        """

    def fetch_triples_flow(self, ids: Sequence[str]) -> Flow[dict[str, StoredTriple]]:
        """Fetch triples by id, as id → triple with score 0, for the ids that exist.

        Of a hop's thousand candidates, only the winning few are read.
        """

    def similarities_flow(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Flow[list[list[float]]]:
        """Compute the dot product of each candidate's vector with the sum of its chain's vectors.

        A pair is (chain ids, candidate ids). Vectors have unit length. Each pair gives a list.
        """


@dataclass(frozen=True)
class TripleReads(TripleGraph):
    """The flows that read a collection of triples.

    Attributes:
        collections: the store's.
        filters: what they read matches these, by the metadata of a triple's passage; None: no condition.
        text_indexes: refuses filters that a server can't keep; None: nothing to refuse.
        are_known: True compares no triple with the filters once more that was found under them before.

    """

    collections: Collections
    filters: MetadataFilters | None = None
    text_indexes: TextIndexes | None = None
    are_known: bool = False

    def check_filters_flow(self) -> Flow[None]:
        """Refuse filters that the server can't keep."""
        if self.text_indexes is not None:
            yield from self.text_indexes.check_flow(self.filters)

    def _exist_flow(self) -> Flow[bool]:
        """Return True if there is a collection of triples."""
        yield from self.check_filters_flow()
        return (yield from self.collections.triples_exist_flow())

    def have_vectors_flow(self) -> Flow[bool]:
        """Return True if every triple is said to have a vector. Until they are, it asks anew at each call."""
        if not (yield from self.collections.exists_flow()):
            return False
        if self.collections.embedded != ALL:  # another process may have embedded them meanwhile
            info = yield from ask(self.collections.look_again())
            if (info.config.metadata or {}).get(EMBEDDED_KEY) == ALL:  # else a writer may know better by now
                self.collections.note(info)
        return self.collections.embedded == ALL

    def require_vectors_flow(self) -> Flow[bool]:
        """Return True if there is a collection of triples, each with a vector.

        Raises:
            ArgumentError: some have none.

        """
        exists = yield from self._exist_flow()
        if exists and not (yield from self.have_vectors_flow()):
            lacking, _ = yield from self.collections.page_flow(
                self.collections.triples, match_lacking(DENSE), payload=False, vectors=False, limit=1
            )
            if lacking:
                raise ArgumentError(
                    "this method compares the vectors of triples, and the store has triples without one: call "
                    "store.embed_stored_triples(), which makes them. GraphRetriever and GeARRetriever need none"
                )
        return exists

    def _can_search_flow(self, *, by_vectors: bool = True) -> Flow[bool]:
        """Return True if there is a collection of triples; warn, once, if there are passages alone.

        Raises:
            ArgumentError: the search is by vectors, and some triples have none.

        """
        exists = yield from (self.require_vectors_flow() if by_vectors else self._exist_flow())
        if not exists:
            yield from self.collections.look_for_triples_flow()
        return exists

    def _hide_links_flow(self, points: Sequence[Any]) -> Flow[None]:
        """Drop from triples that were read the links with names that the filters hide.

        A link shows a name of other triples. It stays if the filters let one of these through. Points that are no
        triples are left to who reads them, and refuses them.
        """
        if self.filters is None:
            return
        linked = [point for point in points if has_sound_links(point.payload or {})]
        keys = {alias for point in linked for _, alias in read_aliases(point.payload)} - _list_ends(points)
        hidden = (yield from self._find_hidden_flow(sorted(keys))) if keys else set()
        for point in linked if hidden else ():
            point.payload = drop_links(point.payload, hidden)

    def _find_hidden_flow(self, keys: Sequence[str]) -> Flow[set[str]]:
        """Find those of these entity keys that no triple has at an end which the filters let through.

        Some triples of many keys are read at once; then some of those keys that none of them has, until all are known.
        """
        left, hidden = list(keys), set[str]()
        must = build_conditions(self.filters, under=METADATA)
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

    def link_flow(
        self, texts: Sequence[str], top_k: int, query: Sequence[float], names: Sequence[str] = ()
    ) -> Flow[list[list[StoredTriple]]]:
        """See `TripleGraph`; the names are not looked at."""
        check_counts(top_k=top_k)
        if not texts or not (yield from self._can_search_flow()):
            return [[] for _ in texts]
        match_ = build_triple_filter(self.filters)
        vectors = yield from ask(EmbedTexts(texts))
        for vector in vectors:
            self.collections.check_dimension(vector, "the embedding of a proximal triple")
        self.collections.check_dimension(query, "the query's embedding")
        requests = [build_query(vector, top_k, match_, payload=False) for vector in vectors]
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        triple_ids = list(dict.fromkeys(str(point.id) for answer in answers for point in answer))
        if not triple_ids:
            yield from self.collections.look_for_triples_flow()
            return [[] for _ in answers]
        id_filter = models.Filter(must=[models.HasIdCondition(has_id=list(triple_ids))])
        (points,) = yield from self.collections.batch_flow(
            self.collections.triples, [build_query(query, len(triple_ids), id_filter, payload=TRIPLE_FIELDS)]
        )
        yield from self._hide_links_flow(points)
        triples = {str(point.id): to_stored_triple(point, float(point.score)) for point in points}
        # A triple that was deleted between the two calls is left out.
        return [[triples[str(point.id)] for point in answer if str(point.id) in triples] for answer in answers]

    def link_words_flow(self, texts: Sequence[str], top_k: int) -> Flow[list[list[StoredTriple]]]:
        """Find the `top_k` triples that BM25 ranks first for each text, best first; the scores are BM25's."""
        check_counts(top_k=top_k)
        if not texts or not (yield from self._can_search_flow(by_vectors=False)):
            return [[] for _ in texts]
        match_ = build_triple_filter(self.filters)
        vectors = [self.collections.triple_bm25.embed_query(text) for text in texts]
        requests = [build_query(vector, top_k, match_, payload=TRIPLE_FIELDS, using=SPARSE) for vector in vectors]
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        yield from self._hide_links_flow([point for answer in answers for point in answer])
        return [[to_stored_triple(point, float(point.score)) for point in answer] for answer in answers]

    def search_flow(
        self, texts: Sequence[str], passages: int, embeddings: Sequence[Sequence[float]] = ()
    ) -> Flow[list[StoredTriple]]:
        """Find the triples most similar to any of the texts, from `passages` distinct passages (T²RAG Alg. 2).

        The hits of all texts form one list, most similar first, each triple once. The list ends with the triple that
        brings the last of the `passages` distinct passages, or with the last stored triple. A score is the cosine with
        the text that the triple is most similar to. The limit of each text grows until no unread hit could change the
        list. `embeddings` are those of further texts to search by.
        """
        check_counts(passages=passages)
        if not (texts or embeddings) or not (yield from self._can_search_flow()):
            return []
        match_ = build_triple_filter(self.filters)
        vectors = list(embeddings)
        if texts:
            vectors += yield from ask(EmbedTexts(texts))
        for vector in vectors:
            self.collections.check_dimension(vector, "the embedding of a proposition")
        limit = max(_FIRST_HITS, 2 * passages)
        while True:
            requests = [build_query(vector, limit, match_, payload=TRIPLE_FIELDS) for vector in vectors]
            answers = yield from self.collections.batch_flow(self.collections.triples, requests)
            yield from self._hide_links_flow([point for answer in answers for point in answer])
            hits, is_complete = _merge_hits(answers, passages)
            last_scores = [answer[-1].score for answer in answers if len(answer) == limit]
            if not last_scores or (is_complete and round(max(last_scores), 6) <= round(hits[-1].score, 6)):
                if not hits:
                    yield from self.collections.look_for_triples_flow()
                return hits
            limit *= 4

    def passage_triples_flow(
        self, passage_ids: Sequence[str], query: Sequence[float], limit: int | None
    ) -> Flow[list[StoredTriple]]:
        """Fetch the triples of these passages, most similar to `query` first, at most `limit` (None: all)."""
        if limit is not None:
            check_counts(limit=limit)
        if not passage_ids or not (yield from self._can_search_flow()):
            return []
        self.collections.check_dimension(query, "the query's embedding")
        match_ = build_triple_filter(self.filters, must=[match_any("passage_id", passage_ids)])
        if limit is None:
            counted = yield from ask(
                QdrantCall(
                    "count", {"collection_name": self.collections.triples, "count_filter": match_, "exact": True}
                )
            )
            limit = max(1, counted.count)
        (answer,) = yield from self.collections.batch_flow(
            self.collections.triples, [build_query(query, limit, match_, payload=TRIPLE_FIELDS)]
        )
        if not answer:
            yield from self.collections.look_for_triples_flow()
        yield from self._hide_links_flow(answer)
        return [to_stored_triple(point, float(point.score)) for point in answer]

    def neighbors_flow(
        self,
        triple_entities: Sequence[tuple[str, ...]],
        query: Sequence[float],
        exclude: Sequence[str],
        limit: int,
        question: str = "",
    ) -> Flow[list[list[Candidate]]]:
        """See `TripleGraph`; the question's text is not looked at."""
        check_counts(neighbors=limit)
        if not triple_entities or not (yield from self.require_vectors_flow()):
            return [[] for _ in triple_entities]
        self.collections.check_dimension(query, "the query's embedding")
        requests = []
        for entities in triple_entities:
            match_ = build_triple_filter(self.filters, must=[match_any("entities", entities)], exclude=exclude)
            requests.append(build_query(query, limit, match_, payload=False))
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        return [[Candidate(str(point.id), float(point.score)) for point in answer] for answer in answers]

    def incident_flow(
        self, groups: Sequence[tuple[Sequence[str], Sequence[str]]], limits: Sequence[int]
    ) -> Flow[list[list[Incidence]]]:
        """Find the triples of each group: those with one of its entities, or of one of its passages.

        `limits` holds the highest number of triples of each group. Each group gives a list, ordered by id.
        """
        for limit in limits:
            check_counts(most=2**32, limit=limit)  # a limit may be as high as Qdrant takes
        if not groups or not (yield from self._can_search_flow(by_vectors=False)):
            return [[] for _ in groups]
        must = build_conditions(self.filters, under=METADATA)
        if not must and self.collections.is_embedded:
            arguments = {"collection_name": self.collections.triples, "groups": groups, "limits": limits}
            known = yield from ask(QdrantCall("find_incidences", arguments))
            if known is not None and any(known):
                return known  # type: ignore[no-any-return]

        # One query a group, in one round trip. To ask for all groups at once would take less work where all are small,
        # but a group with more triples than its limit would then cost a second round trip, or a count before.
        asked, requests = [], []
        for number, ((entities, passage_ids), limit) in enumerate(zip(groups, limits, strict=True)):
            should: list[Any] = [match_any("passage_id", passage_ids)] if passage_ids else []
            if entities:
                should.append(match_any("entities", entities))
            if should:  # an empty `should` would match everything
                match_ = models.Filter.model_construct(must=must, should=should)
                requests.append(build_query(None, limit, match_, payload=INCIDENCE_FIELDS))
                asked.append(number)
        answers: list[list[Incidence]] = [[] for _ in groups]
        found = yield from self.collections.select_flow(self.collections.triples, requests)
        if not any(found):
            yield from self.collections.look_for_triples_flow()
        yield from self._hide_links_flow([point for points in found for point in points])
        for number, points in zip(asked, found, strict=True):
            answers[number] = [to_incidence(point) for point in points]
        return answers

    def fetch_triples_flow(self, ids: Sequence[str]) -> Flow[dict[str, StoredTriple]]:
        """See `TripleGraph`."""
        if not ids or not (yield from self._exist_flow()):
            return {}
        records = yield from self._records_flow(ids, payload=TRIPLE_FIELDS, vectors=False)
        yield from self._hide_links_flow(records)
        return {str(record.id): to_stored_triple(record, 0.0) for record in records}

    def _records_flow(self, ids: Sequence[str], *, payload: bool | list[str], vectors: Any) -> Flow[Sequence[Any]]:
        """Read the triples that have these ids and match the filters."""
        name = self.collections.triples
        if self._rechecked_filters is not None:
            match_ = build_triple_filter(self._rechecked_filters, must=[models.HasIdCondition(has_id=list(ids))])
            return (yield from self.collections.scroll_flow(name, match_, payload=payload, vectors=vectors))
        options = {"collection_name": name, "with_payload": payload, "with_vectors": vectors}
        records = yield from ask(QdrantCall("retrieve", {"ids": list(ids), **options}))
        return records  # type: ignore[no-any-return]

    @property
    def _rechecked_filters(self) -> MetadataFilters | None:
        return None if self.are_known else self.filters

    def similarities_flow(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Flow[list[list[float]]]:
        """See `TripleGraph`.

        This takes two round trips: one for the chains' vectors, one with a query a pair. No candidate's vector leaves
        the engine.
        """
        members = list(dict.fromkeys(member for chain, _ in pairs for member in chain))
        if not members or not (yield from self.require_vectors_flow()):
            return [[0.0] * len(candidates) for _, candidates in pairs]
        records = yield from self._records_flow(members, payload=False, vectors=[DENSE])
        vectors = {str(record.id): record.vector[DENSE] for record in records}
        nonempty = [(number, pair) for number, pair in enumerate(pairs) if pair[1]]
        requests, lengths = [], []
        for _, (chain, candidates) in nonempty:
            # A triple that was deleted since the caller saw it is similar to nothing.
            known = [vectors[member] for member in chain if member in vectors]
            chain_sum = np.sum(known, axis=0) if known else np.zeros(self.collections.dimension or 1)
            lengths.append(float(np.linalg.norm(chain_sum)))
            match_ = build_triple_filter(self._rechecked_filters, must=[models.HasIdCondition(has_id=list(candidates))])
            requests.append(build_query(chain_sum.tolist(), len(candidates), match_, payload=False))
        answers = yield from self.collections.batch_flow(self.collections.triples, requests)
        products: list[list[float]] = [[] for _ in pairs]
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

"""What reading and writing share: the two collections, the calls that both make, and queries without chance in ties."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from qdrant_client.http import models
from qdrant_edge import Bm25, Bm25Config

from llama_index_gear.errors import (
    ArgumentError,
    EmbeddingError,
    StoreError,
    check_kind,
    check_numbers,
    check_vector,
    shown,
)
from llama_index_gear.flow import Flow, ask
from llama_index_gear.requests import QdrantCall
from llama_index_gear.store.filters import bounded, indexed_fields
from llama_index_gear.store.schema import DENSE, point_id_of, sparse_vector

PAGE = 1000
"""Points a round trip, when all that match are wanted."""
_INDEX_FROM = 20_000  # kilobytes: Qdrant's own default
_LONGEST_WORD = 2_000  # of a million such characters, Qdrant's BM25 makes 0.2 seconds' work in the worst language
# Not in a word: white space and the punctuation of the scripts that are written without white space.
_BETWEEN = (
    r"\s!-/:-@\[-`{-~\u0964\u0965\u0f04-\u0f14\u104a\u104b\u1361-\u1368\u17d4-\u17d6\u2000-\u206f"
    r"\u3001-\u3004\u3008-\u3020\u3030\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
_PIECES = re.compile(rf"[^{_BETWEEN}]{{1,{_LONGEST_WORD}}}")
TRIPLE_WORDS = 8.0
"""An average triple's, for BM25's length normalisation."""


class WordEncoder:
    """Qdrant's own BM25, which no text can hold up: a word of more than 2,000 characters counts as several.

    The stemmers' work grows with the square of a word's length: a million times the letter "y" took half a minute, in
    which no other thread ran. A "word" is what is written without white space and without the usual punctuation; the
    vectors of texts without such a one are Qdrant's to the digit.

    Args:
        bm25: Qdrant's.

    """

    def __init__(self, bm25: Bm25) -> None:
        self._bm25 = bm25

    def embed_document(self, text: str) -> models.SparseVector:
        """The weights of a text that is stored."""
        return sparse_vector(self._bm25.embed_document(_bounded(text)))

    def embed_query(self, text: str) -> models.SparseVector:
        """The weights of a text that is looked for."""
        return sparse_vector(self._bm25.embed_query(_bounded(text)))


def _bounded(text: str) -> str:
    """The text, its overlong words in pieces."""
    if len(text) <= _LONGEST_WORD or max(map(len, text.split()), default=0) <= _LONGEST_WORD:
        return text  # nearly all are, and Chinese, say, has other marks between its words
    return " ".join(_PIECES.findall(text))


def encoder(language: str, average_words: float) -> WordEncoder:
    """Qdrant's own BM25, for words of any length.

    Raises:
        ArgumentError: it doesn't know the language, or the length is not above 0.

    """
    check_kind(str, hint="write 'english', say", language=language)
    check_numbers("above 0", lambda number: number > 0, bm25_avg_len=average_words)
    try:
        return WordEncoder(Bm25(Bm25Config(language=language, avg_len=average_words)))
    except (TypeError, ValueError) as error:
        raise ArgumentError(f"BM25 cannot be set up for language={shown(language)}: {error}") from error


@dataclass
class Collections:
    """The two collections.

    Attributes:
        passages: name of the passages' collection.
        triples: name of the triples' collection.
        bm25: sparse encoder of passages and questions.
        triple_bm25: sparse encoder of triples, which are much shorter.
        payload_indexes: metadata fields to index, `{"field_name": …, "field_schema": …}`.
        options: keywords of `create_collection`, for both.
        vector_options: fields of `VectorParams`, for the dense vectors of both.
        search_params: of dense queries.
        is_loading: whether collections that are made are to leave vector indexes for later.
        clear_count: how often both were deleted, through whichever store of this process.
        dimension: of the dense vectors; None until the collections are seen.
        has_triples: whether the triples' collection has been seen.

    """

    passages: str
    triples: str
    bm25: WordEncoder
    triple_bm25: WordEncoder
    payload_indexes: Sequence[dict[str, Any]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    vector_options: Mapping[str, Any] = field(default_factory=dict)
    search_params: models.SearchParams | None = None
    is_loading: bool = False
    clear_count: Callable[[], int] = lambda: 0
    dimension: int | None = field(default=None)
    has_triples: bool = field(default=False)
    _seen_after: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        indexed_fields(self.payload_indexes)  # or complains of them, before anything is stored

    def exists_flow(self) -> Flow[bool]:
        """Whether there is something to search; learns the dimension."""
        if self._seen_after != self.clear_count():
            self.dimension, self.has_triples, self._seen_after = None, False, self.clear_count()
        if self.dimension is None:
            name = {"collection_name": self.passages}
            exists = yield from ask(QdrantCall("collection_exists", name))
            if exists:
                info = yield from ask(QdrantCall("get_collection", name))
                vectors = info.config.params.vectors
                if not isinstance(vectors, dict) or DENSE not in vectors:
                    raise StoreError(
                        f"collection {self.passages!r} has no vector named {DENSE!r}: it was "
                        "made by another program; choose another collection_name and ingest into it"
                    )
                self.dimension = vectors[DENSE].size
        return self.dimension is not None

    def triples_exist_flow(self) -> Flow[bool]:
        """Whether there are triples to search: LlamaIndex's own store makes collections of passages alone."""
        if not (yield from self.exists_flow()):
            return False
        if not self.has_triples:
            self.has_triples = yield from ask(QdrantCall("collection_exists", {"collection_name": self.triples}))
        return self.has_triples

    def prepare_flow(self, name: str, config: dict[str, Any], fields: Sequence[tuple[str, Any]]) -> Flow[None]:
        """Create what is missing of a collection and its payload indexes; safe to repeat, and beside other writers."""
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
        if not exists:
            config = {**config, **self.options}
            if self.is_loading:
                config["optimizers_config"] = self._optimizers(0)
            try:
                yield from ask(QdrantCall("create_collection", {"collection_name": name, **config}))
            except Exception:
                exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
                if not exists:  # not just another writer that was faster
                    raise
        info = yield from ask(QdrantCall("get_collection", {"collection_name": name}))
        for field_, schema in fields:
            if field_ not in (info.payload_schema or {}):
                arguments = {"collection_name": name, "field_name": field_, "field_schema": schema}
                yield from ask(QdrantCall("create_payload_index", arguments))

    def set_loading_flow(self, is_loading: bool) -> Flow[None]:
        """Leave vector indexes for later, or have them built: of the collections that there are and those to come."""
        self.is_loading = is_loading
        optimizers = self._optimizers(0 if is_loading else self._index_from)
        for name in (self.passages, self.triples):
            exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
            if exists:
                yield from ask(
                    QdrantCall("update_collection", {"collection_name": name, "optimizers_config": optimizers})
                )

    @property
    def _index_from(self) -> int:
        """Kilobytes of vectors from which an index is built."""
        chosen = self.options.get("optimizers_config")
        threshold = None if chosen is None else chosen.indexing_threshold
        return _INDEX_FROM if threshold is None else threshold

    def _optimizers(self, threshold: int) -> models.OptimizersConfigDiff:
        chosen = self.options.get("optimizers_config") or models.OptimizersConfigDiff()
        return chosen.model_copy(update={"indexing_threshold": threshold})

    def check_dimension(self, embedding: Sequence[float], what: str, dimension: int | None = None) -> None:
        """Refuse a vector of another dimension than the collection has (or will have), or one that is none at all."""
        check_vector(what, embedding)
        dimension = self.dimension if dimension is None else dimension
        if dimension is not None and len(embedding) != dimension:
            raise EmbeddingError(
                f"{what} has {len(embedding)} dimensions, collection {self.passages!r} has {dimension}: "
                "use the embedding model it was filled with, or another collection_name"
            )

    def page_flow(
        self,
        name: str,
        match_: models.Filter | None,
        *,
        payload: bool | list[str],
        vectors: Any,
        limit: int = PAGE,
        offset: Any = None,
    ) -> Flow[tuple[list[Any], Any]]:
        """The next points that match, by id, and where the page after them starts (None: there is none)."""
        arguments = {"scroll_filter": match_, "limit": limit, "offset": offset}
        reading = {"collection_name": name, "with_payload": payload, "with_vectors": vectors}
        (points, following) = yield from ask(QdrantCall("scroll", {**arguments, **reading}))
        return list(points), following

    def present_flow(self, node_ids: Sequence[str]) -> Flow[set[str]]:
        """Which of these passages are there."""
        points = {point_id_of(node_id): node_id for node_id in node_ids}
        found: set[str] = set()
        for start in range(0, len(points), PAGE):
            some = {"ids": list(points)[start : start + PAGE], "with_payload": False, "with_vectors": False}
            records = yield from ask(QdrantCall("retrieve", {"collection_name": self.passages, **some}))
            found.update(points[str(record.id)] for record in records)
        return found

    def scroll_flow(
        self,
        name: str,
        match_: models.Filter | None,
        *,
        payload: bool | list[str],
        vectors: Any,
        limit: int | None = None,
    ) -> Flow[list[Any]]:
        """All points that match, or the first `limit`, a page at a time."""
        found: list[Any] = []
        offset = None
        while limit is None or len(found) < limit:
            some = PAGE if limit is None else min(PAGE, limit - len(found))
            points, offset = yield from self.page_flow(
                name, match_, payload=payload, vectors=vectors, limit=some, offset=offset
            )
            found.extend(points)
            if offset is None:
                break
        return found

    def delete_flow(self, name: str, which: models.Filter | models.PointIdsList) -> Flow[None]:
        """Delete the points that match, or those of these ids; every delete of points goes through here.

        Raises:
            StoreError: every point would match.

        """
        selector = bounded(which) if isinstance(which, models.Filter) else which
        yield from ask(QdrantCall("delete", {"collection_name": name, "points_selector": selector, "wait": True}))

    def batch_flow(self, name: str, requests: Sequence[models.QueryRequest]) -> Flow[list[list[Any]]]:
        """Answers to several queries in one round trip (see `rank_flow`: ties may take more), each best first."""
        if not requests:
            return []
        for request in requests:
            if request.using == DENSE and request.query is not None:
                request.params = self.search_params
        return (yield from rank_flow(name, requests))


MOST_TIED = 500
"""Points that are looked at to end a tie; of a longer one the engine chooses."""


@dataclass
class _Query:
    """A query, how many points it was last asked for, and what came."""

    request: models.QueryRequest
    asked: int = 0
    points: list[Any] = field(default_factory=list)
    read: dict[str, Any] = field(default_factory=dict)  # points that came with what was asked of their payload

    @property
    def wanted(self) -> int:
        """How many points are wanted, 1 or more."""
        return self.request.limit or 1

    def asking(self) -> models.QueryRequest:
        """What to ask next: one point more than is wanted; then the ids of many."""
        if not self.asked:
            self.asked = self.wanted if self.request.query is None else self.wanted + 1
            return self.request.model_copy(update={"limit": self.asked})
        self.asked = MOST_TIED
        return self.request.model_copy(update={"limit": self.asked, "with_payload": False})

    def take(self, points: Sequence[Any]) -> None:
        """Take what came, ties (to six decimals) by id."""
        self.points = sorted(points, key=lambda point: (-round(point.score, 6), str(point.id)))
        self.read = self.read or {str(point.id): point for point in points}

    @property
    def is_cut_in_a_tie(self) -> bool:
        """Whether points that were not seen may tie with the last one that is wanted."""
        if self.request.query is None or len(self.points) < self.asked or self.asked >= MOST_TIED:
            return False
        return bool(round(self.points[self.wanted - 1].score, 6) == round(self.points[-1].score, 6))

    @property
    def winners(self) -> list[Any]:
        """The points that are wanted."""
        return self.points[: self.wanted]

    @property
    def unread(self) -> list[str]:
        """The ids of those whose payload is wanted and did not come."""
        ids = [str(point.id) for point in self.winners] if self.request.with_payload else []
        return [point_id for point_id in ids if point_id not in self.read]


def rank_flow(name: str, requests: Sequence[models.QueryRequest]) -> Flow[list[list[Any]]]:
    """Answers to several queries of a collection, each best first, ties (to six decimals) by id.

    Engines add up a dot product in different orders: equal vectors' scores differ by some 1e-7. Of points that tie for
    the last place an engine gives those that it met first. So each query is asked for one point more than is wanted;
    those whose last place is tied are asked once more, together, for the ids of 500, and the payloads of those that
    move up are read. Of a longer tie the engine chooses. A query without a vector gives points by id; it
    is asked once.
    """
    queries = tied = [_Query(request) for request in requests]
    while tied:
        asking = [query.asking() for query in tied]
        responses = yield from ask(QdrantCall("query_batch_points", {"collection_name": name, "requests": asking}))
        for query, response in zip(tied, responses, strict=True):
            query.take(response.points)
        tied = [query for query in tied if query.is_cut_in_a_tie]
    records = yield from _payloads_flow(name, [query for query in queries if query.unread])
    return [_filled(query, records) for query in queries]


def _payloads_flow(name: str, queries: Sequence[_Query]) -> Flow[dict[str, Any]]:
    """The payloads that queries lack, by id; a point that was deleted meanwhile has none."""
    if not queries:
        return {}
    reading = {"with_payload": queries[0].request.with_payload, "with_vectors": False}  # all of a batch want the same
    ids = list(dict.fromkeys(point_id for query in queries for point_id in query.unread))
    records = yield from ask(QdrantCall("retrieve", {"collection_name": name, "ids": ids, **reading}))
    return {str(record.id): record.payload for record in records}


def _filled(query: _Query, payloads: dict[str, Any]) -> list[Any]:
    """The winners with their payloads, if these are wanted."""
    if not query.request.with_payload:
        return query.winners
    filled = []
    for point in query.winners:
        if (point_id := str(point.id)) in query.read:
            filled.append(query.read[point_id])
        elif point_id in payloads:
            filled.append(point.model_copy(update={"payload": payloads[point_id]}))
    return filled

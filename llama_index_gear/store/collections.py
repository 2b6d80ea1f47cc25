"""The two collections of a store: how they are made, and the calls that its reads and writes share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from qdrant_client.http import models

from llama_index_gear.errors import (
    ArgumentError,
    EmbeddingError,
    StoreError,
    check_vector,
)
from llama_index_gear.flow import Flow, QdrantCall, Result, ask
from llama_index_gear.store.availability import is_missing
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.filters import find_index_fault, list_indexed_fields, require_conditions
from llama_index_gear.store.ranked_queries import rank_flow
from llama_index_gear.store.schema import DENSE, point_id_of

logger = logging.getLogger(__name__)

PAGE = 1000
"""Points a page, when all points that match are wanted."""
FORMAT = 1
"""The format of collections, in their metadata. Those without one were made by LlamaIndex's own store, say."""
FORMAT_KEY = "gear_format"
"""The key of the format in a collection's metadata."""
AVERAGE_KEY = "gear_average_words"
"""The key of the average length of passages, in words, in the metadata of their collection."""
EMBEDDED_KEY = "gear_embedded_triples"
"""The key of how many triples have a vector, in the metadata of the passages' collection: one of these three values.

Where it is missing, and a `GeARVectorStore` made the collection, all have one.
"""
NONE, PARTIAL, ALL = "none", "partial", "all"
_INDEXING_THRESHOLD = 20_000  # kilobytes: Qdrant's own default


class NamedCollection(NamedTuple):
    """The collection that a name leads to.

    Attributes:
        name: its own name; an alias is another one.
        is_marked: True if its metadata name a format: a `GeARVectorStore` made it.

    """

    name: str
    is_marked: bool


def resolve_flow(names: Sequence[str]) -> Flow[dict[str, NamedCollection]]:
    """Return name → the collection that it leads to now. Names that lead to none are left out."""
    listed = yield from ask(QdrantCall("get_aliases"))
    aliases = {alias.alias_name: alias.collection_name for alias in listed.aliases}
    found = {}
    for name in names:
        arguments = {"collection_name": aliases.get(name, name)}
        if (yield from ask(QdrantCall("collection_exists", arguments))):
            info = yield from ask(QdrantCall("get_collection", arguments))
            found[name] = NamedCollection(arguments["collection_name"], _is_marked(info))
    return found


def _is_marked(info: models.CollectionInfo) -> bool:
    return FORMAT_KEY in (info.config.metadata or {})


@dataclass
class Collections:
    """The two collections of a store: their names, settings and what is known of them.

    Attributes:
        passages: name of the passages' collection.
        triples: name of the triples' collection.
        bm25: sparse encoder of passages and questions.
        triple_bm25: sparse encoder of triples, which are much shorter.
        payload_indexes: metadata fields to index, `{"field_name": …, "field_schema": …}`.
        options: keywords of `create_collection`, for both.
        vector_options: fields of `VectorParams`, for the dense vectors of both.
        search_params: settings of dense queries.
        is_loading: True while collections are created without vector indexes, which are built later.
        place: where the collections are, for messages: a folder; empty if they are on a server.
        requires_mark: True if nothing is written into a collection that no `GeARVectorStore` made.
        wants_vectors: True if triples are embedded of collections that are made here.
        get_epoch: returns a number that changes when what is known below may no longer hold.
        dimension: dimension of the dense vectors; None until the collections are found.
        average_words: average length that passages are weighed with; None until it is found, or if there is none.
        embedded: how many triples have a vector: `NONE`, `PARTIAL` (new ones get one) or `ALL`; None until it is found,
            or if LlamaIndex's own store made the collection.
        has_triples: True once the triples' collection is found.
        is_prepared: True once both collections have all their indexes.

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
    place: str = ""
    requires_mark: bool = False
    wants_vectors: bool = False
    get_epoch: Callable[[], int] = lambda: 0
    dimension: int | None = field(default=None, init=False)
    average_words: float | None = field(default=None, init=False)
    embedded: str | None = field(default=None, init=False)
    has_triples: bool = field(default=False, init=False)
    is_prepared: bool = field(default=False, init=False)
    _seen_epoch: int = field(default=0, init=False)
    _has_warned: bool = field(default=False, init=False)
    _has_looked_for_triples: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        list_indexed_fields(self.payload_indexes)  # raises if one is wrong, before anything is stored

    def exists_flow(self) -> Flow[bool]:
        """Return True if there is a collection to search; note what it says of itself."""
        if self._seen_epoch != self.get_epoch():
            self._forget()
            self._seen_epoch = self.get_epoch()
        if self.dimension is None:
            name = {"collection_name": self.passages}
            exists = yield from ask(QdrantCall("collection_exists", name))
            if exists:
                self.note((yield from ask(self.look_again())))
        return self.dimension is not None

    def retry_flow(self, make_flow: Callable[[], Flow[Result]]) -> Flow[Result]:
        """Run a flow. If a collection that was known is gone, another process cleared the store: run it once more."""
        was_known = self.dimension is not None or self.has_triples
        try:
            return (yield from make_flow())
        except Exception as error:
            if not (was_known and is_missing(error)):
                raise
        self._forget()
        return (yield from make_flow())

    def _forget(self) -> None:
        self.dimension = self.average_words = self.embedded = None
        self.has_triples = self.is_prepared = False

    def note(self, info: models.CollectionInfo) -> None:
        """Note what the passages' collection says of itself.

        Raises:
            StoreError: it has another format, or was made by another program.

        """
        metadata = info.config.metadata or {}
        self._check_format(metadata)
        vectors = info.config.params.vectors
        if not isinstance(vectors, dict) or DENSE not in vectors:
            raise StoreError(
                f"collection {self.passages!r} has no vector named {DENSE!r}: it was "
                "made by another program; choose another collection_name and ingest into it"
            )
        average = metadata.get(AVERAGE_KEY)
        self.average_words = float(average) if isinstance(average, int | float) and average > 0 else None
        self.embedded = metadata.get(EMBEDDED_KEY, ALL if FORMAT_KEY in metadata else None)
        self.dimension = vectors[DENSE].size

    @property
    def embeds_triples(self) -> bool:
        """True if a triple that is written gets a vector."""
        return self.embedded in (PARTIAL, ALL)

    def look_again(self) -> QdrantCall:
        """Build the call that reads what the passages' collection says of itself now; see `note`."""
        return QdrantCall("get_collection", {"collection_name": self.passages})

    def _check_format(self, metadata: Mapping[str, Any]) -> None:
        found = metadata.get(FORMAT_KEY, FORMAT)
        if found != FORMAT:
            raise StoreError(
                f"collection {self.passages!r}{self.place and f' in {self.place}'} has format {found}, and this "
                f"version of llama_index_gear reads format {FORMAT}: install the version that wrote it, or copy the "
                "store with that version"
            )

    @property
    def is_embedded(self) -> bool:
        """True if the embedded engine has the collections."""
        return bool(self.place)

    def can_search_flow(self) -> Flow[bool]:
        """Return True if there is a collection to search; warn, once, if there is none."""
        exists = yield from self.exists_flow()
        if not exists and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "nothing is stored%s: there is no collection %r, and every search finds nothing. If something should "
                "be there, check the folder or the url, and the collection_name",
                self.place and f" in {self.place}",
                self.passages,
            )
        return exists

    def look_for_triples_flow(self) -> Flow[None]:
        """Warn if there are passages and not one triple. It looks once."""
        if self._has_looked_for_triples or not (yield from self.exists_flow()):
            return
        self._has_looked_for_triples = True
        if (yield from self.triples_exist_flow()):
            points, _ = yield from self.page_flow(self.triples, None, payload=False, vectors=False, limit=1)
            if points:
                return
        logger.warning(
            "the store%s has passages and no triples: the graph adds nothing to a search. Put an extractor before the "
            "embedding model of the pipeline, MentionTripleExtractor() say, and ingest the passages again",
            self.place and f" in {self.place}",
        )

    def triples_exist_flow(self) -> Flow[bool]:
        """Return True if there are triples to search.

        LlamaIndex's own store makes a collection of passages alone.
        """
        exists = yield from self.exists_flow()
        return exists and (yield from self.has_triples_flow())

    def has_triples_flow(self) -> Flow[bool]:
        """Return True if the triples' collection exists, with or without that of the passages."""
        if not self.has_triples:
            self.has_triples = yield from ask(QdrantCall("collection_exists", {"collection_name": self.triples}))
        return self.has_triples

    def prepare_flow(
        self, name: str, config: dict[str, Any], fields: Sequence[tuple[str, Any]]
    ) -> Flow[models.CollectionInfo]:
        """Create a collection and its payload indexes where they are missing; return what it says of itself.

        Repeating it is safe, also at the same time as other writers.

        Raises:
            ArgumentError: no `GeARVectorStore` made it, and `requires_mark` is True.

        """
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
        if not exists:
            metadata = {**(self.options.get("metadata") or {}), **config.get("metadata", {}), FORMAT_KEY: FORMAT}
            config = {**config, **self.options, "metadata": metadata}
            if self.is_loading:
                config["optimizers_config"] = self._build_optimizers(0)
            try:
                yield from ask(QdrantCall("create_collection", {"collection_name": name, **config}))
            except Exception:
                exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
                if not exists:  # otherwise another writer was faster
                    raise
        info: models.CollectionInfo = yield from ask(QdrantCall("get_collection", {"collection_name": name}))
        if self.requires_mark and not _is_marked(info):
            raise ArgumentError(f"no GeARVectorStore made the collection {name!r}: nothing is written into it")
        for field_, schema in fields:
            if find_index_fault(info.payload_schema or {}, field_):
                arguments = {"collection_name": name, "field_name": field_, "field_schema": schema}
                yield from ask(QdrantCall("create_payload_index", arguments))
        return info

    def keep_flow(self, *, average_words: float | None = None, embedded: str | None = None) -> Flow[None]:
        """Write into the metadata of the passages' collection their average length, or how many triples have vectors.

        None leaves what is there.
        """
        metadata = {AVERAGE_KEY: average_words, EMBEDDED_KEY: embedded}
        metadata = {key: value for key, value in metadata.items() if value is not None}
        if metadata:
            arguments = {"collection_name": self.passages, "metadata": metadata}
            yield from ask(QdrantCall("update_collection", arguments))
        self.average_words, self.embedded = average_words or self.average_words, embedded or self.embedded

    def set_loading_flow(self, is_loading: bool) -> Flow[None]:
        """Defer vector indexes, or have them built, in existing collections and those created later."""
        self.is_loading = is_loading
        optimizers = self._build_optimizers(0 if is_loading else self._indexing_threshold)
        for name in (self.passages, self.triples):
            exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
            if exists:
                yield from ask(
                    QdrantCall("update_collection", {"collection_name": name, "optimizers_config": optimizers})
                )

    def needs_loading_flow(self) -> Flow[bool]:
        """Return True if the passages' collection is still to be made, or a load that died left one without an index.

        Raises:
            StoreError: the collection has another format, or was made by another program.

        """
        if self.is_loading or self._indexing_threshold == 0:
            return False
        if not (yield from self.exists_flow()):
            return True
        for name in (self.passages, self.triples):
            if (yield from ask(QdrantCall("collection_exists", {"collection_name": name}))):
                info = yield from ask(QdrantCall("get_collection", {"collection_name": name}))
                if info.config.optimizer_config.indexing_threshold == 0:
                    return True
        return False

    @property
    def _indexing_threshold(self) -> int:
        """Kilobytes of vectors from which on a server builds an index."""
        threshold = self._optimizers.indexing_threshold
        return _INDEXING_THRESHOLD if threshold is None else threshold

    @property
    def _optimizers(self) -> models.OptimizersConfigDiff:
        """The optimizers' settings that the store's owner chose, as a model or as a dict."""
        return models.OptimizersConfigDiff.model_validate(self.options.get("optimizers_config") or {})

    def _build_optimizers(self, threshold: int) -> models.OptimizersConfigDiff:
        return self._optimizers.model_copy(update={"indexing_threshold": threshold})

    def check_dimension(self, embedding: Sequence[float], what: str, dimension: int | None = None) -> None:
        """Refuse a vector that is not valid, or has another dimension than the collection has or will have."""
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
        vectors: Any = False,
        limit: int = PAGE,
        offset: Any = None,
    ) -> Flow[tuple[list[Any], Any]]:
        """Read the next points that match, by id; return them and the offset of the next page (None: no more)."""
        call = build_page(name, match_, payload=payload, vectors=vectors, limit=limit, offset=offset)
        (points, next_offset) = yield from ask(call)
        return list(points), next_offset

    def page_flows(
        self,
        name: str,
        match_: models.Filter | None,
        *,
        payload: bool | list[str],
        vectors: Any = False,
        limit: int = PAGE,
    ) -> Iterator[Flow[list[Any]]]:
        """Yield a flow for each page of the points that match, by id. Each is run before the next is asked for."""
        cursor: list[Any] = [None]

        def next_flow() -> Flow[list[Any]]:
            points, cursor[0] = yield from self.page_flow(
                name, match_, payload=payload, vectors=vectors, limit=limit, offset=cursor[0]
            )
            return points

        while True:
            yield next_flow()
            if cursor[0] is None:
                return

    def find_present_flow(self, node_ids: Sequence[str]) -> Flow[set[str]]:
        """Return those of these passage ids that are stored."""
        points = {point_id_of(node_id): node_id for node_id in node_ids}
        present: set[str] = set()
        for start in range(0, len(points), PAGE):
            arguments = {"ids": list(points)[start : start + PAGE], "with_payload": False, "with_vectors": False}
            records = yield from ask(QdrantCall("retrieve", {"collection_name": self.passages, **arguments}))
            present.update(points[str(record.id)] for record in records)
        return present

    def scroll_flow(
        self,
        name: str,
        match_: models.Filter | None,
        *,
        payload: bool | list[str],
        vectors: Any,
        limit: int | None = None,
    ) -> Flow[list[Any]]:
        """Read all points that match, or the first `limit`, one page at a time."""
        points: list[Any] = []
        for page in self.page_flows(name, match_, payload=payload, vectors=vectors, limit=min(PAGE, limit or PAGE)):
            points += yield from page
            if limit is not None and len(points) >= limit:
                break
        return points[:limit]

    def update_flow(self, name: str, operations: Sequence[Any]) -> Flow[None]:
        """Change points in one call, by one operation after the other."""
        arguments = {"collection_name": name, "update_operations": operations, "wait": True}
        yield from ask(QdrantCall("batch_update_points", arguments))

    def delete_flow(self, name: str, selection: models.Filter | models.PointIdsList) -> Flow[None]:
        """Delete the points that match, or those with these ids.

        Raises:
            StoreError: every point matches.

        """
        selector = require_conditions(selection) if isinstance(selection, models.Filter) else selection
        yield from ask(QdrantCall("delete", {"collection_name": name, "points_selector": selector, "wait": True}))

    def select_flow(self, name: str, requests: Sequence[models.QueryRequest]) -> Flow[list[list[Any]]]:
        """Answer several queries without a vector with one round trip, each by id."""
        if not requests:
            return []
        arguments = {"collection_name": name, "requests": requests}
        responses = yield from ask(QdrantCall("query_batch_points", arguments))
        return [response.points for response in responses]

    def batch_flow(self, name: str, requests: Sequence[models.QueryRequest]) -> Flow[list[list[Any]]]:
        """Answer several queries with a vector with one round trip (ties may take more, see `rank_flow`).

        Each list is best first.
        """
        if not requests:
            return []
        for request in requests:
            if request.using == DENSE:
                request.params = self.search_params
        return (yield from rank_flow(name, requests))


def build_page(
    name: str,
    match_: models.Filter | None,
    *,
    payload: bool | list[str],
    vectors: Any = False,
    limit: int = PAGE,
    offset: Any = None,
) -> QdrantCall:
    """Build the call that reads the next points that match, by id."""
    arguments = {"scroll_filter": match_, "limit": limit, "offset": offset}
    return QdrantCall(
        "scroll", {"collection_name": name, "with_payload": payload, "with_vectors": vectors, **arguments}
    )

"""A knowledge graph that exists already, as a searchable collection of triples (Millions of GeAR-s §4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.utils import get_tqdm_iterable
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, StoreError, check_counts, check_kind
from llama_index_gear.flow import EmbedTexts, Flow, QdrantCall, Result, RunFunction, arun, ask, run
from llama_index_gear.knowledge_graph.sparse import SparseReads
from llama_index_gear.resources import BoundToProcess, ClosedByWith
from llama_index_gear.store.bm25 import TRIPLE_AVG_LEN, WordEncoder, make_encoder
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.connection import NAME_FIRST, RETRY_SECONDS, Connection, make_embedded_client
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.schema import (
    DENSE,
    SPARSE,
    TRIPLE_FIELDS,
)
from llama_index_gear.store.triples import TripleGraph, TripleReads
from llama_index_gear.triple import Candidate, GraphTriple, StoredTriple, Triple


@dataclass
class LoadResult:
    """The result of a load.

    Attributes:
        read: number of triples from the reader.
        written: number of triples that were new and are now stored.

    """

    read: int = 0
    written: int = 0


class ExternalTripleStore(ClosedByWith, BoundToProcess):
    """Triples of a knowledge graph in one Qdrant collection. They are loaded once; then any number of stores read them.

    A graph is sparse by default (BM25, as in Millions of GeAR-s Eq. 3): loading embeds no triple. Facts are linked by
    their words. The few hundred triples that a beam search reads are embedded at that time, and cached. A dense graph
    stores embeddings and links by meaning.

    Args:
        collection_name: name of the collection. Default "graph".
        client: a `QdrantClient`; for an embedded graph use `from_path`.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        url: a server's address, "http://localhost:6333", in place of clients: the graph makes both and closes them.
        api_key: the server's API key, for use with `url`. Default: none.
        embed_model: the model that compares triples with questions. It must be the model that embeds the passages.
            Default: LlamaIndex's `Settings.embed_model`, looked up when first needed.
        dense: embed the triples when they are loaded. Default False.
        on_disk_payload: keep the triples' words on disk, if the load creates the collection. Default False: they are
            in memory, some 200 bytes a triple, since a hop reads hundreds of triples that were not read before.
        batch_size: triples a write. Default 1000.
        language: of the BM25 stemmer and stop words, as Qdrant names it. Default "english".
        retry_seconds: how long a server that is away is waited for, in every call, in seconds. Default 30; 0: not at
            all. An agent's `Budget` can end the wait earlier.

    Raises:
        ArgumentError: neither a client nor a url is given, or both are, or an argument has the wrong type.
        StoreUnavailable: (from any call) the server is away, and was waited for. The call can be repeated.
        StoreLockedError: (from any call) another process has the embedded graph open, and was waited for.
        StoreError: (from any call) there is no graph yet, or it was loaded with another value of `dense`.
        EmbeddingError: (from a query) the embedding model has another dimension than the passages' model.

    """

    def __init__(
        self,
        collection_name: str = "graph",
        client: QdrantClient | EdgeClient | None = None,
        aclient: AsyncQdrantClient | None = None,
        *,
        url: str | None = None,
        api_key: str | None = None,
        embed_model: BaseEmbedding | None = None,
        dense: bool = False,
        on_disk_payload: bool = False,
        batch_size: int = 1000,
        language: str = "english",
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        check_kind(str, hint=NAME_FIRST, collection_name=collection_name)
        check_counts(batch_size=batch_size)
        self.collection_name = collection_name
        self.batch_size = batch_size
        self._connection = Connection("ExternalTripleStore", client, aclient, url, api_key, embed_model, retry_seconds)
        bm25 = make_encoder(language, TRIPLE_AVG_LEN)
        self._graph = _Graph(self._connection, collection_name, bm25, dense, on_disk_payload)

    @classmethod
    def from_path(cls, path: str | Path, **arguments: Any) -> ExternalTripleStore:
        """Make an embedded graph in the folder `path`: Qdrant Edge in this process, one process at a time.

        Close it after use, or write `with ExternalTripleStore.from_path(…) as graph:`. It also closes when the last
        reference to it goes. The folder must be writable, even for reading. Its disk needs 128 MiB of free space,
        besides what is written. Files that the engine did not make are never removed.

        Args:
            path: the folder; made when the first triple is loaded.
            **arguments: the constructor's arguments, without the clients.

        Raises:
            StoreError: (from any call) the folder holds something else in the collection's place, or a damaged
                collection; it was moved or deleted while the graph was open; it is read-only; or its disk has too
                little space.
            StoreLockedError: (from any call) another process has the graph open, or had it open when it forked this
                process.

        """
        return cls(client=make_embedded_client(path, arguments), **arguments)

    @property
    def client(self) -> Any:
        """The Qdrant client, for calls that this class does not offer."""
        return self._connection.client

    @property
    def embed_model(self) -> BaseEmbedding:
        """The model that compares triples with questions."""
        return self._connection.embed_model

    def load(self, triples: Iterable[GraphTriple | Triple], *, show_progress: bool = False) -> LoadResult:
        """Store triples. Stored triples are not written again, so repeating a load that was killed continues it.

        Args:
            triples: triples of a reader such as `WikidataDump` or `TriplesFile`, or your own.
            show_progress: show a progress bar. Default False.

        Raises:
            ArgumentError: an item is neither a `GraphTriple` nor a `Triple`.

        """
        return run(self._graph.load_flow(triples, self.batch_size, show_progress), self._connection.answer)

    async def aload(self, triples: Iterable[GraphTriple | Triple], *, show_progress: bool = False) -> LoadResult:
        """`load`, without blocking the event loop."""
        return await arun(self._graph.load_flow(triples, self.batch_size, show_progress), self._connection.aanswer)

    def count(self) -> int:
        """Return the number of triples."""
        return run(self._graph.count_flow(), self._connection.answer)

    async def acount(self) -> int:
        """`count`, without blocking the event loop."""
        return await arun(self._graph.count_flow(), self._connection.aanswer)

    def clear(self) -> None:
        """Delete the collection."""
        run(self._graph.clear_flow(), self._connection.answer)

    async def aclear(self) -> None:
        """`clear`, without blocking the event loop."""
        await arun(self._graph.clear_flow(), self._connection.aanswer)

    def close(self) -> None:
        """Write out and release an embedded graph; close a server's client, or both clients if the graph made them."""
        self._connection.close()

    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""
        await self._connection.aclose()

    @property
    def reads(self) -> TripleGraph:
        """The flows that read the graph. Whatever drives them, the graph's own connection answers their requests."""
        return self._graph


@dataclass
class _Graph(TripleGraph):
    """The flows of an `ExternalTripleStore`."""

    connection: Connection
    name: str
    bm25: WordEncoder
    is_dense: bool
    on_disk_payload: bool
    is_known: bool = False
    is_ready: bool = False  # for writes
    has_vectors: bool = False
    collections: Collections = field(init=False)
    found: TripleGraph = field(init=False)  # the flows that read it once it is found

    def __post_init__(self) -> None:
        self.collections = Collections(self.name, self.name, self.bm25, self.bm25)
        is_dense = self.is_dense
        self.found = TripleReads(self.collections) if is_dense else SparseReads(self.name, self.bm25, self.collections)

    def link_flow(
        self, texts: Sequence[str], top_k: int, query: Sequence[float], names: Sequence[str] = ()
    ) -> Flow[list[list[StoredTriple]]]:
        """See `TripleGraph`."""
        return self._read_flow(self.found.link_flow(texts, top_k, query, names))

    def neighbors_flow(
        self,
        triple_entities: Sequence[tuple[str, ...]],
        query: Sequence[float],
        exclude: Sequence[str],
        limit: int,
        question: str = "",
    ) -> Flow[list[list[Candidate]]]:
        """See `TripleGraph`."""
        return self._read_flow(self.found.neighbors_flow(triple_entities, query, exclude, limit, question))

    def fetch_triples_flow(self, ids: Sequence[str]) -> Flow[dict[str, StoredTriple]]:
        """See `TripleGraph`."""
        return self._read_flow(self.found.fetch_triples_flow(ids))

    def similarities_flow(self, pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> Flow[list[list[float]]]:
        """See `TripleGraph`."""
        return self._read_flow(self.found.similarities_flow(pairs))

    def _read_flow(self, flow: Flow[Result]) -> Flow[Result]:
        """Find the graph, then run a flow that reads it; its own connection answers."""

        def opened_flow() -> Flow[Result]:
            yield from self._open_flow()
            return (yield from flow)

        return self.connection.route_flow(opened_flow())

    def _open_flow(self, any_vectors: bool = False) -> Flow[None]:
        if self.is_known:
            return
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": self.name}))
        if not exists:
            raise StoreError(f"there is no graph {self.name!r} yet: load triples into it first")
        info = yield from ask(QdrantCall("get_collection", {"collection_name": self.name}))
        vectors = info.config.params.vectors or {}
        is_graph = SPARSE in (info.config.params.sparse_vectors or {})
        arguments = {"collection_name": self.name, "limit": 1, "with_payload": TRIPLE_FIELDS, "with_vectors": False}
        page = yield from ask(QdrantCall("scroll", arguments))
        for point in page[0]:  # a graph's triples belong to no passage
            is_graph = is_graph and "subject" in (point.payload or {}) and "passage_id" not in point.payload
        if not is_graph:
            raise StoreError(f"collection {self.name!r} holds no graph: choose another collection_name")
        if self.is_dense and DENSE not in vectors and not any_vectors:
            raise StoreError(
                f"graph {self.name!r} was loaded with dense=False: open it with dense=False, or load into another "
                "collection_name"
            )
        self.collections.dimension = vectors[DENSE].size if DENSE in vectors else 0
        self.collections.has_triples = self.is_known = True
        self.has_vectors = DENSE in vectors

    # -- writing -------------------------------------------------------------------------------------------------

    def load_flow(
        self, triples: Iterable[GraphTriple | Triple], batch_size: int, show_progress: bool
    ) -> Flow[LoadResult]:
        """The flow of `load`."""
        result = LoadResult()
        source = iter(get_tqdm_iterable(triples, show_progress, "Loading triples"))
        while True:
            batch = yield from ask(
                RunFunction(partial(_take_batch, source, batch_size))
            )  # in a thread: a reader reads files
            if not batch:
                return result
            result.read += len(batch)
            result.written += yield from self._write_flow({triple.id: triple for triple in batch})

    def _write_flow(self, batch: dict[str, GraphTriple]) -> Flow[int]:
        if not self.is_ready:
            yield from self._prepare_flow(next(iter(batch.values())))
        arguments = {"collection_name": self.name, "ids": list(batch), "with_payload": False, "with_vectors": False}
        stored = yield from ask(QdrantCall("retrieve", arguments))
        known = {str(point.id) for point in stored}
        new = {point_id: triple for point_id, triple in batch.items() if point_id not in known}
        if not new:
            return 0
        vectors: Sequence[Sequence[float]] | None = None
        if self.is_dense:
            vectors = yield from ask(EmbedTexts([triple.triple.text for triple in new.values()]))
            for vector in vectors:
                self.collections.check_dimension(vector, "the embedding of a triple (embed_model of the graph)")
        points = yield from ask(RunFunction(partial(self._build_points, new, vectors)))
        yield from ask(QdrantCall("upsert", {"collection_name": self.name, "points": points, "wait": True}))
        return len(new)

    def _prepare_flow(self, first: GraphTriple) -> Flow[None]:
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": self.name}))
        if exists:
            yield from self._open_flow()  # raises if the collection holds no graph
        if self.has_vectors and not self.is_dense:
            raise StoreError(
                f"graph {self.name!r} was loaded with dense=True: open it with dense=True to load more into it"
            )
        dense: dict[str, models.VectorParams] = {}
        if self.is_dense and not exists:
            vectors = yield from ask(EmbedTexts([first.triple.text]))
            dense[DENSE] = models.VectorParams(size=len(vectors[0]), distance=models.Distance.COSINE)
        sparse = {SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)}
        config: dict[str, Any] = {"vectors_config": dense, "sparse_vectors_config": sparse}
        config["on_disk_payload"] = self.on_disk_payload
        yield from self.collections.prepare_flow(self.name, config, [("entities", models.PayloadSchemaType.KEYWORD)])
        yield from self._open_flow()
        self.is_ready = True

    def _build_points(
        self, triples: dict[str, GraphTriple], vectors: Sequence[Sequence[float]] | None
    ) -> list[models.PointStruct]:
        points = []
        for number, (point_id, triple) in enumerate(triples.items()):
            weights: dict[str, Any] = {SPARSE: self.bm25.embed_document(triple.triple.text)}
            if vectors is not None:
                weights[DENSE] = vectors[number]
            payload: dict[str, Any] = {
                "subject": triple.triple.subject,
                "predicate": triple.triple.predicate,
                "object": triple.triple.object,
                "entities": [] if triple.is_name else list(triple.entities),  # neighbors are found by these
            }
            if triple.is_name:
                payload["names"] = list(triple.entities)
            points.append(models.PointStruct.model_construct(id=point_id, vector=weights, payload=payload))
        return points

    def count_flow(self) -> Flow[int]:
        """The flow of `count`."""
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": self.name}))
        if not exists:
            return 0
        counted = yield from ask(QdrantCall("count", {"collection_name": self.name, "exact": True}))
        return int(counted.count)

    def clear_flow(self) -> Flow[None]:
        """The flow of `clear`."""
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": self.name}))
        if exists:
            yield from self._open_flow(any_vectors=True)
            yield from ask(QdrantCall("delete_collection", {"collection_name": self.name}))
        self.is_known = self.is_ready = self.has_vectors = False


def _take_batch(source: Iterator[GraphTriple | Triple], size: int) -> list[GraphTriple]:
    batch = []
    for triple in islice(source, size):
        if not isinstance(triple, GraphTriple | Triple):
            raise ArgumentError(
                f"load takes triples, got {triple!r}: hand it a WikidataDump, a TriplesFile, or Triple(…) of your own"
            )
        batch.append(triple if isinstance(triple, GraphTriple) else GraphTriple(triple))
    return batch

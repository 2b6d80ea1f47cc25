"""A knowledge graph that exists already, as a searchable collection of triples (Millions of GeAR-s §4.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeAlias

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.utils import get_tqdm_iterable
from numpy.typing import NDArray
from qdrant_client import AsyncQdrantClient, QdrantClient
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, EmbeddingError, StoreError, check_counts, check_kind, check_vector
from llama_index_gear.flow import EmbedTexts, Flow, QdrantCall, Result, RunFunction, ask, blocking, unblocked
from llama_index_gear.store.bm25 import TRIPLE_AVG_LEN, WordEncoder, make_encoder
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.connection import NAME_FIRST, RETRY_SECONDS, Connected, Connection
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.filters import build_triple_filter
from llama_index_gear.store.schema import SPARSE, TRIPLE_FIELDS, build_query, match_any, to_stored_triple
from llama_index_gear.store.triples import TripleGraph, TripleReads
from llama_index_gear.triple import Candidate, GraphTriple, StoredTriple, Triple

Vector: TypeAlias = NDArray[np.float32]
P = ParamSpec("P")

_NAME_LIMIT = 300  # triples that share words with a text's names; BM25 ranks among these
_MAX_VECTORS = 20_000  # of triples, kept between questions


@dataclass
class LoadResult:
    """The result of a load.

    Attributes:
        read: number of triples from the reader.
        written: number of triples that were new and are now stored.

    """

    read: int = 0
    written: int = 0


def _of_graph(
    flow: Callable[Concatenate[SparseGraph, P], Flow[Result]],
) -> Callable[Concatenate[SparseGraph, P], Flow[Result]]:
    """Have a flow find the graph first. The graph's own connection answers its requests, whatever drives it."""

    @wraps(flow)
    def opened_flow(graph: SparseGraph, /, *arguments: P.args, **options: P.kwargs) -> Flow[Result]:
        def whole_flow() -> Flow[Result]:
            yield from graph.open_flow()
            return (yield from flow(graph, *arguments, **options))

        return graph.connection.route_flow(whole_flow())

    return opened_flow


@dataclass
class SparseGraph(TripleGraph):
    """The flows that read and write a sparse graph; scores are cosines, as in a `GeARVectorStore`.

    Attributes:
        connection: answers the requests of all flows.
        name: of the collection.
        bm25: encodes words.
        on_disk_payload: a load that creates the collection keeps payloads on the disk.

    """

    connection: Connection
    name: str
    bm25: WordEncoder
    on_disk_payload: bool
    collections: Collections = field(init=False)
    _is_known: bool = field(default=False, init=False)
    _is_ready: bool = field(default=False, init=False)  # for writes
    _vectors: dict[str, Vector] = field(default_factory=dict, init=False)  # unit vectors of triples that were read

    def __post_init__(self) -> None:
        self.collections = Collections(self.name, self.name, self.bm25, self.bm25)

    @_of_graph
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

    @_of_graph
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
        answers = yield from self.collections.select_flow(self.name, queries)
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

    @_of_graph
    def fetch_triples_flow(self, ids: Sequence[str]) -> Flow[dict[str, StoredTriple]]:
        """See `TripleGraph`."""
        return TripleReads(self.collections).fetch_triples_flow(ids)

    @_of_graph
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
        cached = self._vectors  # another thread may put a new one in its place
        vectors = {triple_id: cached[triple_id] for triple_id in ids if triple_id in cached}
        missing = [triple_id for triple_id in ids if triple_id not in vectors]
        if missing:
            triples = read or (yield from TripleReads(self.collections).fetch_triples_flow(missing))
            texts = {triple_id: triples[triple_id].triple.text for triple_id in missing if triple_id in triples}
            distinct = list(dict.fromkeys(texts.values()))
            embedded = yield from ask(EmbedTexts(distinct))
            vectors_by_text = dict(zip(distinct, map(_normalize, embedded), strict=True))
            new = {triple_id: vectors_by_text[text] for triple_id, text in texts.items()}
            if len(self._vectors) + len(new) > _MAX_VECTORS:
                self._vectors = {}
            self._vectors |= new
            vectors |= new
        return vectors

    def _build_word_query(
        self, text: str, limit: int, match_: models.Filter | None = None, payload: bool = True
    ) -> models.QueryRequest:
        vector = self.bm25.embed_query(text)
        return build_query(vector, limit, match_, payload=TRIPLE_FIELDS if payload else False, using=SPARSE)

    def _build_name_prefetch(self, name: str, limit: int) -> models.Prefetch:
        vector = self.bm25.embed_query(name)
        return models.Prefetch.model_construct(query=vector, using=SPARSE, limit=limit)

    def open_flow(self) -> Flow[None]:
        """Find the graph.

        Raises:
            StoreError: there is none, or the collection holds something else.

        """
        if self._is_known:
            return
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": self.name}))
        if not exists:
            raise StoreError(f"there is no graph {self.name!r} yet: load triples into it first")
        info = yield from ask(QdrantCall("get_collection", {"collection_name": self.name}))
        is_graph = SPARSE in (info.config.params.sparse_vectors or {})
        arguments = {"collection_name": self.name, "limit": 1, "with_payload": TRIPLE_FIELDS, "with_vectors": False}
        page = yield from ask(QdrantCall("scroll", arguments))
        for point in page[0]:  # a graph's triples belong to no passage
            is_graph = is_graph and "subject" in (point.payload or {}) and "passage_id" not in point.payload
        if not is_graph:
            raise StoreError(f"collection {self.name!r} holds no graph: choose another collection_name")
        self.collections.dimension = 0
        self.collections.has_triples = self._is_known = True

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
        if not self._is_ready:
            yield from self._prepare_flow()
        arguments = {"collection_name": self.name, "ids": list(batch), "with_payload": False, "with_vectors": False}
        stored = yield from ask(QdrantCall("retrieve", arguments))
        known = {str(point.id) for point in stored}
        new = {point_id: triple for point_id, triple in batch.items() if point_id not in known}
        if not new:
            return 0
        points = yield from ask(RunFunction(partial(self._build_points, new)))
        yield from ask(QdrantCall("upsert", {"collection_name": self.name, "points": points, "wait": True}))
        return len(new)

    def _prepare_flow(self) -> Flow[None]:
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": self.name}))
        if exists:
            yield from self.open_flow()  # raises if the collection holds no graph
        sparse = {SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)}
        config: dict[str, Any] = {"vectors_config": {}, "sparse_vectors_config": sparse}
        config["on_disk_payload"] = self.on_disk_payload
        yield from self.collections.prepare_flow(self.name, config, [("entities", models.PayloadSchemaType.KEYWORD)])
        yield from self.open_flow()
        self._is_ready = True

    def _build_points(self, triples: dict[str, GraphTriple]) -> list[models.PointStruct]:
        points = []
        for point_id, triple in triples.items():
            weights: dict[str, Any] = {SPARSE: self.bm25.embed_document(triple.triple.text)}
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
            yield from self.open_flow()
            yield from ask(QdrantCall("delete_collection", {"collection_name": self.name}))
        self._is_known = self._is_ready = False


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


def _take_batch(source: Iterator[GraphTriple | Triple], size: int) -> list[GraphTriple]:
    batch = []
    for triple in islice(source, size):
        if not isinstance(triple, GraphTriple | Triple):
            raise ArgumentError(
                f"load takes triples, got {triple!r}: hand it a WikidataDump, a TriplesFile, or Triple(…) of your own"
            )
        batch.append(triple if isinstance(triple, GraphTriple) else GraphTriple(triple))
    return batch


class ExternalTripleStore(Connected):
    """Triples of a knowledge graph in one Qdrant collection. They are loaded once; then any number of stores read them.

    The graph is sparse (BM25, as in Millions of GeAR-s Eq. 3): loading embeds no triple, and facts are linked by their
    words. The few hundred triples that a beam search reads are embedded at that time, and cached.

    Args:
        collection_name: name of the collection. Default "graph".
        client: a `QdrantClient`; for an embedded graph use `from_path`.
        aclient: the async client of the same server; without it async calls run `client` in worker threads.
        url: a server's address, "http://localhost:6333", in place of clients: the graph makes both and closes them.
        api_key: the server's API key, for use with `url`. Default: none.
        embed_model: the model that compares triples with questions. It must be the model that embeds the passages.
            Default: LlamaIndex's `Settings.embed_model`, looked up when first needed.
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
        StoreError: (from any call) there is no graph yet, or the collection holds something else.
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
        self._graph = SparseGraph(self._connection, collection_name, bm25, on_disk_payload)

    @blocking
    def load(self, triples: Iterable[GraphTriple | Triple], *, show_progress: bool = False) -> Flow[LoadResult]:
        """Store triples. Stored triples are not written again, so repeating a load that was killed continues it.

        Args:
            triples: triples of a reader such as `WikidataDump` or `TriplesFile`, or your own.
            show_progress: show a progress bar. Default False.

        Raises:
            ArgumentError: an item is neither a `GraphTriple` nor a `Triple`.

        """
        return self._graph.load_flow(triples, self.batch_size, show_progress)

    aload = unblocked(load)

    @blocking
    def count(self) -> Flow[int]:
        """Return the number of triples."""
        return self._graph.count_flow()

    acount = unblocked(count)

    @blocking
    def clear(self) -> Flow[None]:
        """Delete the collection."""
        return self._graph.clear_flow()

    aclear = unblocked(clear)

    @property
    def reads(self) -> TripleGraph:
        """The flows that read the graph."""
        return self._graph

"""The embedded engine: Qdrant Edge in this process, behind the `QdrantClient` methods that the store uses.

Arguments and results are Qdrant models, so `GeARVectorStore` and LlamaIndex's own `QdrantVectorStore` work on it
unchanged. An argument that Edge does not support raises `UnsupportedCall` or `UnsupportedFilter`, which names it; none
is ignored. Each collection has its own folder (see `store.embedded.folder`). One process at a time has collections open
(see `store.embedded.folder_lock`); its clients may have several open, each of them other ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self

import qdrant_edge as edge
from qdrant_client.http import models

from llama_index_gear.errors import StoreError, UnsupportedCall, check_counts, read_path
from llama_index_gear.resources import BoundToProcess
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.models import (
    DISTANCES,
    UPDATE_MODES,
    estimate_disk,
    estimate_size,
    from_id,
    from_record,
    from_scored,
    is_of_nodes,
    list_vectors,
    refuse,
    to_config,
    to_filter,
    to_index,
    to_point_vectors,
    to_points,
    to_query,
    without_vectors,
)
from llama_index_gear.store.embedded.packing import call_engine, write_anew
from llama_index_gear.store.embedded.shards import OpenShards
from llama_index_gear.triple import Incidence

_SAMPLE = 256  # points whose size is looked at
_MOST_TIMES = 2  # times the size that is expected of its points, from which on a folder is written anew
_NO_WASTE = 2**20  # bytes beyond that which are not worth it


class EdgeClient(BoundToProcess):
    """The part of a `QdrantClient` that a store needs, for the embedded Qdrant.

    Nothing is opened before the first call. Any thread may call: calls take turns. Close the client after use, or write
    `with EdgeClient(path) as client:`. It also closes when the last reference to it goes.

    The folder must be writable, even for reading. Its disk needs 128 MiB of free space, besides what is written: the
    engine maps files into memory, and where the disk has no room for them, a signal would end the process.

    Args:
        path: the folder that holds the collections; made with the first collection.

    Raises:
        StoreLockedError: (from any call) another process has a collection of the folder open, or another client this
            one, and was waited for (2 s); or this process was forked from one that had.
        StoreError: (from any call) a collection's folder is not whole, or something else stands there; it was moved or
            deleted while it was open; it is read-only; or the disk has too little room. Files beside the parts of a
            collection are never removed.
        ArgumentError: `path` is no path; or (from `upsert` and `upload_points`, before anything is written) a payload
            could not be read back.
        UnsupportedCall: (from any call) the method, or one of its arguments, has no counterpart in Edge.
        UnsupportedFilter: (from any call with a filter) a condition has no counterpart in Edge.

    """

    def __init__(self, path: str | Path) -> None:
        self.path = read_path(hint="write the folder's path", path=path).absolute()
        self._shards = OpenShards(self.path)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedCall(f"the embedded engine has no `{name}`; use `GeARVectorStore(url=…)` for it")

    def close(self) -> None:
        """Write everything out and release the lock; the next call opens the collections again.

        A collection is packed if half of its points, and 20,000, were written since it was: see `packing.pack`.
        """
        with self._shards.lock:
            self._shards.close_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- collections ---------------------------------------------------------------------------------------------

    def collection_exists(self, collection_name: str) -> bool:
        """Return True if there is such a collection; otherwise finish an interrupted deletion of it."""
        with self._shards.hold():
            return self._exists(collection_name)

    def get_aliases(self) -> models.CollectionsAliasesResponse:
        """Return no alias: collections have one name here."""
        return models.CollectionsAliasesResponse(aliases=[])

    def get_collection(self, collection_name: str) -> models.CollectionInfo:
        """Return its vectors' names, sizes and distances, its payload indexes and its number of points."""
        with self._shards.hold():
            info = self._shard(collection_name).info()
            config = edge_folder.read_config(self._folder(collection_name))
            dense = {**self._shards.list_declared(collection_name), **config.get("vectors", {})}
            metadata = edge_folder.read_metadata(self._folder(collection_name))
        return models.CollectionInfo(
            status=models.CollectionStatus.GREEN,
            optimizer_status=models.OptimizersStatusOneOf.OK,
            points_count=info.points_count,
            indexed_vectors_count=info.indexed_vectors_count,
            segments_count=info.segments_count,
            payload_schema={
                name: models.PayloadIndexInfo(
                    data_type=models.PayloadSchemaType(str(index.data_type).rsplit(".", 1)[-1].lower()),
                    points=index.points,
                )
                for name, index in info.payload_schema.items()
            },
            config=models.CollectionConfig(
                params=models.CollectionParams(
                    vectors={
                        name: models.VectorParams(size=vector["size"], distance=models.Distance(vector["distance"]))
                        for name, vector in dense.items()
                    },
                    sparse_vectors={
                        name: models.SparseVectorParams(modifier=vector.get("modifier"))
                        for name, vector in config.get("sparse_vectors", {}).items()
                    },
                ),
                hnsw_config=models.HnswConfig(m=16, ef_construct=100, full_scan_threshold=10_000),
                optimizer_config=models.OptimizersConfig(
                    deleted_threshold=0.2,
                    vacuum_min_vector_number=1000,
                    default_segment_number=0,
                    flush_interval_sec=5,
                ),
                metadata=metadata,
            ),
        )

    def create_collection(
        self,
        collection_name: str,
        vectors_config: models.VectorParams | dict[str, models.VectorParams],
        sparse_vectors_config: dict[str, models.SparseVectorParams] | None = None,
        on_disk_payload: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> bool:
        """Create a collection of named dense (or one unnamed) and sparse vectors; payloads are on disk by default.

        Beside sparse vectors, a named dense vector takes no room before the first point that has it.
        """
        refuse("create_collection", options)
        dense = {"": vectors_config} if isinstance(vectors_config, models.VectorParams) else vectors_config
        for params in [*dense.values(), *(sparse_vectors_config or {}).values()]:
            chosen = params.model_dump(exclude_none=True, exclude={"size", "distance", "modifier"})
            refuse("create_collection", {name: value or None for name, value in chosen.items()})
        declared = {
            name: {"size": params.size, "distance": params.distance.value}
            for name, params in dense.items()
            if name and sparse_vectors_config  # the engine takes no collection without any vector
        }
        config = edge.EdgeConfig(
            on_disk_payload=on_disk_payload,
            vectors={
                name: edge.EdgeVectorParams(size=params.size, distance=DISTANCES[params.distance])
                for name, params in dense.items()
                if name not in declared
            },
            sparse_vectors={
                name: edge.EdgeSparseVectorParams(
                    modifier=edge.Modifier.Idf if params.modifier == models.Modifier.IDF else None
                )
                for name, params in (sparse_vectors_config or {}).items()
            },
        )
        folder = self._folder(collection_name)
        with self._shards.hold(make=True):
            if self._exists(collection_name):
                raise StoreError(f"collection {collection_name!r} already exists")

            def build(draft: str) -> None:
                call_engine(lambda: edge.EdgeShard.create(draft, config).close(), folder)
                edge_folder.write_declared(Path(draft), declared)
                if metadata is not None:
                    edge_folder.write_metadata(Path(draft), metadata)

            edge_folder.make(folder, build)
            self._shard(collection_name)
        return True

    def update_collection(self, collection_name: str, metadata: Mapping[str, Any], **options: Any) -> bool:
        """Add to the collection's metadata; what they have under the same keys is replaced."""
        refuse("update_collection", options)
        folder = self._folder(collection_name)
        with self._shards.hold():
            self._shard(collection_name)
            with edge_folder.raise_store_errors(folder):
                edge_folder.write_metadata(folder, {**(edge_folder.read_metadata(folder) or {}), **metadata})
        return True

    def delete_collection(self, collection_name: str, **options: Any) -> bool:
        """Delete the collection and all its points; return False if there is none."""
        refuse("delete_collection", options)
        with self._shards.hold():
            if not self._exists(collection_name):
                return False
            edge_folder.check_own(self._folder(collection_name))
            self._shard(collection_name)  # opened first: the lock of a program that knows only the engine's must hold
            self._shards.close(collection_name)
            edge_folder.remove(self._folder(collection_name))
        return True

    def create_payload_index(
        self,
        collection_name: str,
        field_name: str,
        field_schema: models.PayloadSchemaType | models.KeywordIndexParams,
        **options: Any,
    ) -> None:
        """Index a payload field; `field_schema` is a plain type (keyword, integer, …) or a tenant's keyword."""
        refuse("create_payload_index", options, "wait")
        schema = to_index(field_schema)
        self._update(collection_name, edge.UpdateOperation.create_field_index(field_name, schema))

    # -- points --------------------------------------------------------------------------------------------------

    def upsert(
        self,
        collection_name: str,
        points: Sequence[models.PointStruct],
        update_filter: models.Filter | None = None,
        update_mode: models.UpdateMode | None = None,
        **options: Any,
    ) -> None:
        """Insert points, and replace those whose id exists and that match `update_filter`; the mode may do one only."""
        refuse("upsert", options, "wait")
        self._write(collection_name, to_points(points), points, update_filter, update_mode)

    def upload_points(
        self, collection_name: str, points: Iterable[models.PointStruct], batch_size: int = 64, **options: Any
    ) -> None:
        """`upsert` in batches."""
        refuse("upload_points", options, "wait", "parallel", "max_retries")
        check_counts(batch_size=batch_size)
        all_points = list(points)
        converted = to_points(all_points)  # all are checked before any is written
        for start in range(0, len(all_points), batch_size):
            batch = slice(start, start + batch_size)
            self._write(collection_name, converted[batch], all_points[batch])

    def delete(self, collection_name: str, points_selector: Any, **options: Any) -> None:
        """Delete points by ids (a list, `PointIdsList`) or by filter (`Filter`, `FilterSelector`)."""
        refuse("delete", options, "wait")
        selector = points_selector
        selector = selector.filter if isinstance(selector, models.FilterSelector) else selector
        selector = selector.points if isinstance(selector, models.PointIdsList) else selector
        if isinstance(selector, models.Filter):
            operation = edge.UpdateOperation.delete_points_by_filter(to_filter(selector))
        else:
            operation = edge.UpdateOperation.delete_points(list(selector))
        self._update(collection_name, operation)

    def batch_update_points(self, collection_name: str, update_operations: Sequence[Any], **options: Any) -> None:
        """Delete points, set vectors of theirs, or set or delete fields of payloads, one operation after the other."""
        refuse("batch_update_points", options, "wait")
        update = edge.UpdateOperation
        for given in update_operations:
            by_ids: Callable[[list[Any]], Any]
            by_filter: Callable[[Any], Any]
            if isinstance(given, models.DeleteOperation):
                self.delete(collection_name, given.delete)
                continue
            if isinstance(given, models.UpdateVectorsOperation):
                refuse("batch_update_points", given.update_vectors.model_dump(exclude_none=True, exclude={"points"}))
                self._update_vectors(collection_name, given.update_vectors.points)
                continue
            if isinstance(given, models.SetPayloadOperation):
                change: Any = given.set_payload
                by_ids = partial(update.set_payload, payload=change.payload)
                by_filter = partial(update.set_payload_by_filter, payload=change.payload)
            elif isinstance(given, models.DeletePayloadOperation):
                change = given.delete_payload
                by_ids = partial(update.delete_payload, keys=change.keys)
                by_filter = partial(update.delete_payload_by_filter, keys=change.keys)
            else:
                raise UnsupportedCall(f"the embedded engine has no {type(given).__name__} in batch_update_points")
            known = {"payload", "keys", "points", "filter"}
            refuse("batch_update_points", change.model_dump(exclude_none=True, exclude=known))
            if change.filter is not None:
                operation = by_filter(to_filter(change.filter))
            else:
                operation = by_ids(list(change.points or ()))
            self._update(collection_name, operation)

    def retrieve(
        self,
        collection_name: str,
        ids: Sequence[int | str],
        with_payload: Any = True,
        with_vectors: Any = False,
        **options: Any,
    ) -> list[models.Record]:
        """Return the points with these ids that exist, in the order of the ids."""
        refuse("retrieve", options)
        with self._shards.hold():
            shard = self._shard(collection_name)
            records = shard.retrieve(list(ids), with_payload, self._select_vectors(collection_name, with_vectors))
        by_id = {record.id: record for record in map(from_record, records)}
        return [by_id[point_id] for point_id in dict.fromkeys(ids) if point_id in by_id]

    def scroll(
        self,
        collection_name: str,
        scroll_filter: models.Filter | None = None,
        limit: int = 10,
        offset: Any = None,
        with_payload: Any = True,
        with_vectors: Any = False,
        **options: Any,
    ) -> tuple[list[models.Record], Any]:
        """Return a page of points, by id, and the offset of the next page (None at the end)."""
        refuse("scroll", options)
        with self._shards.hold():
            shard = self._shard(collection_name)
            request = edge.ScrollRequest(
                offset=offset,
                limit=limit,
                filter=None if scroll_filter is None else to_filter(scroll_filter),
                with_payload=with_payload,
                with_vector=self._select_vectors(collection_name, with_vectors),
            )
            records, next_offset = shard.scroll(request)
        return [from_record(record) for record in records], None if next_offset is None else from_id(next_offset)

    def count(
        self, collection_name: str, count_filter: models.Filter | None = None, exact: bool = True, **options: Any
    ) -> models.CountResult:
        """Count the points that match."""
        refuse("count", options)
        with self._shards.hold():
            request = edge.CountRequest(filter=None if count_filter is None else to_filter(count_filter), exact=exact)
            return models.CountResult(count=self._shard(collection_name).count(request))

    def query_points(self, collection_name: str, query: Any, **arguments: Any) -> models.QueryResponse:
        """Answer one query; see `query_batch_points`."""
        renamed = {"query_filter": "filter", "search_params": "params", "with_vectors": "with_vector"}
        known = {"with_payload": True, **{renamed.get(name, name): value for name, value in arguments.items()}}
        refuse("query_points", {name: known.pop(name) for name in set(known) - set(models.QueryRequest.model_fields)})
        request = models.QueryRequest(query=query, **known)
        return self.query_batch_points(collection_name, [request])[0]

    def query_batch_points(
        self, collection_name: str, requests: Sequence[models.QueryRequest], **options: Any
    ) -> list[models.QueryResponse]:
        """Return the points nearest to each dense or sparse query vector, best first; without a vector, by id."""
        refuse("query_batch_points", options)
        with self._shards.hold():
            shard = self._shard(collection_name)
            with_idf = self._shards.list_with_idf(collection_name)
            declared = self._shards.list_declared(collection_name)
            asked = {
                number: to_query(known, with_idf, self._select_vectors(collection_name, known.with_vector))
                for number, request in enumerate(requests)
                if (known := without_vectors(request, declared)) is not None
            }
            found = shard.query_batch(edge.QueryBatchRequest([*asked.values()])) if asked else []
            answers: list[list[models.ScoredPoint]] = [[] for _ in requests]
            for number, points in zip(asked, found, strict=True):
                answers[number] = from_scored(points, requests[number])
            nodes = [point for number in asked if is_of_nodes(requests[number]) for point in answers[number]]
            self._shards.get_payloads(collection_name).fill(shard, nodes)
        return [models.QueryResponse.model_construct(points=points) for points in answers]

    def find_incidences(
        self, collection_name: str, groups: Sequence[tuple[Sequence[str], Sequence[str]]], limits: Sequence[int]
    ) -> list[list[Incidence]] | None:
        """Find the triples of each group in memory (`TripleReads.incident_flow`); None if not all of them are there."""
        with self._shards.hold():
            folder = self._folder(collection_name)
            known = self._shards.get_incidences(collection_name, folder) if self._exists(collection_name) else None
            return None if known is None else known.find(groups, limits)

    # -- inside --------------------------------------------------------------------------------------------------

    def _folder(self, collection_name: str) -> Path:
        if not collection_name or Path(collection_name).name != collection_name or collection_name.startswith("."):
            raise StoreError(f"{collection_name!r} cannot name a collection of the embedded engine: it names a folder")
        return self.path / collection_name

    def _exists(self, collection_name: str) -> bool:
        """Return True if there is such a collection. The caller holds the folder; there may be none."""
        folder = self._folder(collection_name)
        if not self._shards.has_folder:
            return False
        is_there = collection_name in self._shards or edge_folder.holds_collection(folder)
        if not is_there:
            edge_folder.finish_replacing(folder)
            is_there = edge_folder.holds_collection(folder)
        if not is_there:
            edge_folder.finish_removing(folder)
        return is_there

    def _shard(self, collection_name: str) -> edge.EdgeShard:
        """Return the collection's shard. The caller holds the folder."""
        if not self._exists(collection_name):
            raise StoreError(f"collection {collection_name!r} not found in {self.path}")
        return self._shards.open(collection_name, self._folder(collection_name))

    def _select_vectors(self, collection_name: str, with_vectors: Any) -> Any:
        """Leave the vectors out that no point of an open collection has: the engine knows nothing of them."""
        if not isinstance(with_vectors, list):
            return with_vectors
        declared = self._shards.list_declared(collection_name)
        return [name for name in with_vectors if name not in declared]

    def _write(
        self,
        collection_name: str,
        batch: Sequence[edge.Point],
        points: Sequence[models.PointStruct],
        update_filter: models.Filter | None = None,
        update_mode: models.UpdateMode | None = None,
    ) -> None:
        condition = None if update_filter is None else to_filter(update_filter)
        mode = None if update_mode is None else UPDATE_MODES[update_mode]
        operation = edge.UpdateOperation.upsert_points(list(batch), condition, mode)
        self._update(collection_name, operation, points)

    def _update_vectors(self, collection_name: str, points: Sequence[models.PointVectors]) -> None:
        self._update(collection_name, edge.UpdateOperation.update_vectors(to_point_vectors(points)), points)

    def _update(
        self,
        collection_name: str,
        operation: edge.UpdateOperation,
        points: Sequence[models.PointStruct | models.PointVectors] = (),
    ) -> None:
        """Change points; `points` are those of them that are stored, or get vectors."""
        vectors = list_vectors(points)
        with self._shards.hold():
            self._shard(collection_name)
            storage = self._shards.measure_storage(collection_name, vectors)
            edge_folder.check_room(self.path, lambda: sum(map(estimate_size, points)), storage)
            with edge_folder.raise_store_errors(self._folder(collection_name)):
                self._shards.make_vectors(collection_name, vectors)
                self._shards.forget(collection_name, len(points))
            self._shard(collection_name).update(operation)


def compact(client: EdgeClient, collection_name: str) -> bool:
    """Write a collection anew if most of its folder is of points that were replaced or deleted.

    The engine gives nothing of them back, nor the end of its log, not even when it is closed. It takes about as long as
    loading the points did, and room on the disk for them.

    Returns:
        True if it was written anew. False if it is not worth it, or there is no such collection.

    Raises:
        StoreError: the disk has too little room; nothing is changed.

    """
    with client._shards.hold():
        if not client._exists(collection_name):
            return False
        shard, folder = client._shard(collection_name), client._folder(collection_name)
        config = to_config(edge_folder.read_config(folder))
        sample, _ = shard.scroll(edge.ScrollRequest(limit=_SAMPLE, with_payload=True, with_vector=True))
        expected = estimate_disk([from_record(record) for record in sample], shard.info().points_count)
        if config is None or edge_folder.measure(folder) < _MOST_TIMES * expected + _NO_WASTE:
            return False
        edge_folder.check_room(client.path, lambda: 2 * expected)
        write_anew(folder, config, lambda: shard, lambda: client._shards.close(collection_name))
        client._shards.forget(collection_name, client._shard(collection_name).info().points_count)
    return True


def check_process(client: EdgeClient) -> None:
    """Refuse a client that this process inherited open at a fork. No lock is taken.

    Raises:
        StoreLockedError: the parent process had a collection open.

    """
    client._shards.check_process()

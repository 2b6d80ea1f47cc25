"""Adding, replacing and deleting passages with their triples, as flows of Qdrant calls.

New triples are written first, then the passage; then outdated triples go. A passage goes before its triples. So a
passage that is there has all its triples, whenever a process died, and repeating the call mends what it left behind.
(Until then, its triples may have metadata, and may be some, of the write that died.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.utils import get_tqdm_iterable
from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import (
    ArgumentError,
    EmbeddingError,
    TenantError,
    check_characters,
    check_kinds,
    check_vector,
)
from llama_index_gear.flow import Flow, ask
from llama_index_gear.nodes import ONE_NODE, attach_triples, read_triples
from llama_index_gear.requests import EmbedTexts, QdrantCall, RunFunction
from llama_index_gear.store.collections import PAGE, Collections, WordEncoder
from llama_index_gear.store.filters import METADATA, bounded, conditions, indexed_fields
from llama_index_gear.store.locks import AcquirePassages, PassageLocks
from llama_index_gear.store.passages import ONE_ID, StoreReads
from llama_index_gear.store.payloads import check_storable, raise_interrupt
from llama_index_gear.store.schema import (
    DENSE,
    DOC_ID,
    SPARSE,
    any_of,
    passage_payload,
    point_id_of,
    read_passages,
    triple_payload,
    vectors_config,
)
from llama_index_gear.tenancy import Tenancy, is_name
from llama_index_gear.triple import Triple


class _Checked(NamedTuple):
    """What passages that can be stored carry, by their ids, and how long their vectors are."""

    carried: dict[str, list[Triple]]
    dimension: int


@dataclass(frozen=True)
class StoreWrites:
    """The writing side of a store."""

    collections: Collections
    reads: StoreReads
    tenancy: Tenancy
    locks: PassageLocks
    batch_size: int
    show_progress: bool

    def prepare_flow(self, dimension: int) -> Flow[None]:
        """Create what is missing of both collections and their indexes; safe to repeat."""
        keyword, keywords = models.PayloadSchemaType.KEYWORD, ("entities", "passage_id", DOC_ID)
        fields: dict[str, list[tuple[str, Any]]] = {
            self.collections.passages: [(DOC_ID, keyword)],
            self.collections.triples: [(key, keyword) for key in keywords],
        }
        if self.tenancy.field is not None:
            tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
            fields[self.collections.passages].append((self.tenancy.field, tenant))
            fields[self.collections.triples].append((f"{METADATA}{self.tenancy.field}", tenant))
        for path, schema in indexed_fields(self.collections.payload_indexes):
            fields[self.collections.passages].append((path, schema))
            fields[self.collections.triples].append((f"{METADATA}{path}", schema))
        for name in (self.collections.triples, self.collections.passages):
            yield from self.collections.prepare_flow(
                name, vectors_config(dimension, self.collections.vector_options), fields[name]
            )

    def _prepare_for_flow(self, dimension: int) -> Flow[None]:
        yield from self.prepare_flow(dimension)
        self.collections.dimension = dimension  # known once it is true

    def add_flow(self, nodes: Sequence[BaseNode], if_unchanged_since: Sequence[BaseNode] = ()) -> Flow[list[str]]:
        """The flow of `add`."""
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes, if_unchanged_since=if_unchanged_since)
        passages = self.tenancy.assign_tenant(list({node.node_id: node for node in nodes}.values()))
        if not passages:
            return []
        exists = yield from self.collections.exists_flow()
        checked = yield from ask(RunFunction(lambda: self._checked(passages)))
        if exists:
            yield from check_owners_flow(self.tenancy, self.collections, passages)
        yield from self._prepare_for_flow(checked.dimension)
        starts = range(0, len(passages), self.batch_size)
        as_read = {node.node_id: node.hash for node in if_unchanged_since}
        written: set[str] = set()
        for start in get_tqdm_iterable(starts, self.show_progress, "Storing passages and triples"):
            written |= yield from self._write_flow(passages[start : start + self.batch_size], checked, as_read=as_read)
        return [node.node_id for node in nodes if node.node_id in written]

    def rewrite_flow(self, nodes: Sequence[BaseNode], *, embed_triples: bool) -> Flow[None]:
        """Write passages that are there once more; with `embed_triples` no stored vector of a triple is kept."""
        checked = yield from ask(RunFunction(lambda: self._checked(nodes)))
        as_read = {node.node_id: node.hash for node in nodes}
        yield from self._write_flow(nodes, checked, embed_triples, is_guarded=False, as_read=as_read)

    def _write_flow(
        self,
        batch: Sequence[BaseNode],
        checked: _Checked,
        embed_triples: bool = False,
        *,
        is_guarded: bool = True,
        as_read: Mapping[str, str] | None = None,
    ) -> Flow[set[str]]:
        """Write passages, of those that were read before only such as are still what they were: the ids of these."""
        ids = {node.node_id for node in batch}
        claim = self.locks.claim(ids)
        try:
            yield from ask(AcquirePassages(claim))
            if not (yield from self.collections.exists_flow()):  # all was cleared while this waited
                yield from self._prepare_for_flow(checked.dimension)
            if is_guarded:
                yield from check_owners_flow(
                    self.tenancy, self.collections, batch
                )  # again: nobody else writes these now
            if as_read:
                there = yield from self.reads.get_flow(list(ids), None, None, vectors=False)
                now = {node.node_id: node.hash for node in there}
                batch = [node for node in batch if as_read.get(node.node_id) == now.get(node.node_id)]
            if batch:
                yield from self._write_alone_flow(batch, checked.carried, embed_triples)
        finally:
            claim.release()
        return {node.node_id for node in batch}

    def _write_alone_flow(
        self, batch: Sequence[BaseNode], carried: dict[str, list[Triple]], embed_triples: bool
    ) -> Flow[None]:
        points = yield from ask(RunFunction(partial(self._passage_points, batch, carried)))
        outdated = yield from self._write_triples_flow(batch, carried, embed_triples)
        yield from ask(
            QdrantCall("upsert", {"collection_name": self.collections.passages, "points": points, "wait": True})
        )
        if outdated:
            yield from self.collections.delete_flow(
                self.collections.triples, models.PointIdsList(points=list(outdated))
            )

    def _checked(self, passages: Sequence[BaseNode]) -> _Checked:
        """Each passage's triples, and the vectors' dimension; raises if anything could not be stored."""
        carried = {node.node_id: read_triples(node) for node in passages}
        for node in passages:
            if node.embedding is None or (isinstance(node.embedding, list) and not node.embedding):
                raise EmbeddingError(
                    f"node {node.node_id!r} has no embedding: put the embedding model last in the pipeline's "
                    "transformations, or add nodes through VectorStoreIndex"
                )
        first = passages[0]
        check_vector(f"the embedding of node {first.node_id!r}", first.get_embedding())
        dimension = self.collections.dimension or len(first.get_embedding())
        for node in passages:
            self.collections.check_dimension(node.get_embedding(), f"the embedding of node {node.node_id!r}", dimension)
            if not all(
                issubclass(kind, int | float) for kind in set(map(type, node.get_embedding()))
            ):  # they have no JSON
                raise EmbeddingError(
                    f"the embedding of node {node.node_id!r} holds numbers that are not Python's own: make it "
                    "[float(number) for number in embedding]"
                )
            _check_storable(node, carried[node.node_id])
        return _Checked(carried, dimension)

    def _write_triples_flow(
        self, passages: Sequence[BaseNode], carried: dict[str, list[Triple]], embed_all: bool
    ) -> Flow[list[str]]:
        """Write the passages' triples; returns the ids of those they had and have no more."""
        wanted = {t.id(node.node_id): (t, node) for node in passages for t in carried[node.node_id]}
        of_passages = any_of("passage_id", [node.node_id for node in passages])
        stored = yield from self.collections.scroll_flow(
            self.collections.triples, models.Filter(must=[of_passages]), payload=False, vectors=[DENSE]
        )
        vectors = {str(point.id): point.vector[DENSE] for point in stored}
        new = sorted({t.text for point_id, (t, _) in wanted.items() if embed_all or point_id not in vectors}, key=len)
        embedded = dict(zip(new, (yield from ask(EmbedTexts(new))), strict=True)) if new else {}
        points = yield from ask(RunFunction(lambda: self._triple_points(wanted, vectors, embedded)))
        for start in range(0, len(points), PAGE):
            page = points[start : start + PAGE]
            yield from ask(
                QdrantCall("upsert", {"collection_name": self.collections.triples, "points": page, "wait": True})
            )
        return [point_id for point_id in vectors if point_id not in wanted]

    def _triple_points(
        self,
        wanted: dict[str, tuple[Triple, BaseNode]],
        vectors: dict[str, list[float]],
        embedded: dict[str, list[float]],
    ) -> list[models.PointStruct]:
        owners = {node.node_id: node for _, node in wanted.values()}
        payloads = {node_id: triple_payload(node) for node_id, node in owners.items()}
        points = []
        for point_id, (triple, node) in wanted.items():
            vector = embedded[triple.text] if triple.text in embedded else vectors[point_id]
            self.collections.check_dimension(
                vector, f"the embedding of the triple {triple.text!r} (embed_model of the store)"
            )
            payload = {
                **payloads[node.node_id],
                "subject": triple.subject,
                "predicate": triple.predicate,
                "object": triple.object,
                "entities": list(triple.entities),
            }
            points.append(_point(self.collections.triple_bm25, point_id, vector, triple.text, payload))
        return points

    def _passage_points(self, nodes: Sequence[BaseNode], carried: dict[str, list[Triple]]) -> list[models.PointStruct]:
        return [self._passage_point(node, carried[node.node_id]) for node in nodes]

    def _passage_point(self, node: BaseNode, triples: Sequence[Triple]) -> models.PointStruct:
        plain = attach_triples(node, triples) if triples else node
        text = node.get_content(metadata_mode=MetadataMode.EMBED)
        return _point(self.collections.bm25, point_id_of(node.node_id), node.get_embedding(), text, _payload_of(plain))


def _check_storable(node: BaseNode, triples: Sequence[Triple]) -> None:
    """Refuse a passage that an engine could not read back; its triples' payloads hold its metadata one level down."""
    metadata = attach_triples(node, triples).metadata if triples else node.metadata
    related = [
        relative for info in node.relationships.values() for relative in (info if isinstance(info, list) else [info])
    ]
    fields = {
        "node_id": node.node_id,
        "ref_doc_id": node.ref_doc_id,
        "text": node.get_content(),
        "metadata": metadata,
        "relationships": [info.metadata for info in related],
    }
    check_storable(f"node {node.node_id!r}", fields)
    seen = node.get_content(metadata_mode=MetadataMode.EMBED)
    check_storable(f"node {node.node_id!r}", {**_payload_of(node), "text for the embedding": seen})


def _payload_of(node: BaseNode) -> dict[str, Any]:
    """Make the payload of a passage.

    Raises:
        ArgumentError: the node has no JSON.

    """
    try:
        return passage_payload(node)
    except (TypeError, ValueError) as error:
        raise_interrupt(error)
        raise _no_json(node, error) from error


def _no_json(node: BaseNode, error: Exception) -> ArgumentError:
    return ArgumentError(f"metadata of node {node.node_id!r} holds what cannot be written as JSON: {error}")


def _point(
    bm25: WordEncoder, point_id: str, vector: Sequence[float], text: str, payload: dict[str, Any]
) -> models.PointStruct:
    vectors: dict[str, Any] = {DENSE: vector, SPARSE: bm25.embed_document(text)}
    # Not validated again: the fields are of the right kind, and a dense vector is long.
    return models.PointStruct.model_construct(id=point_id, vector=vectors, payload=payload)


@dataclass(frozen=True)
class StoreDeletes:
    """The side of a store that deletes; it decides what goes when its turn has come."""

    collections: Collections
    tenancy: Tenancy
    locks: PassageLocks

    def delete_document_flow(self, ref_doc_id: str) -> Flow[None]:
        """The flow of `delete`."""
        if not is_name(ref_doc_id):
            raise ArgumentError(f"delete takes the id of a document, a text that is not empty; got {ref_doc_id!r}")
        check_characters(ref_doc_id=ref_doc_id)
        yield from self._delete_matching_flow(self.tenancy.scope_filters(None), [any_of(DOC_ID, [ref_doc_id])] * 2)

    def delete_nodes_flow(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> Flow[None]:
        """The flow of `delete_nodes`."""
        check_kinds(str, hint=ONE_ID, optional=True, node_ids=node_ids)
        if node_ids is None and not conditions(filters):
            raise ArgumentError("delete_nodes without ids and filters would delete everything: call clear()")
        filters = self.tenancy.scope_filters(filters)
        if node_ids == []:
            return
        named: list[Any] = []
        if node_ids is not None:
            points: list[Any] = [point_id_of(node_id) for node_id in node_ids]
            named = [models.HasIdCondition(has_id=points), any_of("passage_id", node_ids)]
        if filters is not None:
            yield from self._delete_matching_flow(filters, named)
        else:
            yield from self._delete_flow(*(models.Filter(must=[condition]) for condition in named))

    def delete_triples_flow(self, passage_ids: Sequence[str]) -> Flow[None]:
        """Delete the triples of passages that are gone."""
        yield from self._delete_flow(None, models.Filter(must=[any_of("passage_id", passage_ids)]))

    def _delete_matching_flow(self, filters: MetadataFilters | None, also: Sequence[Any]) -> Flow[None]:
        """Delete the passages that match, and their triples; `also` is a condition of passages, and one of triples.

        A call that died left triples without passages: they are known by their own copy of the metadata. It left others
        with metadata that their passage does not have yet: they stay.
        """
        passages, triples = self.collections.passages, self.collections.triples
        of_passages = bounded(models.Filter(must=[*also[:1], *conditions(filters)]))
        of_triples = bounded(models.Filter(must=[*also[1:], *conditions(filters, under=METADATA)]))
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            has_passages = yield from ask(QdrantCall("collection_exists", {"collection_name": passages}))
            has_triples = yield from ask(QdrantCall("collection_exists", {"collection_name": triples}))
            offset: Any = None
            while has_passages:
                points, offset = yield from self.collections.page_flow(
                    passages, of_passages, payload=True, vectors=False, offset=offset
                )
                if points:
                    yield from self.collections.delete_flow(
                        passages, models.PointIdsList(points=[point.id for point in points])
                    )
                owners = [node.node_id for node, _ in read_passages(points)[0]]
                if owners and has_triples:
                    of_deleted = any_of("passage_id", owners)
                    yield from self.collections.delete_flow(triples, models.Filter(must=[of_deleted]))
                if offset is None:
                    break
            while has_triples:
                points, offset = yield from self.collections.page_flow(
                    triples, of_triples, payload=["passage_id"], vectors=False, offset=offset
                )
                owners = list({point.payload["passage_id"]: None for point in points})
                there = (yield from self.collections.present_flow(owners)) if has_passages else set()
                if gone := [owner for owner in owners if owner not in there]:
                    yield from self.collections.delete_flow(triples, models.Filter(must=[any_of("passage_id", gone)]))
                if offset is None:
                    break
        finally:
            claim.release()

    def _delete_flow(self, of_passages: models.Filter | None, of_triples: models.Filter) -> Flow[None]:
        """Delete the passages (None: none) and the triples that match."""
        names = (self.collections.passages, self.collections.triples)  # in this order: what is there has its triples
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            for name, match_ in zip(names, (of_passages, of_triples), strict=True):
                if match_ is not None and (yield from ask(QdrantCall("collection_exists", {"collection_name": name}))):
                    yield from self.collections.delete_flow(name, match_)
        finally:
            claim.release()

    def clear_flow(self) -> Flow[None]:
        """The flow of `clear`."""
        if self.tenancy.tenant is not None:  # no triple is another's than its passage, even half written
            own = self.tenancy.scope_filters(None)
            musts = (conditions(own), conditions(own, under=METADATA))
            yield from self._delete_flow(*(models.Filter(must=must) for must in musts))
            return
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            for name in (self.collections.passages, self.collections.triples):
                exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
                if exists:
                    yield from ask(QdrantCall("delete_collection", {"collection_name": name}))
        finally:
            self.locks.clear_count += 1
            claim.release()


def check_owners_flow(tenancy: Tenancy, collections: Collections, nodes: Sequence[BaseNode]) -> Flow[None]:
    """See to it that no node takes the place of another tenant's.

    A passage that no tenant has gives way to one that somebody has, on the store of all, and not on a tenant's.

    Raises:
        TenantError: one would.

    """
    if (field := tenancy.field) is None:
        return
    owners = {point_id_of(node.node_id): (node.node_id, node.metadata.get(field)) for node in nodes}
    ids = list(owners)
    for start in range(0, len(ids), PAGE):
        arguments = {"ids": ids[start : start + PAGE], "with_payload": [field], "with_vectors": False}
        found = yield from ask(QdrantCall("retrieve", {"collection_name": collections.passages, **arguments}))
        for point in found:
            node_id, owner = owners[str(point.id)]
            stored = (point.payload or {}).get(field)
            if is_name(stored) and stored != owner:
                raise TenantError(
                    f"another tenant has a passage of the id {node_id!r}: ids must differ between tenants"
                )
            if not is_name(stored) and tenancy.tenant is not None:
                raise TenantError(
                    f"no tenant has the passage {node_id!r}: only the store itself, not a tenant's, can give it to one"
                )

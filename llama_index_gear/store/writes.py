"""Flows of Qdrant calls that add, replace and delete passages with their triples.

A write stores the new triples first, then the passage, and then deletes outdated triples. A deletion removes the
passage before its triples. So a stored passage has all its triples, whenever the process died, and repeating the call
repairs what it left behind. (Until then, a passage can also have triples and triple metadata of the write that died.)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode
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
from llama_index_gear.store.aliases import find_partners_flow
from llama_index_gear.store.average_length import AverageLength, get_embedded_text
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import PAGE, Collections
from llama_index_gear.store.filters import METADATA, build_conditions, list_indexed_fields, require_conditions
from llama_index_gear.store.locks import AcquirePassages, PassageLocks
from llama_index_gear.store.passages import ONE_ID, StoreReads
from llama_index_gear.store.payloads import check_storable, raise_interrupt
from llama_index_gear.store.schema import (
    ALIASES,
    DENSE,
    DOC_ID,
    SPARSE,
    build_alias_payload,
    build_passage_payload,
    build_triple_payload,
    build_vectors_config,
    match_any,
    point_id_of,
    read_aliases,
    read_passages,
)
from llama_index_gear.store.truncation import TruncationCheck
from llama_index_gear.tenancy import Tenancy, is_name
from llama_index_gear.triple import Triple

logger = logging.getLogger(__name__)


class _StorablePassages(NamedTuple):
    """The triples of passages that can be stored, by node id, and the dimension of their vectors."""

    triples_by_node: dict[str, list[Triple]]
    dimension: int


@dataclass(frozen=True)
class StoreWrites:
    """The flows that write a store."""

    collections: Collections
    reads: StoreReads
    tenancy: Tenancy
    locks: PassageLocks
    average: AverageLength
    truncation: TruncationCheck
    batch_size: int
    show_progress: bool

    def prepare_flow(self, dimension: int) -> Flow[None]:
        """Create the collections and indexes that are missing; repeating it is safe."""
        keyword = models.PayloadSchemaType.KEYWORD
        keywords = ("entities", "passage_id", DOC_ID, f"{ALIASES}[].alias")
        fields: dict[str, list[tuple[str, Any]]] = {
            self.collections.passages: [(DOC_ID, keyword)],
            self.collections.triples: [(key, keyword) for key in keywords],
        }
        if self.tenancy.field is not None:
            tenant = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
            fields[self.collections.passages].append((self.tenancy.field, tenant))
            fields[self.collections.triples].append((f"{METADATA}{self.tenancy.field}", tenant))
        for path, schema in list_indexed_fields(self.collections.payload_indexes):
            fields[self.collections.passages].append((path, schema))
            fields[self.collections.triples].append((f"{METADATA}{path}", schema))
        for name in (self.collections.triples, self.collections.passages):
            yield from self.collections.prepare_flow(
                name, build_vectors_config(dimension, self.collections.vector_options), fields[name]
            )

    def _prepare_dimension_flow(self, dimension: int) -> Flow[None]:
        yield from self.prepare_flow(dimension)
        self.collections.dimension = dimension  # set only once the collections exist

    def add_flow(self, nodes: Sequence[BaseNode], if_unchanged_since: Sequence[BaseNode] = ()) -> Flow[list[str]]:
        """The flow of `add`."""
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes, if_unchanged_since=if_unchanged_since)
        start_time = time.perf_counter()
        passages = self.tenancy.assign_tenant(list({node.node_id: node for node in nodes}.values()))
        if not passages:
            return []
        exists = yield from self.collections.exists_flow()
        checked = yield from ask(RunFunction(lambda: self._check_passages(passages)))
        if exists:
            yield from check_owners_flow(self.tenancy, self.collections, passages)
        yield from self.truncation.check_flow(passages)
        yield from self._prepare_dimension_flow(checked.dimension)
        yield from self.average.settle_flow(lambda: self.average.learn(passages))
        starts = range(0, len(passages), self.batch_size)
        read_hashes = {node.node_id: node.hash for node in if_unchanged_since}
        written: set[str] = set()
        for start in get_tqdm_iterable(starts, self.show_progress, "Storing passages and triples"):
            written |= yield from self._write_flow(
                passages[start : start + self.batch_size], checked, read_hashes=read_hashes
            )
        triples = sum(len(checked.triples_by_node[node_id]) for node_id in written)
        seconds = time.perf_counter() - start_time
        logger.info("%d passages with %d triples stored in %.1f s", len(written), triples, seconds)
        return [node.node_id for node in nodes if node.node_id in written]

    def rewrite_flow(self, nodes: Sequence[BaseNode], *, embed_triples: bool) -> Flow[None]:
        """Write stored passages once more, if they are unchanged since they were read.

        With `embed_triples` every triple is embedded again; otherwise stored vectors are kept.
        """
        checked = yield from ask(RunFunction(lambda: self._check_passages(nodes)))
        read_hashes = {node.node_id: node.hash for node in nodes}
        yield from self._write_flow(nodes, checked, embed_triples, check_owners=False, read_hashes=read_hashes)

    def _write_flow(
        self,
        batch: Sequence[BaseNode],
        checked: _StorablePassages,
        embed_triples: bool = False,
        *,
        check_owners: bool = True,
        read_hashes: Mapping[str, str] | None = None,
    ) -> Flow[set[str]]:
        """Write a batch under its lock; return the ids of the passages that were written.

        A passage whose stored hash is not its hash in `read_hashes` (node id → hash; empty: no check) is left out.
        """
        ids = {node.node_id for node in batch}
        claim = self.locks.claim(ids)
        try:
            yield from ask(AcquirePassages(claim))
            if not (yield from self.collections.exists_flow()):  # the store was cleared during the wait
                yield from self._prepare_dimension_flow(checked.dimension)
            if check_owners:
                # Checked again, now that nobody else writes these passages.
                yield from check_owners_flow(self.tenancy, self.collections, batch)
            if read_hashes:
                stored = yield from self.reads.get_flow(list(ids), None, None, vectors=False)
                stored_hashes = {node.node_id: node.hash for node in stored}
                batch = [node for node in batch if read_hashes.get(node.node_id) == stored_hashes.get(node.node_id)]
            if batch:
                yield from self._write_locked_flow(batch, checked.triples_by_node, embed_triples)
        finally:
            claim.release()
        return {node.node_id for node in batch}

    def _write_locked_flow(
        self, batch: Sequence[BaseNode], triples_by_node: dict[str, list[Triple]], embed_triples: bool
    ) -> Flow[None]:
        encoder = yield from self.average.encoder_flow(lambda: self.average.learn(batch))
        points = yield from ask(RunFunction(partial(_build_passage_points, encoder, batch, triples_by_node)))
        outdated = yield from self._write_triples_flow(batch, triples_by_node, embed_triples)
        yield from ask(
            QdrantCall("upsert", {"collection_name": self.collections.passages, "points": points, "wait": True})
        )
        if outdated:
            yield from self.collections.delete_flow(
                self.collections.triples, models.PointIdsList(points=list(outdated))
            )

    def _check_passages(self, passages: Sequence[BaseNode]) -> _StorablePassages:
        """Collect the passages' triples and the vectors' dimension; refuse what cannot be stored."""
        triples_by_node = {node.node_id: read_triples(node) for node in passages}
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
            # NumPy's numbers, say, have no JSON.
            if not all(issubclass(kind, int | float) for kind in set(map(type, node.get_embedding()))):
                raise EmbeddingError(
                    f"the embedding of node {node.node_id!r} holds numbers that are not Python's own: make it "
                    "[float(number) for number in embedding]"
                )
            _check_storable(node, triples_by_node[node.node_id])
        return _StorablePassages(triples_by_node, dimension)

    def _write_triples_flow(
        self, passages: Sequence[BaseNode], triples_by_node: dict[str, list[Triple]], embed_all: bool
    ) -> Flow[list[str]]:
        """Write the passages' triples; return the ids of stored triples that are outdated."""
        wanted = {
            triple.id(node.node_id): (triple, node) for node in passages for triple in triples_by_node[node.node_id]
        }
        condition = match_any("passage_id", [node.node_id for node in passages])
        stored = yield from self.collections.scroll_flow(
            self.collections.triples, models.Filter(must=[condition]), payload=[ALIASES], vectors=[DENSE]
        )
        vectors = {str(point.id): point.vector[DENSE] for point in stored}
        entities = yield from self._link_flow(wanted, {str(point.id): point.payload or {} for point in stored})
        new = sorted(
            {triple.text for point_id, (triple, _) in wanted.items() if embed_all or point_id not in vectors}, key=len
        )
        embedded = dict(zip(new, (yield from ask(EmbedTexts(new))), strict=True)) if new else {}
        points = yield from ask(RunFunction(lambda: self._build_triple_points(wanted, vectors, embedded, entities)))
        for start in range(0, len(points), PAGE):
            page = points[start : start + PAGE]
            yield from ask(
                QdrantCall("upsert", {"collection_name": self.collections.triples, "points": page, "wait": True})
            )
        return [point_id for point_id in vectors if point_id not in wanted]

    def _link_flow(
        self, wanted: dict[str, tuple[Triple, BaseNode]], stored: dict[str, dict[str, Any]]
    ) -> Flow[dict[str, dict[str, Any]]]:
        """Build the fields of triples that hold their entities with their links.

        Stored triples keep their links. New ones get those that other triples have of the same entities.
        """
        new = {key for point_id in wanted.keys() - stored.keys() for key in wanted[point_id][0].entities}
        partners = yield from find_partners_flow(self.collections, self.tenancy, sorted(new))
        fields = {}
        for point_id, (triple, node) in wanted.items():
            tenant = None if self.tenancy.field is None else node.metadata.get(self.tenancy.field)
            links = {key: set(partners.get((tenant, key), ())) for key in triple.entities}
            for key, alias in read_aliases(stored.get(point_id, {})):
                links[key].add(alias)
            fields[point_id] = build_alias_payload(triple.entities, links)
        return fields

    def _build_triple_points(
        self,
        wanted: dict[str, tuple[Triple, BaseNode]],
        vectors: dict[str, list[float]],
        embedded: dict[str, list[float]],
        entities: dict[str, dict[str, Any]],
    ) -> list[models.PointStruct]:
        owners = {node.node_id: node for _, node in wanted.values()}
        payloads = {node_id: build_triple_payload(node) for node_id, node in owners.items()}
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
                **entities[point_id],
            }
            points.append(_build_point(self.collections.triple_bm25, point_id, vector, triple.text, payload))
        return points


def _build_passage_points(
    encoder: WordEncoder, nodes: Sequence[BaseNode], triples_by_node: dict[str, list[Triple]]
) -> list[models.PointStruct]:
    points = []
    for node in nodes:
        triples = triples_by_node[node.node_id]
        payload = _build_payload(attach_triples(node, triples) if triples else node)
        text = get_embedded_text(node)
        points.append(_build_point(encoder, point_id_of(node.node_id), node.get_embedding(), text, payload))
    return points


def _check_storable(node: BaseNode, triples: Sequence[Triple]) -> None:
    """Refuse a passage that an engine could not read back, itself or its metadata in a triple's payload."""
    metadata = attach_triples(node, triples).metadata if triples else node.metadata
    relations = [
        relation for info in node.relationships.values() for relation in (info if isinstance(info, list) else [info])
    ]
    fields = {
        "node_id": node.node_id,
        "ref_doc_id": node.ref_doc_id,
        "text": node.get_content(),
        "metadata": metadata,
        "relationships": [info.metadata for info in relations],
    }
    check_storable(f"node {node.node_id!r}", fields)
    check_storable(
        f"node {node.node_id!r}", {**_build_payload(node), "text for the embedding": get_embedded_text(node)}
    )


def _build_payload(node: BaseNode) -> dict[str, Any]:
    """Build the payload of a passage.

    Raises:
        ArgumentError: the node has no JSON.

    """
    try:
        return build_passage_payload(node)
    except (TypeError, ValueError) as error:
        raise_interrupt(error)
        raise _make_json_error(node, error) from error


def _make_json_error(node: BaseNode, error: Exception) -> ArgumentError:
    return ArgumentError(f"metadata of node {node.node_id!r} holds what cannot be written as JSON: {error}")


def _build_point(
    bm25: WordEncoder, point_id: str, vector: Sequence[float], text: str, payload: dict[str, Any]
) -> models.PointStruct:
    vectors: dict[str, Any] = {DENSE: vector, SPARSE: bm25.embed_document(text)}
    # Not validated again: the fields are of the right kind, and a dense vector is long.
    return models.PointStruct.model_construct(id=point_id, vector=vectors, payload=payload)


@dataclass(frozen=True)
class StoreDeletes:
    """The flows that delete from a store. What matches is looked up once the lock is held."""

    collections: Collections
    tenancy: Tenancy
    locks: PassageLocks

    def delete_document_flow(self, ref_doc_id: str) -> Flow[None]:
        """The flow of `delete`."""
        if not is_name(ref_doc_id):
            raise ArgumentError(f"delete takes the id of a document, a text that is not empty; got {ref_doc_id!r}")
        check_characters(ref_doc_id=ref_doc_id)
        yield from self._delete_matching_flow(self.tenancy.scope_filters(None), [match_any(DOC_ID, [ref_doc_id])] * 2)

    def delete_nodes_flow(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> Flow[None]:
        """The flow of `delete_nodes`."""
        check_kinds(str, hint=ONE_ID, optional=True, node_ids=node_ids)
        if node_ids is None and not build_conditions(filters):
            raise ArgumentError("delete_nodes without ids and filters would delete everything: call clear()")
        filters = self.tenancy.scope_filters(filters)
        if node_ids == []:
            return
        id_conditions: list[Any] = []
        if node_ids is not None:
            points: list[Any] = [point_id_of(node_id) for node_id in node_ids]
            id_conditions = [models.HasIdCondition(has_id=points), match_any("passage_id", node_ids)]
        if filters is not None:
            yield from self._delete_matching_flow(filters, id_conditions)
        else:
            yield from self._delete_flow(*(models.Filter(must=[condition]) for condition in id_conditions))

    def delete_triples_flow(self, passage_ids: Sequence[str]) -> Flow[None]:
        """Delete the triples of passages that are no longer stored."""
        yield from self._delete_flow(None, models.Filter(must=[match_any("passage_id", passage_ids)]))

    def _delete_matching_flow(self, filters: MetadataFilters | None, extra_conditions: Sequence[Any]) -> Flow[None]:
        """Delete the passages that match, and their triples.

        A triple without a passage, left by a call that died, is deleted if its own copy of the metadata matches. A
        triple whose passage is stored and does not match stays, whatever its copy of the metadata is.

        Args:
            filters: conditions on the metadata.
            extra_conditions: none, or two: a condition on passages, and its equivalent on triples.

        """
        passages, triples = self.collections.passages, self.collections.triples
        passage_filter = require_conditions(models.Filter(must=[*extra_conditions[:1], *build_conditions(filters)]))
        triple_filter = require_conditions(
            models.Filter(must=[*extra_conditions[1:], *build_conditions(filters, under=METADATA)])
        )
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            has_passages = yield from ask(QdrantCall("collection_exists", {"collection_name": passages}))
            has_triples = yield from ask(QdrantCall("collection_exists", {"collection_name": triples}))
            offset: Any = None
            while has_passages:
                points, offset = yield from self.collections.page_flow(
                    passages, passage_filter, payload=True, vectors=False, offset=offset
                )
                if points:
                    yield from self.collections.delete_flow(
                        passages, models.PointIdsList(points=[point.id for point in points])
                    )
                passage_ids = [node.node_id for node, _ in read_passages(points)[0]]
                if passage_ids and has_triples:
                    condition = match_any("passage_id", passage_ids)
                    yield from self.collections.delete_flow(triples, models.Filter(must=[condition]))
                if offset is None:
                    break
            while has_triples:
                points, offset = yield from self.collections.page_flow(
                    triples, triple_filter, payload=["passage_id"], vectors=False, offset=offset
                )
                passage_ids = list({point.payload["passage_id"]: None for point in points})
                present = (yield from self.collections.find_present_flow(passage_ids)) if has_passages else set()
                if missing := [passage_id for passage_id in passage_ids if passage_id not in present]:
                    yield from self.collections.delete_flow(
                        triples, models.Filter(must=[match_any("passage_id", missing)])
                    )
                if offset is None:
                    break
        finally:
            claim.release()

    def _delete_flow(self, passage_filter: models.Filter | None, triple_filter: models.Filter) -> Flow[None]:
        """Delete the passages that match (None: no passage) and the triples that match."""
        names = (self.collections.passages, self.collections.triples)  # in this order: see the module's docstring
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            for name, match_ in zip(names, (passage_filter, triple_filter), strict=True):
                if match_ is not None and (yield from ask(QdrantCall("collection_exists", {"collection_name": name}))):
                    yield from self.collections.delete_flow(name, match_)
        finally:
            claim.release()

    def clear_flow(self) -> Flow[None]:
        """The flow of `clear`."""
        if self.tenancy.tenant is not None:  # a triple has its passage's tenant, even if half written
            own = self.tenancy.scope_filters(None)
            musts = (build_conditions(own), build_conditions(own, under=METADATA))
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
            self.locks.average_words = None
            claim.release()


def check_owners_flow(tenancy: Tenancy, collections: Collections, nodes: Sequence[BaseNode]) -> Flow[None]:
    """Check that no node replaces another tenant's passage.

    A stored passage without a tenant may be given to one through the whole store, but not through a tenant's store.

    Raises:
        TenantError: a node would replace another tenant's passage; or, on a tenant's store, one without a tenant.

    """
    if (field := tenancy.field) is None:
        return
    owners = {point_id_of(node.node_id): (node.node_id, node.metadata.get(field)) for node in nodes}
    ids = list(owners)
    for start in range(0, len(ids), PAGE):
        arguments = {"ids": ids[start : start + PAGE], "with_payload": [field], "with_vectors": False}
        points = yield from ask(QdrantCall("retrieve", {"collection_name": collections.passages, **arguments}))
        for point in points:
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

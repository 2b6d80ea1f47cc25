"""Deleting passages and their triples, as flows of Qdrant calls: a passage goes before its triples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError
from llama_index_gear.flow import Flow, QdrantCall
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.filters import METADATA, bounded, conditions
from llama_index_gear.store.locks import AcquirePassages, PassageLocks
from llama_index_gear.store.schema import DOC_ID, any_of, point_id_of, to_node
from llama_index_gear.tenancy import Tenancy, is_name


@dataclass(frozen=True)
class StoreDeletes:
    """The side of a store that deletes; it decides what goes when its turn has come."""

    collections: Collections
    tenancy: Tenancy
    turns: PassageLocks

    def deleting_document(self, ref_doc_id: str) -> Flow[None]:
        """The flow of `delete`."""
        if not is_name(ref_doc_id):
            raise ArgumentError(f"delete takes the id of a document, a text that is not empty; got {ref_doc_id!r}")
        yield from self._deleting_matching(self.tenancy.scope_filters(None), [any_of(DOC_ID, [ref_doc_id])] * 2)

    def deleting_nodes(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> Flow[None]:
        """The flow of `delete_nodes`."""
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
            yield from self._deleting_matching(filters, named)
        else:
            yield from self._deleting(*(models.Filter(must=[each]) for each in named))

    def deleting_triples(self, passage_ids: Sequence[str]) -> Flow[None]:
        """Delete the triples of passages that are gone."""
        yield from self._deleting(None, models.Filter(must=[any_of("passage_id", passage_ids)]))

    def _deleting_matching(self, filters: MetadataFilters | None, also: Sequence[Any]) -> Flow[None]:
        """Delete the passages that match, and their triples; `also` is a condition of passages, and one of triples.

        A call that died left triples without passages: they are known by their own copy of the metadata. It left others
        with metadata that their passage does not have yet: they stay.
        """
        passages, triples = self.collections.passages, self.collections.triples
        of_passages = bounded(models.Filter(must=[*also[:1], *conditions(filters)]))
        of_triples = bounded(models.Filter(must=[*also[1:], *conditions(filters, under=METADATA)]))
        claim = self.turns.claim(None)
        try:
            yield [AcquirePassages(claim)]
            (has_passages,) = yield [QdrantCall("collection_exists", {"collection_name": passages})]
            (has_triples,) = yield [QdrantCall("collection_exists", {"collection_name": triples})]
            offset: Any = None
            while has_passages:
                points, offset = yield from self.collections.page(
                    passages, of_passages, payload=True, vectors=False, offset=offset
                )
                if points:
                    yield from self.collections.deleting(
                        passages, models.PointIdsList(points=[each.id for each in points])
                    )
                if points and has_triples:
                    mine = any_of("passage_id", [to_node(point).node_id for point in points])
                    yield from self.collections.deleting(triples, models.Filter(must=[mine]))
                if offset is None:
                    break
            while has_triples:
                points, offset = yield from self.collections.page(
                    triples, of_triples, payload=["passage_id"], vectors=False, offset=offset
                )
                owners = list({point.payload["passage_id"]: None for point in points})
                there = (yield from self.collections.present(owners)) if has_passages else set()
                if gone := [owner for owner in owners if owner not in there]:
                    yield from self.collections.deleting(triples, models.Filter(must=[any_of("passage_id", gone)]))
                if offset is None:
                    break
        finally:
            claim.release()

    def _deleting(self, of_passages: models.Filter | None, of_triples: models.Filter) -> Flow[None]:
        """Delete the passages (None: none) and the triples that match."""
        names = (self.collections.passages, self.collections.triples)  # in this order: what is there has its triples
        claim = self.turns.claim(None)
        try:
            yield [AcquirePassages(claim)]
            for name, match_ in zip(names, (of_passages, of_triples), strict=True):
                if match_ is not None and (yield [QdrantCall("collection_exists", {"collection_name": name})])[0]:
                    yield from self.collections.deleting(name, match_)
        finally:
            claim.release()

    def clearing(self) -> Flow[None]:
        """The flow of `clear`."""
        if self.tenancy.tenant is not None:  # no triple is another's than its passage, even half written
            own = self.tenancy.scope_filters(None)
            musts = (conditions(own), conditions(own, under=METADATA))
            yield from self._deleting(*(models.Filter(must=must) for must in musts))
            return
        claim = self.turns.claim(None)
        try:
            yield [AcquirePassages(claim)]
            for name in (self.collections.passages, self.collections.triples):
                (exists,) = yield [QdrantCall("collection_exists", {"collection_name": name})]
                if exists:
                    yield [QdrantCall("delete_collection", {"collection_name": name})]
        finally:
            self.turns.clear_count += 1
            claim.release()

"""Flows that delete passages with their triples, and that finish or undo calls that ended early.

`commits` says how they go beside other writers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models

from llama_index_gear.errors import ArgumentError, check_characters, check_kinds
from llama_index_gear.flow import Flow, QdrantCall, ask
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.commits import match_left_over
from llama_index_gear.store.filters import METADATA, build_conditions, require_conditions
from llama_index_gear.store.locks import AcquirePassages, PassageLocks
from llama_index_gear.store.passage_checks import is_sound, read_owners
from llama_index_gear.store.passages import ONE_ID
from llama_index_gear.store.schema import (
    ANY_CALL,
    DELETED,
    DENSE,
    DOC_ID,
    UNFINISHED,
    WRITE,
    can_be_replaced,
    get_passage_id,
    has_sound_marks,
    match_any,
    match_writes,
    point_id_of,
    read_calls,
    read_passages,
)
from llama_index_gear.store.tenancy import Tenancy, is_name
from llama_index_gear.store.writes import StoreWrites

_MARKS = ["passage_id", WRITE, DELETED]
"""Payload fields of a triple that tell whether it is left over."""


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
        yield from self._delete_matching_flow(filters, id_conditions)

    def delete_triples_flow(self, passage_ids: Sequence[str]) -> Flow[None]:
        """Delete the triples of passages that are no longer stored."""
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            match_ = models.Filter(must=[match_any("passage_id", passage_ids)])
            yield from self.collections.delete_flow(self.collections.triples, match_)
        finally:
            claim.release()

    def _delete_matching_flow(self, filters: MetadataFilters | None, extra_conditions: Sequence[Any]) -> Flow[None]:
        """Delete the passages that match, and their triples.

        A triple without a passage, left by a call that died, is deleted if its own copy of the metadata matches. A
        triple whose passage is stored and does not match stays, whatever its copy of the metadata is.

        Args:
            filters: conditions on the metadata.
            extra_conditions: none, or two: a condition on passages, and its equivalent on triples.

        """
        passage_filter = require_conditions(models.Filter(must=[*extra_conditions[:1], *build_conditions(filters)]))
        triple_filter = require_conditions(
            models.Filter(must=[*extra_conditions[1:], *build_conditions(filters, under=METADATA)])
        )
        yield from self.collections.retry_flow(lambda: self._delete_claimed_flow(passage_filter, triple_filter))

    def _delete_claimed_flow(self, passage_filter: models.Filter, triple_filter: models.Filter) -> Flow[None]:
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            has_more = has_passages = yield from self.collections.exists_flow()
            left_over = triple_filter if (yield from self.collections.has_triples_flow()) else None
            offset: Any = None
            points: list[Any] = []
            while has_more:
                points, offset = yield from self.collections.page_flow(
                    self.collections.passages, passage_filter, payload=True, vectors=False, offset=offset
                )
                has_more = offset is not None
                found, call = points, self.locks.name_write(claim)
                while found:
                    found = yield from self._delete_passages_flow(
                        found, passage_filter, call, None if has_more else left_over
                    )
            if left_over is not None and not points:  # otherwise they are gone with the last passages
                yield from self._delete_all_left_over_flow(left_over, has_passages)
        finally:
            claim.release()

    def _delete_all_left_over_flow(self, match_: models.Filter, has_passages: bool) -> Flow[None]:
        for page in self.collections.page_flows(self.collections.triples, match_, payload=_MARKS):
            yield from self.delete_left_over_flow((yield from page), has_passages)

    def delete_left_over_flow(self, triples: Sequence[Any], has_passages: bool) -> Flow[set[str]]:
        """Delete those of these triples that are left over, without a passage; return the passages that are stored.

        A damaged triple of no passage that is stored is left over too.
        """
        passage_ids = list(dict.fromkeys(filter(None, map(get_passage_id, triples))))
        present = (yield from self.collections.find_present_flow(passage_ids)) if has_passages else set()
        missing = [point for point in triples if get_passage_id(point) not in present]
        yield from self._delete_triples_flow(missing, None)
        return present

    def _delete_triples_flow(self, triples: Sequence[Any], deleted: Mapping[str, Any] | None) -> Flow[None]:
        """Delete those of these triples that are left over (see `match_left_over`), or damaged."""
        damaged = [point.id for point in triples if not can_be_replaced(point)]
        has_damaged_id = models.Filter(must=[models.HasIdCondition(has_id=damaged)]) if damaged else None
        for match_ in (has_damaged_id, match_left_over(filter(can_be_replaced, triples), self.locks, deleted)):
            if match_ is not None:
                yield from self.collections.delete_flow(self.collections.triples, match_)

    def _delete_passages_flow(
        self, points: Sequence[Any], match_: models.Filter, call: str, left_over: models.Filter | None
    ) -> Flow[list[Any]]:
        """Delete passages that were read, and their triples, unless another writer replaces them meanwhile.

        The marks tell a later call which triples are left over if this one, named `call`, dies after it deleted the
        passages. Return the passages that are there once more, as they were: `UnfinishedWrites` wrote them.

        Args:
            points: of the passages.
            match_: what passages that are to be deleted match.
            call: the name of the call.
            left_over: what triples match that are to be deleted if they have no passage; None: none are looked for.

        """
        triples, has_triples = self.collections.triples, self.collections.has_triples
        payloads = {point.id: point.payload or {} for point in points}
        damaged = [point_id for point_id, payload in payloads.items() if not has_sound_marks(payload)]  # none's
        writes = {payload[WRITE] for payload in payloads.values() if has_sound_marks(payload) and payload.get(WRITE)}
        passages = read_passages(points)[0]
        hashes = {node.node_id: node.hash for node, _ in passages}
        deleted = {node.node_id: point.payload.get(WRITE) for node, point in passages if point.id not in damaged}
        of_passages = match_any("passage_id", list(hashes))
        if hashes and has_triples:
            mark = models.SetPayload(
                payload={DELETED: True, UNFINISHED: [ANY_CALL, call]},
                filter=models.Filter(must=[of_passages, match_writes(writes)]),
            )
            yield from self.collections.update_flow(triples, [models.SetPayloadOperation(set_payload=mark)])
        has_id = models.HasIdCondition(has_id=[point.id for point in points])
        yield from self.collections.delete_flow(
            self.collections.passages, models.Filter(must=[match_, has_id, match_writes(writes, damaged)])
        )
        wanted: list[Any] = [of_passages] if hashes and has_triples else []
        wanted += [] if left_over is None else [left_over]
        if not wanted:
            return []
        stored = yield from self.collections.scroll_flow(
            triples, models.Filter(should=wanted), payload=_MARKS, vectors=False
        )
        own = [point for point in stored if get_passage_id(point) in hashes]
        yield from self._delete_triples_flow(own, deleted)
        yield from self.delete_left_over_flow([point for point in stored if get_passage_id(point) not in hashes], True)
        named = {
            get_passage_id(point)
            for point in filter(can_be_replaced, own)
            if point.payload.get(WRITE, "") not in {*writes, ""}
        }
        if not named:
            return []
        has_id = models.HasIdCondition(has_id=[point_id_of(node_id) for node_id in named])
        again = yield from self.collections.scroll_flow(
            self.collections.passages, models.Filter(must=[match_, has_id]), payload=True, vectors=False
        )
        return [point for node, point in read_passages(again)[0] if node.hash == hashes[node.node_id]]

    def clear_flow(self) -> Flow[None]:
        """The flow of `clear`."""
        if self.tenancy.tenant is not None:  # a triple has its passage's tenant, even if half written
            yield from self._delete_matching_flow(self.tenancy.scope_filters(None), [])
            return
        claim = self.locks.claim(None)
        try:
            yield from ask(AcquirePassages(claim))
            for name in (self.collections.passages, self.collections.triples):
                exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
                if exists:
                    yield from ask(QdrantCall("delete_collection", {"collection_name": name}))
        finally:
            self.locks.epoch += 1
            claim.release()


@dataclass(frozen=True)
class UnfinishedWrites:
    """Finishes or undoes what calls left that ended early; of a tenant's store, only that tenant's."""

    collections: Collections
    writes: StoreWrites
    deletes: StoreDeletes
    tenancy: Tenancy
    locks: PassageLocks

    def finish_flow(self) -> Flow[None]:
        """The flow of `finish_writes`."""
        has_passages = yield from self.collections.exists_flow()
        if not (yield from self.collections.has_triples_flow()):
            return
        # Without passages, no call left the triples that are there but one that cleared the store.
        match_ = self._match([match_any(UNFINISHED, [ANY_CALL])] if has_passages else [])
        fields = ["passage_id", WRITE, UNFINISHED]
        for page in self.collections.page_flows(self.collections.triples, match_, payload=fields):
            points = yield from page
            ids = list(dict.fromkeys(get_passage_id(point) for point in points if self._is_left(point)))
            for start in range(0, len(ids), self.writes.batch_size):
                yield from self._finish_passages_flow(ids[start : start + self.writes.batch_size], has_passages)

    def _finish_passages_flow(self, passage_ids: Sequence[str], has_passages: bool) -> Flow[None]:
        """Delete the triples of those of these passages that are gone, and write the others once more.

        What is damaged, a triple or a passage, is left as it is: `check` names it, and `repair` mends it.
        """
        match_ = self._match([match_any("passage_id", passage_ids)])
        claim = self.locks.claim(set(passage_ids))
        try:
            yield from ask(AcquirePassages(claim))
            found = yield from self.collections.scroll_flow(
                self.collections.triples, match_, payload=["passage_id", WRITE, DELETED, UNFINISHED], vectors=False
            )
            triples = list(filter(can_be_replaced, found))
            present = yield from self.deletes.delete_left_over_flow(triples, has_passages)
        finally:
            claim.release()
        present -= {point.payload["passage_id"] for point in triples if self._is_being_deleted(point.payload)}
        nodes = yield from self._read_writable_flow(sorted(present))
        if nodes:
            yield from self.writes.rewrite_flow(nodes, embed_triples=False, is_repair=False)

    def _read_writable_flow(self, passage_ids: Sequence[str]) -> Flow[list[BaseNode]]:
        """Read those of these passages that can be written once more as they are."""
        if not passage_ids:
            return []
        has_id = models.HasIdCondition(has_id=[point_id_of(node_id) for node_id in passage_ids])
        match_ = models.Filter(must=[has_id, *build_conditions(self.tenancy.own_filters)])
        points = yield from self.collections.scroll_flow(
            self.collections.passages, match_, payload=True, vectors=[DENSE]
        )
        nodes = [owner.node for owner in read_owners(points)[0] if is_sound(owner, self.tenancy.field)]
        return self.writes.find_storable(nodes)

    def _is_left(self, point: Any) -> bool:
        """Return True for a triple that a call stored, and that none of this process is at work on."""
        payload = point.payload or {}
        is_stored = can_be_replaced(point) and bool(payload.get(WRITE) or payload.get(UNFINISHED))
        return is_stored and not any(map(self.locks.is_ours, read_calls(payload)))

    def _is_being_deleted(self, payload: Mapping[str, Any]) -> bool:
        """Return True for a triple of a passage that another process may be about to delete."""
        return bool(payload.get(DELETED)) and not all(map(self.locks.has_ended, read_calls(payload)))

    def _match(self, conditions: Sequence[models.FieldCondition]) -> models.Filter:
        return models.Filter(must=[*conditions, *build_conditions(self.tenancy.own_filters, under=METADATA)])

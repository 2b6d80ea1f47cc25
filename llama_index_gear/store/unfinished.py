"""A flow that finishes or undoes what calls left that ended early: killed, cancelled, interrupted, or by an error.

While a call stores or deletes a passage, the triples that it works on say so (`UNFINISHED`). So one query, by an
index, finds what such calls left, and finds nothing on a store that is in order. A passage that is still stored is
written once more as it is, like any other write: then it has its own triples and no other. Triples whose passage is
gone are deleted. That is right beside other writers too (see `commits`).

On a server nobody can tell a call that another process has under way from one that died with it. Triples of a passage
that was never stored are therefore spared for ten minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode
from qdrant_client.http import models

from llama_index_gear.flow import Flow, ask
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.deletes import StoreDeletes
from llama_index_gear.store.filters import METADATA, build_conditions
from llama_index_gear.store.locks import AcquirePassages, PassageLocks
from llama_index_gear.store.schema import (
    ANY_CALL,
    DELETED,
    DENSE,
    UNFINISHED,
    WRITE,
    can_be_replaced,
    get_passage_id,
    match_any,
    point_id_of,
    read_calls,
)
from llama_index_gear.store.soundness import is_sound, read_owners
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.store.writes import StoreWrites


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
        name = self.collections.triples
        has_passages = yield from self.collections.exists_flow()
        has_triples = yield from self.collections.has_triples_flow()
        # Without passages, no call left the triples that are there but one that cleared the store.
        conditions = [match_any(UNFINISHED, [ANY_CALL])] if has_passages else []
        offset = None
        while has_triples:
            points, offset = yield from self.collections.page_flow(
                name, self._match(conditions), payload=["passage_id", WRITE, UNFINISHED], vectors=False, offset=offset
            )
            ids = list(dict.fromkeys(get_passage_id(point) for point in points if self._is_left(point)))
            for start in range(0, len(ids), self.writes.batch_size):
                yield from self._finish_passages_flow(ids[start : start + self.writes.batch_size], has_passages)
            has_triples = offset is not None

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

"""Lock-free writes: a passage and its triples stay consistent when several processes write them.

A passage with triples names the write that stored it, and so do its triples. A write of a passage goes so:

1. It stores the triples, in its own name.
2. It stores the passage, provided that this still names the write that is to be replaced. The engine tests and stores
   in one step, so among writers side by side each passage has one successor.
3. It reads which write the passage names. If that is another's, it starts anew, in a new name, and replaces that one.
   It also starts anew if the passage was new and its triples are no longer its own: another writer may have replaced
   them, stored its passage and have had that deleted, all since step 1. It reads the links of the triples' entities
   too: a call that links these beside this one then finds the triples, or this call finds its links. If it stored
   triples without vectors, it also reads if stored triples are being embedded: that call then finds these, or this
   call embeds them.
4. It deletes the triples that it read before step 1, and that the passage doesn't state, and links the others. It also
   deletes, by their names, all triples of the write that it replaced, and of its own that lost: the read may have asked
   a replica that lacked some.

Where no other process can write, step 2 has no condition, and step 3 reads the links alone.

From step 1 to step 4 these triples, or where no other process can write the first of each passage, say that a call is
at work on them (`UNFINISHED`), and which one. So do those that are deleted with their passage. By them
`deletes.UnfinishedWrites` finds a call that ended early, and finishes or undoes it.

A writer starts anew only after another has succeeded, so all terminate. The last one to store the passage wins.

A deletion marks the triples of the write that the passage names, deletes the passage if it still names that write, and
then deletes the marked triples. Where there is no passage, it spares triples in the name of a call under way: their
passage may be about to be stored.

So a stored passage has all its triples, whatever call dies and at whatever moment. What a call leaves behind when it
dies is triples without a passage, or that their passage doesn't state. Repeating the call removes them; so does
`UnfinishedWrites`.

A passage without triples names no write: nothing of it can be incomplete. Nor does one that LlamaIndex's own store
wrote.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

from qdrant_client.http import models

from llama_index_gear.errors import StoreError
from llama_index_gear.flow import Flow, QdrantCall, Request, ask
from llama_index_gear.store.collections import PAGE, Collections, build_page
from llama_index_gear.store.filters import require_conditions
from llama_index_gear.store.locks import Claim, PassageLocks
from llama_index_gear.store.schema import (
    ANY_CALL,
    DELETED,
    REPLACED,
    UNFINISHED,
    WRITE,
    can_be_replaced,
    match_any,
    match_writes,
    point_id_of,
)


class Draft(NamedTuple):
    """A passage to store: its point, and those of its triples. Their payloads name no write yet."""

    passage: models.PointStruct
    triples: list[models.PointStruct]


class Stored(NamedTuple):
    """The stored points of passages' triples, and the write that each passage names (None: none)."""

    triples: list[Any]
    named: dict[str, str | None]


class Lost(NamedTuple):
    """A write whose passage is not stored, or no longer: the write's name, and the one that the passage names now."""

    write: str | None
    named: str | None


@dataclass(frozen=True)
class PassageCommits:
    """Makes the commits of a store.

    Attributes:
        collections: the store's collections.
        locks: the locks of the passages' collection, which give writes their names.

    """

    collections: Collections
    locks: PassageLocks

    def begin(
        self,
        claim: Claim,
        drafts: Mapping[str, Draft],
        stored: Stored,
        *,
        lost_writes: Collection[str] = (),
        is_repair: bool = False,
    ) -> Commit:
        """Begin the write of passages, by their ids, that the claim has locked.

        `lost_writes` are those of the same call before. Beside a repair nobody writes: it takes all other triples for
        left over.
        """
        writes = {node_id: self.locks.name_write(claim) if draft.triples else None for node_id, draft in drafts.items()}
        call = self.locks.name_write(claim)
        return Commit(self.collections, self.locks, call, drafts, writes, stored, lost_writes, is_repair)

    def read_stored_flow(
        self,
        node_ids: Collection[str],
        named: Mapping[str, str | None],
        *,
        fields: Sequence[str] = (),
        vectors: bool | list[str] = False,
    ) -> Flow[Stored]:
        """Read what is stored of passages; `named` holds those whose write is known.

        The triples tell which write their passage names, if they are all of one whose call has ended. Otherwise the
        passage is read, and then the triples once more: a call that is just ending may have added some.
        """
        match_ = models.Filter(must=[match_any("passage_id", node_ids)])
        payload = [*fields, "passage_id", WRITE, DELETED, UNFINISHED]
        read = partial(self._read_triples_flow, match_, payload=payload, vectors=vectors)
        triples = yield from read()
        guessed = self._guess_named(node_ids, triples)
        unclear = [node_id for node_id in node_ids if node_id not in guessed and node_id not in named]
        if unclear and not self.locks.is_alone:
            call = build_retrieve(self.collections.passages, unclear)
            named = {**named, **{node_id: None for node_id in unclear}, **read_named(unclear, (yield from ask(call)))}
            triples = yield from read()
        return Stored(triples, {**guessed, **named})

    def _read_triples_flow(self, match_: models.Filter, **wanted: Any) -> Flow[list[Any]]:
        """Read triples, without those that are damaged: a write does not know them, and `repair` deletes them."""
        points = yield from self.collections.scroll_flow(self.collections.triples, match_, **wanted)
        return list(filter(can_be_replaced, points))

    def _guess_named(self, node_ids: Iterable[str], triples: Iterable[Any]) -> dict[str, str | None]:
        writes: dict[str, set[str | None]] = {node_id: set() for node_id in node_ids}
        unfinished = set()
        for point in triples:
            writes[point.payload["passage_id"]].add(point.payload.get(WRITE))
            if point.payload.get(UNFINISHED):
                unfinished.add(point.payload["passage_id"])
        guessed: dict[str, str | None] = {}
        for node_id, names in writes.items():
            write = next(iter(names), None)
            if len(names) < 2 and node_id not in unfinished and (write is None or self.locks.has_ended(write)):
                guessed[node_id] = write
        return guessed


@dataclass(frozen=True)
class Commit:
    """One attempt to write passages. First store the triples, then the passages; then verify, and finish.

    Attributes:
        collections: the store's collections.
        locks: the locks of the passages' collection.
        call: its name, which triples bear while it is at work on them.
        drafts: the passages, by id.
        writes: the name of each passage's write; None for a passage without triples.
        stored: what was stored before.
        lost_writes: names of the same call's attempts before.
        is_repair: True if nobody else writes.

    """

    collections: Collections
    locks: PassageLocks
    call: str
    drafts: Mapping[str, Draft]
    writes: Mapping[str, str | None]
    stored: Stored
    lost_writes: Collection[str]
    is_repair: bool

    def store_triples_flow(self) -> Flow[None]:
        """Store the triples of all passages, which say that this call is at work on them.

        Where no other process can write, the first of a passage says it for all: nobody else replaces it alone. Those
        that will be outdated say it where their passage gets no triple that could.
        """
        points = []
        for node_id, draft in self.drafts.items():
            for number, point in enumerate(draft.triples):
                point.payload = {**(point.payload or {}), WRITE: self.writes[node_id]}
                if number == 0 or not self.locks.is_alone:
                    point.payload[UNFINISHED] = [ANY_CALL, self.call]
                points.append(point)
        if outdated := self._match_outdated([node_id for node_id, draft in self.drafts.items() if draft.triples]):
            match_ = models.Filter(must=[outdated], must_not=[match_any(UNFINISHED, [ANY_CALL])])
            mark = models.SetPayload(payload={UNFINISHED: [ANY_CALL, self.call]}, filter=match_)
            yield from self.collections.update_flow(
                self.collections.triples, [models.SetPayloadOperation(set_payload=mark)]
            )
        for start in range(0, len(points), PAGE):
            page = points[start : start + PAGE]
            yield from ask(
                QdrantCall("upsert", {"collection_name": self.collections.triples, "points": page, "wait": True})
            )

    def store_passages_flow(self) -> Flow[None]:
        """Store the passages: those that replace a named write, and those that don't."""
        parts = [
            {node_id: draft for node_id, draft in self.drafts.items() if bool(self._replaced(node_id)) == is_replaced}
            for is_replaced in (False, True)
        ]
        for part in [self.drafts] if self.locks.is_alone else filter(None, parts):
            yield from ask(self._build_upsert(part))

    def verify_flow(
        self, linked: models.FieldCondition | None = None, fields: Sequence[str] = ()
    ) -> Flow[tuple[dict[str, Lost], list[Any]]]:
        """Find the passages to be written anew: those that name another write, and new ones that lack triples.

        Return also the triples, of all passages, that match a condition, with these fields and others. With a condition
        it also notes if the triples of the store are being embedded.
        """
        new = [node_id for node_id, write in self.writes.items() if write and not self._replaced(node_id)]
        wanted: list[Any] = [] if linked is None else [linked]
        requests: list[Request[Any]] = []
        if not self.locks.is_alone:
            wanted += [self._match_own(new)] if new else []
            requests.append(build_retrieve(self.collections.passages, list(self.drafts)))
            if linked is not None and not self.collections.embeds_triples:
                requests.append(self.collections.look_again())
        if not wanted and not requests:
            return {}, []
        if not wanted:
            (stored,) = yield requests
            return self._find_lost(stored, []), []
        name, match_, payload = self.collections.triples, models.Filter(should=wanted), ["passage_id", WRITE, *fields]
        *read, (triples, offset) = yield [*requests, build_page(name, match_, payload=payload)]
        if len(read) > 1:
            self.collections.note(read[1])
        triples = list(triples)
        while offset is not None:
            page, offset = yield from self.collections.page_flow(
                name, match_, payload=payload, vectors=False, offset=offset
            )
            triples += page
        return self._find_lost(read[0], triples) if read else {}, triples

    def finish_flow(self, lost: Collection[str], changes: Sequence[Any] = ()) -> Flow[None]:
        """Delete the outdated triples, and make these changes; then take off what says that this call is at work."""
        outdated = self._match_outdated(lost)
        if not (self._triple_ids or self.stored.triples or outdated):
            return
        operations: list[Any] = []
        if outdated:
            selector = models.FilterSelector(filter=require_conditions(outdated))
            operations.append(models.DeleteOperation(delete=selector))
        operations += changes
        of_lost: list[Any] = [match_any("passage_id", lost)] if lost else []
        is_marked = match_any(UNFINISHED, [self.call])
        done = models.DeletePayload(keys=[UNFINISHED], filter=models.Filter(must=[is_marked], must_not=of_lost))
        operations.append(models.DeletePayloadOperation(delete_payload=done))
        yield from self.collections.update_flow(self.collections.triples, operations)

    @property
    def is_own(self) -> models.FieldCondition:
        """The condition that a triple is in the name of one of these writes."""
        return match_any(WRITE, list(filter(None, self.writes.values())))

    def _match_outdated(self, spared: Collection[str]) -> models.Filter | None:
        """Build the filter of the outdated triples, but for those of some passages; None if there are none.

        They are those that were read, and all of writes that are known to be replaced or lost: the read may have asked
        a replica that lacked some.
        """
        found: list[Any] = []
        if outdated := [point for point in self.stored.triples if self._is_outdated(point, spared)]:
            writes = {point.payload[WRITE] for point in outdated if point.payload.get(WRITE)}
            has_id = models.HasIdCondition(has_id=[point.id for point in outdated])
            found.append(models.Filter(must=[has_id, match_writes(writes)]))
        owners = [node_id for node_id in self.drafts if node_id not in spared]
        over = {*self.lost_writes, *filter(None, map(self._replaced, owners))}
        if owners and over and not self.locks.is_alone:
            found.append(models.Filter(must=[match_any("passage_id", owners), match_any(WRITE, over)]))
        return models.Filter(should=found) if len(found) > 1 else next(iter(found), None)

    def _is_outdated(self, point: Any, spared: Collection[str]) -> bool:
        """Return True for a triple that its passage doesn't state, and that no other call can still need.

        A passage that names a write keeps every other writer from storing its own in its place. One that names none
        does not: triples of a call under way stay.
        """
        node_id, write = point.payload["passage_id"], point.payload.get(WRITE)
        if node_id in spared or str(point.id) in self._triple_ids:
            return False
        if self.writes[node_id] or self.is_repair or not write or point.payload.get(DELETED):
            return True
        return write == self._replaced(node_id) or write in self.lost_writes or self.locks.has_ended(write)

    def _replaced(self, node_id: str) -> str | None:
        return self.stored.named.get(node_id)

    @cached_property
    def _triple_ids(self) -> set[str]:
        return {str(point.id) for draft in self.drafts.values() for point in draft.triples}

    def _build_upsert(self, part: Mapping[str, Draft]) -> QdrantCall:
        """Build the call that stores passages, each on condition that it names the write that is to be replaced."""
        replaced: list[str] = []
        for node_id, draft in part.items():
            names = {WRITE: self.writes[node_id], REPLACED: self._replaced(node_id)}
            payload = {key: value for key, value in (draft.passage.payload or {}).items() if key not in names}
            draft.passage.payload = {**payload, **{key: name for key, name in names.items() if name}}
            replaced += filter(None, [names[REPLACED]])
        points = [draft.passage for draft in part.values()]
        arguments = {"collection_name": self.collections.passages, "points": points, "wait": True}
        if not self.locks.is_alone:
            is_replaced = match_any(WRITE, replaced) if replaced else match_writes([])
            arguments["update_filter"] = models.Filter(must=[is_replaced])
            arguments["update_mode"] = models.UpdateMode.UPDATE_ONLY if replaced else models.UpdateMode.UPSERT
        return QdrantCall("upsert", arguments)

    def _find_lost(self, passages: Sequence[Any], triples: Sequence[Any]) -> dict[str, Lost]:
        """Find the passages, as they are stored now, that name another write, and new ones that lack triples."""
        named, replaced = read_named(self.drafts, passages), read_named(self.drafts, passages, REPLACED)
        stored = Counter(point.payload.get(WRITE) for point in filter(can_be_replaced, triples))
        lost = {}
        for node_id, write in self.writes.items():
            now = named.get(node_id)
            if now == write:
                is_new = write is not None and not self._replaced(node_id)
                is_lost = is_new and stored[write] < len(self.drafts[node_id].triples)
            else:
                is_lost = write is None or replaced.get(node_id) != write
            if is_lost:
                lost[node_id] = Lost(write, now)
        return lost

    def _match_own(self, node_ids: Sequence[str]) -> models.Filter:
        """Build the filter of the passages' triples that are in the name of their writes."""
        writes = [write for node_id in node_ids if (write := self.writes[node_id])]
        return models.Filter(must=[match_any("passage_id", node_ids), match_any(WRITE, writes)])


def build_retrieve(name: str, node_ids: Iterable[str]) -> QdrantCall:
    """Build the call that reads which writes passages name, and which they replaced."""
    ids = [point_id_of(node_id) for node_id in node_ids]
    options = {"with_payload": [WRITE, REPLACED], "with_vectors": False}
    return QdrantCall("retrieve", {"collection_name": name, "ids": ids, **options})


def read_named(node_ids: Iterable[str], points: Iterable[Any], field: str = WRITE) -> dict[str, str]:
    """Read the writes that passages name, or replaced; those that name none are left out.

    Raises:
        StoreError: the name is no text: another program has written it.

    """
    names = {point_id_of(node_id): node_id for node_id in node_ids}
    named = {}
    for point in points:
        if write := (point.payload or {}).get(field):
            node_id = names[str(point.id)]
            if not isinstance(write, str):
                raise StoreError(f"the passage {node_id!r} has a {field} that is no text: call repair()")
            named[node_id] = write
    return named


def match_left_over(
    points: Iterable[Any], locks: PassageLocks, deleted: Mapping[str, Any] | None = None
) -> models.Filter | None:
    """Build the filter of those of these triples that are left over; None if there are none.

    `deleted` holds passages that were just deleted: id → the write that it named, or None. All triples of these writes
    are left over, also those that were not read. None: the triples have no passages. Triples in the name of a call
    under way are not left over.
    """
    writes = set(filter(None, (deleted or {}).values()))
    owners = {passage_id for passage_id, write in (deleted or {}).items() if write}
    for point in points:
        write = point.payload.get(WRITE)
        is_over = point.payload.get(DELETED) if deleted is None else write in writes
        if not write or is_over or locks.has_ended(write):
            owners.add(point.payload["passage_id"])
            writes |= {write} if write else set()
    if not owners:
        return None
    return models.Filter(must=[match_any("passage_id", owners), match_writes(writes)])

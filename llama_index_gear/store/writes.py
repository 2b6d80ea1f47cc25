"""Flows of Qdrant calls that add and replace passages with their triples.

A write stores the new triples first, then the passage, and then deletes outdated triples. So a stored passage has all
its triples, whenever the process died, and repeating the call repairs what it left behind. (Until then, a passage can
also have triples and triple metadata of the write that died.) `commits` says how that holds beside other writers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.errors import (
    EmbeddingError,
    GeARError,
    TenantError,
    check_kinds,
    check_vector,
)
from llama_index_gear.flow import EmbedTexts, Flow, QdrantCall, RunFunction, ask
from llama_index_gear.nodes import ONE_NODE, has_failed, must_stay, read_triples, without_links
from llama_index_gear.store.aliases import LinkChanges, index_linked, list_tenant_fields, match_linked
from llama_index_gear.store.average_length import AverageLength
from llama_index_gear.store.collections import (
    ALL,
    AVERAGE_KEY,
    EMBEDDED_KEY,
    NONE,
    PAGE,
    PARTIAL,
    Collections,
)
from llama_index_gear.store.commits import Draft, Lost, PassageCommits
from llama_index_gear.store.filters import METADATA, list_indexed_fields
from llama_index_gear.store.locks import AcquirePassages, Claim, PassageLocks
from llama_index_gear.store.passages import StoreReads
from llama_index_gear.store.points import build_passage_points, build_triple_points, require_storable
from llama_index_gear.store.schema import (
    ALIASES,
    DENSE,
    DOC_ID,
    UNFINISHED,
    WRITE,
    build_alias_payload,
    build_vectors_config,
    match_any,
    point_id_of,
    read_aliases,
    read_sound_aliases,
)
from llama_index_gear.store.side_by_side import run_all_flow
from llama_index_gear.store.tenancy import Tenancy, is_name
from llama_index_gear.store.vector_checks import TruncationCheck
from llama_index_gear.triple import Triple

logger = logging.getLogger(__name__)


class _StorablePassages(NamedTuple):
    """The triples of passages that can be stored, by node id, and the dimension of their vectors."""

    triples_by_node: dict[str, list[Triple]]
    dimension: int


@dataclass(frozen=True)
class _Call:
    """A call that writes a batch of passages; its arguments are `_write_flow`'s."""

    claim: Claim
    triples_by_node: dict[str, list[Triple]]
    embed_triples: bool
    is_repair: bool
    read_hashes: Mapping[str, str]


@dataclass
class _Others:
    """The other writers that a call met.

    Attributes:
        spared: ids of passages that another writer stored meanwhile, and that are not to be replaced.
        error: the error to raise for them.
        lost_writes: the call's own writes that were lost to others.

    """

    spared: set[str] = field(default_factory=set)
    lost_writes: set[str] = field(default_factory=set)
    error: TenantError | None = None


@dataclass(frozen=True)
class StoreWrites:
    """The flows that write a store; `limit` is the number of batches of one call that are under way at once."""

    collections: Collections
    reads: StoreReads
    tenancy: Tenancy
    locks: PassageLocks
    average: AverageLength
    truncation: TruncationCheck
    batch_size: int
    limit: int
    show_progress: bool

    @property
    def commits(self) -> PassageCommits:
        """The commits of the store."""
        return PassageCommits(self.collections, self.locks)

    def prepare_flow(
        self, dimension: int, learn: Callable[[], float | None], wants_vectors: bool | None = None
    ) -> Flow[None]:
        """Create the collections and indexes that are missing; repeating it is safe.

        Where no average length is stored, that of the stored passages is, or what `learn` returns if it isn't None.
        Triples of new collections get vectors if `wants_vectors`; None: as the store's owner chose.
        """
        collections = self.collections
        has_average = (yield from collections.exists_flow()) and collections.average_words is not None
        average = None if has_average else (yield from self.average.learn_flow(learn))
        embedded: str | None = ALL if (collections.wants_vectors if wants_vectors is None else wants_vectors) else NONE
        metadata = {EMBEDDED_KEY: embedded, **({} if average is None else {AVERAGE_KEY: average})}
        fields = self.list_fields()
        config = build_vectors_config(dimension, collections.vector_options)
        yield from collections.prepare_flow(collections.triples, config, fields[collections.triples])
        info = yield from collections.prepare_flow(
            collections.passages, {**config, "metadata": metadata}, fields[collections.passages]
        )
        collections.note(info)
        if collections.embedded == NONE and collections.wants_vectors:
            embedded = PARTIAL
        elif collections.embedded is not None:
            embedded = None
        # LlamaIndex's own store makes a collection that has none of these.
        yield from collections.keep_flow(
            average_words=average if collections.average_words is None else None, embedded=embedded
        )
        collections.has_triples = collections.is_prepared = True

    def list_fields(self) -> dict[str, list[tuple[str, Any]]]:
        """List the payload indexes that a store needs: name of a collection → fields with their schemas."""
        keyword = models.PayloadSchemaType.KEYWORD
        keywords = ("entities", "passage_id", DOC_ID, f"{ALIASES}[].alias", UNFINISHED)
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
        return fields

    def add_flow(self, nodes: Sequence[BaseNode], if_unchanged_since: Sequence[BaseNode] = ()) -> Flow[list[str]]:
        """The flow of `add`."""
        check_kinds(BaseNode, hint=ONE_NODE, nodes=nodes, if_unchanged_since=if_unchanged_since)
        start_time = time.perf_counter()
        last = {node.node_id: node for node in nodes}
        passages = self.tenancy.assign_tenant(list(last.values()))
        if not passages:
            return []
        if lost := [node.node_id for node in nodes if node.hash != last[node.node_id].hash]:
            logger.warning(
                "%d passages are not stored, %r first: later ones of the same call have their ids, and other texts. "
                "Give each passage an id of its own: MarkdownNodeParser(id_func=…), say, gives all sections of a "
                "document one",
                len(lost),
                lost[0],
            )
        read_hashes = {node.node_id: node.hash for node in if_unchanged_since}
        written = yield from self.collections.retry_flow(lambda: self._store_flow(passages, read_hashes))
        seconds = time.perf_counter() - start_time
        logger.info("%d passages with %d triples stored in %.1f s", len(written), sum(written.values()), seconds)
        return [node.node_id for node in nodes if node.node_id in written]

    def _store_flow(self, passages: Sequence[BaseNode], read_hashes: Mapping[str, str]) -> Flow[dict[str, int]]:
        """Store passages in batches; return the ids of those that were written, with the number of their triples."""
        exists = yield from self.collections.exists_flow()
        checked = yield from ask(RunFunction(lambda: self._check_passages(passages)))
        if exists:
            yield from check_owners_flow(self.tenancy, self.collections, passages)
        yield from self.truncation.check_flow(passages)
        if not self.collections.is_prepared:
            yield from self.prepare_flow(checked.dimension, lambda: self.average.learn(passages))
        batches = [passages[start : start + self.batch_size] for start in range(0, len(passages), self.batch_size)]
        with tqdm(total=len(passages), desc="Storing passages and triples", disable=not self.show_progress) as bar:
            flows = [self._write_batch_flow(batch, checked, read_hashes, bar) for batch in batches]
            written = set[str]().union(*(yield from run_all_flow(flows, self.limit)))
        return {node_id: len(checked.triples_by_node[node_id]) for node_id in written}

    def _write_batch_flow(
        self, batch: Sequence[BaseNode], checked: _StorablePassages, read_hashes: Mapping[str, str], bar: Any
    ) -> Flow[set[str]]:
        written = yield from self._write_flow(batch, checked, read_hashes=read_hashes)
        bar.update(len(batch))
        return written

    def rewrite_flow(self, nodes: Sequence[BaseNode], *, embed_triples: bool, is_repair: bool = True) -> Flow[None]:
        """Write stored passages once more, if they are unchanged since they were read.

        With `embed_triples` every triple is embedded again, if the store's triples are embedded; if they are not, it
        loses a vector that a copy brought. Without `embed_triples` stored vectors are kept. Beside a repair nobody else
        writes.
        """
        checked = yield from ask(RunFunction(lambda: self._check_passages(nodes)))
        read_hashes = {node.node_id: node.hash for node in nodes}
        yield from self._write_flow(nodes, checked, embed_triples, is_repair=is_repair, read_hashes=read_hashes)

    def _write_flow(
        self,
        batch: Sequence[BaseNode],
        checked: _StorablePassages,
        embed_triples: bool = False,
        *,
        is_repair: bool = False,
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
                yield from self.prepare_flow(checked.dimension, lambda: self.average.learn(batch))
            if not is_repair:
                # Checked again, now that nobody else writes these passages.
                yield from check_owners_flow(self.tenancy, self.collections, batch)
            if read_hashes:
                stored = yield from self.reads.get_flow(list(ids), vectors=False)
                stored_hashes = {node.node_id: node.hash for node in stored}
                batch = [node for node in batch if read_hashes.get(node.node_id) == stored_hashes.get(node.node_id)]
            yield from self._keep_triples_flow(batch, checked.triples_by_node)
            call = _Call(claim, checked.triples_by_node, embed_triples, is_repair, read_hashes or {})
            had_vectors = self.collections.embeds_triples
            kept = (yield from self._write_locked_flow(batch, call)) if batch else set()
            if self.collections.embeds_triples and not had_vectors:  # another process has triples embedded by now
                written = [node for node in batch if node.node_id not in kept]
                kept |= (yield from self._write_locked_flow(written, call)) if written else set()
        finally:
            claim.release()
        return {node.node_id for node in batch} - kept

    def _keep_triples_flow(self, batch: Sequence[BaseNode], triples_by_node: dict[str, list[Triple]]) -> Flow[None]:
        """Have passages whose extraction failed keep the triples that the store has of their texts, not of links."""
        lacking = [node for node in batch if has_failed(node) and not without_links(triples_by_node[node.node_id])]
        failed = {node.node_id: node for node in lacking}
        stored = (yield from self.reads.get_flow(list(failed), vectors=False)) if failed else []
        for node in stored:
            if must_stay(node, failed[node.node_id]):
                links = triples_by_node[node.node_id]
                triples_by_node[node.node_id] = [*without_links(read_triples(node)), *links]

    def _write_locked_flow(self, batch: Sequence[BaseNode], call: _Call) -> Flow[set[str]]:
        """Write passages until none is lost to another writer; return the ids of those that were left as they are.

        Raises:
            TenantError: another tenant's writer was faster. Its passages are whole.

        """
        encoder = self.average.encoder
        named: dict[str, str | None] = {}
        others = _Others()
        while batch:
            ids = [node.node_id for node in batch]
            stored = yield from self.commits.read_stored_flow(ids, named, fields=[ALIASES], vectors=[DENSE])
            passages = yield from ask(RunFunction(partial(build_passage_points, encoder, batch, call.triples_by_node)))
            wanted = {
                triple.id(node.node_id): (triple, node)
                for node in batch
                for triple in call.triples_by_node[node.node_id]
            }
            triples = yield from self._build_triples_flow(wanted, stored.triples, call.embed_triples)
            drafts = {node_id: Draft(point, []) for node_id, point in zip(ids, passages, strict=True)}
            for point in triples:
                drafts[wanted[str(point.id)][1].node_id].triples.append(point)
            commit = self.commits.begin(
                call.claim, drafts, stored, lost_writes=others.lost_writes, is_repair=call.is_repair
            )
            yield from commit.store_triples_flow()
            yield from commit.store_passages_flow()
            keys = {key for triple, _ in wanted.values() for key in triple.entities}
            lost, linked = yield from commit.verify_flow(
                match_linked(keys) if keys else None, [ALIASES, *list_tenant_fields(self.tenancy)]
            )
            changes = self._find_links(wanted, triples, linked)
            yield from commit.finish_flow(lost, changes.build_operations(commit.is_own))
            named = {node_id: entry.named for node_id, entry in lost.items()}
            others.lost_writes.update(entry.write for entry in lost.values() if entry.write)
            batch = yield from self._meet_others_flow(
                [node for node in batch if node.node_id in lost], lost, call, others
            )
        if others.error is not None:
            raise others.error
        return others.spared

    def _meet_others_flow(
        self, nodes: Sequence[BaseNode], lost: Mapping[str, Lost], call: _Call, others: _Others
    ) -> Flow[list[BaseNode]]:
        """Return what to write in place of passages that were lost to another writer: they, or those that may stay.

        What may not be replaced is written once more as it is stored, since this call has changed its triples.
        """
        if nodes and not call.is_repair:
            try:
                yield from check_owners_flow(self.tenancy, self.collections, nodes)
            except TenantError as error:
                others.error = error
                others.spared.update(node.node_id for node in nodes)
        if not nodes or not (call.read_hashes or others.spared):
            return list(nodes)
        found = yield from self.reads.get_flow([node.node_id for node in nodes])
        stored = {node.node_id: node for node in found}
        for node_id in lost if call.read_hashes else ():
            stored_hash = stored[node_id].hash if node_id in stored else None
            if stored_hash != call.read_hashes.get(node_id):
                others.spared.add(node_id)
        if gone := [node_id for node_id in lost if node_id in others.spared and node_id not in stored]:
            writes = [write for node_id in gone if (write := lost[node_id].write)]
            match_ = models.Filter(must=[match_any("passage_id", gone), match_any(WRITE, writes)])
            yield from self.collections.delete_flow(self.collections.triples, match_)
        call.triples_by_node.update(
            {node_id: read_triples(stored[node_id]) for node_id in others.spared & stored.keys()}
        )
        return [
            stored[node.node_id] if node.node_id in others.spared else node
            for node in nodes
            if node.node_id not in gone
        ]

    def find_storable(self, passages: Sequence[BaseNode]) -> list[BaseNode]:
        """Return those of stored passages that could be stored as they are, with their embeddings."""
        storable = []
        for node in passages:
            with suppress(GeARError):
                self._check_passages([node])
                storable.append(node)
        return storable

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
            require_storable(node, triples_by_node[node.node_id])
        return _StorablePassages(triples_by_node, dimension)

    def _build_triples_flow(
        self, wanted: dict[str, tuple[Triple, BaseNode]], stored: Sequence[Any], embed_all: bool
    ) -> Flow[list[models.PointStruct]]:
        """Build the points of passages' triples. Stored triples keep their links, and their vectors unless `embed_all`.

        Others get vectors if the store's triples have some.
        """
        kept = [] if embed_all else [point for point in stored if DENSE in (point.vector or {})]
        vectors = {str(point.id): point.vector[DENSE] for point in kept}
        aliases = {str(point.id): read_sound_aliases(point.payload or {}) for point in stored}
        new = {point_id: triple.text for point_id, (triple, _) in wanted.items() if point_id not in vectors}
        if new and self.collections.embeds_triples:
            texts = sorted(set(new.values()), key=len)
            embedded = dict(zip(texts, (yield from ask(EmbedTexts(texts))), strict=True))
            vectors |= {point_id: embedded[text] for point_id, text in new.items()}
        return (yield from ask(RunFunction(partial(build_triple_points, self.collections, wanted, vectors, aliases))))

    def _find_links(
        self, wanted: dict[str, tuple[Triple, BaseNode]], points: Sequence[models.PointStruct], linked: Sequence[Any]
    ) -> LinkChanges:
        """Find the links that triples lack which were stored: those that other triples have of the same entities."""
        partners = index_linked(linked, self.tenancy)
        changes = LinkChanges()
        for point in points if partners else ():
            triple, node = wanted[str(point.id)]
            tenant = None if self.tenancy.field is None else node.metadata.get(self.tenancy.field)
            links = {key: set(partners.get((tenant, key), ())) for key in triple.entities}
            for key, alias in read_aliases(point.payload or {}):
                links[key].add(alias)
            changes.add(point, build_alias_payload(triple.entities, links))
        return changes


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

"""The passages that an update of a store has to extract, store and delete."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from llama_index.core.ingestion.pipeline import remove_unstable_values
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilter, MetadataFilters

from llama_index_gear.errors import ArgumentError, TenantError
from llama_index_gear.extraction.serialization import drop_handling
from llama_index_gear.flow import Flow, RunFunction, ask
from llama_index_gear.nodes import EXTRACTION_KEY, SOURCE_KEY, TRIPLES_KEY, has_failed, must_stay, with_metadata
from llama_index_gear.store.access import connection_of, name_collections, reads_of, tenancy_of
from llama_index_gear.store.collections import resolve_flow
from llama_index_gear.store.source_collection import SourceCollection, SourcePage
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.store.vector_store import GeARVectorStore


@dataclass(frozen=True)
class Target:
    """The writes of a collection's passages into a store.

    The engine knows a collection by its name and by its aliases, and a server has several addresses. So a collection
    is told by what it is: a `GeARVectorStore` marks those that it makes. Aliases can be made and moved at any time, so
    every write looks at what the names lead to, and goes to collections by their own names.

    Attributes:
        store: the store.
        source: the collection that is read.

    """

    store: GeARVectorStore
    source: SourceCollection

    def check_names(self) -> None:
        """Refuse a store that has the collection's name, at the same engine, before anything is asked.

        Raises:
            ArgumentError: the store is one.

        """
        names = (self.store.collection_name, self.store.triple_collection_name)
        if self.source.name in names and connection_of(self.store).engine == self.source.connection.engine:
            raise self._make_error(self.source.name, "that is read")

    def open_flow(self, tenant: str | None = None) -> Flow[GeARVectorStore]:
        """Return the store, or a tenant's, as it may be written into now.

        Raises:
            ArgumentError: a collection of the store is the one that is read, or may be it.

        """
        read = yield from self.source.resolve_flow()
        names = [self.store.collection_name, self.store.triple_collection_name]
        found = yield from connection_of(self.store).route_flow(resolve_flow(names))
        for name, collection in found.items():
            if not collection.is_marked:
                raise self._make_error(name, "that no GeARVectorStore made, and that may be the one that is read")
            if collection == read and _may_be_one(connection_of(self.store).place, self.source.connection.place):
                raise self._make_error(name, f"that is, or may be, the collection {self.source.name!r} that is read")
        store = name_collections(self.store, found)
        return store if tenant is None else store.for_tenant(tenant)

    def finish_flow(self) -> Flow[None]:
        """Finish or undo what calls left that ended early."""
        store = yield from self.open_flow()
        yield from ask(RunFunction(store.finish_writes, store.afinish_writes))

    def add_flow(self, nodes: Sequence[BaseNode]) -> Flow[None]:
        """Store passages."""
        store = yield from self.open_flow()
        yield from ask(RunFunction(partial(store.add, nodes), partial(store.async_add, nodes)))

    def delete_flow(self, nodes: Sequence[BaseNode]) -> Flow[None]:
        """Delete passages, tenant by tenant.

        Raises:
            TenantError: the store has tenants, and a passage has none; nothing is deleted.

        """
        tenancy = tenancy_of(self.store)
        by_tenant: dict[str | None, list[str]] = {}
        for node in nodes:
            if not tenancy.is_owned(node):
                raise TenantError(
                    f"the stored passage {node.node_id!r} is to be deleted and has no tenant under {tenancy.field!r}: "
                    "delete it through a store made without tenant_field, or add it again with its tenant"
                )
            tenant = None if tenancy.field is None else node.metadata[tenancy.field]
            by_tenant.setdefault(tenant, []).append(node.node_id)
        for tenant, ids in by_tenant.items():
            store = yield from self.open_flow(tenant)
            yield from ask(RunFunction(partial(store.delete_nodes, ids), partial(store.adelete_nodes, ids)))

    def _make_error(self, name: str, reason: str) -> ArgumentError:
        return ArgumentError(
            f"the store would write into the collection {name!r} {reason}: give it another name, "
            f"GeARVectorStore({self.source.name + '_gear'!r}, …)"
        )


def _may_be_one(place: str, other: str) -> bool:
    """Return False if two places have no collection in common: a folder, and what is elsewhere.

    Two addresses may be those of one server.
    """
    return place == other or not (Path(place).is_absolute() or Path(other).is_absolute())


_METADATA = "metadata"  # payload field whose members are a passage's metadata


def scope_filters(tenancy: Tenancy, filters: MetadataFilters | None) -> MetadataFilters | None:
    """Return these filters of a collection's points, and the condition that a point is the store's tenant's.

    A point names its tenant at the top of its payload, or in the object `metadata`.
    """
    field, tenant = tenancy.field, tenancy.tenant
    if field is None or tenant is None:
        return filters
    places: list[MetadataFilter | MetadataFilters] = [
        MetadataFilter(key=key, value=tenant) for key in (field, f"{_METADATA}.{field}")
    ]
    own = MetadataFilters(filters=places, condition=FilterCondition.OR)
    return own if filters is None else MetadataFilters(filters=[own, filters], condition=FilterCondition.AND)


def describe_extractor(extractor: TransformComponent) -> str:
    """Return those of an extractor's settings that change its triples.

    How a model is reached changes none: where it is, how its client waits and retries.
    """
    form = {name: value for name, value in extractor.to_dict().items() if name != "failed_runs"}
    return remove_unstable_values(json.dumps(drop_handling(form), sort_keys=True, default=str))


class Selection(NamedTuple):
    """The work for a page of passages.

    Attributes:
        wanted: the passages to extract: those that are new or changed, and those that failed, as stored.
        moved: stored passages that changed their tenant, to be deleted from the one that had them.
        stored: id → passage of the page as stored.

    """

    wanted: list[BaseNode]
    moved: list[BaseNode]
    stored: dict[str, BaseNode]


def select_flow(store: GeARVectorStore, page: SourcePage) -> Flow[Selection]:
    """Compare the passages of a page with those stored.

    Args:
        store: the store.
        page: the page.

    Raises:
        ArgumentError: another collection gave the store a passage of the same id, or something else did.
        TenantError: the store has tenants, and a passage has none.

    """
    if not page.passages:
        return Selection([], [], {})
    tenancy_of(store).assign_tenant(page.passages)
    source = page.passages[0].metadata[SOURCE_KEY]
    ids = [node.node_id for node in page.passages]
    reading = reads_of(store, all_tenants=True).get_flow(ids, vectors=False)
    stored_nodes = yield from connection_of(store).for_writes.route_flow(reading)
    stored = {node.node_id: node for node in stored_nodes}
    tenant_field = tenancy_of(store).field
    wanted: list[BaseNode] = []
    moved: list[BaseNode] = []
    for node in page.passages:
        before, source = stored.get(node.node_id), node.metadata[SOURCE_KEY]
        earlier = None if before is None else before.metadata.get(SOURCE_KEY)
        if before is not None and earlier is None:
            raise ArgumentError(
                f"the store has a passage {node.node_id!r} that no collection gave: a file, a client or a program did. "
                "It was left as it is: take another store, or delete that passage first"
            )
        if earlier is not None and any(earlier.get(key) != source[key] for key in ("collection", "place")):
            raise ArgumentError(
                f"the store has the passage {node.node_id!r} from collection {earlier['collection']!r} at "
                f"{earlier.get('place')!r}, not {source['collection']!r} at {source['place']!r}: give each collection "
                "a store of its own, or clear() this one first; if it is one collection that moved, "
                f"say place={earlier.get('place')!r}"
            )
        if before is None or earlier != source:
            wanted.append(node)
            if before is not None and tenant_field is not None:
                owner = before.metadata.get(tenant_field)
                moved += [before] if tenancy_of(store).is_owned(before) and owner != node.metadata[tenant_field] else []
        elif has_failed(before):
            wanted.append(with_metadata(before, {SOURCE_KEY: source}).model_copy(update={"embedding": node.embedding}))
    return Selection(wanted, moved, stored)


def keep_triples(node: BaseNode, stored: Mapping[str, BaseNode]) -> BaseNode | None:
    """Return a passage with what the store has of the same text, if that must stay (see `must_stay`).

    It keeps the earlier fingerprint, so that the next call extracts it again.

    Args:
        node: the passage as extracted.
        stored: id → passage as stored.

    Returns:
        The passage; None if its extraction replaces the stored one, or the store has none of this text.

    """
    before = stored.get(node.node_id)
    if before is None or not must_stay(before, node):
        return None
    kept = {key: before.metadata[key] for key in (TRIPLES_KEY, EXTRACTION_KEY) if key in before.metadata}
    fingerprint = (before.metadata.get(SOURCE_KEY) or {}).get("fingerprint", "")
    source = {**node.metadata[SOURCE_KEY], "fingerprint": fingerprint}
    return with_metadata(node, {**kept, SOURCE_KEY: source}, drop=(TRIPLES_KEY, EXTRACTION_KEY))

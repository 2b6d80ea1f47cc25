"""The store that takes a collection's passages: never the collection itself, whatever names lead to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from llama_index.core.schema import BaseNode

from llama_index_gear.errors import ArgumentError, TenantError
from llama_index_gear.flow import Flow, RunFunction, ask
from llama_index_gear.store.access import connection_of, name_collections, tenancy_of
from llama_index_gear.store.collections import resolve_flow
from llama_index_gear.store.source_collection import SourceCollection
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

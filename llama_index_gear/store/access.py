"""A store as the other rooms of this package use it: its flows, and what answers them. Users need none of it."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import NamedCollection
from llama_index_gear.store.connection import Connection
from llama_index_gear.store.passages import StoreReads
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.store.vector_store import GeARVectorStore


def reads_of(
    store: GeARVectorStore, filters: MetadataFilters | None = None, *, all_tenants: bool = False
) -> StoreReads:
    """Return the flows that read what matches the filters; the store's connection answers their requests.

    Args:
        store: the store.
        filters: conditions on passages; for triples, on the metadata of their passage. Default: none.
        all_tenants: read every tenant's passages; of a tenant's store, that tenant's. Default False.

    Raises:
        TenantError: the store is divided between tenants, and neither it nor the filters name one.

    """
    return store._reads(filters, all_tenants=all_tenants)


def connection_of(store: GeARVectorStore) -> Connection:
    """Return the connection, which answers the requests of the store's flows."""
    return store._connection


def tenancy_of(store: GeARVectorStore) -> Tenancy:
    """Return the division between tenants: the metadata field that names one, and the tenant of `for_tenant`."""
    return store._tenancy


def encoder_of(store: GeARVectorStore) -> WordEncoder:
    """Return the BM25 encoder of questions and passages."""
    return store._collections.bm25


def name_collections(store: GeARVectorStore, found: Mapping[str, NamedCollection]) -> GeARVectorStore:
    """Return the store under its collections' own names, which no alias can take from them.

    It writes into no collection that no `GeARVectorStore` made.

    Args:
        store: the store.
        found: name → the collection that it leads to (`resolve_flow`). Others are still to be made.

    """
    return store._name_collections(found)

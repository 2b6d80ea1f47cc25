"""What tenants that share a store may not do to one another."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import BaseNode

from llama_index_gear.errors import TenantError
from llama_index_gear.flow import Flow, QdrantCall
from llama_index_gear.store.collections import PAGE, Collections
from llama_index_gear.store.schema import point_id_of
from llama_index_gear.tenancy import Tenancy, is_name


def guarding(tenancy: Tenancy, collections: Collections, nodes: Sequence[BaseNode]) -> Flow[None]:
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
        (found,) = yield [QdrantCall("retrieve", {"collection_name": collections.passages, **arguments})]
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

"""What tenants that share a store may not do to one another."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.schema import BaseNode

from llama_index_gear.errors import TenantError
from llama_index_gear.steps import Call, Flow
from llama_index_gear.store_collections import PAGE, Collections
from llama_index_gear.store_layout import point_id_of


def guarding(tenant_field: str | None, collections: Collections, nodes: Sequence[BaseNode]) -> Flow[None]:
    """See to it that no node takes the place of another tenant's.

    Raises:
        TenantError: one would.

    """
    if tenant_field is None:
        return
    owners = {point_id_of(node.node_id): (node.node_id, node.metadata.get(tenant_field)) for node in nodes}
    ids = list(owners)
    for start in range(0, len(ids), PAGE):
        arguments = {"ids": ids[start : start + PAGE], "with_payload": [tenant_field], "with_vectors": False}
        (found,) = yield [Call("retrieve", {"collection_name": collections.passages, **arguments})]
        for point in found:
            node_id, owner = owners[str(point.id)]
            if (point.payload or {}).get(tenant_field) != owner:
                raise TenantError(
                    f"another tenant has a passage of the id {node_id!r}: ids must differ between tenants"
                )

"""Tenants that share a store: the tenant of a passage, and the filter that every request must have."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters

from llama_index_gear.errors import ArgumentError, TenantError, check_kind
from llama_index_gear.nodes import (
    CHAIN_KEY,
    DOC_KEYS,
    EXTRACTION_KEY,
    RANKS_KEY,
    SOURCE_KEY,
    TRIPLES_KEY,
    with_metadata,
)

_FIELD = re.compile(r"[^\W_][\w-]*", re.ASCII)
_RESERVED_KEYS = (*DOC_KEYS, TRIPLES_KEY, EXTRACTION_KEY, SOURCE_KEY, CHAIN_KEY, RANKS_KEY)
_ALL_MUST_HOLD = (None, FilterCondition.AND)


@dataclass(frozen=True)
class Tenancy:
    """The tenants of a store, and the one that it is bound to.

    Attributes:
        field: the metadata field that names a passage's tenant; None: there are no tenants.
        tenant: the tenant that the store is bound to; None: filters must name one.

    Raises:
        ArgumentError: a tenant without a field, an empty name, or a field that payloads use for something else.

    """

    field: str | None
    tenant: str | None

    def __post_init__(self) -> None:
        if self.tenant is not None and self.field is None:
            raise ArgumentError("a store without tenant_field has no tenants: make it with one")
        for name, value in (("tenant_field", self.field), ("tenant", self.tenant)):
            if value is not None and not is_name(value):
                raise ArgumentError(f"{name} must be a text that is not empty, got {value!r}")
        if self.field is not None and (self.field in _RESERVED_KEYS or not _FIELD.fullmatch(self.field)):
            raise ArgumentError(
                f"tenant_field {self.field!r} cannot be told apart in a payload: use letters, digits, - and _, the "
                f"first no _, and none of {', '.join(_RESERVED_KEYS)}"
            )

    @property
    def own_filters(self) -> MetadataFilters | None:
        """The filters that let through the tenant's passages alone; None if the store is bound to no tenant."""
        if self.field is None or self.tenant is None:
            return None
        own = MetadataFilter(key=self.field, value=self.tenant, operator=FilterOperator.EQ)
        return MetadataFilters(filters=[own], condition=FilterCondition.AND)

    def scope_filters(self, filters: MetadataFilters | None) -> MetadataFilters | None:
        """Return these filters, and the tenant's.

        Raises:
            TenantError: there are tenants, and neither the store nor the filters name one.
            ArgumentError: `filters` is no `MetadataFilters`.

        """
        check_filters(filters)
        says_nothing = filters is None or (not filters.filters and filters.condition in _ALL_MUST_HOLD)
        given = None if says_nothing else filters  # an empty group of OR or NOT is refused where it is translated
        if self.field is None:
            return given
        if (own := self.own_filters) is not None:
            both = [*own.filters, *([given] if given else [])]
            return MetadataFilters(filters=both, condition=FilterCondition.AND)
        if given is None or not self._names_tenant(given):
            raise TenantError(
                f"this store is divided by {self.field!r}: ask `store.for_tenant(…)`, or pass filters one of which is "
                f"MetadataFilter(key={self.field!r}, value=…), and all of which must hold"
            )
        return given

    def require_unscoped(self, call: str) -> None:
        """Refuse a call that concerns all tenants.

        Raises:
            TenantError: the store is bound to one tenant.

        """
        if self.tenant is not None:
            raise TenantError(f"{call} concerns all tenants: call it on the store, not on a tenant's")

    def assign_tenant(self, nodes: Sequence[BaseNode]) -> list[BaseNode]:
        """Return the nodes, each with its tenant in its metadata. A tenant that is added is hidden from models.

        Raises:
            TenantError: a node belongs to another tenant, or to none.

        """
        field = self.field
        if field is None:
            return list(nodes)
        result = []
        for node in nodes:
            owner = node.metadata.get(field, self.tenant)
            if not is_name(owner):
                raise TenantError(
                    f"node {node.node_id!r} has no tenant: its metadata must hold a text under {field!r}, or the store "
                    "(`for_tenant(…)`) or the extractor (`tenant=…`) must name one"
                )
            if self.tenant is not None and owner != self.tenant:
                raise TenantError(f"node {node.node_id!r} belongs to another tenant than {self.tenant!r}")
            result.append(node if field in node.metadata else with_metadata(node, {field: owner}))
        return result

    def is_owned(self, node: BaseNode) -> bool:
        """Return True if the node names its tenant, or if there are no tenants."""
        return self.field is None or is_name(node.metadata.get(self.field))

    def _names_tenant(self, filters: MetadataFilters) -> bool:
        if filters.condition not in _ALL_MUST_HOLD:
            return False
        return any(
            self._names_tenant(part)
            if isinstance(part, MetadataFilters)
            else part.key == self.field and part.operator in (None, FilterOperator.EQ) and is_name(part.value)
            for part in filters.filters
        )


def check_filters(filters: Any) -> None:
    """Refuse filters that are no `MetadataFilters` of LlamaIndex.

    Raises:
        ArgumentError: `filters` is something else.

    """
    hint = "write MetadataFilters(filters=[MetadataFilter(key=…, value=…)])"
    check_kind(MetadataFilters, hint=hint, optional=True, filters=filters)


def is_name(value: Any) -> bool:
    """Return True if the value can name a tenant: text that is not empty."""
    return isinstance(value, str) and bool(value)

"""The passages that an update of a store has to extract, store and delete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from llama_index.core.ingestion.pipeline import remove_unstable_values
from llama_index.core.schema import BaseNode, TransformComponent
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilter, MetadataFilters

from llama_index_gear.errors import ArgumentError
from llama_index_gear.extraction.serialization import drop_handling
from llama_index_gear.flow import Flow
from llama_index_gear.nodes import EXTRACTION_KEY, SOURCE_KEY, TRIPLES_KEY, has_failed, must_stay, with_metadata
from llama_index_gear.store.access import connection_of, reads_of, tenancy_of
from llama_index_gear.store.source_collection import SourcePage
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.store.vector_store import GeARVectorStore

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
    stored_nodes = yield from connection_of(store).route_flow(reading)
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

"""A collection that moved: a store knows its passages by their texts, and takes down where it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.flow import Flow, RunFunction, ask
from llama_index_gear.ingestion.targets import Target
from llama_index_gear.nodes import SOURCE_KEY, with_metadata
from llama_index_gear.store.access import connection_of, reads_of, tenancy_of
from llama_index_gear.store.source_collection import SourceCollection
from llama_index_gear.store.vector_store import GeARVectorStore

_BATCH = 256  # passages that are written at once
_FOLDERS = ("collection", "")  # of collections, in a folder of Qdrant's client and of the embedded engine


@dataclass
class StoredPassages:
    """The passages that a store has from a place, as (id, tenant).

    Attributes:
        same: those with the same texts in the collection.
        other: the others.

    """

    same: list[tuple[str, str | None]] = field(default_factory=list)
    other: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def are_known(self) -> bool:
        """True if half of the texts are the same, or more."""
        return len(self.same) >= len(self.other)


def find_stored_flow(
    store: GeARVectorStore, source: SourceCollection, *, moved: bool, has_own: bool
) -> Flow[dict[str, StoredPassages]]:
    """Return place → passages that the store has from there and that are known as those of this collection.

    The collection has moved from another place if that is a folder which holds it no more, or if `moved` says so.

    Args:
        store: the store.
        source: the collection.
        moved: it has moved, whether or not its earlier place has it too.
        has_own: look at its own place too.

    """
    found: dict[str, StoredPassages] = {}
    tenancy, own, offset = tenancy_of(store), source.connection.place, None
    reads = reads_of(store, all_tenants=True)
    while True:
        nodes, offset = yield from connection_of(store).route_flow(reads.imported_flow(source.name, offset=offset))
        by_place: dict[str, list[BaseNode]] = {}
        for node in nodes:
            by_place.setdefault(str(node.metadata[SOURCE_KEY]["place"]), []).append(node)
        for place, stored in by_place.items():
            if not (has_own if place == own else moved or _has_gone(place, source.name)):
                continue
            texts = yield from source.texts_flow([node.metadata[SOURCE_KEY]["point"] for node in stored])
            passages = found.setdefault(place, StoredPassages())
            for node in stored:
                is_same = texts.get(node.metadata[SOURCE_KEY]["point"]) == node.get_content(MetadataMode.NONE)
                tenant = None if tenancy.field is None else node.metadata.get(tenancy.field)
                (passages.same if is_same else passages.other).append((node.node_id, tenant))
        if offset is None:
            return {place: passages for place, passages in found.items() if passages.are_known}


def follow_flow(target: Target, *, moved: bool) -> Flow[None]:
    """Write into the passages that the store has from an earlier place of the collection where that is now.

    Those whose texts differ come first: if the call is killed, the others are known all the more.
    """
    source = target.source
    earlier = yield from find_stored_flow(target.store, source, moved=moved, has_own=False)
    for passages in earlier.values():
        for part in (passages.other, passages.same):
            by_tenant: dict[str | None, list[str]] = {}
            for node_id, tenant in part:
                by_tenant.setdefault(tenant, []).append(node_id)
            for tenant, ids in by_tenant.items():
                for start in range(0, len(ids), _BATCH):
                    store = yield from target.open_flow(tenant)
                    yield from _place_flow(store, ids[start : start + _BATCH], source.connection.place)


def _place_flow(store: GeARVectorStore, ids: list[str], place: str) -> Flow[None]:
    """Write into stored passages where their collection is."""
    nodes = yield from ask(RunFunction(partial(store.get_nodes, ids), partial(store.aget_nodes, ids)))
    placed = _place(nodes, place)
    add = partial(store.add, placed, if_unchanged_since=nodes)
    async_add = partial(store.async_add, placed, if_unchanged_since=nodes)
    yield from ask(RunFunction(add, async_add))


def _place(nodes: Sequence[BaseNode], place: str) -> list[BaseNode]:
    return [with_metadata(node, {SOURCE_KEY: {**node.metadata[SOURCE_KEY], "place": place}}) for node in nodes]


def _has_gone(place: str, name: str) -> bool:
    """Return True if a place is a folder that holds no collection of this name: of a server nobody can tell."""
    folder = Path(place)
    try:
        return folder.is_absolute() and not any((folder / part / name).is_dir() for part in _FOLDERS)
    except PermissionError:
        return False

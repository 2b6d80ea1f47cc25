"""A copy of a store's passages and triples to another store, as they are; say, from a folder to a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, NamedTuple

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError
from llama_index_gear.flow import Flow, QdrantCall, RunFunction, ask
from llama_index_gear.nodes import read_triples
from llama_index_gear.store.aliases import StoreAliases, keep_present
from llama_index_gear.store.average_length import get_embedded_text, get_word_weights
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import ALL, NONE, PARTIAL, Collections, resolve_flow
from llama_index_gear.store.commits import Draft
from llama_index_gear.store.connection import Connection
from llama_index_gear.store.filters import build_conditions
from llama_index_gear.store.locks import AcquirePassages, Claim
from llama_index_gear.store.schema import (
    NODE_FIELDS,
    SPARSE,
    WRITE,
    WRITE_FIELDS,
    build_triple_payload,
    get_passage_id,
    match_any,
    to_node,
)
from llama_index_gear.store.side_by_side import run_all_flow
from llama_index_gear.store.triple_vectors import keep_embedded_flow
from llama_index_gear.store.writes import StoreWrites, check_owners_flow


def copy_flow(
    source: StoreWrites,
    target: StoreWrites,
    at_target: Connection,
    filters: MetadataFilters | None,
    show_progress: bool,
) -> Flow[int]:
    """The flow of `copy_to`, which the source's connection answers; return the number of passages that were copied.

    It copies passages page by page, triples first; to a server, several pages side by side. So the target's passages
    have all their triples whenever the copy ends, and repeating it adds what is missing.
    """
    if source.tenancy.field != target.tenancy.field:
        raise ArgumentError(
            f"the stores' tenant_field differ ({source.tenancy.field!r} and {target.tenancy.field!r}): passages would "
            "belong to nobody, or to everybody"
        )
    dimension = yield from _read_dimension_flow(source)
    if dimension is None:
        return 0
    if (yield from at_target.route_flow(_read_dimension_flow(target))) is not None:
        target.collections.check_dimension([0.0] * dimension, "an embedding of the store that is copied")
    collections = source.collections
    average, wants_vectors = collections.average_words, collections.embeds_triples or target.collections.wants_vectors
    yield from at_target.route_flow(target.prepare_flow(dimension, lambda: average, wants_vectors))
    may_lack = collections.embedded in (NONE, PARTIAL)
    if may_lack:
        yield from at_target.route_flow(_note_lacking_flow(target))
    match_ = models.Filter(must=build_conditions(filters))
    counted = yield from ask(
        QdrantCall("count", {"collection_name": collections.passages, "count_filter": match_, "exact": True})
    )
    has_triples = yield from collections.triples_exist_flow()
    copied, size = 0, source.batch_size
    ahead = 2 * target.limit if target.limit > 1 else 1  # pages that are looked up at once
    with tqdm(total=counted.count, desc="Copying passages and triples", disable=not show_progress) as bar:
        for pages in collections.page_flows(collections.passages, match_, payload=NODE_FIELDS, limit=ahead * size):
            page = yield from pages
            flows = [
                _copy_page_flow(
                    source, target, at_target, page[start : start + size], match_, average, bar, has_triples
                )
                for start in range(0, len(page), size)
            ]
            counts: list[int] = yield from run_all_flow(flows, target.limit)
            copied += sum(counts)
    if may_lack:  # once more: another process may have embedded the target's triples meanwhile
        yield from at_target.route_flow(_note_lacking_flow(target))
    return copied


def _note_lacking_flow(target: StoreWrites) -> Flow[None]:
    """Note that some triples may lack a vector, where all had one."""
    target.collections.note((yield from ask(target.collections.look_again())))
    if target.collections.embedded == ALL:
        yield from keep_embedded_flow(target.collections, target.locks, PARTIAL)


def copy_links_flow(source: StoreAliases, target: StoreAliases, at_target: Connection) -> Flow[None]:
    """Make the links of the target whole after a copy: each stands in all triples of its names, or in none.

    The target has the links that were copied, and those of its own. A link that the source has not, though it has both
    names, was undone there: it is undone here too.
    """
    links = yield from at_target.route_flow(target.read_links_flow(None))
    if not links:
        return
    scope = source.tenancy.own_filters
    others = links - (yield from source.read_links_flow(scope))
    undone = keep_present(others, (yield from source.read_names_flow(others, scope)))
    yield from at_target.route_flow(target.relink_flow(lambda stored: stored - undone, is_scoped=False))


def _copy_page_flow(
    source: StoreWrites,
    target: StoreWrites,
    at_target: Connection,
    page: Sequence[Any],
    match_: models.Filter,
    average: float | None,
    bar: Any,
    has_triples: bool,
) -> Flow[int]:
    """Copy the passages of a page; return their number."""
    read = yield from _read_flow(source, page, match_, has_triples)
    if read.passages:
        yield from at_target.route_flow(_write_flow(target, read, average))
    bar.update(len(page))
    return len(read.passages)


class _Page(NamedTuple):
    """The points of passages, their nodes, and the points of the triples that they state."""

    passages: list[Any]
    nodes: list[BaseNode]
    triples: list[Any]


def _read_flow(source: StoreWrites, page: Sequence[Any], match_: models.Filter, has_triples: bool) -> Flow[_Page]:
    """Read the passages of a page that still match, and the triples that they state, under the lock of this process.

    A passage that lacks a triple is read again: another process may be replacing it. If it is still of the same write
    then, the triple is really missing.
    """
    ids, collections = {to_node(point).node_id for point in page}, source.collections
    claim = source.locks.claim(ids)
    page_filter = models.Filter(must=[*(match_.must or ()), models.HasIdCondition(has_id=[point.id for point in page])])
    last_torn: set[tuple[str, str | None]] = set()
    try:
        yield from ask(AcquirePassages(claim))
        while True:
            passages = yield from collections.scroll_flow(collections.passages, page_filter, payload=True, vectors=True)
            nodes = [to_node(point) for point in passages]
            triples: list[Any] = []
            if has_triples and passages:
                triple_filter = models.Filter(must=[match_any("passage_id", [node.node_id for node in nodes])])
                triples = yield from collections.scroll_flow(
                    collections.triples, triple_filter, payload=True, vectors=True
                )
            read = {str(point.id) for point in triples}
            stated = [{triple.id(node.node_id) for triple in read_triples(node)} for node in nodes]
            torn = {
                (node.node_id, point.payload.get(WRITE))
                for node, point, ids_ in zip(nodes, passages, stated, strict=True)
                if has_triples and not ids_ <= read
            }
            if torn <= last_torn:
                break
            last_torn = torn
    finally:
        claim.release()
    return _Page(passages, nodes, _keep_stated(passages, nodes, triples, set().union(*stated)))


def _keep_stated(
    passages: Sequence[Any], nodes: Sequence[BaseNode], triples: Sequence[Any], stated: Set[str]
) -> list[Any]:
    """Return the triples that the passages state, with what filters see of their passages.

    Others are of a write that another process has under way, or that died.
    """
    owners = {node.node_id: (node, point.payload.get(WRITE)) for node, point in zip(nodes, passages, strict=True)}
    kept = []
    for point in triples:
        if str(point.id) in stated and get_passage_id(point) in owners:
            node, write = owners[get_passage_id(point)]
            if point.payload.get(WRITE) != write:
                point = point.model_copy(update={"payload": {**point.payload, **build_triple_payload(node)}})
            kept.append(point)
    return kept


def _write_flow(target: StoreWrites, page: _Page, average: float | None) -> Flow[None]:
    """Write a page of passages with their triples; then delete the target's other triples of these passages.

    Passages whose words were weighed with another average length than the target's are weighed anew. An empty target
    takes the source's `average`.
    """
    passages: Sequence[Any] = page.passages
    nodes = page.nodes
    claim = target.locks.claim({node.node_id for node in nodes})
    try:
        yield from ask(AcquirePassages(claim))
        if average is not None and target.average.words != average:
            encoder = target.average.encoder
            passages = yield from ask(RunFunction(lambda: _weigh(passages, nodes, encoder)))
        drafts = {node.node_id: Draft(_make_point(point), []) for node, point in zip(nodes, passages, strict=True)}
        for point in page.triples:
            drafts[point.payload["passage_id"]].triples.append(_make_point(point))
        yield from _commit_flow(target, claim, nodes, drafts)
    finally:
        claim.release()


def _commit_flow(
    target: StoreWrites, claim: Claim, nodes: Sequence[BaseNode], drafts: Mapping[str, Draft]
) -> Flow[None]:
    """Commit passages until none is lost to another writer."""
    named: dict[str, str | None] = {}
    while drafts:
        nodes = [node for node in nodes if node.node_id in drafts]
        yield from check_owners_flow(target.tenancy, target.collections, nodes)
        stored = yield from target.commits.read_stored_flow(list(drafts), named)
        commit = target.commits.begin(claim, drafts, stored)
        yield from commit.store_triples_flow()
        yield from commit.store_passages_flow()
        lost, _ = yield from commit.verify_flow()
        yield from commit.finish_flow(lost)
        drafts = {node_id: drafts[node_id] for node_id in lost}
        named = {node_id: entry.named for node_id, entry in lost.items()}


def _make_point(point: Any) -> models.PointStruct:
    """Make a point to write of one that was read, without the names of writes."""
    payload = {key: value for key, value in point.payload.items() if key not in WRITE_FIELDS}
    return models.PointStruct.model_construct(id=point.id, payload=payload, vector=point.vector)


def _weigh(points: Sequence[Any], nodes: Sequence[BaseNode], encoder: WordEncoder) -> list[Any]:
    """Return the passages' points with the encoder's weights; weights of other words stay as they are."""
    weighed = []
    for point, node in zip(points, nodes, strict=True):
        text = get_embedded_text(node)
        if not encoder.fits(text, get_word_weights(point)):
            point = point.model_copy(update={"vector": {**point.vector, SPARSE: encoder.embed_document(text)}})
        weighed.append(point)
    return weighed


def check_apart_flow(source: Collections, target: Collections, at_target: Connection) -> Flow[None]:
    """Refuse a target of the same engine one of whose names leads to a collection of the source.

    Raises:
        ArgumentError: the target is one.

    """
    read = yield from _list_names_flow(source)
    written = yield from at_target.route_flow(_list_names_flow(target))
    if shared := read & written:
        raise ArgumentError(f"a store cannot be copied into itself: both stores have the collection {min(shared)!r}")


def _list_names_flow(collections: Collections) -> Flow[set[str]]:
    """List the own names of a store's collections."""
    names = [collections.passages, collections.triples]
    found = yield from resolve_flow(names)
    return {found[name].name if name in found else name for name in names}


def _read_dimension_flow(store: StoreWrites) -> Flow[int | None]:
    """Return the dimension of a store's collections; None if they do not exist."""
    exists = yield from store.collections.exists_flow()
    return store.collections.dimension if exists else None

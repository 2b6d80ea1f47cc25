"""Copying a store's passages and triples into another one, as they are: from the embedded engine to a server, say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError
from llama_index_gear.flow import Answer_co, Flow, Request, ask, ask_all, relay
from llama_index_gear.requests import QdrantCall
from llama_index_gear.store.collections import PAGE
from llama_index_gear.store.filters import conditions
from llama_index_gear.store.locks import AcquirePassages
from llama_index_gear.store.schema import NODE, any_of, to_node
from llama_index_gear.store.writes import StoreWrites, check_owners_flow

Result = TypeVar("Result")


@dataclass(frozen=True)
class StoreRequest(Request[Answer_co]):
    """A request, and which of the two stores it is for. Answer: the request's."""

    to_target: bool
    request: Request[Answer_co]


def copy_flow(
    source: StoreWrites, target: StoreWrites, filters: MetadataFilters | None, show_progress: bool
) -> Flow[int]:
    """The flow of `copy_to`: yields `StoreRequest`; returns how many passages were copied.

    A page of passages at a time, each page's triples before its passages: so the target's passages have all their
    triples whenever it ends, and repeating it mends what is missing.
    """
    if source.tenancy.field != target.tenancy.field:
        raise ArgumentError(
            f"the stores' tenant_field differ ({source.tenancy.field!r} and {target.tenancy.field!r}): passages would "
            "belong to nobody, or to everybody"
        )
    dimension = yield from _dimension_flow(source, to_target=False)
    if dimension is None:
        return 0
    if (yield from _dimension_flow(target, to_target=True)) is not None:
        target.collections.check_dimension([0.0] * dimension, "an embedding of the store that is copied")
    yield from _of_store_flow(target.prepare_flow(dimension), to_target=True)
    names = source.collections
    match_ = models.Filter(must=conditions(filters))
    counted = yield from ask(
        StoreRequest(
            False, QdrantCall("count", {"collection_name": names.passages, "count_filter": match_, "exact": True})
        )
    )
    has_triples = yield from _of_store_flow(names.triples_exist_flow(), to_target=False)
    copied, offset = 0, None
    with tqdm(total=counted.count, desc="Copying passages and triples", disable=not show_progress) as bar:
        while True:
            seen, offset = yield from _of_store_flow(
                names.page_flow(
                    names.passages, match_, payload=NODE, vectors=False, limit=source.batch_size, offset=offset
                ),
                to_target=False,
            )
            if seen:
                passages, triples = yield from _read_flow(source, seen, match_, has_triples)
                if passages:
                    yield from _write_flow(target, passages, triples)
                copied += len(passages)
            bar.update(len(seen))
            if offset is None:
                return copied


def _read_flow(
    source: StoreWrites, seen: Sequence[Any], match_: models.Filter, has_triples: bool
) -> Flow[tuple[list[Any], list[Any]]]:
    """The passages of a page that still match, and their triples, while nobody writes these in this process."""
    ids, names = {to_node(point).node_id for point in seen}, source.collections
    claim = source.locks.claim(ids)
    try:
        yield from ask(StoreRequest(False, AcquirePassages(claim)))
        still = models.Filter(must=[*(match_.must or ()), models.HasIdCondition(has_id=[point.id for point in seen])])
        passages = yield from _of_store_flow(
            names.scroll_flow(names.passages, still, payload=True, vectors=True), to_target=False
        )
        of_passages = models.Filter(must=[any_of("passage_id", [to_node(point).node_id for point in passages])])
        triples: list[Any] = []
        if has_triples and passages:
            triples = yield from _of_store_flow(
                names.scroll_flow(names.triples, of_passages, payload=True, vectors=True), to_target=False
            )
    finally:
        claim.release()
    return passages, triples


def _write_flow(target: StoreWrites, passages: Sequence[Any], triples: Sequence[Any]) -> Flow[None]:
    """A page's triples, then its passages; then what the target's stated besides goes."""
    nodes = [to_node(point) for point in passages]
    ids, names = {node.node_id for node in nodes}, target.collections
    claim = target.locks.claim(ids)
    try:
        yield from ask(StoreRequest(True, AcquirePassages(claim)))
        yield from _of_store_flow(check_owners_flow(target.tenancy, names, nodes), to_target=True)
        for start in range(0, len(triples), PAGE):
            yield from ask(_upsert(names.triples, triples[start : start + PAGE]))
        yield from ask(_upsert(names.passages, passages))
        outdated = models.Filter(
            must=[any_of("passage_id", list(ids))],
            must_not=[models.HasIdCondition(has_id=[point.id for point in triples])],
        )
        yield from _of_store_flow(names.delete_flow(names.triples, outdated), to_target=True)
    finally:
        claim.release()


def check_alike(source: Any, target: Any) -> None:
    """Refuse a target whose BM25 reads words otherwise, or that is the source.

    Raises:
        ArgumentError: it does.

    """
    for name in ("language", "bm25_avg_len"):
        one, other = getattr(source, name), getattr(target, name)
        if one != other:
            raise ArgumentError(
                f"the stores' {name} differ ({one!r} and {other!r}): BM25 weights would mean two things"
            )
    if source.client is target.client and source.collection_name == target.collection_name:
        raise ArgumentError("a store cannot be copied into itself")


def _upsert(name: str, points: Sequence[Any]) -> StoreRequest[Any]:
    written = [models.PointStruct.model_construct(id=p.id, payload=p.payload, vector=p.vector) for p in points]
    return StoreRequest(True, QdrantCall("upsert", {"collection_name": name, "points": written, "wait": True}))


def _dimension_flow(side: StoreWrites, *, to_target: bool) -> Flow[int | None]:
    """The dimension of a store's collections, if they exist."""
    exists = yield from _of_store_flow(side.collections.exists_flow(), to_target=to_target)
    return side.collections.dimension if exists else None


def _of_store_flow(flow: Flow[Result], *, to_target: bool) -> Flow[Result]:
    """A flow of one store, among those of two."""
    return relay(flow, lambda batch: ask_all([StoreRequest(to_target, request) for request in batch]))

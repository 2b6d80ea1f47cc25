"""A copy of a store's passages and triples to another store, as they are; say, from a folder to a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError
from llama_index_gear.flow import Answer_co, Flow, Request, ask, ask_all, relay
from llama_index_gear.requests import QdrantCall, RunFunction
from llama_index_gear.store.average_length import get_embedded_text, get_word_weights
from llama_index_gear.store.bm25 import WordEncoder
from llama_index_gear.store.collections import PAGE
from llama_index_gear.store.filters import build_conditions
from llama_index_gear.store.locks import AcquirePassages
from llama_index_gear.store.schema import NODE_FIELDS, SPARSE, match_any, to_node
from llama_index_gear.store.writes import StoreWrites, check_owners_flow

Result = TypeVar("Result")


@dataclass(frozen=True)
class StoreRequest(Request[Answer_co]):
    """A request to one of two stores. Answer: the request's."""

    to_target: bool
    request: Request[Answer_co]


def copy_flow(
    source: StoreWrites, target: StoreWrites, filters: MetadataFilters | None, show_progress: bool
) -> Flow[int]:
    """The flow of `copy_to`: it yields `StoreRequest`, and returns the number of passages that were copied.

    It copies one page of passages at a time, triples first. So the target's passages have all their triples whenever
    the copy ends, and repeating it adds what is missing.
    """
    if source.tenancy.field != target.tenancy.field:
        raise ArgumentError(
            f"the stores' tenant_field differ ({source.tenancy.field!r} and {target.tenancy.field!r}): passages would "
            "belong to nobody, or to everybody"
        )
    dimension = yield from _read_dimension_flow(source, to_target=False)
    if dimension is None:
        return 0
    if (yield from _read_dimension_flow(target, to_target=True)) is not None:
        target.collections.check_dimension([0.0] * dimension, "an embedding of the store that is copied")
    yield from route_flow(target.prepare_flow(dimension), to_target=True)
    average = yield from route_flow(source.average.read_flow(), to_target=False)
    if average is not None:
        yield from route_flow(target.average.settle_flow(lambda: average), to_target=True)
    collections = source.collections
    match_ = models.Filter(must=build_conditions(filters))
    counted = yield from ask(
        StoreRequest(
            False, QdrantCall("count", {"collection_name": collections.passages, "count_filter": match_, "exact": True})
        )
    )
    has_triples = yield from route_flow(collections.triples_exist_flow(), to_target=False)
    copied, offset = 0, None
    with tqdm(total=counted.count, desc="Copying passages and triples", disable=not show_progress) as bar:
        while True:
            page, offset = yield from route_flow(
                collections.page_flow(
                    collections.passages,
                    match_,
                    payload=NODE_FIELDS,
                    vectors=False,
                    limit=source.batch_size,
                    offset=offset,
                ),
                to_target=False,
            )
            if page:
                passages, triples = yield from _read_flow(source, page, match_, has_triples)
                if passages:
                    yield from _write_flow(target, passages, triples, average)
                copied += len(passages)
            bar.update(len(page))
            if offset is None:
                return copied


def _read_flow(
    source: StoreWrites, page: Sequence[Any], match_: models.Filter, has_triples: bool
) -> Flow[tuple[list[Any], list[Any]]]:
    """Read the passages of a page that still match, and their triples, under the lock of this process."""
    ids, collections = {to_node(point).node_id for point in page}, source.collections
    claim = source.locks.claim(ids)
    try:
        yield from ask(StoreRequest(False, AcquirePassages(claim)))
        page_filter = models.Filter(
            must=[*(match_.must or ()), models.HasIdCondition(has_id=[point.id for point in page])]
        )
        passages = yield from route_flow(
            collections.scroll_flow(collections.passages, page_filter, payload=True, vectors=True), to_target=False
        )
        triple_filter = models.Filter(must=[match_any("passage_id", [to_node(point).node_id for point in passages])])
        triples: list[Any] = []
        if has_triples and passages:
            triples = yield from route_flow(
                collections.scroll_flow(collections.triples, triple_filter, payload=True, vectors=True), to_target=False
            )
    finally:
        claim.release()
    return passages, triples


def _write_flow(
    target: StoreWrites, passages: Sequence[Any], triples: Sequence[Any], average: float | None
) -> Flow[None]:
    """Write a page's triples, then its passages; then delete the target's other triples of these passages.

    Passages whose words were weighed with another average length than the target's are weighed anew. An empty target
    takes the source's `average`.
    """
    nodes = [to_node(point) for point in passages]
    ids, collections = {node.node_id for node in nodes}, target.collections
    claim = target.locks.claim(ids)
    try:
        yield from ask(StoreRequest(True, AcquirePassages(claim)))
        yield from route_flow(check_owners_flow(target.tenancy, collections, nodes), to_target=True)
        for start in range(0, len(triples), PAGE):
            yield from ask(_build_upsert(collections.triples, triples[start : start + PAGE]))
        if average is not None:
            encoder = yield from route_flow(target.average.encoder_flow(lambda: average), to_target=True)
            if encoder.average_words != average:
                passages = yield from ask(StoreRequest(True, RunFunction(lambda: _weigh(passages, nodes, encoder))))
        yield from ask(_build_upsert(collections.passages, passages))
        outdated = models.Filter(
            must=[match_any("passage_id", list(ids))],
            must_not=[models.HasIdCondition(has_id=[point.id for point in triples])],
        )
        yield from route_flow(collections.delete_flow(collections.triples, outdated), to_target=True)
    finally:
        claim.release()


def _weigh(points: Sequence[Any], nodes: Sequence[BaseNode], encoder: WordEncoder) -> list[Any]:
    """Return the passages' points with the encoder's weights; weights of other words stay as they are."""
    weighed = []
    for point, node in zip(points, nodes, strict=True):
        text = get_embedded_text(node)
        if not encoder.fits(text, get_word_weights(point)):
            point = point.model_copy(update={"vector": {**point.vector, SPARSE: encoder.embed_document(text)}})
        weighed.append(point)
    return weighed


def check_compatible(source: Any, target: Any) -> None:
    """Refuse a target of another language, or that is the source.

    Raises:
        ArgumentError: the target is one of these.

    """
    if source.language != target.language:
        raise ArgumentError(
            f"the stores' language differ ({source.language!r} and {target.language!r}): BM25 weights would mean two "
            "things"
        )
    if source.client is target.client and source.collection_name == target.collection_name:
        raise ArgumentError("a store cannot be copied into itself")


def _build_upsert(name: str, points: Sequence[Any]) -> StoreRequest[Any]:
    copies = [
        models.PointStruct.model_construct(id=point.id, payload=point.payload, vector=point.vector) for point in points
    ]
    return StoreRequest(True, QdrantCall("upsert", {"collection_name": name, "points": copies, "wait": True}))


def _read_dimension_flow(store: StoreWrites, *, to_target: bool) -> Flow[int | None]:
    """Return the dimension of a store's collections; None if they do not exist."""
    exists = yield from route_flow(store.collections.exists_flow(), to_target=to_target)
    return store.collections.dimension if exists else None


def route_flow(flow: Flow[Result], *, to_target: bool) -> Flow[Result]:
    """Run a flow of one store, with its requests addressed to that store."""
    return relay(flow, lambda batch: ask_all([StoreRequest(to_target, request) for request in batch]))

"""Copying a store's passages and triples into another one, as they are: from the embedded engine to a server, say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from llama_index.core.vector_stores.types import MetadataFilters
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError
from llama_index_gear.steps import Call, Flow
from llama_index_gear.store_collections import PAGE
from llama_index_gear.store_layout import any_of, conditions, to_node
from llama_index_gear.store_writes import StoreWrites

Result = TypeVar("Result")


@dataclass(frozen=True)
class Sent:
    """A request, and which of the two stores it is for. Answer: the request's."""

    to_target: bool
    request: Any


def copying(
    source: StoreWrites, target: StoreWrites, filters: MetadataFilters | None, show_progress: bool
) -> Flow[int]:
    """The flow of `copy_to`: yields `Sent`; returns how many passages were copied.

    A page of passages at a time, each page's triples before its passages: so the target's passages have all their
    triples whenever it ends, and repeating it mends what is missing.
    """
    dimension = yield from _of(source, to_target=False)
    if dimension is None:
        return 0
    is_new = (yield from _of(target, to_target=True)) is None
    if not is_new:
        target.collections.check_dimension([0.0] * dimension, "an embedding of the store that is copied")
    yield from _sent(target.preparing(dimension), to_target=True)
    names, targets = source.collections, target.collections
    match_ = models.Filter(must=conditions(filters))
    (counted,) = yield [
        Sent(False, Call("count", {"collection_name": names.passages, "count_filter": match_, "exact": True}))
    ]
    has_triples = yield from _sent(names.triples_exist(), to_target=False)
    copied, offset = 0, None
    with tqdm(total=counted.count, desc="Copying passages and triples", disable=not show_progress) as bar:
        while True:
            passages, offset = yield from _sent(
                names.page(names.passages, match_, payload=True, vectors=True, limit=source.batch_size, offset=offset),
                to_target=False,
            )
            ids = [to_node(point).node_id for point in passages]
            triples: list[Any] = []
            mine = models.Filter(must=[any_of("passage_id", ids)])
            if ids and has_triples:
                triples = yield from _sent(
                    names.scrolling(names.triples, mine, payload=True, vectors=True), to_target=False
                )
                for start in range(0, len(triples), PAGE):
                    yield [_upserting(targets.triples, triples[start : start + PAGE])]
            if ids:
                yield [_upserting(targets.passages, passages)]
            if ids and not is_new:
                mine.must_not = [models.HasIdCondition(has_id=[point.id for point in triples])]
                yield [Sent(True, Call("delete", {"collection_name": targets.triples, "points_selector": mine}))]
            copied += len(ids)
            bar.update(len(ids))
            if offset is None:
                return copied


def check_alike(source: Any, target: Any) -> None:
    """Refuse a target whose BM25 reads words otherwise, or that is the source.

    Raises:
        ArgumentError: it does.

    """
    for name in ("language", "average_passage_words"):
        one, other = getattr(source, name), getattr(target, name)
        if one != other:
            raise ArgumentError(
                f"the stores' {name} differ ({one!r} and {other!r}): BM25 weights would mean two things"
            )
    if source.client is target.client and source.collection_name == target.collection_name:
        raise ArgumentError("a store cannot be copied into itself")


def _upserting(name: str, points: Sequence[Any]) -> Sent:
    written = [models.PointStruct.model_construct(id=p.id, payload=p.payload, vector=p.vector) for p in points]
    return Sent(True, Call("upsert", {"collection_name": name, "points": written, "wait": True}))


def _of(side: StoreWrites, *, to_target: bool) -> Flow[int | None]:
    """The dimension of a store's collections, if they exist."""
    exists = yield from _sent(side.collections.exists(), to_target=to_target)
    return side.collections.dimension if exists else None


def _sent(flow: Flow[Result], *, to_target: bool) -> Flow[Result]:
    """A flow of one store, among those of two."""
    try:
        batch = next(flow)
        while True:
            try:
                answers = yield [Sent(to_target, request) for request in batch]
            except Exception as error:  # noqa: BLE001 - handed on: the flow raises it, or knows what to do
                batch = flow.throw(error)
            else:
                batch = flow.send(answers)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]

"""Looking a store over and mending it: what killed calls, other programs or another embedding model left behind."""

from __future__ import annotations

import json
import statistics
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llama_index.core.schema import BaseNode, MetadataMode
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.errors import EmbeddingError, check_counts, check_kind
from llama_index_gear.flow import Flow, ask
from llama_index_gear.nodes import DOC_KEYS, read_triples
from llama_index_gear.requests import EmbedTexts, QdrantCall
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.filters import around
from llama_index_gear.store.passages import StoreReads
from llama_index_gear.store.schema import (
    DENSE,
    FACT,
    any_of,
    is_triple,
    passage_payload,
    read_passages,
    to_stored_triple,
    triple_payload,
)
from llama_index_gear.store.writes import StoreDeletes, StoreWrites

SAMPLE = 16
"""Passages and triples whose embeddings are made again, to compare."""
_PASSAGES = 256  # a page
# Cosines of a stored vector and the one that the model makes, below which another model made it. The words of a triple
# are known; those that a passage was embedded with may have been others than LlamaIndex's (other metadata, say).
_ALIKE_PASSAGES, _ALIKE_TRIPLES = 0.5, 0.9


@dataclass(frozen=True)
class StoreReport:
    """What `GeARVectorStore.check` found.

    Attributes:
        passages: how many there are.
        triples: how many there are.
        incomplete: ids of passages that lack triples which they state; mended by `repair`.
        outdated: ids of passages with triples that they no longer state, or whose metadata, or their triples', is not
            what filters see; mended by `repair`: what the passage itself has counts.
        without_tenant: ids of passages that no tenant has though the store has a `tenant_field`: nobody sees them. Add
            them again with their tenant, to the store itself (not to a tenant's, which may not take them).
        orphaned: ids of passages that are gone and left triples; these are deleted by `repair`.
        foreign: ids of points, in either collection, that hold no passage or no triple: another program wrote them.
            Nothing reads them; delete them with the store's `client`, or keep to another `collection_name`.
        passage_agreement: median cosine, of a sample, of a passage's stored embedding and the store's `embed_model`'s
            (1 if that made it); None if nothing was compared.
        triple_agreement: the same of triples, but the lowest.

    """

    passages: int = 0
    triples: int = 0
    incomplete: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    without_tenant: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    passage_agreement: float | None = None
    triple_agreement: float | None = None

    @property
    def wrong_embedder(self) -> bool:
        """Whether another model than the store's embedded passages (agreement below 0.5) or triples (below 0.9)."""
        bounds = ((self.passage_agreement, _ALIKE_PASSAGES), (self.triple_agreement, _ALIKE_TRIPLES))
        return any(agreement is not None and agreement < bound for agreement, bound in bounds)

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        wrong = (self.incomplete, self.outdated, self.orphaned, self.without_tenant, self.foreign)
        return not (any(wrong) or self.wrong_embedder)

    def __str__(self) -> str:
        """What is there and what is wrong, in one line."""
        wrong = [
            f"{len(ids)} {what} ({', '.join(ids[:3])}{', …' if len(ids) > 3 else ''})"
            for ids, what in (
                (self.incomplete, "passages without all of their triples"),
                (self.outdated, "passages with outdated triples or metadata"),
                (self.orphaned, "passages gone, whose triples are left"),
                (self.without_tenant, "passages that no tenant has"),
                (self.foreign, "points of another program"),
            )
            if ids
        ]
        if self.wrong_embedder:
            wrong.append(
                f"embedded by another model (cosines: passages {self.passage_agreement}, triples "
                f"{self.triple_agreement})"
            )
        return f"{self.passages} passages, {self.triples} triples: {'; '.join(wrong) or 'in order'}"


@dataclass
class _Wrong:
    """Ids of passages that something is wrong with, and how many triples belong to passages that are there."""

    incomplete: list[str] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)
    without_tenant: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    owned: int = 0


@dataclass(frozen=True)
class StoreChecks:
    """The side of a store that looks after it."""

    collections: Collections
    reads: StoreReads
    writes: StoreWrites
    deletes: StoreDeletes
    show_progress: bool

    def check_flow(self, sample_size: int) -> Flow[StoreReport]:
        """The flow of `check`."""
        check_counts(least=0, sample_size=sample_size)
        passages, has_passages = yield from self._count_flow(self.collections.passages)
        triples, has_triples = yield from self._count_flow(self.collections.triples)
        wrong = _Wrong()
        if has_passages:
            yield from self.collections.exists_flow()  # or complains of another program's collection
            wrong = yield from self._compare_flow(has_triples, passages)
        orphaned = (yield from self._orphans_flow(has_passages, triples, wrong)) if wrong.owned < triples else []
        return StoreReport(
            passages,
            triples,
            tuple(wrong.incomplete),
            tuple(wrong.outdated),
            tuple(orphaned),
            tuple(wrong.without_tenant),
            tuple(wrong.foreign),
            (yield from self._compare_passages_flow(sample_size)) if sample_size and has_passages else None,
            (yield from self._compare_triples_flow(sample_size)) if sample_size and has_triples else None,
        )

    def repair_flow(self, reembed: bool) -> Flow[StoreReport]:
        """The flow of `repair`."""
        check_kind(bool, reembed=reembed)
        report = yield from self.check_flow(SAMPLE)
        if report.wrong_embedder and not reembed:
            raise EmbeddingError(
                f"the store was filled with another embedding model than the one that it has now ({report}): give it "
                "the model that it was filled with, or call repair(reembed=True)"
            )
        if (
            yield from self.collections.exists_flow()
        ) and self.collections.dimension:  # LlamaIndex makes passages alone
            yield from self.writes.prepare_flow(self.collections.dimension)
        if reembed:
            yield from self._reembed_flow(report.passages)
        else:
            for some in _slices(sorted({*report.incomplete, *report.outdated}), _PASSAGES):
                nodes = yield from self.reads.get_flow(list(some), None, None)
                yield from self.writes.rewrite_flow(nodes, embed_triples=False)
        for some in _slices(report.orphaned, _PASSAGES):
            yield from self.deletes.delete_triples_flow(some)
        return (yield from self.check_flow(SAMPLE))

    def _count_flow(self, name: str) -> Flow[tuple[int, bool]]:
        """How many points a collection has, and whether it is there."""
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
        if not exists:
            return 0, False
        counted = yield from ask(QdrantCall("count", {"collection_name": name, "exact": True}))
        return counted.count, True

    def _compare_flow(self, has_triples: bool, passages: int) -> Flow[_Wrong]:
        """What is wrong with the passages that are there."""
        wrong, offset = _Wrong(), None
        with tqdm(total=passages, desc="Checking passages", disable=not self.show_progress) as bar:
            while True:
                points, offset = yield from self.collections.page_flow(
                    self.collections.passages, None, payload=True, vectors=False, limit=_PASSAGES, offset=offset
                )
                read, foreign = read_passages(points)
                wrong.foreign += foreign
                stored = (yield from self._triples_flow([node for node, _ in read])) if has_triples and read else {}
                for node, point in read:
                    own = stored.get(node.node_id, {})
                    wanted = {triple.id(node.node_id) for triple in read_triples(node)}
                    shared = _plain(triple_payload(node))
                    wrong.owned += len(own)
                    if not wanted <= own.keys():
                        wrong.incomplete.append(node.node_id)
                    if (
                        not own.keys() <= wanted
                        or any(_differs(payload, shared) for payload in own.values())
                        or _is_mislabelled(point.payload, _plain(passage_payload(node)))
                    ):
                        wrong.outdated.append(node.node_id)
                    if not self.writes.tenancy.is_owned(node):
                        wrong.without_tenant.append(node.node_id)
                bar.update(len(points))
                if offset is None:
                    return wrong

    def _triples_flow(self, nodes: Sequence[BaseNode]) -> Flow[dict[str, dict[str, dict[str, Any]]]]:
        """Passage → id of a triple of its → payload."""
        match_ = models.Filter(must=[any_of("passage_id", [node.node_id for node in nodes])])
        points = yield from self.collections.scroll_flow(self.collections.triples, match_, payload=True, vectors=False)
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for point in points:
            found.setdefault(point.payload["passage_id"], {})[str(point.id)] = point.payload
        return found

    def _orphans_flow(self, has_passages: bool, triples: int, wrong: _Wrong) -> Flow[list[str]]:
        """Passages that triples belong to, and that are not there; what is no triple goes among the foreign points."""
        missing: dict[str, None] = {}
        offset = None
        with tqdm(total=triples, desc="Checking triples", disable=not self.show_progress) as bar:
            while True:
                points, offset = yield from self.collections.page_flow(
                    self.collections.triples, None, payload=FACT, vectors=False, offset=offset
                )
                wrong.foreign += [str(point.id) for point in points if not is_triple(point)]
                owners = list({point.payload["passage_id"]: None for point in points if is_triple(point)})
                there = (yield from self.collections.present_flow(owners)) if has_passages else set()
                missing.update(dict.fromkeys(owner for owner in owners if owner not in there))
                bar.update(len(points))
                if offset is None:
                    return list(missing)

    def _compare_passages_flow(self, sample_size: int) -> Flow[float | None]:
        read, _ = read_passages((yield from self._sample_flow(self.collections.passages, sample_size)))
        texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node, _ in read]
        cosines = yield from self._cosines_flow([point for _, point in read], texts)
        return round(statistics.median(cosines), 4) if cosines else None

    def _compare_triples_flow(self, sample_size: int) -> Flow[float | None]:
        points = list(filter(is_triple, (yield from self._sample_flow(self.collections.triples, sample_size))))
        cosines = yield from self._cosines_flow(points, [to_stored_triple(point, 0.0).triple.text for point in points])
        return round(min(cosines), 4) if cosines else None

    def _sample_flow(self, name: str, sample_size: int) -> Flow[list[Any]]:
        """Points spread evenly over all ids, which are hashes: a repair that was killed leaves none out for long."""
        found = {}
        for number in range(sample_size):
            points, _ = yield from self.collections.page_flow(
                name,
                None,
                payload=True,
                vectors=[DENSE],
                limit=1,
                offset=str(uuid.UUID(int=number * 2**128 // sample_size)),
            )
            found.update({str(point.id): point for point in points})
        return [point for point in found.values() if DENSE in (point.vector or {})]

    def _cosines_flow(self, points: Sequence[Any], texts: Sequence[str]) -> Flow[list[float]]:
        if not points:
            return []
        vectors = yield from ask(EmbedTexts(texts))
        return [_cosine(point.vector[DENSE], vector) for point, vector in zip(points, vectors, strict=True)]

    def _reembed_flow(self, passages: int) -> Flow[None]:
        """Every passage's and every triple's vectors, by the store's model; the ids stay, and so does their order."""
        offset = None
        with tqdm(total=passages, desc="Embedding again", disable=not self.show_progress) as bar:
            while passages:
                points, offset = yield from self.collections.page_flow(
                    self.collections.passages,
                    None,
                    payload=True,
                    vectors=False,
                    limit=self.writes.batch_size,
                    offset=offset,
                )
                nodes = [node for node, _ in read_passages(points)[0]]
                if nodes:
                    texts = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
                    vectors = yield from ask(EmbedTexts(texts))
                    for node, vector in zip(nodes, vectors, strict=True):
                        node.embedding = vector
                    yield from self.writes.rewrite_flow(nodes, embed_triples=True)
                bar.update(len(points))
                if offset is None:
                    return


def _plain(payload: dict[str, Any]) -> dict[str, Any]:
    """As an engine gives it back."""
    return json.loads(json.dumps(payload))  # type: ignore[no-any-return]


def _is_mislabelled(payload: dict[str, Any], own: dict[str, Any]) -> bool:
    """Whether filters see something else than the passage has. LlamaIndex's own store names no document "None"."""
    keys = (payload.keys() | own.keys()) - {"_node_content", "_node_type"}
    keys -= {key for key in DOC_KEYS if payload.get(key) == "None"}
    return any(not _is_same(payload.get(key), own.get(key)) for key in keys)


def _differs(payload: dict[str, Any], shared: dict[str, Any]) -> bool:
    return any(not _is_same(payload.get(key), value) for key, value in shared.items())


def _is_same(stored: Any, own: Any) -> bool:
    """The engine has what the passage has, but for the last places of floats, which it loses."""
    match stored, own:
        case dict(), dict():
            return stored.keys() == own.keys() and all(_is_same(stored[key], own[key]) for key in own)
        case list(), list():
            return len(stored) == len(own) and all(map(_is_same, stored, own))
        case (float(), int() | float()) | (int(), float()):
            low, high = around(float(own))
            return low <= float(stored) <= high
    return bool(stored == own)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) != len(other):
        return 0.0
    a, b = np.asarray(one), np.asarray(other)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))


def _slices(ids: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))

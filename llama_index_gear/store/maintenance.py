"""Checks and repairs of a store, after killed calls, writes of other programs or another embedding model."""

from __future__ import annotations

import json
import statistics
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llama_index.core.schema import BaseNode
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.counts import count
from llama_index_gear.errors import EmbeddingError, check_counts, check_kind
from llama_index_gear.flow import Flow, ask
from llama_index_gear.nodes import DOC_KEYS, read_triples
from llama_index_gear.requests import EmbedTexts, QdrantCall
from llama_index_gear.store.aliases import StoreAliases
from llama_index_gear.store.average_length import get_embedded_text
from llama_index_gear.store.collections import Collections
from llama_index_gear.store.deletes import StoreDeletes
from llama_index_gear.store.filters import bound_float
from llama_index_gear.store.passages import StoreReads
from llama_index_gear.store.schema import (
    DENSE,
    TRIPLE_FIELDS,
    WRITE_FIELDS,
    build_passage_payload,
    build_triple_payload,
    is_triple,
    match_any,
    read_passages,
    to_stored_triple,
)
from llama_index_gear.store.unfinished import UnfinishedWrites
from llama_index_gear.store.writes import StoreWrites

SAMPLE = 16
"""Number of passages, and of triples, that `check` embeds again to compare the vectors."""
_PAGE = 256  # passages a page
# If a stored vector's cosine with the model's is below these, another model made it. A triple's text is known; a
# passage may have been embedded with another text than LlamaIndex's (with other metadata, say).
_MIN_PASSAGE_COSINE, _MIN_TRIPLE_COSINE = 0.5, 0.9


@dataclass(frozen=True)
class StoreReport:
    """The result of `GeARVectorStore.check`.

    Attributes:
        passages: number of passages.
        triples: number of triples.
        incomplete: ids of passages with a triple that is not stored. `repair` stores it.
        outdated: ids of passages with a stored triple that they no longer state, or with metadata that differs from
            what filters see of them or of their triples. `repair` makes all follow the passage itself.
        without_tenant: ids of passages without a tenant, in a store with a `tenant_field`: no tenant sees them. Add
            them again with their tenant, through the whole store (a tenant's store may not take them).
        orphaned: ids of deleted passages whose triples are still stored. `repair` deletes these.
        foreign: ids of points, in either collection, that hold no passage or no triple: another program wrote them.
            Nothing reads them. Delete them with the store's `client`, or use another `collection_name`.
        unlinked: ids of passages with a triple that lacks an alias linked with one of its entities, or has one that no
            triple names any more. `repair` makes all follow the links.
        passage_agreement: median cosine, over a sample, between a passage's stored embedding and the one that
            `embed_model` makes (1 if it made the stored one); None if nothing was compared.
        triple_agreement: lowest such cosine over a sample of triples; None if nothing was compared.
        bm25_drift: number of passages of a sample whose BM25 weights were made with another average length than the
            store's. If passages have become longer or shorter by half since the store learned it, these are all:
            `repair` learns it anew. It makes the weights of all such passages again.

    """

    passages: int = 0
    triples: int = 0
    incomplete: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    without_tenant: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    unlinked: tuple[str, ...] = ()
    passage_agreement: float | None = None
    triple_agreement: float | None = None
    bm25_drift: int = 0

    @property
    def wrong_embedder(self) -> bool:
        """True if another model embedded the passages (agreement below 0.5) or the triples (below 0.9)."""
        cosines = ((self.passage_agreement, _MIN_PASSAGE_COSINE), (self.triple_agreement, _MIN_TRIPLE_COSINE))
        return any(agreement is not None and agreement < minimum for agreement, minimum in cosines)

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        faults = (self.incomplete, self.outdated, self.orphaned, self.without_tenant, self.foreign, self.unlinked)
        return not (any(faults) or self.wrong_embedder or self.bm25_drift)

    def __str__(self) -> str:
        """Format the counts and the faults as one line."""
        faults = [
            f"{count(len(ids), noun)} {fault} ({', '.join(ids[:3])}{', …' if len(ids) > 3 else ''})"
            for ids, noun, fault in (
                (self.incomplete, "passage", "with missing triples"),
                (self.outdated, "passage", "with outdated triples or metadata"),
                (self.orphaned, "passage", "gone, whose triples are left"),
                (self.without_tenant, "passage", "that no tenant has"),
                (self.foreign, "point", "of another program"),
                (self.unlinked, "passage", "whose triples lack links of aliases, or have outdated ones"),
            )
            if ids
        ]
        if self.wrong_embedder:
            faults.append(
                f"embedded by another model (cosines: passages {self.passage_agreement}, triples "
                f"{self.triple_agreement})"
            )
        if self.bm25_drift:
            faults.append(f"{count(self.bm25_drift, 'sampled passage')} with BM25 weights of another average length")
        return f"{count(self.passages, 'passage')}, {count(self.triples, 'triple')}: {'; '.join(faults) or 'in order'}"


@dataclass
class _Findings:
    """Ids of passages and points with faults, and the number of triples whose passages are stored."""

    incomplete: list[str] = field(default_factory=list)
    outdated: list[str] = field(default_factory=list)
    without_tenant: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    owned: int = 0


@dataclass(frozen=True)
class StoreChecks:
    """The flows that check and repair a store."""

    collections: Collections
    reads: StoreReads
    writes: StoreWrites
    deletes: StoreDeletes
    aliases: StoreAliases
    unfinished: UnfinishedWrites
    show_progress: bool

    def check_flow(self, sample_size: int) -> Flow[StoreReport]:
        """The flow of `check`."""
        check_counts(least=0, sample_size=sample_size)
        passages, has_passages = yield from self._count_flow(self.collections.passages)
        triples, has_triples = yield from self._count_flow(self.collections.triples)
        findings = _Findings()
        if has_passages:
            yield from self.collections.exists_flow()  # raises if the collection is another program's
            findings = yield from self._find_faults_flow(has_triples, passages)
        orphaned = (
            (yield from self._find_orphans_flow(has_passages, triples, findings)) if findings.owned < triples else []
        )
        sample: list[Any] = []
        if sample_size and has_passages:
            sample = yield from self._read_sample_flow(self.collections.passages, sample_size)
        return StoreReport(
            passages,
            triples,
            tuple(findings.incomplete),
            tuple(findings.outdated),
            tuple(orphaned),
            tuple(findings.without_tenant),
            tuple(findings.foreign),
            tuple((yield from self.aliases.find_outdated_flow()) if has_passages and has_triples else ()),
            (yield from self._compare_passages_flow(sample)),
            (yield from self._compare_triples_flow(sample_size)) if sample_size and has_triples else None,
            (yield from self._count_drift_flow(sample)),
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
        ) and self.collections.dimension:  # LlamaIndex's own store makes no collection of triples
            yield from self.writes.prepare_flow(self.collections.dimension)
        average = (yield from self.writes.average.expect_flow()) if report.bm25_drift else None
        if average is not None:
            self.writes.locks.average_words = average
        if reembed:
            yield from self._reembed_flow(report.passages)
        else:
            for passage_ids in _split(sorted({*report.incomplete, *report.outdated}), _PAGE):
                nodes = yield from self.reads.get_flow(list(passage_ids), None, None)
                yield from self.writes.rewrite_flow(nodes, embed_triples=False)
            if average is not None:
                yield from self._weigh_flow(report.passages, average)
        for passage_ids in _split(report.orphaned, _PAGE):
            yield from self.deletes.delete_triples_flow(passage_ids)
        yield from self.unfinished.finish_flow()
        yield from self.aliases.repair_flow()
        return (yield from self.check_flow(SAMPLE))

    def _count_flow(self, name: str) -> Flow[tuple[int, bool]]:
        """Count the points of a collection; return also True if it exists."""
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
        if not exists:
            return 0, False
        counted = yield from ask(QdrantCall("count", {"collection_name": name, "exact": True}))
        return counted.count, True

    def _find_faults_flow(self, has_triples: bool, passages: int) -> Flow[_Findings]:
        """Compare every stored passage with its triples; collect the faults."""
        findings, offset = _Findings(), None
        with tqdm(total=passages, desc="Checking passages", disable=not self.show_progress) as bar:
            while True:
                points, offset = yield from self.collections.page_flow(
                    self.collections.passages, None, payload=True, vectors=False, limit=_PAGE, offset=offset
                )
                entries, foreign = read_passages(points)
                findings.foreign += foreign
                stored = (
                    (yield from self._read_triples_flow([node for node, _ in entries]))
                    if has_triples and entries
                    else {}
                )
                for node, point in entries:
                    payloads = stored.get(node.node_id, {})
                    wanted = {triple.id(node.node_id) for triple in read_triples(node)}
                    shared = _round_trip(build_triple_payload(node))
                    findings.owned += len(payloads)
                    if not wanted <= payloads.keys():
                        findings.incomplete.append(node.node_id)
                    if (
                        not payloads.keys() <= wanted
                        or any(_differs(payload, shared) for payload in payloads.values())
                        or _is_payload_outdated(point.payload, _round_trip(build_passage_payload(node)))
                    ):
                        findings.outdated.append(node.node_id)
                    if not self.writes.tenancy.is_owned(node):
                        findings.without_tenant.append(node.node_id)
                bar.update(len(points))
                if offset is None:
                    return findings

    def _read_triples_flow(self, nodes: Sequence[BaseNode]) -> Flow[dict[str, dict[str, dict[str, Any]]]]:
        """Read the payloads of the passages' triples: passage id → triple id → payload."""
        match_ = models.Filter(must=[match_any("passage_id", [node.node_id for node in nodes])])
        points = yield from self.collections.scroll_flow(self.collections.triples, match_, payload=True, vectors=False)
        payloads: dict[str, dict[str, dict[str, Any]]] = {}
        for point in points:
            payloads.setdefault(point.payload["passage_id"], {})[str(point.id)] = point.payload
        return payloads

    def _find_orphans_flow(self, has_passages: bool, triples: int, findings: _Findings) -> Flow[list[str]]:
        """Find the passage ids that triples name and that are not stored.

        Points that hold no triple are added to the foreign ones.
        """
        missing: dict[str, None] = {}
        offset = None
        with tqdm(total=triples, desc="Checking triples", disable=not self.show_progress) as bar:
            while True:
                points, offset = yield from self.collections.page_flow(
                    self.collections.triples, None, payload=TRIPLE_FIELDS, vectors=False, offset=offset
                )
                findings.foreign += [str(point.id) for point in points if not is_triple(point)]
                passage_ids = list({point.payload["passage_id"]: None for point in points if is_triple(point)})
                present = (yield from self.collections.find_present_flow(passage_ids)) if has_passages else set()
                missing.update(dict.fromkeys(passage_id for passage_id in passage_ids if passage_id not in present))
                bar.update(len(points))
                if offset is None:
                    return list(missing)

    def _compare_passages_flow(self, sample: Sequence[Any]) -> Flow[float | None]:
        passages, _ = read_passages(sample)
        texts = [get_embedded_text(node) for node, _ in passages]
        cosines = yield from self._compute_cosines_flow([point for _, point in passages], texts)
        return round(statistics.median(cosines), 4) if cosines else None

    def _compare_triples_flow(self, sample_size: int) -> Flow[float | None]:
        points = list(filter(is_triple, (yield from self._read_sample_flow(self.collections.triples, sample_size))))
        cosines = yield from self._compute_cosines_flow(
            points, [to_stored_triple(point, 0.0).triple.text for point in points]
        )
        return round(min(cosines), 4) if cosines else None

    def _count_drift_flow(self, sample: Sequence[Any]) -> Flow[int]:
        average = (yield from self.writes.average.expect_flow()) if sample else None
        return len((yield from self.writes.average.find_drift_flow(sample, average)))

    def _read_sample_flow(self, name: str, sample_size: int) -> Flow[list[Any]]:
        """Read points spread evenly over all ids.

        Ids are hashes, so a sample also has points that a killed repair did not reach.
        """
        sample = {}
        for number in range(sample_size):
            points, _ = yield from self.collections.page_flow(
                name,
                None,
                payload=True,
                vectors=True,
                limit=1,
                offset=str(uuid.UUID(int=number * 2**128 // sample_size)),
            )
            sample.update({str(point.id): point for point in points})
        return [point for point in sample.values() if DENSE in (point.vector or {})]

    def _compute_cosines_flow(self, points: Sequence[Any], texts: Sequence[str]) -> Flow[list[float]]:
        if not points:
            return []
        vectors = yield from ask(EmbedTexts(texts))
        return [_compute_cosine(point.vector[DENSE], vector) for point, vector in zip(points, vectors, strict=True)]

    def _reembed_flow(self, passages: int) -> Flow[None]:
        """Embed all passages and triples again with the store's model; their ids stay, and so does their order."""
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
                    texts = [get_embedded_text(node) for node in nodes]
                    vectors = yield from ask(EmbedTexts(texts))
                    for node, vector in zip(nodes, vectors, strict=True):
                        node.embedding = vector
                    yield from self.writes.rewrite_flow(nodes, embed_triples=True)
                bar.update(len(points))
                if offset is None:
                    return

    def _weigh_flow(self, passages: int, average: float) -> Flow[None]:
        """Make the BM25 weights anew of all passages whose weights were made with another average length."""
        offset = None
        with tqdm(total=passages, desc="Weighing words again", disable=not self.show_progress) as bar:
            while passages:
                points, offset = yield from self.collections.page_flow(
                    self.collections.passages,
                    None,
                    payload=True,
                    vectors=True,
                    limit=self.writes.batch_size,
                    offset=offset,
                )
                nodes = yield from self.writes.average.find_drift_flow(points, average)
                if nodes:
                    yield from self.writes.rewrite_flow(nodes, embed_triples=False)
                bar.update(len(points))
                if offset is None:
                    return


def _round_trip(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload as an engine returns it."""
    return json.loads(json.dumps(payload))  # type: ignore[no-any-return]


def _is_payload_outdated(payload: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Return True if filters see another value than the passage has.

    LlamaIndex's own store writes "None" where a passage has no document; that is no fault.
    """
    keys = (payload.keys() | expected.keys()) - {"_node_content", "_node_type", *WRITE_FIELDS}
    keys -= {key for key in DOC_KEYS if payload.get(key) == "None"}
    return any(not _is_equal(payload.get(key), expected.get(key)) for key in keys)


def _differs(payload: dict[str, Any], shared: dict[str, Any]) -> bool:
    return any(not _is_equal(payload.get(key), value) for key, value in shared.items())


def _is_equal(stored: Any, expected: Any) -> bool:
    """Return True if the stored value is the expected one; floats may differ in the last places."""
    match stored, expected:
        case dict(), dict():
            return stored.keys() == expected.keys() and all(_is_equal(stored[key], expected[key]) for key in expected)
        case list(), list():
            return len(stored) == len(expected) and all(map(_is_equal, stored, expected))
        case (float(), int() | float()) | (int(), float()):
            low, high = bound_float(float(expected))
            return low <= float(stored) <= high
    return bool(stored == expected)


def _compute_cosine(one: Sequence[float], other: Sequence[float]) -> float:
    if len(one) != len(other):
        return 0.0
    a, b = np.asarray(one), np.asarray(other)
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-12))


def _split(ids: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))

"""Checks and repairs of a store, after killed calls, writes of other programs or another embedding model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.schema import BaseNode
from qdrant_client.http import models
from tqdm.auto import tqdm

from llama_index_gear.characters import count
from llama_index_gear.errors import EmbeddingError, check_counts
from llama_index_gear.flow import EmbedTexts, Flow, QdrantCall, ask
from llama_index_gear.store.aliases import StoreAliases
from llama_index_gear.store.average_length import get_embedded_text
from llama_index_gear.store.collections import ALL, Collections
from llama_index_gear.store.deletes import StoreDeletes, UnfinishedWrites
from llama_index_gear.store.passage_checks import (
    Owner,
    find_settings_faults,
    is_incomplete,
    is_outdated,
    make_writable,
    read_owners,
)
from llama_index_gear.store.schema import (
    DENSE,
    SPARSE,
    TRIPLE_FIELDS,
    can_be_replaced,
    get_passage_id,
    is_triple,
    match_any,
    point_id_of,
)
from llama_index_gear.store.vector_checks import MIN_PASSAGE_COSINE, MIN_TRIPLE_COSINE, Agreement, VectorChecks
from llama_index_gear.store.writes import StoreWrites

SAMPLE = 16
"""Number of passages, and of triples, that `check` embeds again to compare the vectors: more, if they are short."""
_PAGE = 256  # passages a page


@dataclass(frozen=True)
class StoreReport:
    """The result of `GeARVectorStore.check`.

    Attributes:
        passages: number of passages.
        triples: number of triples.
        incomplete: ids of passages with a triple that is not stored. `repair` stores it.
        outdated: ids of passages with a stored triple that they no longer state, or with a field, of theirs or of their
            triples, that is not what the passage itself says: metadata that filters see, an entity, a link of another
            form. `repair` makes all follow the passage itself.
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
        without_vectors: ids of passages that have no embedding or no BM25 weights, or a triple of which has none; or
            that have, in a sample, those of another text. `repair` makes them. A triple without a vector is a fault
            where all are embedded.
        settings: what searches lack in the collections' settings, a sentence each. `repair` makes an index that is
            missing. Vectors of another kind stay as they are: copy the store (`copy_to`) into a new one.

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
    without_vectors: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def wrong_embedder(self) -> bool:
        """True if another model embedded the passages (agreement below 0.5) or the triples (below 0.9)."""
        cosines = ((self.passage_agreement, MIN_PASSAGE_COSINE), (self.triple_agreement, MIN_TRIPLE_COSINE))
        return any(agreement is not None and agreement < minimum for agreement, minimum in cosines)

    @property
    def ok(self) -> bool:
        """True if nothing is wrong."""
        faults = (self.incomplete, self.outdated, self.orphaned, self.without_tenant, self.foreign, self.unlinked)
        more = (self.without_vectors, self.settings)
        return not (any(faults) or any(more) or self.wrong_embedder or self.bm25_drift)

    def __str__(self) -> str:
        """Format the counts and the faults as one line."""
        faults = [
            f"{count(len(ids), noun)} {fault} ({', '.join(ids[:3])}{', …' if len(ids) > 3 else ''})"
            for ids, noun, fault in (
                (self.incomplete, "passage", "with missing triples"),
                (self.outdated, "passage", "with outdated or damaged triples or metadata"),
                (self.orphaned, "passage", "gone, whose triples are left"),
                (self.without_tenant, "passage", "that no tenant has"),
                (self.foreign, "point", "of another program"),
                (self.unlinked, "passage", "whose triples lack links of aliases, or have outdated ones"),
                (self.without_vectors, "passage", "with vectors that are missing or of another text"),
            )
            if ids
        ]
        faults += self.settings
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
    writes: StoreWrites
    deletes: StoreDeletes
    aliases: StoreAliases
    unfinished: UnfinishedWrites
    show_progress: bool

    @property
    def _vectors(self) -> VectorChecks:
        return VectorChecks(self.collections, self.writes.average)

    def check_flow(self, sample_size: int) -> Flow[StoreReport]:
        """The flow of `check`."""
        report, _ = yield from self._examine_flow(sample_size)
        return report

    def _examine_flow(self, sample_size: int) -> Flow[tuple[StoreReport, Agreement]]:
        """Return the report of a check, and how far the vectors agree."""
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
        unlinked = (yield from self.aliases.find_outdated_flow()) if has_passages and has_triples else []
        searched = [self.collections.passages, *([self.collections.triples] if has_triples else [])]
        settings: list[str] = []
        without_vectors: dict[str, None] = {}
        for name in searched if has_passages else ():
            info = yield from ask(QdrantCall("get_collection", {"collection_name": name}))
            settings += find_settings_faults(name, info, self.writes.list_fields()[name])
            for vector in (DENSE, SPARSE) if SPARSE in (info.config.params.sparse_vectors or {}) else (DENSE,):
                if vector == SPARSE or name == self.collections.passages or self.collections.embedded == ALL:
                    missing = yield from self._vectors.find_missing_flow(name, vector)
                    without_vectors.update(dict.fromkeys(missing))
        agreement = yield from self._vectors.compare_flow(searched if has_passages else (), sample_size)
        report = StoreReport(
            passages,
            triples,
            tuple(findings.incomplete),
            tuple(findings.outdated),
            tuple(orphaned),
            tuple(findings.without_tenant),
            tuple(findings.foreign),
            tuple(unlinked),
            agreement.passages,
            agreement.triples,
            agreement.bm25_drift,
            tuple(without_vectors | agreement.other),
            tuple(settings),
        )
        return report, agreement

    def repair_flow(self, reembed: bool) -> Flow[StoreReport]:
        """The flow of `repair`."""
        report, agreement = yield from self._examine_flow(SAMPLE)
        if report.wrong_embedder and not reembed and not agreement.is_single:
            raise EmbeddingError(
                f"the store was filled with another embedding model than the one that it has now ({report}): give it "
                "the model that it was filled with, or call repair(reembed=True)"
            )
        average = (yield from self.writes.average.expect_flow()) if report.bm25_drift else None
        if (yield from self.collections.exists_flow()) and self.collections.dimension:
            # LlamaIndex's own store makes no collection of triples.
            yield from self.writes.prepare_flow(self.collections.dimension, lambda: None)
        if average is not None:
            yield from self.collections.keep_flow(average_words=average)
        if reembed:
            yield from self._reembed_flow(report.passages)
        else:
            yield from self._rewrite_flow(report)
            if average is not None:
                yield from self._weigh_flow(report.passages)
        for passage_ids in _split(report.orphaned, _PAGE):
            yield from self.deletes.delete_triples_flow(passage_ids)
        yield from self.unfinished.finish_flow()
        yield from self.aliases.repair_flow()
        return (yield from self.check_flow(SAMPLE))

    def _rewrite_flow(self, report: StoreReport) -> Flow[None]:
        """Write the passages with faults once more, a page at a time. Those without vectors get them."""
        faulty = {*report.incomplete, *report.outdated} - {*report.without_vectors}
        for passage_ids in _split(sorted(faulty), _PAGE):
            points = yield from self._read_points_flow(passage_ids)
            nodes = yield from self._make_writable_flow(points)
            if nodes:
                yield from self.writes.rewrite_flow(nodes, embed_triples=False)
        for passage_ids in _split(report.without_vectors, self.writes.batch_size):
            points = yield from self._read_points_flow(passage_ids)
            nodes = yield from self._make_writable_flow(points)
            unembedded = yield from self._vectors.find_unembedded_flow(points, report.passage_agreement)
            yield from _embed_flow([node for node in nodes if node.node_id in unembedded])
            if nodes:
                yield from self.writes.rewrite_flow(nodes, embed_triples=True)

    def _read_points_flow(self, passage_ids: Sequence[str]) -> Flow[list[Any]]:
        """Read the points of passages, with their embeddings."""
        options = {"ids": [point_id_of(id_) for id_ in passage_ids], "with_payload": True, "with_vectors": [DENSE]}
        points = yield from ask(QdrantCall("retrieve", {"collection_name": self.collections.passages, **options}))
        return list(points)

    def _make_writable_flow(self, points: Sequence[Any]) -> Flow[list[BaseNode]]:
        """Return the passages of points, after everything that would keep a write from reading them is gone."""
        owners, _ = read_owners(points)
        stored = (yield from self._scroll_triples_flow(owners)) if owners else []
        if damaged := [point.id for point in stored if not can_be_replaced(point)]:
            has_id = models.Filter(must=[models.HasIdCondition(has_id=damaged)])
            yield from self.collections.delete_flow(self.collections.triples, has_id)
        nodes, operations = [], []
        for owner in owners:
            node, changes = make_writable(
                owner, [point for point in stored if get_passage_id(point) == owner.node.node_id]
            )
            nodes.append(node)
            operations += changes
        if operations:
            arguments = {"collection_name": self.collections.passages, "update_operations": operations}
            yield from ask(QdrantCall("batch_update_points", {**arguments, "wait": True}))
        return nodes

    def _count_flow(self, name: str) -> Flow[tuple[int, bool]]:
        """Count the points of a collection; return also True if it exists."""
        exists = yield from ask(QdrantCall("collection_exists", {"collection_name": name}))
        if not exists:
            return 0, False
        counted = yield from ask(QdrantCall("count", {"collection_name": name, "exact": True}))
        return counted.count, True

    def _find_faults_flow(self, has_triples: bool, passages: int) -> Flow[_Findings]:
        """Compare every stored passage with its triples; collect the faults."""
        findings = _Findings()
        with tqdm(total=passages, desc="Checking passages", disable=not self.show_progress) as bar:
            for page in self.collections.page_flows(self.collections.passages, None, payload=True, limit=_PAGE):
                points = yield from page
                owners, foreign = read_owners(points)
                findings.foreign += foreign
                stored = (yield from self._read_triples_flow(owners)) if has_triples and owners else {}
                for owner in owners:
                    node_id = owner.node.node_id
                    triples = stored.get(node_id, {})
                    findings.owned += len(triples)
                    if is_incomplete(owner, triples):
                        findings.incomplete.append(node_id)
                    if is_outdated(owner, triples):
                        findings.outdated.append(node_id)
                    if not self.writes.tenancy.is_owned(owner.node):
                        findings.without_tenant.append(node_id)
                bar.update(len(points))
        return findings

    def _read_triples_flow(self, owners: Sequence[Owner]) -> Flow[dict[str, dict[str, Any]]]:
        """Read the points of the passages' triples: passage id → triple id → point."""
        triples: dict[str, dict[str, Any]] = {}
        for point in (yield from self._scroll_triples_flow(owners)):
            if passage_id := get_passage_id(point):
                triples.setdefault(passage_id, {})[str(point.id)] = point
        return triples

    def _scroll_triples_flow(self, owners: Sequence[Owner]) -> Flow[list[Any]]:
        match_ = models.Filter(must=[match_any("passage_id", [owner.node.node_id for owner in owners])])
        return self.collections.scroll_flow(self.collections.triples, match_, payload=True, vectors=False)

    def _find_orphans_flow(self, has_passages: bool, triples: int, findings: _Findings) -> Flow[list[str]]:
        """Find the passage ids that triples name and that are not stored.

        Points that hold no triple, and name no passage that is stored, are added to the foreign ones.
        """
        missing: dict[str, None] = {}
        with tqdm(total=triples, desc="Checking triples", disable=not self.show_progress) as bar:
            for page in self.collections.page_flows(self.collections.triples, None, payload=TRIPLE_FIELDS):
                points = yield from page
                named = [get_passage_id(point) for point in points]
                passage_ids = list(dict.fromkeys(filter(None, named)))
                present = (yield from self.collections.find_present_flow(passage_ids)) if has_passages else set()
                for point, passage_id in zip(points, named, strict=True):
                    if passage_id not in present:
                        if is_triple(point):
                            missing[passage_id] = None
                        else:
                            findings.foreign.append(str(point.id))
                bar.update(len(points))
        return list(missing)

    def _reembed_flow(self, passages: int) -> Flow[None]:
        """Embed all passages and triples again with the store's model; their ids stay, and so does their order."""
        with tqdm(total=passages, desc="Embedding again", disable=not self.show_progress) as bar:
            for page in self._batch_flows() if passages else ():
                points = yield from page
                nodes = yield from self._make_writable_flow(points)
                if nodes:
                    yield from _embed_flow(nodes)
                    yield from self.writes.rewrite_flow(nodes, embed_triples=True)
                bar.update(len(points))

    def _batch_flows(self, *, vectors: bool = False) -> Iterable[Flow[list[Any]]]:
        """Yield flows that each read the points of a batch of passages."""
        name, size = self.collections.passages, self.writes.batch_size
        return self.collections.page_flows(name, None, payload=True, vectors=vectors, limit=size)

    def _weigh_flow(self, passages: int) -> Flow[None]:
        """Make the BM25 weights anew of all passages whose weights are of another average length."""
        with tqdm(total=passages, desc="Weighing words again", disable=not self.show_progress) as bar:
            for page in self._batch_flows(vectors=True) if passages else ():
                points = yield from page
                nodes = yield from self.writes.average.find_drift_flow(points)
                if nodes:
                    yield from self.writes.rewrite_flow(nodes, embed_triples=False)
                bar.update(len(points))


def _embed_flow(nodes: Sequence[BaseNode]) -> Flow[None]:
    """Give passages the embeddings of their texts."""
    vectors = (yield from ask(EmbedTexts([get_embedded_text(node) for node in nodes]))) if nodes else []
    for node, vector in zip(nodes, vectors, strict=True):
        node.embedding = vector


def _split(ids: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (ids[start : start + size] for start in range(0, len(ids), size))

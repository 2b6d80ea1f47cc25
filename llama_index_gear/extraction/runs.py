"""A run of an extractor: what earlier runs extracted is filled in, and the rest is called for.

The cache of extracted passages is a LlamaIndex key-value store. It counts the runs with failures.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_index_gear.extraction.calls import PassageCalls
from llama_index_gear.flow import gather
from llama_index_gear.nodes import ExtractionRecord, Outcome, read_triples, record_of, with_record
from llama_index_gear.store.tenancy import Tenancy
from llama_index_gear.triple import Triple, serialize_triples

logger = logging.getLogger(__name__)

StoreNodes = Callable[[Sequence[BaseNode], Sequence[BaseNode]], Awaitable[None]]
"""Stores nodes: as they were passed in, and as they were extracted."""


@dataclass(frozen=True)
class ExtractionRun:
    """Extracts passages with the settings of an extractor.

    Attributes:
        calls: makes the calls.
        cache: keeps what was extracted.
        tenancy: gives passages their tenant.
        num_workers: concurrent calls.

    """

    calls: PassageCalls
    cache: ExtractionCache
    tenancy: Tenancy
    num_workers: int

    async def extract(self, nodes: Sequence[BaseNode], bar: Any, store: StoreNodes | None = None) -> list[BaseNode]:
        """Extract the nodes. After each call, `store` is given its node as passed in and as extracted."""
        extracted = self.tenancy.assign_tenant(nodes)
        asked = await self.plan_calls(extracted)
        bar.update(len(nodes) - len(asked))

        async def store_at(positions: Sequence[int]) -> None:
            if store is not None and positions:
                await store([nodes[n] for n in positions], [extracted[n] for n in positions])

        async def work() -> None:
            for position, key in waiting:
                extracted[position] = await self._extract(extracted[position], key)
                await store_at([position])
                bar.update(1)

        unasked = set(range(len(nodes))) - {position for position, _ in asked}
        await store_at(sorted(unasked))
        waiting = iter(asked)
        await gather([work() for _ in range(min(self.num_workers, len(asked)))])
        return extracted

    async def plan_calls(self, extracted: list[BaseNode]) -> list[tuple[int, str]]:
        """Return (position, fingerprint) of the passages to ask for; fill in those that were extracted before."""
        asked: list[tuple[int, str]] = []
        waiting = iter(list(enumerate(extracted)))

        async def work() -> None:
            for position, node in waiting:
                key, reused = await self._look_up(node)
                if reused is None:
                    asked.append((position, key))
                else:
                    extracted[position] = reused

        await gather([work() for _ in range(min(self.num_workers, len(extracted)))])
        return sorted(asked)

    async def _extract(self, node: BaseNode, key: str) -> BaseNode:
        """Make the call for a passage, and return its node with the result."""
        triples, record = await self.calls.extract(node)
        before = record_of(node)
        if record.outcome.failure and not triples and before is not None and before.key == key:
            triples = read_triples(node)  # of an earlier reply, which was cut off
        record = replace(record, key=key)
        await self.cache.keep(triples, record)
        return with_record(node, triples, record)

    async def _look_up(self, node: BaseNode) -> tuple[str, BaseNode | None]:
        """Return the passage's fingerprint, and its extracted node if it needs no LLM call, else None."""
        text, title = self.calls.text_and_title(node)
        parts = [self.calls.fingerprint(), title, text, *([self._tenant_of(node)] if self.tenancy.field else [])]
        key = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
        earlier = record_of(node)
        if earlier is not None and earlier.key == key and not earlier.outcome.failure:
            record = ExtractionRecord(earlier.outcome, earlier.problem, reused=True, key=key, refused=earlier.refused)
            return key, with_record(node, read_triples(node), record)
        if (entry := await self.cache.recall(key)) is not None:
            triples, record = entry
            return key, with_record(node, triples, replace(record, key=key))
        if not text.strip():
            return key, with_record(node, [], ExtractionRecord(Outcome.BLANK, key=key))
        return key, None

    def _tenant_of(self, node: BaseNode) -> str:
        return str(node.metadata[self.tenancy.field]) if self.tenancy.field else ""


_COLLECTION = "gear_extraction"


class ExtractionCache:
    """Extracted passages, by fingerprint.

    If the key-value store can't be reached, a warning says so once, and the run goes on without it.

    Args:
        cache: the key-value store; None: only runs with failures are counted, as long as this object lives.

    """

    def __init__(self, cache: BaseKVStore | None) -> None:
        self._cache = cache
        self._failed_runs = 0
        self._has_warned = False

    async def recall(self, key: str) -> tuple[list[Triple], ExtractionRecord] | None:
        """Return the triples and the record of a passage; None if it is not in the cache."""
        if self._cache is not None:
            with self._warn_on_failure():  # an entry may also be of another version
                if (entry := await self._cache.aget(key, collection=_COLLECTION)) is not None:
                    outcome, problem, refused = entry["outcome"], entry.get("problem", ""), entry.get("refused", 0)
                    record = ExtractionRecord(Outcome(outcome), problem, reused=True, key=key, refused=refused)
                    return [Triple(*slots) for slots in entry["triples"]], record
        return None

    async def keep(self, triples: Sequence[Triple], record: ExtractionRecord) -> None:
        """Store a passage's triples and record, unless its extraction failed."""
        if self._cache is None or record.outcome.failure:
            return
        entry: dict[str, Any] = {
            "outcome": record.outcome.value,
            "problem": record.problem,
            "triples": serialize_triples(triples),
        }
        if record.refused:
            entry["refused"] = record.refused
        with self._warn_on_failure():
            await self._cache.aput(record.key, entry, collection=_COLLECTION)

    def failed_runs(self, fingerprint: str) -> int:
        """Return the number of runs with failures, of extractors with this fingerprint."""
        entry = None
        if self._cache is not None:
            with self._warn_on_failure():
                entry = self._cache.get(fingerprint, collection=_COLLECTION)
        return self._max_failed_runs(entry)

    async def note_failed_run(self, fingerprint: str) -> None:
        """Count one more run with failures."""
        entry = None
        if self._cache is not None:
            with self._warn_on_failure():
                entry = await self._cache.aget(fingerprint, collection=_COLLECTION)
        self._failed_runs = self._max_failed_runs(entry) + 1
        if self._cache is not None:
            with self._warn_on_failure():
                await self._cache.aput(fingerprint, {"failed_runs": self._failed_runs}, collection=_COLLECTION)

    def _max_failed_runs(self, entry: dict[str, int] | None) -> int:
        return max(self._failed_runs, entry["failed_runs"] if entry else 0)

    @contextmanager
    def _warn_on_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - of any key-value store; the warning comes once
            if not self._has_warned:
                logger.warning(
                    "the extractor's cache failed, the run goes on without what it holds: %s", type(error).__name__
                )
            self._has_warned = True

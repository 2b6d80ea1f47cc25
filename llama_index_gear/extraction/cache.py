"""What was extracted before, as a LlamaIndex key-value store remembers it; and how many runs had failures."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_index_gear.extraction.accounting import ExtractionRecord, Outcome
from llama_index_gear.triple import Triple

logger = logging.getLogger(__name__)

_COLLECTION = "gear_extraction"


class ExtractionCache:
    """Extracted passages, by fingerprint.

    A cache that can't be reached remembers nothing, and a warning says so once: what was paid for goes on without it.

    Args:
        cache: None: only the runs with failures are counted, as long as this object lives.

    """

    def __init__(self, cache: BaseKVStore | None) -> None:
        self._cache = cache
        self._failed_runs = 0
        self._has_warned = False

    async def recall(self, key: str) -> tuple[list[Triple], ExtractionRecord] | None:
        """What was extracted of a passage; None if nothing is known."""
        if self._cache is not None:
            with self._may_fail():  # or hold what another version wrote
                if (kept := await self._cache.aget(key, collection=_COLLECTION)) is not None:
                    record = ExtractionRecord(Outcome(kept["outcome"]), kept.get("problem", ""), reused=True, key=key)
                    return [Triple(*slots) for slots in kept["triples"]], record
        return None

    async def keep(self, found: Sequence[Triple], record: ExtractionRecord) -> None:
        """Remember a passage, unless its extraction failed."""
        if self._cache is None or record.outcome.failure:
            return
        triples = [[triple.subject, triple.predicate, triple.object] for triple in found]
        plain = {"outcome": record.outcome.value, "problem": record.problem, "triples": triples}
        with self._may_fail():
            await self._cache.aput(record.key, plain, collection=_COLLECTION)

    def failed_runs(self, fingerprint: str) -> int:
        """How many runs had failures, of extractors of this fingerprint."""
        kept = None
        if self._cache is not None:
            with self._may_fail():
                kept = self._cache.get(fingerprint, collection=_COLLECTION)
        return self._at_least(kept)

    async def note_failed_run(self, fingerprint: str) -> None:
        """One more."""
        kept = None
        if self._cache is not None:
            with self._may_fail():
                kept = await self._cache.aget(fingerprint, collection=_COLLECTION)
        self._failed_runs = self._at_least(kept) + 1
        if self._cache is not None:
            with self._may_fail():
                await self._cache.aput(fingerprint, {"failed_runs": self._failed_runs}, collection=_COLLECTION)

    def _at_least(self, kept: dict[str, int] | None) -> int:
        return max(self._failed_runs, kept["failed_runs"] if kept else 0)

    @contextmanager
    def _may_fail(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - any key-value store's; said once
            if not self._has_warned:
                logger.warning(
                    "the extractor's cache failed, the run goes on without what it holds: %s", type(error).__name__
                )
            self._has_warned = True

"""The cache of extracted passages in a LlamaIndex key-value store, and its count of runs with failures."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_index_gear.nodes import ExtractionRecord, Outcome
from llama_index_gear.triple import Triple, serialize_triples

logger = logging.getLogger(__name__)

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

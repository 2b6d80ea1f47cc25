"""The log lines of an extractor. A problem may quote a reply, and so a passage: only level DEBUG shows it."""

from __future__ import annotations

import logging
from collections import Counter

from llama_index_gear.counts import count
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.records import Outcome

logger = logging.getLogger(__name__)


def log_ledger(ledger: ExtractionLedger) -> None:
    """Log the account of a run. Warn of failures, of many second calls, and of a schema that refused most."""
    logger.info("extraction: %s", ledger)
    if 4 * ledger.retried_alone > ledger.answered:
        logger.warning(
            "%s of %s passages had to be asked for again, alone: a smaller passages_per_call, or 1, will cost less",
            ledger.retried_alone,
            ledger.answered,
        )
    if ledger.refused > ledger.triples:
        logger.warning(
            "%s of %s triples were refused: the schema allows no such relation, or no such entity. The problem in each "
            "passage's gear_extraction says which; a wider schema keeps more",
            ledger.refused,
            ledger.refused + ledger.triples,
        )
    if not ledger.failures:
        return
    kinds = Counter(_describe(outcome, problem) for _, outcome, problem in ledger.failures).most_common()
    summary = ", ".join(f"{number} {kind}" for kind, number in kinds)
    logger.warning("%s (%s); `ledger.failures` of the extractor says more", describe_failures(ledger), summary)
    for failure in ledger.failures:
        logger.debug("%s", ": ".join(failure))


def describe_failures(ledger: ExtractionLedger) -> str:
    """Say how many passages failed."""
    return f"{len(ledger.failures)} of {count(ledger.passages, 'passage')} could not be extracted"


def _describe(outcome: str, problem: str) -> str:
    """Describe a failure without quoting it: its outcome, and the error's class if there was an error."""
    error = problem.partition(":")[0] if outcome in (Outcome.FAILED.value, Outcome.TIMED_OUT.value) else ""
    return f"{outcome}: {error}" if error else outcome

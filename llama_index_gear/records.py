"""The record of a passage's extraction by a model, in its node's metadata, and what a failed one may replace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_gear.nodes import EXTRACTION_KEY, attach_triples, read_triples, with_metadata
from llama_index_gear.triple import Triple


class Outcome(Enum):
    """The outcome of a passage's extraction. All but the first three are failures: the next run extracts it again."""

    EXTRACTED = "extracted"
    NO_FACTS = "no facts"
    BLANK = "blank"
    EMPTY = "empty"
    UNREADABLE = "unreadable"
    REFUSED = "refused"
    TIMED_OUT = "timed out"
    TRUNCATED = "truncated"
    OVER_BUDGET = "over budget"
    OUT_OF_QUOTA = "out of quota"
    FAILED = "failed"

    @property
    def failure(self) -> bool:
        """True if the passage should be extracted again."""
        return self not in (Outcome.EXTRACTED, Outcome.NO_FACTS, Outcome.BLANK)

    @property
    def is_left_out(self) -> bool:
        """True if no call was made for the passage: a ceiling, or a quota that is used up, had ended them."""
        return self in (Outcome.OVER_BUDGET, Outcome.OUT_OF_QUOTA)

    @property
    def paid(self) -> bool:
        """True if a model was paid for the triples that the passage has, or for saying that it has none."""
        return self in (Outcome.EXTRACTED, Outcome.NO_FACTS)


@dataclass(frozen=True)
class ExtractionRecord:
    """The record of one passage's extraction, stored in its node's metadata as `gear_extraction`.

    Attributes:
        outcome: the outcome.
        problem: what went wrong, in words; empty if nothing did.
        calls: LLM calls in this run, retries included.
        prompt_tokens: tokens sent, as the LLM's client counts them, else by LlamaIndex's tokenizer.
        completion_tokens: tokens received, counted likewise.
        reused: True if the triples come from an earlier run: from the node itself or from the extractor's cache.
        key: fingerprint of the extraction's input: model, prompt, title, text and tenant.
        shared_call_id: fingerprint of a shared call that failed for all its passages; empty if there was none. The next
            run puts these passages into one call again.
        retried_alone: True if the reply for several passages did not cover this one, so that a call was made for it
            alone.
        refused: number of triples that the extractor's schema refused.

    """

    outcome: Outcome
    problem: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reused: bool = False
    key: str = ""
    shared_call_id: str = ""
    retried_alone: bool = False
    refused: int = 0


def record_of(node: BaseNode) -> ExtractionRecord | None:
    """Return the record that a node carries; None if it was never extracted."""
    plain: Any = node.metadata.get(EXTRACTION_KEY)
    try:
        return ExtractionRecord(**{**plain, "outcome": Outcome(plain["outcome"])})
    except (TypeError, KeyError, ValueError):  # no record, or one of another program or version
        return None


def has_failed(node: BaseNode) -> bool:
    """Return True if a passage's extraction failed."""
    record = record_of(node)
    return record is not None and record.outcome.failure


def with_record(node: BaseNode, triples: Sequence[Triple], record: ExtractionRecord) -> BaseNode:
    """Return a copy of `node` that carries these triples and this record."""
    plain = {**asdict(record), "outcome": record.outcome.value}
    if not record.refused:  # without a schema a record is what it was before there were schemas
        del plain["refused"]
    return with_metadata(attach_triples(node, triples), {EXTRACTION_KEY: plain})


def must_stay(stored: BaseNode, node: BaseNode) -> bool:
    """Return True if a new extraction may not replace the stored one: its triples were paid for.

    An extraction that failed replaces one of the same text only if it has triples itself, or the stored one has none.
    Where no call was made any more, nothing is replaced.
    """
    record = record_of(node)
    is_same = stored.get_content(MetadataMode.NONE) == node.get_content(MetadataMode.NONE)
    if record is None or not record.outcome.failure or not is_same:
        return False
    return record.outcome.is_left_out or bool(read_triples(stored) and not read_triples(node))

"""One thing is counted in the singular, wherever a user reads a count."""

from __future__ import annotations

import re

import pytest

from llama_index_gear.characters import count
from llama_index_gear.extraction.accounting import ExtractionEstimate, ExtractionLedger
from llama_index_gear.ingestion.existing_collection import CollectionReport
from llama_index_gear.store.check_and_repair import StoreReport

WRONG = re.compile(r"(?<![\d,.])1 (?:\w+ed )?(?:passages|triples|calls|points|files|questions)\b")


def test_a_noun_has_its_number() -> None:
    assert [count(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


@pytest.mark.parametrize(
    "report",
    [
        CollectionReport(1, 1, 0, {"no text under 'text'": 1}),
        ExtractionLedger(1, 1, outcomes={"extracted": 1}, calls=1),
        ExtractionEstimate(1, 0, 1, 100, 20, 0.1),
        StoreReport(1, 1, ("a",), ("a",), ("a",), ("a",), ("a",), ("a",), bm25_drift=1),
    ],
    ids=lambda report: type(report).__name__,
)
def test_a_report_of_one_says_one(report: object) -> None:
    assert not WRONG.search(str(report)) and re.search(r"\b1 (?:sampled )?passage\b", str(report))

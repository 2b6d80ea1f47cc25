"""The company's wiki and the linked documents among the sample data keep what their README says of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import links
import pytest
from harness.data import load
from repository import EXAMPLES


def test_the_harness_reads_the_wiki_without_a_problem() -> None:
    dataset = load(EXAMPLES / "data" / "company_wiki")  # refuses ids that repeat
    assert not dataset.problems
    assert len(dataset.passages) == 47 and len(dataset.questions) == 24
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", passage.id) for passage in dataset.passages)
    assert len({passage.title for passage in dataset.passages}) == 47


LINKED = sorted((EXAMPLES / "data" / "linked_docs").glob("*/questions.jsonl"))


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.parent.name)
def test_the_questions_of_linked_documents_name_files_that_are_there(path: Path) -> None:
    documents = [json.loads(line) for line in (path.parent / "corpus.jsonl").read_text("utf-8").strip().split("\n")]
    questions = [json.loads(line) for line in path.read_text("utf-8").strip().split("\n")]
    ids = {document["id"] for document in documents}
    assert len(ids) == len(documents) and len({question["id"] for question in questions}) == len(questions)
    for question in questions:
        gold = question["gold_document_ids"]
        assert set(gold) <= ids and len(gold) == (1 if question["type"] == "one" else 2), question["id"]
    fresh = {"link": 20, "one": 8}
    others = {"flask": {"link": 24, "one": 10}, "black": {"link": 16, "one": 8}, "foam": fresh, "jj": fresh}
    others["pip"] = {**fresh, "name": 4}
    types = others.get(path.parent.name, {"link": 20, "name": 10, "one": 10})
    assert Counter(question["type"] for question in questions) == types
    assert load(path.parent).has_documents and (path.parent / "LICENSE.txt").exists()


def test_links_py_counts_documents_at_the_place_of_their_first_passage() -> None:
    questions = [{"type": "link", "gold_document_ids": ["a", "b"]}, {"type": "one", "gold_document_ids": ["c"]}]
    measured = links.measure([["a", "a", "b"], ["a", "b", "d", "e", "f", "c"]], questions)
    assert measured["link, documents"]["all gold@2"] == 100 and measured["link, passages"]["all gold@2"] == 0
    assert measured["link, passages"]["recall@2"] == 50 and measured["all questions, passages"]["recall@5"] == 50

"""The company's wiki and the linked documents among the sample data keep what their README says of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

import links
import pytest
from harness.data import load
from repository import EXAMPLES

WIKI = EXAMPLES / "data" / "company_wiki"


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (WIKI / name).read_text("utf-8").split("\n") if line]


PAGES = {row["id"]: row for row in rows("corpus.jsonl")}
QUESTIONS = rows("questions.jsonl")


def stands_in(name: str, page: dict[str, Any]) -> bool:
    """A page has the name as whole words, in its title or its text."""
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", f"{page['title']}\n{page['text']}", re.IGNORECASE))


def test_the_harness_reads_the_wiki_without_a_problem() -> None:
    dataset = load(WIKI)  # refuses ids that repeat
    assert not dataset.problems
    assert len(dataset.passages) == 47 and len(dataset.questions) == 24
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", passage.id) for passage in dataset.passages)
    assert len({passage.title for passage in dataset.passages}) == 47


def test_pages_are_as_long_as_people_write_them() -> None:
    words = {page_id: len(page["text"].split()) for page_id, page in PAGES.items()}
    assert min(words.values()) >= 60 and max(words.values()) <= 700
    assert 160 <= median(words.values()) <= 200
    long = [page_id for page_id, number in words.items() if number > 450]
    assert len(long) == 6
    for page_id in long:
        assert len(re.findall(r"^##", PAGES[page_id]["text"], re.MULTILINE)) >= 3, page_id


def test_a_third_of_the_pages_is_gold_for_no_question() -> None:
    gold = {page_id for question in QUESTIONS for page_id in question["gold_passage_ids"]}
    assert gold <= PAGES.keys()
    assert 3 * len(PAGES.keys() - gold) >= len(PAGES)


def test_every_address_is_an_invented_one() -> None:
    """Names of hosts end in what no registry gives out."""
    text = "\n".join(page["text"] for page in PAGES.values())
    hosts = re.findall(r"https?://([\w.-]+)", text) + re.findall(r"[\w.]+@([\w-]+\.[\w.-]*\w)", text)
    assert len(hosts) >= 8
    assert all(host == "localhost" or host.endswith((".example", ".internal")) for host in hosts), hosts


@pytest.mark.parametrize("question", QUESTIONS, ids=[question["id"] for question in QUESTIONS])
def test_each_step_is_said_on_its_page_and_the_answer_on_no_earlier_one(question: dict[str, Any]) -> None:
    gold, steps, answers = question["gold_passage_ids"], question["decomposition"], question["answers"]
    assert question["type"] in {"bridge", "comparison"}
    assert 2 <= question["hops"] == len(gold) == len(set(gold)) <= 4
    assert [step["support_passage_id"] for step in steps] == gold
    for step in steps:
        assert step["support"] in PAGES[step["support_passage_id"]]["text"]
        assert step["answer"] in step["support"]
    assert stands_in(answers[0], PAGES[gold[-1]])
    assert question["type"] == "comparison" or answers[0] == steps[-1]["answer"]
    for page_id in gold[:-1]:
        assert not [answer for answer in answers if stands_in(answer, PAGES[page_id])], page_id


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

"""Benchmark data: our own neutral format, or HippoRAG's files as they are downloaded."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

Fact: TypeAlias = tuple[str, str, str]
MAX_GOLD = 35  # a question's hits are stored as one character, 0-9 and a-z


def write_whole(path: Path, text: str) -> None:
    """Write a file in one go: a kill leaves either the old content or the new."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, "utf-8")
    os.replace(unfinished, path)


@dataclass(frozen=True)
class Passage:
    """A passage of the corpus; `metadata` is what filters look at."""

    id: str
    title: str
    text: str
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """A question, the ids of the rows of the corpus that answer it (`gold`), and the metadata that these must have."""

    id: str
    question: str
    gold: tuple[str, ...]
    answers: tuple[str, ...] = ()
    hops: int = 0
    filter: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Dataset:
    """A corpus with questions, and the triples and recorded readings that come with it, if any.

    Attributes:
        triples: passage id → (subject, predicate, object), as the extractor wrote them.
        reader: question id → proximal triples that a language model noted once.
        problems: the number of mismatches of each kind.
        has_documents: True if a row of the corpus is a document that has to be split; a question's gold are documents.

    """

    name: str
    passages: list[Passage]
    questions: list[Question]
    triples: dict[str, list[Fact]] = field(default_factory=dict)
    reader: dict[str, list[Fact]] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)
    has_documents: bool = False


def load(folder: Path) -> Dataset:
    """Read a folder: `corpus.jsonl` and `questions.jsonl`, or HippoRAG's `*_corpus.json`, `*.json`, `*openie*.json`.

    Raises:
        FileNotFoundError: the folder holds neither.
        ValueError: passage ids repeat; a line is no JSON; a line or one of HippoRAG's questions lacks a field; the
            folder holds several corpora or several files of triples.

    """
    if (folder / "corpus.jsonl").exists():
        dataset = _read_neutral(folder)
    elif corpora := sorted(folder.glob("*_corpus.json")):
        if len(corpora) > 1:
            raise ValueError(f"{folder} holds {len(corpora)} corpora: one folder a set")
        dataset = _read_hipporag(folder, corpora[0])
    else:
        raise FileNotFoundError(f"{folder} holds neither corpus.jsonl nor HippoRAG's *_corpus.json")
    _check(dataset)
    return dataset


def thin_triples(triples: Mapping[str, Sequence[Fact]], share: float, seed: int) -> dict[str, list[Fact]]:
    """Draw a share of all passages' triples. With the same seed a smaller share is part of a larger one."""
    places = [(passage_id, place) for passage_id, facts in triples.items() for place in range(len(facts))]
    random.Random(seed).shuffle(places)
    kept = set(places[: round(share * len(places))])
    return {
        passage_id: [fact for place, fact in enumerate(facts) if (passage_id, place) in kept]
        for passage_id, facts in triples.items()
    }


def _read_lines(path: Path, *required: str) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8", newline="\n") as file:  # str.splitlines would split at U+2028 too
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except ValueError as error:
                    raise ValueError(f"{path.name}:{number} is no JSON: {error}") from error
                if missing := [name for name in required if name not in rows[-1]]:
                    raise ValueError(f"{path.name}:{number} lacks {', '.join(map(repr, missing))}")
    return rows


def _read_neutral(folder: Path) -> Dataset:
    asked = _read_lines(folder / "questions.jsonl", "id", "question")
    has_documents = any("gold_document_ids" in row for row in asked)
    gold_field = "gold_document_ids" if has_documents else "gold_passage_ids"
    if missing := [row["id"] for row in asked if gold_field not in row]:
        raise ValueError(f"questions.jsonl: question {missing[0]} lacks {gold_field!r}")
    dataset = Dataset(
        folder.name,
        [
            Passage(row["id"], row["title"], row["text"], row.get("metadata") or {})
            for row in _read_lines(folder / "corpus.jsonl", "id", "title", "text")
        ],
        [
            Question(
                row["id"],
                row["question"],
                tuple(dict.fromkeys(row[gold_field])),
                tuple([row["answers"]] if isinstance(row.get("answers"), str) else row.get("answers") or ()),
                row.get("hops") or 0,
                row.get("filter") or {},
            )
            for row in asked
        ],
        has_documents=has_documents,
    )
    if (folder / "triples.jsonl").exists():
        for row in _read_lines(folder / "triples.jsonl", "passage_id", "subject", "predicate", "object"):
            _add_triple(dataset, row["passage_id"], [row["subject"], row["predicate"], row["object"]])
    if (folder / "reader.jsonl").exists():
        dataset.reader = {
            row["id"]: [tuple(fact) for fact in row["facts"]]
            for row in _read_lines(folder / "reader.jsonl", "id", "facts")
        }
    return dataset


def _read_hipporag(folder: Path, corpus_file: Path) -> Dataset:
    name = corpus_file.name.removesuffix("_corpus.json")
    corpus = json.loads(corpus_file.read_text("utf-8"))
    if isinstance(corpus, dict):  # HotpotQA: title → sentences
        corpus = [{"title": title, "text": "".join(sentences)} for title, sentences in corpus.items()]
    passages = [Passage(f"{name}-{number:05d}", row["title"], row["text"]) for number, row in enumerate(corpus)]
    by_text = {f"{passage.title}\n{passage.text}".strip(): passage.id for passage in passages}
    by_title: dict[str, str] = {}
    for passage in passages:
        by_title.setdefault(passage.title, passage.id)
    questions = []
    for number, row in enumerate(json.loads((folder / f"{name}.json").read_text("utf-8")), start=1):
        try:
            row_id = str(row.get("_id", row.get("id", row["question"])))
            gold, answers = dict.fromkeys(_find_gold(row, by_text, by_title)), dict.fromkeys(_collect_answers(row))
        except KeyError as error:
            raise ValueError(f"{name}.json: question {number} lacks {error.args[0]}") from error
        hops = re.match(r"(\d)hop", row_id)  # MuSiQue's ids say how many
        questions.append(Question(row_id, row["question"], tuple(gold), tuple(answers), int(hops[1]) if hops else 0))
    dataset = Dataset(name, passages, questions)
    openies = sorted(folder.glob("*openie*.json"))
    if len(openies) > 1:
        raise ValueError(f"{folder} holds {len(openies)} files of OpenIE results: one folder a set")
    for openie in openies:
        for document in json.loads(openie.read_text("utf-8"))["docs"]:
            passage_id = by_text.get(document["passage"].strip())
            if passage_id is None:
                dataset.problems["OpenIE passages that the corpus doesn't hold"] += 1
                continue
            for triple in document["extracted_triples"]:
                _add_triple(dataset, passage_id, triple)
    return dataset


def _find_gold(row: Mapping[str, Any], by_text: Mapping[str, str], by_title: Mapping[str, str]) -> list[str]:
    """Return the ids of a question's gold passages, in HippoRAG's format; the text of those not in the corpus."""
    place = _find_name(row, "supporting_facts", "contexts", "paragraphs")
    if place == "supporting_facts":
        return [by_title.get(fact[0], fact[0]) for fact in row[place]]
    # Titles repeat, so the text decides. Paragraphs without `is_supporting` are gold, as in HippoRAG 2's program.
    gold = [
        paragraph
        for paragraph in row[place]
        if (paragraph["is_supporting"] if place == "contexts" else paragraph.get("is_supporting", True))
    ]
    keys = [f"{paragraph['title']}\n{paragraph[_find_name(paragraph, 'text', 'paragraph_text')]}" for paragraph in gold]
    return [by_text.get(key.strip(), key) for key in keys]


def _collect_answers(row: Mapping[str, Any]) -> list[str]:
    """Return a question's accepted answers, in HippoRAG's format, under each name that HippoRAG 2's program knows."""
    name = _find_name(row, "answer", "gold_ans", "reference", "obj")
    more = ["possible_answers", "o_wiki_title", "o_aliases"] if name == "obj" else []  # PopQA
    names = (name, "answer_aliases", *more)
    lists = [_to_list(row.get(answer_name), is_json=answer_name in more) for answer_name in names]
    return [str(answer) for answers in lists for answer in answers if str(answer).strip()]


def _to_list(value: Any, is_json: bool) -> list[Any]:
    """Return one value, or a list of them, as a list. PopQA's lists are JSON in a text."""
    if is_json and isinstance(value, str) and value.startswith("["):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _find_name(row: Mapping[str, Any], *names: str) -> str:
    """Return the first of these names that a row has.

    Raises:
        KeyError: it has none of them.

    """
    for name in names:
        if name in row:
            return name
    raise KeyError(f"{', '.join(names[:-1])} or {names[-1]}")


def _add_triple(dataset: Dataset, passage_id: str, slots: Any) -> None:
    """Add a triple to a passage, or count it as malformed."""
    if isinstance(slots, list) and len(slots) == 3 and all(isinstance(slot, str) and slot.strip() for slot in slots):
        dataset.triples.setdefault(passage_id, []).append((slots[0], slots[1], slots[2]))
    else:
        dataset.problems["malformed triples"] += 1


def _check(dataset: Dataset) -> None:
    """Count the mismatches of a data set, and leave out its questions without gold passages."""
    ids = Counter(passage.id for passage in dataset.passages)
    if repeated := [passage_id for passage_id, count in ids.items() if count > 1]:
        raise ValueError(f"{len(repeated)} passage ids repeat, {repeated[0]!r} among them")
    problems = dataset.problems
    question_ids = {question.id for question in dataset.questions}
    problems["questions with the id of another"] += len(dataset.questions) - len(question_ids)
    answerable = [question for question in dataset.questions if question.gold]
    problems["questions without gold passages, left out"] += len(dataset.questions) - len(answerable)
    dataset.questions = answerable
    if (count := max((len(question.gold) for question in answerable), default=0)) > MAX_GOLD:
        raise ValueError(f"a question has {count} gold passages; at most {MAX_GOLD} can be counted")
    for question in dataset.questions:
        problems["gold passages that the corpus doesn't hold"] += sum(gold not in ids for gold in question.gold)
    problems["triples of passages that the corpus doesn't hold"] += sum(
        len(triples) for passage_id, triples in dataset.triples.items() if passage_id not in ids
    )
    dataset.problems = +problems  # drops the zeros

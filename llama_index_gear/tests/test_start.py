"""The modules that a start imports: each public name and each command brings what it needs, and nothing heavier."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODELS = {
    "torch",
    "transformers",
    "sentence_transformers",
    "openai",
    "ollama",
    "openvino",
    "onnxruntime",
}
"""Packages that run or call models, and take seconds or hundreds of megabytes."""
SLOW = MODELS | {"llama_index", "qdrant_client", "qdrant_edge", "numpy", "pydantic", "mcp", "nltk", "sqlalchemy"}
SHOW = "\nimport json, sys\nprint('\\n' + json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"


def find_packages(code: str, folder: Path, stdin: str = "") -> set[str]:
    """Run code in a process of its own; return the packages that it has imported."""
    run = subprocess.run(
        [sys.executable, "-c", code + SHOW], cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return set(json.loads(run.stdout.splitlines()[-1]))


def test_the_package_imports_nothing(tmp_path: Path) -> None:
    assert not find_packages("import llama_index_gear; dir(llama_index_gear)", tmp_path) & SLOW


@pytest.mark.parametrize(
    ("names", "excluded"),
    [
        ("GeARError, Budget", MODELS | {"mcp"}),
        ("Triple, attach_triples", MODELS | {"mcp", "qdrant_client"}),
        (
            "GraphRetriever, GeARVectorStore, MentionTripleExtractor, PassageRanker, GeARQueryEngine, "
            "GeARTripleExtractor, T2RAGRetriever",
            MODELS | {"mcp", "matplotlib"},
        ),
        ("LightEmbedding", MODELS | {"mcp", "qdrant_client"}),
    ],
)
def test_a_name_imports_what_it_needs(names: str, excluded: set[str], tmp_path: Path) -> None:
    assert not find_packages(f"from llama_index_gear import {names}", tmp_path) & excluded


RUN = """
import os
from llama_index_gear.cli.main import main
os.environ["OPENAI_API_KEY"] = "any"
assert main({arguments}) == 0
"""
WITH_WORDS = """
from llama_index_gear.cli import store_folder
from llama_index_gear.testing import WordEmbedding
store_folder.load_embedding = lambda name: WordEmbedding()
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def test_commands_import_what_they_need(tmp_path: Path) -> None:
    """The MCP server answers `initialize` before LlamaIndex and Qdrant are imported, though it has a model."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "Max Born.txt").write_text("Max Born was born in Breslau.", "utf-8")
    for arguments in (["index", "docs"], ["ask", "Where was Max Born born?", "--llm", "none"]):
        imported = find_packages(WITH_WORDS + RUN.format(arguments=arguments), tmp_path)
        assert not imported & (MODELS | {"mcp", "matplotlib"})
    pytest.importorskip("mcp", reason="needs the extra mcp")
    served = find_packages(RUN.format(arguments=["mcp"]), tmp_path, json.dumps(INITIALIZE) + "\n")
    assert not served & (SLOW - {"pydantic", "mcp"})

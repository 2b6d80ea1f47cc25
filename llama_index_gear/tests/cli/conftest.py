"""The command line with the test's embedding model, over a small folder of files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from llama_index_gear.cli import store_folder
from llama_index_gear.cli.main import main
from llama_index_gear.testing import WordEmbedding

FILES = {
    "J. Robert Oppenheimer.txt": "Oppenheimer took his doctorate at Göttingen in 1927 with Max Born as his adviser.",
    "people/Max Born.md": "# Max Born\n\nMax Born, born in Breslau, was a German physicist.",
    "people/Olivia.txt": "Olivia was born in Cambridge, England. Her mother, Irene, was a daughter of Max Born.",
    "Lego.txt": "The company Lego makes toys in Billund. Its bricks are known in every country.",
}


class Run(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


Runner = Callable[..., Run]


class CountingEmbedding(WordEmbedding):
    """The test's embedding model; it counts the texts that it embeds, but for the known one of a store's note."""

    embedded: int = 0

    def _get_query_embedding(self, query: str) -> list[float]:
        return super()._get_text_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        self.embedded += 1
        return super()._get_text_embedding(text)


@pytest.fixture
def embedding(monkeypatch: pytest.MonkeyPatch) -> CountingEmbedding:
    """The model that the commands load, whatever name they are given."""
    model = CountingEmbedding()
    monkeypatch.setattr(store_folder, "load_embedding", lambda name: model)
    for key in [key for key in os.environ if key.startswith(("OPENAI_", "OLLAMA_"))]:
        monkeypatch.delenv(key, raising=False)
    return model


@pytest.fixture
def run(
    embedding: CountingEmbedding,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Runner:
    """Run a command in a folder with `docs`, and return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Run:
        capsys.readouterr()
        code = main(arguments)
        return Run(code, *capsys.readouterr())

    return call


@pytest.fixture
def files() -> dict[str, str]:
    """The path below the folder and the text of each file."""
    return FILES


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """A folder of four files."""
    folder = tmp_path / "docs"
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return folder

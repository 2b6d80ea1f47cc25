"""A path that begins with `~` is the user's home, wherever a path is taken."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear import GeARVectorStore, RankingWeights, WikidataDump
from llama_index_gear.errors import read_path
from llama_index_gear.knowledge_graph.triples_file import TriplesFile
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.trace.trace import Trace

EMBED = WordEmbedding(16)


def fill_store(path: str) -> None:
    with GeARVectorStore.from_path(path, embed_model=EMBED) as store:
        node = passage("p", "Ada wrote notes", [("Ada", "wrote", "notes")])
        store.add(EMBED([node]))


USES: dict[str, Callable[[str], Any]] = {
    "GeARVectorStore.from_path": fill_store,
    "RankingWeights.save": lambda path: RankingWeights.default().save(path),
    "Trace.to_html": lambda path: Trace(question="Who?").to_html(path),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_what_is_written_lies_at_home(
    use: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    use("~/out")
    assert (home / "out").exists() and list(work.iterdir()) == []


def test_what_is_read_is_looked_for_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    RankingWeights.default().save(tmp_path / "w.json")
    assert RankingWeights.load("~/w.json") == RankingWeights.default()
    for name in ("g.tsv", "d.json"):
        (tmp_path / name).touch()
    assert TriplesFile("~/g.tsv").path == tmp_path / "g.tsv"
    dump = WikidataDump(Path("~/d.json"), "~/d")
    assert (dump.path, dump.folder) == (tmp_path / "d.json", tmp_path / "d")


def test_only_a_users_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that no user has, and a `~` further on, stand for themselves."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("./~", "~lock.docx", os.path.join("a", "~")):
        assert read_path(path=name) == Path(name)

"""`llama-index-gear index`, killed in the middle by a real signal, and run again."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from repository import ROOT

from llama_index_gear import GeARVectorStore
from llama_index_gear.testing import WordEmbedding

FILES = 40
KILLED_AFTER = 9
PROGRAM = """
import sys
from llama_index_gear.cli import indexing, store_folder
from llama_index_gear.cli.main import main
from llama_index_gear.testing import WordEmbedding

store_folder.load_embedding = lambda name: WordEmbedding(32)
indexing._BATCH = 2
sys.exit(main())
"""


def start(folder: Path, store: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "index", "docs", "--store", store],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def index(folder: Path, store: str) -> str:
    process = start(folder, store)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def kill_after(process: subprocess.Popen[str], passages: int) -> None:
    """Kill a run when its progress bar says that it has embedded so many passages."""
    assert process.stderr is not None
    seen = ""
    while not (found := re.findall(rf"(\d+)/{FILES} \[.*passage", seen)) or int(found[-1]) < passages:
        character = process.stderr.read(1)
        assert character, seen
        seen = f"{seen}{character}"[-300:]
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def read_store(folder: Path) -> dict[str, str]:
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding(32)) as store:
        assert store.check().ok
        return {node.node_id: f"{node.get_content()} {node.metadata}" for node in store.get_nodes()}


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a signal that nobody can catch")
def test_a_run_after_a_killed_one_does_what_is_left(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(FILES):
        (docs / f"{number:02}.txt").write_text(f"Town {number} lies on the Rhine. Mayor Ada Nr. {number} governs it.")
    kill_after(start(tmp_path, "s"), KILLED_AFTER)
    (docs / "00.txt").unlink()  # stored by the killed run, perhaps, and gone since
    (docs / "39.txt").write_text("Town 39 has moved to the Elbe.")
    (written,) = re.findall(r"(\d+) new or changed", index(tmp_path, "s"))
    assert 1 <= int(written) <= FILES - KILLED_AFTER + 2
    index(tmp_path, "whole")
    assert read_store(tmp_path / "s") == read_store(tmp_path / "whole")
    assert "39 passages: 0 new or changed, 0 deleted" in index(tmp_path, "s")

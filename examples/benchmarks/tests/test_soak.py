"""The ten-minute soak, run for a few seconds: it ends well, and reports what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import soak

from llama_index_gear import GeARVectorStore


def test_a_store_outlives_kills(tmp_path: Path) -> None:
    command = [sys.executable, str(soak.__file__), "--minutes", "0.08", "--out", str(tmp_path / "soak.json")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    result = json.loads((tmp_path / "soak.json").read_text("utf-8"))
    assert result["kills"] >= 1 and result["equal_unrepaired"] is True


def test_what_is_not_as_it_must_be_is_noticed(tmp_path: Path) -> None:
    state = {3: 1, 4: 2}
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=soak.EMBED, embed_triples=True)
    store.add([node for document, version in state.items() for node in soak.make_nodes(document, version)])
    store.close()
    soak.check_passages(tmp_path / "store", state, None)
    soak.check_passages(tmp_path / "store", {3: 1}, {"kind": "add", "documents": {"4": 2}})
    for wrong in ({3: 1}, {3: 1, 4: 1}, {3: 1, 4: 2, 5: 1}):
        with pytest.raises(AssertionError):
            soak.check_passages(tmp_path / "store", wrong, None)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=soak.EMBED, embed_triples=True)
    store.client.delete(store.triple_collection_name, points_selector=[next(iter(list_triples(store)))])
    store.close()
    with pytest.raises(AssertionError):
        soak.check_passages(tmp_path / "store", state, None)


def test_what_is_left_to_mend_is_noticed(tmp_path: Path) -> None:
    """The soak reports triples whose passages are gone, which a look at passages alone would miss."""
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=soak.EMBED, embed_triples=True)
    store.add([*soak.make_nodes(3, 1), *soak.make_nodes(4, 2)])
    assert soak.require_ok(store).passages == 2 * soak.PASSAGES
    gone, _ = store.client.scroll(store.collection_name, limit=100)
    store.client.delete(
        store.collection_name, points_selector=[point.id for point in gone if point.payload["version"] == 2]
    )
    store.close()
    soak.check_passages(tmp_path / "store", {3: 1}, None)
    store = GeARVectorStore.from_path(tmp_path / "store", embed_model=soak.EMBED, embed_triples=True)
    with pytest.raises(AssertionError, match="triples are left"):
        soak.require_ok(store)
    store.close()


def list_triples(store: GeARVectorStore) -> list[str]:
    points, _ = store.client.scroll(store.triple_collection_name, limit=1)
    return [str(point.id) for point in points]


def test_a_torn_line_is_no_action(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    first = {"action": {"kind": "add", "documents": {"3": 1}}}
    path.write_text(f'{json.dumps(first)}\n{json.dumps({"seconds": 1, "mib": 2})}\n{{"action": {{"kind": "del', "utf-8")
    assert soak.read_journal(path) == ({3: 1}, None, [{"kind": "add", "seconds": 1, "mib": 2}])
    path.write_text(f"{json.dumps(first)}\n", "utf-8")
    assert soak.read_journal(path) == ({}, first["action"], [])

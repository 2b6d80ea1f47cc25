"""The benchmark of a server measures what it says, and leaves nothing there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import server_speed
import speed
from qdrant_node import BINARY, Node

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="set QDRANT_BIN to the path of a Qdrant server's binary"),
    pytest.mark.filterwarnings("ignore:Qdrant client version:UserWarning"),
]


def test_loading_and_askers_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speed.fill(tmp_path / "store", "extracted", 300, 384)
    out = tmp_path / "out.json"
    with Node(tmp_path / "node") as node:
        arguments = ["--server", node.url, "--grpc-port", str(node.grpc_port), "--store", str(tmp_path / "store")]
        arguments += ["--rounds", "1", "--askers", "1,3", "--seconds", "0.5", "--out", str(out)]
        monkeypatch.setattr(sys, "argv", ["server_speed.py", *arguments])
        server_speed.main()
        client, _ = node.make_clients(prefer_grpc=False)
        assert client.get_collections().collections == []
    report = json.loads(out.read_text("utf-8"))
    assert report["loading"]["copy_to"]["triples_per_second"] > 0 < report["loading"]["copy_to_to_upload_points"]
    for engine in ("embedded", "server"):
        rows = report[engine]
        assert [(row["askers"], row["by"]) for row in rows] == [
            *((1, "threads"), (1, "asyncio"), (3, "threads"), (3, "asyncio"))
        ]
        assert all(
            0 < row["median_ms"] <= row["p95_ms"] and row["processor_ms"] > 0 and row["questions_per_second"] > 0
            for row in rows
        )

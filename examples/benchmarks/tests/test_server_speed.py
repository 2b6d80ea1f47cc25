"""The benchmark of a server measures what it says, and leaves nothing there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import server_speed
import speed
from qdrant_node import BINARY, Node

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="set QDRANT_BIN to the path of a Qdrant server's binary"),
    pytest.mark.filterwarnings("ignore:Qdrant client version:UserWarning"),
]


def test_loading_questions_and_askers_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    speed.fill(tmp_path / "store", "extracted", 300, 384)
    out = tmp_path / "out.json"
    with Node(tmp_path / "node") as node:
        arguments = ["--server", node.url, "--grpc-port", str(node.grpc_port), "--store", str(tmp_path / "store")]
        arguments += ["--rounds", "1", "--questions", "3", "--askers", "1,3", "--seconds", "0.5", "--out", str(out)]
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
    check_questions(report["questions"], capsys.readouterr().out)


def check_questions(rows: list[dict[str, Any]], printed: str) -> None:
    """Each method asks each engine as often; the table has a row for each, with what was measured."""
    trips = {(row["method"], row["engine"]): (row["round_trips"], row["most_round_trips"]) for row in rows}
    methods = ["base search", "walk", "walk and PageRank", "`GraphRetriever`"]
    assert sorted(trips) == sorted((method, engine) for method in methods for engine in ("embedded", "gRPC", "REST"))
    for method in methods:
        assert len({trips[method, engine] for engine in ("embedded", "gRPC", "REST")}) == 1
    assert trips["base search", "REST"] == (1, 1) and 1 < trips["walk", "gRPC"][0] <= trips["walk", "gRPC"][1]
    assert all(0 < row["median_ms"] <= row["p95_ms"] and row["to_embedded"] > 0 for row in rows)
    table = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]
    assert [cells[0] for cells in table[2:]] == methods and {len(cells) for cells in table} == {4}
    for row in rows:
        cell = table[2 + methods.index(row["method"])][1 + ["embedded", "gRPC", "REST"].index(row["engine"])]
        given = [row["round_trips"], row["median_ms"], row["p95_ms"]]
        given += [row["to_embedded"]] if row["engine"] != "embedded" else []
        assert [float(figure) for figure in re.findall(r"[\d.]+", cell)] == given

"""The Compose files keep what they and the guides say: a key, loopback, volumes, health checks, one version."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from repository import EXAMPLES

FILES = sorted((EXAMPLES / "server").glob("*.yaml"))
GUIDE = (EXAMPLES / "guides" / "operate_and_scale.md").read_text("utf-8")


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / "server" / name).read_text("utf-8"))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_node_is_locked_kept_and_looked_after(path: Any) -> None:
    compose, used, published = read(path.name), list[str](), list[str]()
    assert f"examples/server/{path.name}" in GUIDE or f"server/{path.name}" in GUIDE
    (version,) = {node["image"] for node in compose["services"].values()}
    assert f"`{version}`" in GUIDE
    for node in compose["services"].values():
        assert re.match(r"\$\{QDRANT_API_KEY:\?.+\}$", node["environment"]["QDRANT__SERVICE__API_KEY"])
        assert all(isinstance(value, str) for value in node["environment"].values())  # Compose refuses truth values
        places = dict(volume.split(":")[::-1] for volume in node["volumes"])
        assert set(places) == {"/qdrant/storage", "/qdrant/snapshots"}
        used += places.values()
        for port in node["ports"]:
            address, outer, inner = port.split(":")
            assert address == "127.0.0.1" and inner in ("6333", "6334")
            published.append(outer)
        check = node["healthcheck"]["test"]
        assert check[:3] == ["CMD", "bash", "-c"] and "/readyz" in check[3] and "$" not in check[3]
        assert node["restart"] == "unless-stopped"
    assert sorted(used) == sorted(compose["volumes"]) and len(set(published)) == len(published)


def test_three_nodes_form_one_cluster() -> None:
    nodes = read("three-nodes.yaml")["services"]
    assert len(nodes) == 3
    for name, node in nodes.items():
        command = node["command"]
        options = dict(zip(command[1::2], command[2::2], strict=True))
        assert command[0] == "./entrypoint.sh" and options["--uri"] == f"http://{name}:6335"
        assert node["environment"]["QDRANT__CLUSTER__ENABLED"] == "true"
        first = next(iter(nodes))
        if name == first:
            assert "--bootstrap" not in options
        else:
            assert options["--bootstrap"] == f"http://{first}:6335"
            assert node["depends_on"] == {first: {"condition": "service_healthy"}}


def test_one_node_is_no_cluster() -> None:
    (node,) = read("one-node.yaml")["services"].values()
    assert "QDRANT__CLUSTER__ENABLED" not in node["environment"] and "command" not in node

"""A store is backed up and restored as the guide on operation says: its commands are run word for word."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from qdrant_client import QdrantClient, models
from qdrant_node import BINARY, Cluster, Node
from repository import EXAMPLES

from llama_index_gear import GeARVectorStore
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import contents, passage

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="set QDRANT_BIN to the path of a Qdrant server's binary"),
    pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection"),
]
KEY = "a secret of a test, and long enough"
BACK_UP, RESTORE = re.findall(
    r"```bash\n(.*?)```", (EXAMPLES / "guides" / "operate_and_scale.md").read_text("utf-8"), re.DOTALL
)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path / "node", SERVICE__API_KEY=KEY) as node:
        yield node


def make_store(node: Node, name: str = "docs", **arguments: Any) -> GeARVectorStore:
    client = QdrantClient(url=node.url, api_key=KEY, https=False, timeout=60, check_compatibility=False)
    return GeARVectorStore(
        name,
        client=client,
        embed_model=WordEmbedding(16),
        collection_settings=CollectionSettings(bm25_avg_len=60, **arguments),
    )


def make_nodes(first: int, last: int) -> list[Any]:
    embed = WordEmbedding(16)
    return [
        passage(
            f"p{n}", f"P{n} met P{n + 1}.", [(f"P{n}", "met", f"P{n + 1}"), ("All", "met", f"P{n}")], embed_model=embed
        )
        for n in range(first, last)
    ]


def run(command: str, folder: Path, *nodes: Node) -> None:
    addresses = " ".join(node.url for node in nodes)
    environment = {"PATH": os.environ["PATH"], "QDRANT": addresses, "QDRANT_API_KEY": KEY}
    folder.mkdir(exist_ok=True)
    subprocess.run(["bash", "-c", command], cwd=folder, env=environment, check=True)


def test_a_store_is_backed_up_lost_and_restored(node: Node, tmp_path: Path) -> None:
    store = make_store(node)
    store.add(make_nodes(0, 20))
    store.link_aliases([("All", "P3")])
    before = contents(store)
    run(BACK_UP, tmp_path / "backup", node)
    store.clear()
    run(RESTORE, tmp_path / "backup", node)
    restored = make_store(node)
    assert restored.check().ok and contents(restored) == before
    restored.delete_nodes(["p1"])
    restored.add(make_nodes(30, 32))
    run(RESTORE, tmp_path / "backup", node)  # also in place of what is there
    assert restored.check().ok and contents(restored) == before


def test_another_server_is_filled_from_a_backup(node: Node, tmp_path: Path) -> None:
    store = make_store(node)
    store.add(make_nodes(0, 5))
    run(BACK_UP, tmp_path / "backup", node)
    with Node(tmp_path / "other", SERVICE__API_KEY=KEY) as other:
        run(RESTORE, tmp_path / "backup", other)
        restored = make_store(other)
        assert restored.check().ok and contents(restored) == contents(store)


def test_what_was_written_between_the_two_snapshots_is_repaired(node: Node, tmp_path: Path) -> None:
    """The passages decide."""
    store = make_store(node)
    store.add(make_nodes(0, 10))
    one, other = (BACK_UP.replace("docs docs_triples", name) for name in ("docs", "docs_triples"))
    assert one != BACK_UP
    run(one, tmp_path / "backup", node)
    before = contents(store)
    store.delete_nodes(["p1", "p2"])
    store.add(make_nodes(10, 12))
    run(other, tmp_path / "backup", node)
    store.clear()
    run(RESTORE, tmp_path / "backup", node)
    restored = make_store(node)
    report = restored.check()
    assert sorted(report.incomplete) == ["p1", "p2"] and sorted(report.orphaned) == ["p10", "p11"]
    assert restored.repair().ok and contents(restored) == before


def test_a_script_ends_at_the_first_call_that_fails(node: Node, tmp_path: Path) -> None:
    make_store(node).add(make_nodes(0, 2))
    with pytest.raises(subprocess.CalledProcessError):
        run(BACK_UP.replace("docs docs_triples", "none docs"), tmp_path / "backup", node)
    assert not list((tmp_path / "backup").iterdir())


def find_places(node: Node, name: str) -> dict[int, int]:
    """Return how many points the node has of each of its shards."""
    client = QdrantClient(url=node.url, api_key=KEY, https=False, timeout=60, check_compatibility=False)
    info: Any = client.http.distributed_api.collection_cluster_info(name).result
    return {shard.shard_id: shard.points_count for shard in info.local_shards}


@pytest.mark.parametrize("copies", [1, 2])
def test_a_cluster_is_backed_up_lost_and_restored(tmp_path: Path, copies: int) -> None:
    """All is as it was, but for the places of the shards."""
    options = {"shard_number": 3, "replication_factor": copies, "write_consistency_factor": copies}
    with Cluster(tmp_path / "cluster", SERVICE__API_KEY=KEY) as cluster:
        store = make_store(cluster.nodes[0], collection_options=options)
        store.add(make_nodes(0, 60))
        store.link_aliases([("All", "P3")])
        before = contents(store)
        run(BACK_UP, tmp_path / "backup", *cluster.nodes)
        store.delete_nodes(["p1"])
        store.add(make_nodes(70, 75))
        for has_collections in (True, False):
            if not has_collections:
                store.clear()
            restore(cluster, tmp_path / "backup", before, copies)
    with Cluster(tmp_path / "other", SERVICE__API_KEY=KEY) as other:
        restore(other, tmp_path / "backup", before, copies)


def restore(cluster: Cluster, folder: Path, before: Any, copies: int) -> None:
    """Restore a backup; each node answers with all that was stored, and the shards are where the guide says."""
    run(RESTORE, folder, *cluster.nodes)
    stores = [make_store(node) for node in cluster.nodes]
    names = [stores[0].collection_name, stores[0].triple_collection_name]
    for store in stores:
        cluster.wait_until_whole(store.client, names)
    for store in stores:
        assert store.check(sample_size=0).ok and contents(store) == before
    for name in names:
        held = [find_places(node, name) for node in cluster.nodes]
        assert held[-1].keys() == {0, 1, 2} and all(held[-1].values())
        assert all(points == held[-1][shard] for places in held for shard, points in places.items())
        assert copies > 1 or held[:-1] == [{}, {}]
        assert all(sum(shard in places for places in held) >= copies for shard in held[-1])


def test_an_alias_leads_to_another_collection_in_one_call(node: Node) -> None:
    """Readers that have the alias's name read the other one from the next call on."""
    one, two = (
        make_store(node, "docs_1"),
        make_store(node, "docs_2", vector_options={"on_disk": True}),
    )
    one.add(make_nodes(0, 5))

    def lead_to(name: str) -> None:
        one.client.update_collection_aliases(
            [
                models.CreateAliasOperation(
                    create_alias=models.CreateAlias(collection_name=f"{name}{end}", alias_name=f"current{end}")
                )
                for end in ("", "_triples")
            ]
        )

    lead_to("docs_1")
    reader = make_store(node, "current")
    assert len(reader.get_nodes()) == 5 and reader.check().ok
    one.copy_to(two)
    two.add(make_nodes(5, 6))
    lead_to("docs_2")
    assert len(reader.get_nodes()) == 6 and reader.check().ok
    reader.add(make_nodes(6, 7))
    assert len(two.get_nodes()) == 7


@pytest.mark.parametrize("is_up", [True, False])
def test_the_health_check_of_the_compose_files_says_whether_a_node_is_ready(node: Node, is_up: bool) -> None:
    checks = {
        " ".join(service["healthcheck"]["test"][3:])
        for path in (EXAMPLES / "server").glob("*.yaml")
        for service in yaml.safe_load(path.read_text("utf-8"))["services"].values()
    }
    (check,) = checks
    if not is_up:
        node.kill()
    command = check.replace("/127.0.0.1/6333", f"/127.0.0.1/{node.port}")
    assert command != check
    assert (subprocess.run(["bash", "-c", command], check=False).returncode == 0) is is_up

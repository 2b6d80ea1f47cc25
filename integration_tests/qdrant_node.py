"""A Qdrant node of a test's own: it starts on loopback, is killed, and starts again with what it stored."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from qdrant_client import AsyncQdrantClient, QdrantClient

BINARY = os.environ.get("QDRANT_BIN")
START_LIMIT = 120.0  # seconds
END_LIMIT = 10.0  # seconds


class Node:
    """A Qdrant server that keeps its data in a folder and has the same two ports whenever it runs.

    Args:
        folder: the folder.
        arguments: further arguments of the server's command. Default: none.
        **settings: environment variables of the server, without "QDRANT__".

    """

    def __init__(self, folder: Path, arguments: Sequence[str] = (), **settings: str) -> None:
        self.folder = folder
        self.arguments = arguments
        self.port, self.grpc_port = find_free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("QDRANT")},
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self.port),
            "QDRANT__SERVICE__GRPC_PORT": str(self.grpc_port),
            "QDRANT__STORAGE__STORAGE_PATH": str(folder / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(folder / "snapshots"),
            **{f"QDRANT__{name}": value for name, value in settings.items()},
        }

    def start(self) -> None:
        """Start the server, and return once it is ready."""
        self.launch()
        deadline = time.monotonic() + START_LIMIT
        while not self._is_ready():
            assert self._process is not None
            assert self._process.poll() is None and time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.05)

    def launch(self) -> None:
        """Start the server, without waiting for it."""
        assert BINARY is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            command = [BINARY, "--disable-telemetry", *self.arguments]
            self._process = subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=log, stderr=subprocess.STDOUT
            )

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Ask the server to end, as its owner does; end it if it has not after ten seconds, as Docker does.

        A server that is asked while it starts may never end: a service that starts behind the signal runs on.
        """
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(END_LIMIT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def signal(self, number: int) -> None:
        """Send the server a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def make_clients(self, *, prefer_grpc: bool, **options: Any) -> tuple[QdrantClient, AsyncQdrantClient]:
        """Make both clients of the node."""
        settings = {"url": self.url, "grpc_port": self.grpc_port, "prefer_grpc": prefer_grpc, **options}
        settings["check_compatibility"] = False  # the check would ask a node that is away
        return QdrantClient(**settings), AsyncQdrantClient(**settings)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()


class Cluster:
    """A cluster of three nodes on loopback, each in a folder of its own.

    Args:
        folder: the folder of all.
        **settings: environment variables of each node, without "QDRANT__".

    """

    def __init__(self, folder: Path, **settings: str) -> None:
        ports = find_free_ports(3)
        addresses = [f"http://127.0.0.1:{port}" for port in ports]
        self.nodes = []
        for number, (port, address) in enumerate(zip(ports, addresses, strict=True)):
            arguments = ["--uri", address, *(["--bootstrap", addresses[0]] if number else [])]
            own = {"CLUSTER__ENABLED": "true", "CLUSTER__P2P__PORT": str(port)}
            self.nodes.append(Node(folder / f"node-{number}", arguments, **settings, **own))

    def wait_until_whole(self, client: QdrantClient, names: Sequence[str]) -> None:
        """Return once every replica of these collections is active, and nothing is being transferred."""
        deadline = time.monotonic() + START_LIMIT
        while True:
            states = [self._list_states(client, name) for name in names]
            if all(states) and {state for found in states for state in found} == {"Active"}:
                return
            assert time.monotonic() < deadline, states
            time.sleep(0.2)

    def _list_states(self, client: QdrantClient, name: str) -> list[str]:
        info: Any = client.http.distributed_api.collection_cluster_info(name).result
        moving = ["moving"] * len(info.shard_transfers)
        return [shard.state.value for shard in [*info.local_shards, *info.remote_shards]] + moving

    def __enter__(self) -> Self:
        for node in self.nodes:
            node.start()
        return self

    def __exit__(self, *error: object) -> None:
        for node in self.nodes:
            node.kill()


_found = set[int]()


def find_free_ports(count: int) -> list[int]:
    """Find ports of loopback that nobody listens at, and that were not found before: who asked may listen later."""
    sockets: list[socket.socket] = []
    ports: list[int] = []
    while len(ports) < count:
        sockets.append(socket.socket())
        sockets[-1].bind(("127.0.0.1", 0))
        if (port := sockets[-1].getsockname()[1]) not in _found:
            ports.append(port)
    _found.update(ports)
    for opened in sockets:
        opened.close()
    return ports

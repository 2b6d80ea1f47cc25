"""The connection of a store and of an external graph: LlamaIndex's order of arguments, a server's url, a client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from llama_index.core.schema import TextNode
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import AsyncQdrantClient, QdrantClient

from llama_index_gear.errors import ArgumentError
from llama_index_gear.knowledge_graph.store import ExternalTripleStore
from llama_index_gear.store.connection import Connection
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding

Connected: TypeAlias = GeARVectorStore | ExternalTripleStore
EMBED = WordEmbedding(8)

pytestmark = pytest.mark.filterwarnings("ignore:Api key is used with an insecure connection")


class Server(ThreadingHTTPServer):
    """A server on which no collection exists for those who know the key; it notes each request's path and agent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.asked: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        agent = str(self.headers["user-agent"])
        self.server.asked.append((self.path, "async" if "async" in agent else "sync"))
        body = b'{"result": {"exists": false}, "status": "ok", "time": 0.0}'
        self.send_response(200 if self.headers["api-key"] == "secret" else 403)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(params=[GeARVectorStore, ExternalTripleStore])
def kind(request: pytest.FixtureRequest) -> type[Connected]:
    return request.param  # type: ignore[no-any-return]


def get_clients(connected: Connected) -> tuple[Any, Any]:
    return connected._connection.sync, connected._connection.native


def is_closed(client: Any) -> bool:
    return bool(client._client.closed)


async def ask(connected: Connected, is_async: bool) -> object:
    if isinstance(connected, GeARVectorStore):
        return await connected.aget_nodes() if is_async else connected.get_nodes()
    return await connected.acount() if is_async else connected.count()


async def test_a_url_is_asked_at_the_first_call_and_not_before(kind: type[Connected], server: Server) -> None:
    connected = kind("mine", url=server.url, api_key="secret", embed_model=EMBED)
    assert not server.asked
    assert not await ask(connected, False) and not await ask(connected, True)
    assert server.asked and {path for path, _ in server.asked} == {"/collections/mine/exists"}
    assert all(
        isinstance(*pair) for pair in zip(get_clients(connected), (QdrantClient, AsyncQdrantClient), strict=True)
    )
    await connected.aclose()
    assert all(map(is_closed, get_clients(connected)))


@pytest.mark.parametrize("is_async", [False, True])
async def test_closing_closes_both_clients_that_were_made(
    kind: type[Connected], server: Server, is_async: bool
) -> None:
    connected = kind("mine", url=server.url, api_key="secret", embed_model=EMBED)
    await ask(connected, is_async)
    assert not any(map(is_closed, get_clients(connected)))
    connected.close()
    assert all(map(is_closed, get_clients(connected)))


def test_closing_leaves_an_async_client_that_was_given_to_its_owner(kind: type[Connected], server: Server) -> None:
    aclient = AsyncQdrantClient(url=server.url, check_compatibility=False)
    kind("mine", aclient=aclient, embed_model=EMBED).close()
    assert not is_closed(aclient)


def test_the_url_of_a_store_s_tenant_is_the_store_s(server: Server) -> None:
    store = GeARVectorStore(url=server.url, api_key="secret", embed_model=EMBED, tenant_field="who")
    assert store.for_tenant("one").get_nodes() == []
    assert get_clients(store.for_tenant("one")) == get_clients(store)
    store.close()


@pytest.mark.parametrize("by_name", [False, True])
def test_llama_index_s_store_gives_way_by_its_class_alone(by_name: bool) -> None:
    for kind in (QdrantVectorStore, GeARVectorStore):
        make: Any = kind
        client = QdrantClient(":memory:")
        store = make(collection_name="notes", client=client) if by_name else make("notes", client)
        store.add([TextNode(id_="6f1c1f0e-2f5a-4a4b-8f3b-0d6f2c1e7a11", text="x", embedding=[1.0, 0.0])])
        assert store.client is client and client.count("notes").count == 1


NO_SERVER = ("", " ", "http://", "ftp://x", "http://[", "/var/store", ":memory:", "http://x:99999", "\ud800")


def test_what_leads_to_no_server_or_to_two_is_refused(kind: type[Connected], tmp_path: Path) -> None:
    sync, native = QdrantClient(":memory:"), AsyncQdrantClient(":memory:")
    anything: Any = kind
    url = "http://localhost:6333"
    refused: list[tuple[dict[str, Any], str]] = [
        ({}, rf"url='http://localhost:6333' or client=QdrantClient.*{kind.__name__}.from_path\(folder\)"),
        ({"url": url, "client": sync}, "either url, or client and aclient"),
        ({"url": url, "aclient": native}, "either url, or client and aclient"),
        ({"api_key": "secret"}, "needs a Qdrant server"),
        ({"client": sync, "api_key": "secret"}, r"api_key goes with url: .*QdrantClient\(url=…, api_key=…\)"),
        ({"client": EdgeClient(tmp_path), "aclient": native}, "leave aclient out"),
        ({"client": native}, r"client must be a QdrantClient, got <AsyncQdrantClient>: write client=QdrantClient\(…\)"),
        ({"aclient": sync}, "aclient must be a AsyncQdrantClient"),
        ({"client": QdrantClient}, "client must be a QdrantClient, got <class QdrantClient>"),
        ({"client": url}, "client must be a QdrantClient"),
        ({"url": 6333}, "url must be a str or None, got 6333: write url='http://localhost:6333'"),
        ({"url": url, "api_key": 5}, "api_key must be a str or None"),
        (
            {"client": sync, "embed_model": "local"},
            "embed_model must be a BaseEmbedding or None, .*Settings",
        ),
        *(({"url": no_url}, "url must be a server's address like 'http://localhost:6333'") for no_url in NO_SERVER),
    ]
    for arguments, message in refused:
        with pytest.raises(ArgumentError, match=message):
            anything("mine", **arguments)
    with pytest.raises(ArgumentError, match="collection_name must be a str, got <QdrantClient>: .* write client=…"):
        anything(sync)
    for name, value in (("client", sync), ("aclient", native), ("url", url), ("api_key", "x")):
        with pytest.raises(ArgumentError, match=f"from_path makes its own client: leave {name} out"):
            anything.from_path(tmp_path, **{name: value})
    with pytest.raises(ArgumentError, match="path must be a str or Path, got 5"):
        anything.from_path(5)


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://LOCALHOST"},
        {"url": "localhost:6333/"},
        {"url": "http://127.0.0.1:6333"},
        {"url": "http://127.0.1.1:6333/"},
        {"url": "http://[::1]:6333"},
        {"host": "0.0.0.0", "grpc_port": 7334, "prefer_grpc": True},
        {"url": "http://user:password@localhost", "api_key": "secret"},
        {"location": "http://localhost"},
        {"host": "localhost"},
        {"host": "localhost", "port": 6333, "prefer_grpc": True},
        {},
    ],
)
def test_one_server_is_one_however_its_address_is_written(options: dict[str, Any]) -> None:
    for make in (QdrantClient, AsyncQdrantClient):
        client: Any = make(check_compatibility=False, **options)
        is_async = make is AsyncQdrantClient
        connection = Connection(
            "Owner", None if is_async else client, client if is_async else None, None, None, None, 0.0
        )
        assert connection.engine == connection.place == "localhost:6333"


def test_places_differ_by_port_prefix_and_folder(tmp_path: Path) -> None:
    def place(client: QdrantClient) -> str:
        connection = Connection("Owner", client, None, None, None, None, 0.0)
        assert (connection.engine == connection.place) == connection.is_server
        return connection.place

    assert place(QdrantClient("http://localhost:7000", check_compatibility=False)) == "localhost:7000"
    options: dict[str, Any] = {"prefix": "a/b", "https": True, "check_compatibility": False}
    assert place(QdrantClient(host="Qdrant", **options)) == "qdrant:6333/a/b"
    assert place(QdrantClient("https://qdrant/a/b/", check_compatibility=False)) == "qdrant:6333/a/b"
    assert place(QdrantClient(path=str(tmp_path / "a"))) == str((tmp_path / "a").resolve())
    assert place(QdrantClient(":memory:")) == "memory"

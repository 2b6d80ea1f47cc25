"""The tools of `mcp`, called by the SDK's own client in this process: results, bounds, tenants, errors."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import pytest
from llama_index.core.llms import LLM
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from llama_index_gear import GeARVectorStore, MentionTripleExtractor
from llama_index_gear.cli import mcp_store, store_folder
from llama_index_gear.cli import serving as serving
from llama_index_gear.cli.mcp_results import Passages
from llama_index_gear.cli.store_note import StoreNote, add_probe, write_note
from llama_index_gear.errors import ArgumentError
from llama_index_gear.store import connection
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.testing import ScriptedLLM, WordEmbedding

mcp = pytest.importorskip("mcp.server.mcpserver", reason="needs the extra mcp") and pytest.importorskip("mcp")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the SDK's own

Runner = Callable[..., Any]
QUESTION = "Where was the granddaughter of Oppenheimer's adviser born?"
STEPS = [
    '{"needed": [], "facts": [["Max Born", "adviser of", "Oppenheimer"]], "answerable": false, '
    '"query": "Who is a granddaughter of Max Born?"}',
    '{"needed": [1], "facts": [], "answerable": true, "answer": "Cambridge"}',
]


class Session:
    """A client of a server in this process."""

    def __init__(self, folder: Path, *, write: bool = False, llm: LLM | None = None, tenant: Any = None) -> None:
        from llama_index_gear.cli.mcp_server import build_server

        self.tools = serving.StoreTools(folder, llm=llm, tenant=tenant)
        self._client = mcp.Client(build_server(lambda: self.tools, asks=llm is not None, write=write))

    async def __aenter__(self) -> Session:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._client.__aexit__(*error)

    async def close_store(self) -> None:
        """Have the server close the store: no other client of this process can wait for that."""
        await self.tools.finish()

    async def list_names(self) -> set[str]:
        return {tool.name for tool in (await self._client.list_tools()).tools}

    async def list_tools(self) -> list[Any]:
        return list((await self._client.list_tools()).tools)

    async def call(self, name: str, **arguments: Any) -> tuple[str, Any]:
        """Return a tool's text and data."""
        result = await self._client.call_tool(name, arguments)
        assert not result.is_error, result.content
        return result.content[0].text, result.structured_content

    async def fail(self, name: str, **arguments: Any) -> str:
        """Return the text of a tool's error, which is one line."""
        result = await self._client.call_tool(name, arguments)
        assert result.is_error and "\n" not in result.content[0].text
        return str(result.content[0].text)


@pytest.fixture
def folder(run: Runner, docs: Path, tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store of the files."""
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    run("index", "docs", "--store", "s")
    return tmp_path / "s"


@pytest.fixture
def notes(tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a passage of another program: its id is like one that `add` makes, and like a document's."""
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    write(tmp_path / "s", "note-0", "The diary of Ann begins in Basel.", document="diary")
    return tmp_path / "s"


def write(folder: Path, node_id: str, text: str, document: str, **metadata: Any) -> None:
    """Store a passage of a document."""
    node = TextNode(id_=node_id, text=text, metadata=metadata)
    node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        store.add(store.embed_model([node]))


def read(folder: Path) -> dict[str, str]:
    """Return the id and text of each passage."""
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
        return {node.node_id: node.get_content() for node in store.get_nodes()}


async def test_search_gives_passages_with_chains_as_text_and_as_data(folder: Path) -> None:
    async with Session(folder) as session:
        text, data = await session.call("search", question=QUESTION)
        assert len(data["passages"]) == 4
        (olivia,) = [passage for passage in data["passages"] if passage["title"] == "Olivia"]
        assert (olivia["id"], olivia["document"]) == ("people/Olivia.txt-0", "people/Olivia.txt")
        assert olivia["chain"][-1][0] == "Olivia" and olivia["text"].startswith("Olivia was born in Cambridge")
        assert "] Olivia (id: people/Olivia.txt-0)\n   ↳ J. Robert Oppenheimer — " in text
        _, few = await session.call("search", question=QUESTION, top_k=1)
        assert few["passages"] == data["passages"][:1]
        for unset in (None, ""):
            assert (await session.call("search", question=QUESTION, top_k=unset))[1] == data


async def test_the_server_tells_the_package_s_version_and_top_k_stays_a_number(folder: Path) -> None:
    async with Session(folder) as session:
        assert session._client.server_info.version == version("llama-index-gear")
        (search,) = [tool for tool in await session.list_tools() if tool.name == "search"]
    assert search.input_schema["properties"]["top_k"]["type"] == "integer"
    assert search.input_schema["properties"]["top_k"]["default"] == 5


async def test_explain_says_why_a_passage_was_found(folder: Path) -> None:
    async with Session(folder) as session:
        _, found = await session.call("search", question=QUESTION)
        rank = [passage["title"] for passage in found["passages"]].index("Olivia") + 1
        text, data = await session.call("explain", question=QUESTION, id="people/Olivia.txt-0")
        assert data["rank"] == rank and data["lists"] and data["reasons"]
        assert data["passage"]["chain"][-1][0] == "Olivia"
        assert text.startswith(f"Rank {rank}.\n- ") and data["reasons"][0] in text
        wrong = await session.fail("explain", question=QUESTION, id="Olivia")
        assert wrong == "there is no passage 'Olivia': take an id that search returned"


async def test_an_agent_answers_with_citations_and_tells_of_its_steps(folder: Path) -> None:
    told: list[tuple[float, str | None]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with Session(folder, llm=ScriptedLLM(STEPS)) as session:
        assert await session.list_names() == {"search", "explain", "ask"}
        result = await session._client.call_tool("ask", {"question": QUESTION}, progress_callback=note)
    data = result.structured_content
    assert data["answer"] == "Cambridge [1]" and data["stopped"] == "answered" and data["model_calls"] == 2
    (citation,) = data["citations"]
    assert result.content[0].text == f"Cambridge [1]\n[1] {citation['title']} (id: {citation['id']})"
    assert data["facts"] == [["Max Born", "adviser of", "Oppenheimer"]]
    assert told == [(1, f"searches: {QUESTION}"), (2, "searches: Who is a granddaughter of Max Born?")]


async def test_nothing_can_be_changed_unless_told(folder: Path) -> None:
    async with Session(folder) as session:
        tools = await session.list_tools()
        assert {tool.name for tool in tools} == {"search", "explain"}
        assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools)
        assert "Unknown tool" in await session.fail("delete", id="Lego.txt")
    async with Session(folder, write=True) as session:
        hints = {tool.name: tool.annotations.read_only_hint for tool in await session.list_tools()}
        assert hints == {"search": True, "explain": True, "add": False, "delete": False}


async def test_a_document_is_added_replaced_and_deleted(run: Runner, folder: Path) -> None:
    long = "\n\n".join(f"Paragraph {n} tells of Wombat Hill, of Basel, a city of Switzerland." for n in range(16))
    async with Session(folder, write=True) as session:
        text, data = await session.call("add", text=long, title="Wombat Hill", id="note")
        assert data["added"] > 1 and text == f"note: {data['added']} passages added."
        parts = data["added"]
        _, data = await session.call("add", text="Wombat Hill lies in Victoria.", title="Wombat Hill", id="note")
        assert (data["added"], data["deleted"]) == (1, parts - 1)
        text, data = await session.call("search", question="Where does Wombat Hill lie?", top_k=1)
        assert data["passages"][0]["id"] == "note-0" and data["passages"][0]["document"] == "note"
        # `index` keeps what came without a file, and works while the server runs.
        await session.close_store()
        again = run("index", "docs", "--store", "s").err  # the server keeps stdout free
        assert "4 passages: 0 new or changed, 0 deleted" in again
        with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
            assert store.check().ok and store.get_nodes(["note-0"])[0].metadata["gear_triples"]
        text, data = await session.call("delete", id="note")
        assert data == {"document": "note", "added": 0, "deleted": 1, "note": ""}
        text, data = await session.call("delete", id="Lego.txt-0")
        assert text == "Lego.txt-0: 1 passage deleted. Its file is still there: the next `index` brings it back."
        assert "no document and no passage 'note'" in await session.fail("delete", id="note")
        assert await session.fail("add", text=" ", title="Lego", id="l") == "text must not be empty"
        assert "id has 1,001 characters" in await session.fail("add", text="Toys.", title="Lego", id=1_001 * "l")
        for name in ("text", "title", "id"):
            with pytest.raises(ArgumentError, match=f"{name} holds half a character"):
                await session.tools.add(**{"text": "Toys.", "title": "Lego", "id": "l", name: "a\ud800"})
        await session.close_store()
        run("index", "docs", "--store", "s")
        refused = await session.fail("add", text="Toys.", title="Lego", id="Lego.txt")
        assert refused == "'Lego.txt' is a file: change the file and run `index`, or take another id"


async def test_an_id_may_be_spelled_in_decomposed_letters(run: Runner, folder: Path, docs: Path) -> None:
    (docs / "Gro\u0308ße.txt").write_text("Größe is a town.", "utf-8")
    run("index", "docs", "--store", "s")
    async with Session(folder, write=True) as session:
        refused = await session.fail("add", text="Toys.", title="Lego", id="Gro\u0308ße.txt")
        assert refused.startswith("'Größe.txt' is a file")
        for id in ("Mu\u0308he", "Mühe"):
            await session.call("add", text=f"{id} lies in Victoria.", title="M", id=id)
            await session.close_store()
            assert sum(text.endswith("Victoria.") for text in read(folder).values()) == 1
        _, data = await session.call("explain", question=QUESTION, id="Mu\u0308he-0")
        assert data["passage"]["id"] == "Mühe-0"
        _, data = await session.call("delete", id="Mu\u0308he")
        assert data["deleted"] == 1


async def test_adding_a_document_overwrites_no_other_one_s_passage(notes: Path) -> None:
    stored = read(notes)
    async with Session(notes, write=True) as session:
        refused = await session.fail("add", text="Lego makes toys.", title="Lego", id="note")
    assert refused == "the passage 'note-0' is of another document: take another id than 'note'"
    assert read(notes) == stored


async def test_an_id_that_means_two_things_deletes_neither(notes: Path) -> None:
    write(notes, "other", "Lego makes toys.", document="note-0")
    async with Session(notes, write=True) as session:
        refused = await session.fail("delete", id="note-0")
        assert refused == (
            "'note-0' is a document, and a passage of another one: delete the document's passages, each by its own id "
            "('other'); then 'note-0' means the passage alone"
        )
        await session.close_store()
        assert len(read(notes)) == 2
        await session.call("delete", id="other")
        await session.call("delete", id="note-0")
    assert not read(notes)


async def test_of_two_documents_with_one_id_the_later_is_stored_whole(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(WordEmbedding):
        def _get_text_embedding(self, text: str) -> list[float]:
            time.sleep(0.3 if "Victoria" in text else 0)
            return super()._get_text_embedding(text)

    monkeypatch.setattr(serving, "load_embedding", lambda name: Slow())
    long = "\n\n".join(f"Paragraph {n} tells of Wombat Hill, of Basel, a city of Switzerland." for n in range(16))
    async with Session(notes, write=True) as session:
        texts = [long, "Wombat Hill lies in Victoria."]
        await asyncio.gather(*(session.call("add", text=text, title="Wombat Hill", id="hill") for text in texts))
    stored = [text for name, text in read(notes).items() if name != "note-0"]
    assert stored == texts[1:] or "Victoria" not in " ".join(stored)


async def test_half_a_character_ends_no_server(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models write them, and no protocol can send them."""
    monkeypatch.setattr("llama_index_gear.llm.client.MAX_RETRIES", 0)
    steps = ['{"needed": [1], "facts": [], "answerable": true, "answer": ""}', "Basel \ud83d [1]"]
    async with Session(notes, llm=ScriptedLLM(steps)) as session:
        _, data = await session.call("ask", question="Where does it begin?")
        assert data["answer"] == "Basel \ufffd [1]"
        assert [cited["title"] for cited in data["citations"]] == ["The diary of Ann begins in Basel."]
    async with Session(notes, llm=ScriptedLLM([ConnectionError("no \ud83d\nat port 1")])) as session:
        assert "no \ufffd at port 1" in await session.fail("ask", question="Where does it begin?")


async def test_a_fault_inside_a_tool_is_logged_and_not_taken_for_wrong_arguments(
    notes: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with Session(notes) as session:
        monkeypatch.setattr(session.tools, "search", lambda *_: asyncio.to_thread(Passages.model_validate, {}))
        assert await session.fail("search", question=QUESTION) == "Error executing tool search"
    assert "ValidationError" in caplog.text


async def test_the_embedding_model_is_the_one_that_filled_the_store(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = []

    def load(name: str) -> WordEmbedding:
        loaded.append(name)
        return WordEmbedding()

    monkeypatch.setattr(serving, "load_embedding", load)
    async with Session(notes) as session:
        for name in ("first", "first", "second"):  # another program may fill the store anew while the server runs
            write_note(notes, add_probe(StoreNote(name), WordEmbedding()))
            await session.call("search", question=QUESTION)
            await session.close_store()
    assert loaded == ["first", "second"]


async def test_a_collection_s_passage_is_changed_there(notes: Path) -> None:
    write(notes, "7", "Lego makes toys.", document="lego", gear_source={"collection": "docs"})
    async with Session(notes, write=True) as session:
        refused = await session.fail("add", text="Lego makes bricks.", title="Lego", id="lego")
        assert refused == "'lego' is of a collection: change it there and run `extract`, or take another id"
        text, _ = await session.call("delete", id="lego")
    assert text == "lego: 1 passage deleted. It is still in its collection: the next `extract` brings it back."


async def test_a_tenant_s_server_sees_and_writes_its_passages_only(
    tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    nodes = [
        TextNode(id_=name, text=f"The code of {name} is {number}.", metadata={"title": name, "customer": name})
        for number, name in enumerate(["acme", "zeta"], start=40)
    ]
    nodes.append(TextNode(id_="plan-0", text="The plan of zeta.", metadata={"customer": "zeta"}))
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=embedding, tenant_field="customer") as store:
        store.add(embedding(MentionTripleExtractor()(nodes)))
    async with Session(tmp_path / "s", write=True, tenant=("customer", "acme")) as session:
        _, data = await session.call("search", question="What is the code?")
        assert [passage["id"] for passage in data["passages"]] == ["acme"]
        assert "no passage 'zeta'" in await session.fail("explain", question="What is the code?", id="zeta")
        assert "no document and no passage 'zeta'" in await session.fail("delete", id="zeta")
        refused = await session.fail("add", text="The plan of acme.", title="Plan", id="plan")
        assert refused == "the id 'plan' cannot be taken: choose another"  # nothing of whose it is
        await session.call("add", text="Acme makes anvils.", title="Anvils", id="anvils")
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=embedding, tenant_field="customer") as store:
        assert {node.node_id for node in store.for_tenant("acme").get_nodes()} == {"acme", "anvils-0"}
        assert {node.node_id for node in store.for_tenant("zeta").get_nodes()} == {"zeta", "plan-0"}


async def test_errors_are_one_line_and_the_server_goes_on(folder: Path, tmp_path: Path) -> None:
    async with Session(folder) as session:
        with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as store:
            store.get_nodes()
            locked = await session.fail("search", question=QUESTION)
        assert "another process has the store open: repeat it when that has ended" in locked
        assert (await session.call("search", question=QUESTION))[1]["passages"]
        assert await session.fail("search") == "search: question: Field required"
        assert "top_k: Input should be less than or equal to 20" in await session.fail(
            "search", question=QUESTION, top_k=21
        )
        assert await session.fail("search", question="a" * 100_001)
    async with Session(tmp_path / "gone") as session:
        assert "fill one with `llama-index-gear index" in await session.fail("search", question=QUESTION)
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("request_of", ["resource", "prompt", "completion", "tool"])
async def test_errors_outside_a_tool_are_bounded_too(notes: Path, request_of: str) -> None:
    """They quote the names that a client makes up."""
    long = "x" * 100_000
    async with Session(notes) as session:
        client = session._client
        with pytest.raises(mcp.MCPError) as raised:
            if request_of == "resource":
                await client.read_resource(f"gear://{long}")
            elif request_of == "prompt":
                await client.get_prompt(long)
            elif request_of == "completion":
                await client.complete(
                    mcp.types.PromptReference(type="ref/prompt", name=long), {"name": "a", "value": ""}
                )
            else:
                await client.session.send_request(mcp.types.Request(method=long, params=None), mcp.types.EmptyResult)
        assert len(raised.value.message) + len(str(raised.value.data)) < 3_000
        assert "\n" not in raised.value.message and (await session.list_names()) == {"search", "explain"}


async def test_calls_share_the_store_which_stays_open_between_them(folder: Path, embedding: Any) -> None:
    async with Session(folder) as session:
        embedding.embedded = 0
        found = await asyncio.gather(*(session.call("search", question=QUESTION) for _ in range(4)))
        assert len({text for text, _ in found}) == 1
        store = session.tools._shared._store
        await session.call("search", question=QUESTION)
        assert store is not None and session.tools._shared._store is store
    with GeARVectorStore.from_path(folder, embed_model=WordEmbedding()) as opened:  # refused if it were still open
        assert len(opened.get_nodes()) == 4


async def test_a_store_that_nobody_uses_is_closed_and_a_written_one_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(folder, write=True) as session:
        shared = session.tools._shared
        await session.call("add", text="Ada Orr met Bob Ray in Ulm.", title="Ada Orr", id="ada")
        while shared.is_open:  # noqa: ASYNC110 - for as long as the test may take
            await asyncio.sleep(0.01)
        await session.call("search", question=QUESTION)
        monkeypatch.setattr(mcp_store, "_IDLE", 0.01)
        while shared.is_open:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (await session.call("search", question=QUESTION))[1]["passages"]


async def test_a_store_that_fails_to_close_leaves_the_folder_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: GeARVectorStore) -> None:
        close(self)
        raise OSError("the disk is full")

    close = GeARVectorStore.close
    async with Session(folder) as session:
        await session.call("search", question=QUESTION)
        with monkeypatch.context() as patched:
            patched.setattr(GeARVectorStore, "close", fail)
            await session.close_store()
        assert "the disk is full" in caplog.text and session.tools._shared._folder_lock is None
        assert (await session.call("search", question=QUESTION))[1]["passages"]


async def test_a_store_that_was_deleted_and_filled_anew_is_opened_anew(run: Runner, docs: Path, folder: Path) -> None:
    async with Session(folder) as session:
        await session.call("search", question=QUESTION)
        shutil.rmtree(folder)
        (docs / "Lego.txt").unlink()
        await asyncio.to_thread(run, "index", "docs", "--store", "s")
        assert len((await session.call("search", question=QUESTION, top_k=20))[1]["passages"]) == 3


class Turned(WordEmbedding):
    """A model with other vectors of the same dimension."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return super()._get_text_embedding(text)[::-1]


async def test_a_server_that_goes_on_refuses_a_store_that_was_filled_anew_with_other_vectors(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Session(folder, write=True) as session:
        await session.call("search", question=QUESTION)
        await session.close_store()
        monkeypatch.setattr(store_folder, "load_embedding", lambda name: Turned())
        assert run("repair", "--reembed", "--store", "s").code == 0
        assert "now makes other vectors" in await session.fail("search", question=QUESTION)
        assert "now makes other vectors" in await session.fail("add", text="Toys.", title="Toys", id="toys")
        monkeypatch.setattr(serving, "load_embedding", lambda name: Turned())  # what has the name is loaded anew
        assert (await session.call("search", question=QUESTION))[1]["passages"]


async def test_what_a_model_is_given_is_bounded(
    tmp_path: Path, embedding: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "load_embedding", lambda name: embedding)
    nodes = [
        TextNode(id_=str(n), text=f"Olivia {n} met " + "Max Born again " * 800, metadata={"title": "Olivia " * 900})
        for n in range(4)
    ]
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=embedding) as store:
        store.add(embedding(MentionTripleExtractor()(nodes)))
    async with Session(tmp_path / "s") as session:
        text, data = await session.call("search", question="Whom did Olivia meet?", top_k=20)
        assert len(data["passages"]) == 4 and len(text) < 4 * 3_000
        assert data["passages"][0]["text"].endswith(" …") and len(data["passages"][0]["title"]) <= 200
        text, data = await session.call("explain", question="Whom did Olivia meet?", id="1")
        assert 7_000 < len(text) < 12_000 and data["passage"]["text"].endswith(" …")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--store", "storr"], 1, "no store in storr: fill one with `llama-index-gear index DIR --store storr`"),
        (["--store", "s", "--tenant", "acme"], 2, "write the metadata field and the tenant's name, customer=acme"),
        (["--store", "s", "--embed", "another/model"], 1, "was filled with the embedding model"),
        (["--store", "s", "--llm", "gpt-4o"], 1, "Set OPENAI_API_KEY, or OPENAI_BASE_URL"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_served(
    run: Runner, folder: Path, arguments: list[str], code: int, words: str
) -> None:
    refused = run("mcp", *arguments)
    assert (refused.code, refused.out) == (code, "") and words in refused.err and refused.err.count("\n") == 1
    assert not (folder.parent / "storr").exists()


class SlowClient(EdgeClient):
    """An embedded engine that says when it has written, and lets the event loop go on meanwhile."""

    written: ClassVar[Callable[[], object]] = lambda: None

    def _update(self, *arguments: Any) -> None:
        super()._update(*arguments)
        type(self).written()
        time.sleep(0.05)


@pytest.mark.parametrize("tool", ["add", "delete"])
async def test_a_write_that_a_client_cancels_is_done_to_its_end(
    notes: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    """The same call again is answered afterwards, and the store is closed."""
    monkeypatch.setattr(connection, "EdgeClient", SlowClient)
    first = {"text": "Ada Orr secretly met Bob Ray in Ulm.", "title": "Ada Orr", "id": "ada"}
    edited = {**first, "text": "Ada Orr likes tea from Wales."}
    for write_number in range(1, 9):
        async with Session(notes, write=True) as session:
            await session.call("add", **first)
            loop, count = asyncio.get_running_loop(), 0
            arguments = edited if tool == "add" else {"id": "ada"}
            task = asyncio.ensure_future(session._client.call_tool(tool, arguments))

            def cancel() -> None:
                nonlocal count
                count += 1
                if count == write_number:  # noqa: B023 - called within this round
                    loop.call_soon_threadsafe(task.cancel)  # noqa: B023

            monkeypatch.setattr(SlowClient, "written", staticmethod(cancel))
            with suppress(asyncio.CancelledError):
                await task
            monkeypatch.setattr(SlowClient, "written", staticmethod(lambda: None))
            if tool == "add":
                await session.call("add", **edited)
            elif task.cancelled():
                assert "no document" in await session.fail("delete", id="ada")
        with GeARVectorStore.from_path(notes, embed_model=WordEmbedding()) as store:
            assert store.check().ok and len(store.get_nodes()) == 1 + (tool == "add")
        if not task.cancelled():
            break
    assert write_number > 2, "some writes were cancelled"


async def test_a_server_that_ends_waits_for_the_writes_that_were_cancelled(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "EdgeClient", SlowClient)
    async with Session(notes, write=True) as session:
        await session.call("add", text="Ada Orr met Bob Ray in Ulm.", title="Ada Orr", id="ada")
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(session._client.call_tool("delete", {"id": "ada"}))
        monkeypatch.setattr(SlowClient, "written", staticmethod(lambda: loop.call_soon_threadsafe(task.cancel)))
        with suppress(asyncio.CancelledError):
            await task
    assert task.cancelled() and read(notes).keys() == {"note-0"}
    with GeARVectorStore.from_path(notes, embed_model=WordEmbedding()) as store:
        assert store.check().ok

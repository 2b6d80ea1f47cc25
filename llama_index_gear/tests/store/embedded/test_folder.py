"""The embedded engine's folders: foreign files stay, an incomplete folder is no collection, the disk may be full."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from qdrant_client.http import models

from llama_index_gear.errors import GeARError, StoreError, StoreLockedError
from llama_index_gear.store.embedded import folder as edge_folder
from llama_index_gear.store.embedded.client import EdgeClient
from llama_index_gear.store.embedded.packing import call_engine
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

EMBED = WordEmbedding(16)
NAME = "points"
STEP = int(os.environ.get("GEAR_STEP", "5"))  # moments between two interrupts
ENGINE = Path(edge_folder.__file__).parent
VECTORS = {"v": models.VectorParams(size=4, distance=models.Distance.COSINE)}
SPARSE = {"s": models.SparseVectorParams()}
FACTS = [("A", "is", "B")]


def create(client: EdgeClient) -> None:
    client.create_collection(NAME, VECTORS, SPARSE)


def add(client: EdgeClient, *ids: int) -> None:
    client.upsert(NAME, [models.PointStruct(id=number, vector={"v": [1.0, 0, 0, 0]}, payload={}) for number in ids])


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EdgeClient]:
    """A client with three points in an open collection."""
    client = EdgeClient(tmp_path / "store")
    create(client)
    add(client, 1, 2, 3)
    yield client
    client.close()


@pytest.fixture
def folder(client: EdgeClient) -> Path:
    """The folder of the three points; its client is closed."""
    client.close()
    return client.path / NAME


CALLS: dict[str, Callable[[EdgeClient], object]] = {
    "collection_exists": lambda client: client.collection_exists(NAME),
    "get_collection": lambda client: client.get_collection(NAME),
    "create_collection": create,
    "delete_collection": lambda client: client.delete_collection(NAME),
    "create_payload_index": lambda client: client.create_payload_index(NAME, "x", models.PayloadSchemaType.KEYWORD),
    "upsert": lambda client: add(client, 9),
    "delete": lambda client: client.delete(NAME, [1]),
    "retrieve": lambda client: client.retrieve(NAME, [1]),
    "scroll": lambda client: client.scroll(NAME),
    "count": lambda client: client.count(NAME),
    "query_points": lambda client: client.query_points(NAME, [1.0, 0, 0, 0], using="v"),
    "query_batch_points": lambda client: client.query_batch_points(NAME, []),
}


def assert_every_call_raises(client: EdgeClient, match: str, kind: type[GeARError] = StoreError) -> None:
    for name, call in CALLS.items():
        with pytest.raises(kind, match=match) as caught:
            call(client)
        assert str(client.path) in str(caught.value), name


def list_files(folder: Path) -> dict[str, Any]:
    """Return each file's size and time of last change; their contents are sparse and long to read."""
    files = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)): (status.st_size, status.st_mtime_ns) for path, status in files.items()}


def copy(source: Path, target: Path) -> None:
    """Copy a folder; sparse files stay sparse."""
    for path in source.rglob("*"):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes().rstrip(b"\0"))
            os.truncate(place, path.stat().st_size)


# -- what the engine did not make ----------------------------------------------------------------------------------


def test_a_user_s_files_in_a_collection_s_place_stay(tmp_path: Path) -> None:
    thesis = tmp_path / "gear" / "thesis.docx"
    thesis.parent.mkdir()
    thesis.write_text("years of work")
    store = GeARVectorStore.from_path(tmp_path, embed_model=EMBED)
    for call in (
        lambda: store.add([passage("p", "x", FACTS, embed_model=EMBED)]),
        store.get_nodes,
        store.check,
        store.repair,
        store.clear,
        lambda: store.delete("d"),
    ):
        with pytest.raises(StoreError, match="gear is not a whole collection.*edge_config.json is missing.*another"):
            call()
    assert list(list_files(tmp_path)) == ["gear/thesis.docx"] and thesis.read_text() == "years of work"
    elsewhere = GeARVectorStore.from_path(tmp_path, embed_model=EMBED, collection_name="other")
    elsewhere.add([passage("p", "x", FACTS, embed_model=EMBED)])
    assert [node.node_id for node in elsewhere.get_nodes()] == ["p"]
    elsewhere.close()


@pytest.mark.parametrize("what", ["file", "link to nothing", "file in the parent's place"])
def test_what_is_no_folder_stays(tmp_path: Path, what: str) -> None:
    client = EdgeClient(tmp_path / "store")
    place = client.path if what == "file in the parent's place" else client.path / NAME
    place.parent.mkdir(exist_ok=True)
    if what == "link to nothing":
        place.symlink_to(tmp_path / "nothing")
    else:
        place.write_text("mine")
    with pytest.raises(StoreError, match="cannot use"):
        create(client)
    assert place.is_symlink() or place.read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


def test_an_empty_folder_is_no_collection(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    with EdgeClient(tmp_path) as client:
        assert not client.collection_exists(NAME) and not client.delete_collection(NAME)
        create(client)
        add(client, 1)
        assert client.count(NAME).count == 1


def test_a_user_s_file_in_a_collection_is_not_deleted_with_it(client: EdgeClient) -> None:
    notes = client.path / NAME / "notes.txt"
    notes.write_text("mine")
    with pytest.raises(StoreError, match=r"points also holds .*\(notes.txt\): move it elsewhere"):
        client.delete_collection(NAME)
    assert notes.read_text() == "mine" and client.count(NAME).count == 3  # and nothing else is gone
    notes.unlink()
    assert client.delete_collection(NAME) and os.listdir(client.path) == []


def test_what_the_engine_was_writing_when_it_was_killed_goes_with_the_collection(client: EdgeClient) -> None:
    (client.path / NAME / ".atomicwriteX1").mkdir()
    assert client.delete_collection(NAME) and os.listdir(client.path) == []


def test_a_link_to_a_collection_is_read_but_not_deleted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / NAME).symlink_to(folder)
    with EdgeClient(tmp_path / "links") as client:
        assert client.count(NAME).count == 3
        with pytest.raises(StoreError, match="is a link"):
            client.delete_collection(NAME)
        assert client.count(NAME).count == 3


# -- damage --------------------------------------------------------------------------------------------------------


def rewrite_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "edge_config.json").read_text())
    (folder / "edge_config.json").write_text(json.dumps({**config, **changes}))


def find_segment(folder: Path) -> Path:
    (found,) = (folder / "segments").iterdir()
    return found


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "edge_config.json").unlink(), "edge_config.json is missing"),
    "no segments": (lambda folder: shutil.rmtree(folder / "segments"), "segments is missing"),
    "no log": (lambda folder: shutil.rmtree(folder / "wal"), "wal is missing"),
    "empty segments": (lambda folder: shutil.rmtree(find_segment(folder)), "segments is empty"),
    "empty log": (lambda folder: empty(folder / "wal"), "wal is empty"),
    "no version": (lambda folder: (find_segment(folder) / "version.info").unlink(), "version.info is missing"),
    "no state": (lambda folder: (find_segment(folder) / "segment.json").unlink(), "segment.json is missing"),
    "no payloads": (
        lambda folder: shutil.rmtree(find_segment(folder) / "payload_storage"),
        "payload_storage is missing",
    ),
    "no ids": (lambda folder: (find_segment(folder) / "mutable_id_tracker.mappings").unlink(), "mappings is missing"),
    "no vectors": (lambda folder: shutil.rmtree(find_segment(folder) / "vector_storage-v"), "has other vectors"),
    "config of no vectors": (lambda folder: rewrite_config(folder, vectors={}), "has other vectors"),
    "config is cut off": (
        lambda folder: (folder / "edge_config.json").write_text('{"vec'),
        "config.json cannot be read",
    ),
    "config is binary": (
        lambda folder: (folder / "edge_config.json").write_bytes(b"\xff"),
        "config.json cannot be read",
    ),
    "config is a list": (lambda folder: (folder / "edge_config.json").write_text("[]"), "config.json names no vectors"),
    "config of odd vectors": (lambda folder: rewrite_config(folder, vectors=[]), "config.json names no vectors"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_collection_is_an_error_and_not_an_empty_one(folder: Path, name: str) -> None:
    damage, said = DAMAGE[name]
    damage(folder)
    before = list_files(folder)
    assert_every_call_raises(
        EdgeClient(folder.parent), f"not a whole collection.*{said}.*Restore the folder from a copy"
    )
    assert list_files(folder) == before


@pytest.mark.parametrize(
    ("file", "content"), [("wal/open-1", b"garbage"), ("wal/first-index", b"x"), ("segments/*/segment.json", b"x")]
)
def test_what_the_engine_cannot_open_is_said_in_plain_words(folder: Path, file: str, content: bytes) -> None:
    (path,) = folder.glob(file)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"points, whose files are damaged or not this user's: restore.*It says: "):
        EdgeClient(folder.parent).count(NAME)


def test_a_panic_of_the_engine_is_said_in_plain_words(folder: Path) -> None:
    (find_segment(folder) / "vector_storage-v" / "vectors" / "status.dat").write_bytes(b"")
    with pytest.raises(StoreError, match="files are damaged"):
        EdgeClient(folder.parent).count(NAME)


def test_damage_while_the_collection_is_open_is_an_error_too(client: EdgeClient) -> None:
    (client.path / NAME / "edge_config.json").unlink()
    assert_every_call_raises(client, "edge_config.json is missing")


# -- moved while it is open ----------------------------------------------------------------------------------------


def move(store: Path) -> None:
    store.rename(store.with_name("moved"))


def replace_by_a_copy(store: Path) -> None:
    move(store)
    copy(store.with_name("moved"), store)


def replace_by_an_empty_one(store: Path) -> None:
    move(store)
    (store / NAME).mkdir(parents=True)


def replace_what_is_in_it(store: Path) -> None:
    """Replace a folder's content. The folder stays the same; so may the inode of one that is made anew."""
    copy(store, store.with_name("copied"))
    shutil.rmtree(store / NAME / "wal")
    copy(store.with_name("copied") / NAME / "wal", store / NAME / "wal")


def replace_by_a_file(store: Path) -> None:
    move(store)
    store.write_text("mine")


@pytest.mark.parametrize(
    "do", [move, shutil.rmtree, replace_by_a_copy, replace_what_is_in_it, replace_by_an_empty_one, replace_by_a_file]
)
def test_a_store_that_is_moved_while_it_is_open_is_no_new_store(client: EdgeClient, do: Callable[[Path], None]) -> None:
    do(client.path)
    assert_every_call_raises(client, r"points was moved, deleted or replaced while the store was open: call close\(\)")
    with pytest.raises(StoreError, match="was moved"):  # nor is another collection made where it was
        client.create_collection("other", VECTORS)
    assert client.path.is_file() or not list(client.path.rglob("other"))


def test_after_closing_it_is_a_store_anew(client: EdgeClient) -> None:
    shutil.rmtree(client.path)
    client.close()
    assert not client.collection_exists(NAME)
    create(client)
    assert client.count(NAME).count == 0


@pytest.mark.parametrize("end", ["close", "del"])
def test_closing_writes_nothing_into_what_took_the_store_s_place(tmp_path: Path, end: str) -> None:
    """Closing writes no pending data into a copy that took the store's place under the same names."""
    client = EdgeClient(tmp_path / "store")
    create(client)
    add(client, 1)
    replace_by_a_copy(client.path)
    before = list_files(tmp_path / "store")
    if end == "close":
        client.close()
    del client
    assert list_files(tmp_path / "store") == before
    with EdgeClient(tmp_path / "store") as copied:
        assert copied.count(NAME).count == 1


def test_a_moved_store_opens_again_also_when_another_took_its_place(client: EdgeClient) -> None:
    move(client.path)
    with EdgeClient(client.path.with_name("new")) as new:
        create(new)
    client.path.with_name("new").rename(client.path)
    client.close()
    with EdgeClient(client.path.with_name("moved")) as moved, EdgeClient(client.path) as new:
        assert moved.count(NAME).count == 3 and new.count(NAME).count == 0


def test_a_collection_may_have_as_long_a_name_as_a_folder(tmp_path: Path) -> None:
    name = "n" * 250
    with EdgeClient(tmp_path) as client:
        client.create_collection(name, VECTORS)
        assert client.count(name).count == 0 and client.delete_collection(name)
    assert os.listdir(tmp_path) == []


def test_what_a_killed_creation_left_makes_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f".{NAME}.{'0' * 32}.unfinished").mkdir()
    monkeypatch.setattr(edge_folder, "free_space", lambda folder: 0 if list(tmp_path.glob(".*.unfinished")) else 2**40)
    with EdgeClient(tmp_path) as client:
        create(client)


def test_another_working_directory_is_no_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with EdgeClient("store") as client:
        create(client)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        add(client, 1)
        assert client.count(NAME).count == 1


# -- calls that were interrupted -----------------------------------------------------------------------------------


def run_interrupted(work: Callable[[], object], moment: int) -> BaseException | None:
    """Run with a `KeyboardInterrupt` before the given line of the engine's modules; return None if it ended before.

    In `shards`, where shards change hands, the interrupt comes before the given opcode.
    """
    count = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal count
        path = Path(frame.f_code.co_filename)
        module = path.stem
        if path.parent != ENGINE or module not in ("client", "folder", "shards"):
            return None
        frame.f_trace_opcodes = module == "shards"
        if event == ("opcode" if frame.f_trace_opcodes else "line"):
            count += 1
            if count == moment:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt as error:
        return error
    finally:
        sys.settrace(before)
    return None


@pytest.mark.parametrize("is_open", [True, False])
def test_a_delete_can_be_interrupted_anywhere(tmp_path: Path, is_open: bool) -> None:
    client, moment = EdgeClient(tmp_path), 0
    while True:
        if not client.collection_exists(NAME):  # whole, or gone
            assert os.listdir(tmp_path) == [], f"moment {moment}"
            create(client)
            add(client, 1)
        assert client.count(NAME).count == 1
        if not is_open:
            client.close()
        moment += STEP
        error = run_interrupted(lambda: client.delete_collection(NAME), moment)  # the traceback stays, as in a notebook
        if error is None:
            break
    assert moment > 50 and os.listdir(tmp_path) == []
    client.close()


def test_a_creation_can_be_interrupted_anywhere(tmp_path: Path) -> None:
    client, moment = EdgeClient(tmp_path), 0
    while True:
        moment += STEP
        error = run_interrupted(lambda: create(client), moment)
        if error is None:
            break
        if not client.collection_exists(NAME):
            create(client)
        assert client.count(NAME).count == 0
        assert client.delete_collection(NAME)
        assert os.listdir(tmp_path) == [], f"moment {moment}"
    assert moment > 50
    client.close()


def test_closing_and_opening_can_be_interrupted_anywhere(client: EdgeClient) -> None:
    for work in (client.close, lambda: client.count(NAME)):
        moment = 0
        while True:
            moment += 1
            if work == client.close:
                client.count(NAME)
            else:
                client.close()
            if (error := run_interrupted(work, moment)) is None:
                break
            assert client.count(NAME).count == 3, f"moment {moment}: {error}"
        assert moment > 10


@pytest.mark.parametrize("kind", ["unfinished", "deleted"])
def test_what_a_killed_call_left_goes_and_nothing_else(tmp_path: Path, kind: str) -> None:
    code = "0" * 32
    own = tmp_path / f".{NAME}.{code}.{kind}"
    others = [f".other.{code}.{kind}", f".{NAME}.{code}.{kind}.bak", f"{NAME}.{code}.{kind}", f".{NAME}.1.{kind}"]
    for name in [own.name, *others]:
        (tmp_path / name / "wal").mkdir(parents=True)
    with EdgeClient(tmp_path) as client:
        create(client)
        assert set(os.listdir(tmp_path)) == {NAME, *others}
        client.delete_collection(NAME)
        assert set(os.listdir(tmp_path)) == set(others)


def test_reading_leaves_alone_what_another_process_is_making(tmp_path: Path) -> None:
    draft = tmp_path / f".{NAME}.{'0' * 32}.unfinished"
    draft.mkdir()
    client = EdgeClient(tmp_path)
    assert not client.collection_exists(NAME) and not client.delete_collection(NAME)
    assert draft.exists()


def test_of_two_that_make_the_same_collection_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = EdgeClient(tmp_path), EdgeClient(tmp_path)
    build = edge_folder.make

    def make_and_overtake(folder: Path, make: Callable[[str], object]) -> None:
        def make_late(draft: str) -> None:
            make(draft)
            monkeypatch.setattr(edge_folder, "make", build)
            create(second)

        build(folder, make_late)

    monkeypatch.setattr(edge_folder, "make", make_and_overtake)
    with pytest.raises(StoreLockedError, match="another process or client makes"):
        create(first)
    add(second, 1)
    assert second.count(NAME).count == 1 and os.listdir(tmp_path) == [NAME]
    second.close()
    assert first.count(NAME).count == 1
    first.close()


# -- disks ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_before_anything_is_written(client: EdgeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_folder, "free_space", lambda folder: 5 * 2**20)
    for name in ("upsert", "delete", "create_payload_index"):
        with pytest.raises(StoreError, match="has 5 MiB free, and this call needs 1[23][0-9] MiB: make room"):
            CALLS[name](client)
    with pytest.raises(StoreError, match="5 MiB free"):
        client.create_collection("other", VECTORS)
    assert client.count(NAME).count == 3  # what is open can be read
    client.close()
    with pytest.raises(StoreError, match="5 MiB free"):
        client.count(NAME)
    monkeypatch.undo()
    assert client.count(NAME).count == 3
    assert os.listdir(client.path) == [NAME]


def test_a_write_needs_room_for_what_it_writes(client: EdgeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_folder, "free_space", lambda folder: 129 * 2**20)
    sparse = models.SparseVector(indices=list(range(1000)), values=[1.0] * 1000)
    for much in ({"payload": {"a": ["x" * 100_000]}}, {"payload": {"x" * 100_000: 1}}, {"vector": {"s": sparse}}):
        point = models.PointStruct(**{"id": 9, "vector": {"v": [1.0, 0, 0, 0]}, "payload": {}, **much})  # type: ignore[arg-type]
        with pytest.raises(StoreError, match=r"129 MiB free, and this call needs \d{3} MiB"):
            client.upsert(NAME, [point] * 50)
    add(client, 4)
    assert client.count(NAME).count == 4


def test_a_collection_of_a_full_disk_can_be_deleted(client: EdgeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_folder, "free_space", lambda folder: 0)
    assert client.delete_collection(NAME) and os.listdir(client.path) == []


REFUSED = """
import os, resource, sys
from llama_index_gear.errors import StoreError
from llama_index_gear.store.embedded.client import EdgeClient
from qdrant_client import models

client, vectors = EdgeClient(sys.argv[1]), {"v": models.VectorParams(size=4, distance="Cosine")}
client.create_collection("whole", vectors)
client.close()
limit = getattr(resource, sys.argv[2])
least = os.open(os.devnull, os.O_RDONLY) + 3 if limit == resource.RLIMIT_NOFILE else 2**16
resource.setrlimit(limit, (least, resource.getrlimit(limit)[1]))
try:
    client.create_collection("other", vectors)
except StoreError as error:
    print(error)
print(sorted(name for name in os.listdir(sys.argv[1]) if not name.startswith(".")))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")
@pytest.mark.parametrize(
    ("limit", "words"), [("RLIMIT_FSIZE", "is full: make room"), ("RLIMIT_NOFILE", "too many files are open")]
)
def test_what_the_system_refuses_the_engine_is_no_damage(tmp_path: Path, limit: str, words: str) -> None:
    command = [sys.executable, "-c", REFUSED, str(tmp_path / "store"), limit]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert words in done.stdout and "damaged" not in done.stdout, done
    assert "['whole']" in done.stdout


def test_no_space_left_is_no_damage(tmp_path: Path) -> None:
    """These words are the engine's, met on a full disk; elsewhere it may be killed by a signal before."""
    said = "failed to write edge_config.json: Failed to flush edge_config.json: No space left on device (os error 28)"

    def fail() -> None:
        raise Exception(said)  # the engine raises no other kind

    with pytest.raises(StoreError, match="is full: make room, then repeat the call.*os error 28"):
        call_engine(fail, tmp_path / "c")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, of 288 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or subprocess.run([mount, "-t", "tmpfs", "-o", "size=288m", "tmpfs", place]).returncode:
        pytest.skip("mounting needs root on Linux")
    yield place
    subprocess.run(["umount", place], check=True)


FILL = """
import sys
from llama_index_gear.errors import StoreError
from llama_index_gear.store.vector_store import GeARVectorStore
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.store_contract import passage

embed = WordEmbedding(16)
with GeARVectorStore.from_path(sys.argv[1], embed_model=embed) as store:
    try:
        for start in range(0, 6400, 64):
            numbers = range(start, start + 64)
            store.add([passage(f"p{n}", "x" * 80_000, [(f"E{n}", "is", "B")], embed_model=embed) for n in numbers])
    except StoreError as error:
        print(error)
"""


@pytest.mark.long
def test_a_disk_that_fills_up_ends_no_process(disk: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FILL, disk], capture_output=True, text=True)
    assert done.returncode == 0, done
    assert "MiB free, and this call needs" in done.stdout
    subprocess.run(["mount", "-o", "remount,size=640m", disk], check=True)
    with GeARVectorStore.from_path(disk, embed_model=EMBED) as store:
        report = store.check()
        assert store.repair().ok
    assert report.passages >= 640 and report.incomplete == report.outdated == ()  # triples come before their passage


def test_a_read_only_disk_is_said_in_plain_words(disk: Path) -> None:
    client = EdgeClient(disk)
    create(client)
    client.close()
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    for call in (lambda: client.count(NAME), lambda: client.create_collection("other", VECTORS)):
        with pytest.raises(StoreError, match="is read-only, and the embedded engine writes even when it reads"):
            call()
    with pytest.raises(StoreError, match="read-only"):
        client.delete_collection(NAME)
    assert client.collection_exists(NAME)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_others_own_is_said_in_plain_words(folder: Path) -> None:
    folder.chmod(0o555)
    with pytest.raises(StoreError, match="is read-only"):
        EdgeClient(folder.parent).count(NAME)
    folder.chmod(0o755)

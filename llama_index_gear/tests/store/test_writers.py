"""Writers in several processes: their calls are flows, which these tests step by hand over one engine.

    GEAR_SWITCHES=all GEAR_DRAWN=5000 pytest llama_index_gear/tests/store/test_writers.py

Each writer has locks of its own, as in a process of its own. A step is one call that reads or writes points. Whatever
the order of the steps, each passage must end whole: there with all its triples and no other, or gone with all of them.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice
from typing import Any, NamedTuple, TypeAlias

import pytest
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from qdrant_client import QdrantClient

from llama_index_gear import GeARVectorStore
from llama_index_gear.flow import QdrantCall
from llama_index_gear.store.access import connection_of
from llama_index_gear.store.check_and_repair import StoreReport
from llama_index_gear.store.connection import Routed
from llama_index_gear.store.copy import copy_flow
from llama_index_gear.store.settings import CollectionSettings
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.replicas import ReplicaNode, make_nodes
from llama_index_gear.tests.store_contract import make_process, passage
from llama_index_gear.triple import Triple

EMBED = WordEmbedding(8)
SWITCHES = None if os.environ.get("GEAR_SWITCHES") == "all" else int(os.environ.get("GEAR_SWITCHES", "1"))
"""How often a writer is left for another before it has ended, at most; "all": as often as possible."""
DRAWN = int(os.environ.get("GEAR_DRAWN", "40"))
"""Number of random orders of three writers; of those with a kill a tenth, for each pair of writers."""
REPLICATED = CollectionSettings(write_ordering="strong", read_consistency="quorum")
_MENDED = {"outdated", "orphaned", "unlinked", "without_vectors"}
"""What a writer that dies may leave, and `repair` mends."""
_POINT_METHODS = {"scroll", "retrieve", "count", "upsert", "delete", "batch_update_points", "query_batch_points"}
_POINT_METHODS |= {"update_collection"}  # by which one says that triples are embedded from now on


def make_node(name: str, *objects: str, node_id: str = "p") -> BaseNode:
    """Make a version of a passage that states one fact an object."""
    facts = [("Ann", "knows", given) for given in objects]
    return passage(node_id, f"text {name}", facts, document="d", embed_model=EMBED, metadata={"version": name})


OLD = make_node("old", "Shared", "Old", "Both")
ONE = make_node("one", "Shared", "One", "Both")
TWO = make_node("two", "Shared", "Two", "Old")
BARE = make_node("bare")
BESIDE = make_node("beside", "Shared", "Annie", node_id="beside")
VERSION = MetadataFilters(filters=[MetadataFilter(key="version", value="old")])


class Engines(NamedTuple):
    """The engine that all write, and another that passages are copied from, or to.

    Of nodes with replicas, each writer has its own.
    """

    client: QdrantClient
    source: QdrantClient


Writer: TypeAlias = Callable[[Engines], "Steps"]


class Steps:
    """A call of one process, taken step by step."""

    def __init__(self, flow: Any, answer: Callable[[Any], Any]) -> None:
        self._flow, self._answer = flow, answer
        self.error: Exception | None = None
        self._batch: Sequence[Any] | None = next(flow)
        self._skip()

    @property
    def is_done(self) -> bool:
        return self._batch is None

    def take(self) -> None:
        """Take one step: make a call that reads or writes points."""
        self._send()
        self._skip()

    def kill(self) -> None:
        """End here, as a process that is killed."""
        self._flow.close()
        self._batch = None

    def _send(self) -> None:
        try:
            try:
                answers = [self._answer(request) for request in self._batch or ()]
            except Exception as error:  # noqa: BLE001 - the flow's, as in a call
                self._batch = self._flow.throw(error)
            else:
                self._batch = self._flow.send(answers)
        except StopIteration:
            self._batch = None
        except Exception as error:  # noqa: BLE001 - a fault, which is counted
            self._batch, self.error = None, error

    def _skip(self) -> None:
        """Answer what concerns no other process."""
        while self._batch is not None and not any(map(is_point_call, self._batch)):
            self._send()


def is_point_call(request: Any) -> bool:
    inner = request.request if isinstance(request, Routed) else request
    return isinstance(inner, QdrantCall) and inner.method in _POINT_METHODS


def make_store(client: QdrantClient) -> GeARVectorStore:
    """Make a store as another process has it. Of replicas it wants to read what they agree on."""
    settings = REPLICATED if isinstance(client, ReplicaNode) else None
    return make_process(client, EMBED, collection_settings=settings)


def write(name: str, *arguments: Any, **options: Any) -> Writer:
    """Call the method of that name."""

    def begin(engines: Engines) -> Steps:
        store = make_store(engines.client)
        method: Any = getattr(GeARVectorStore, name)
        return Steps(method.__wrapped__(store, *arguments, **options), connection_of(store).answer)

    return begin


def add(*nodes: BaseNode) -> Writer:
    return write("add", nodes)


def copy(*, from_source: bool) -> Writer:
    """Copy into the engine that all write, or out of it."""

    def begin(engines: Engines) -> Steps:
        clients = (engines.source, engines.client) if from_source else (engines.client, engines.source)
        source, target = map(make_store, clients)
        flow = copy_flow(source._writes, target._writes, connection_of(target).for_writes, None, False)
        return Steps(connection_of(source).write_flow(flow), connection_of(source).answer)

    return begin


DELETE = write("delete", "d")
DELETE_NODES = write("delete_nodes", ["p"])
DELETE_OLD = write("delete_nodes", None, VERSION)
LINK = write("link_aliases", [("Shared", "Annie")])
FINISH = write("finish_writes")
EMBED_STORED = write("embed_stored_triples")
UNCHANGED = write("add", [TWO], if_unchanged_since=[OLD])


@dataclass(frozen=True)
class Case:
    """Writers side by side, what is stored before them, and what may be stored after them.

    `ends` holds the versions that the passage may end as; None: it may be gone.
    """

    writers: Sequence[Writer]
    stored: Sequence[BaseNode]
    ends: Sequence[BaseNode | None]
    source: Sequence[BaseNode] = ()


CASES = {
    "add beside add, nothing stored": Case([add(ONE), add(TWO)], [], [ONE, TWO]),
    "add beside add": Case([add(ONE), add(TWO)], [OLD], [ONE, TWO]),
    "add beside the same add": Case([add(ONE), add(ONE)], [], [ONE]),
    "add beside the same add, stored": Case([add(ONE), add(ONE)], [OLD], [ONE]),
    "add beside add without triples": Case([add(ONE), add(BARE)], [OLD], [ONE, BARE]),
    "add beside add without triples, nothing stored": Case([add(ONE), add(BARE)], [], [ONE, BARE]),
    "add beside add, without triples before": Case([add(ONE), add(TWO)], [BARE], [ONE, TWO]),
    "add of what is unchanged beside add": Case([add(ONE), UNCHANGED], [OLD], [ONE, TWO]),
    "add beside delete": Case([add(ONE), DELETE], [OLD], [ONE, None]),
    "add beside delete, nothing stored": Case([add(ONE), DELETE], [], [ONE, None]),
    "add beside delete, without triples before": Case([add(ONE), DELETE], [BARE], [ONE, None]),
    "add beside delete_nodes": Case([add(ONE), DELETE_NODES], [OLD], [ONE, None]),
    "add beside delete_nodes, nothing stored": Case([add(ONE), DELETE_NODES], [], [ONE, None]),
    "add beside delete_nodes by filter": Case([add(ONE), DELETE_OLD], [OLD], [ONE]),
    "delete beside delete": Case([DELETE, DELETE_NODES], [OLD], [None]),
    "add beside link_aliases": Case([add(ONE), LINK], [OLD, BESIDE], [ONE]),
    "add beside link_aliases, nothing stored": Case([add(ONE), LINK], [BESIDE], [ONE]),
    "delete beside link_aliases": Case([DELETE_NODES, LINK], [OLD, BESIDE], [None]),
    "finish_writes beside add": Case([add(ONE), FINISH], [OLD], [ONE]),
    "finish_writes beside add, nothing stored": Case([add(ONE), FINISH], [], [ONE]),
    "finish_writes beside add without triples": Case([add(BARE), FINISH], [OLD], [BARE]),
    "finish_writes beside delete": Case([DELETE, FINISH], [OLD], [None]),
    "embed_stored_triples beside add": Case([add(ONE), EMBED_STORED], [OLD], [ONE]),
    "embed_stored_triples beside add, nothing stored": Case([add(ONE), EMBED_STORED], [], [ONE]),
    "embed_stored_triples beside add of what is unchanged": Case([UNCHANGED, EMBED_STORED], [OLD], [TWO]),
    "embed_stored_triples beside delete": Case([DELETE, EMBED_STORED], [OLD], [None]),
    "embed_stored_triples beside link_aliases": Case([LINK, EMBED_STORED], [OLD, BESIDE], [OLD]),
    "embed_stored_triples beside finish_writes": Case([FINISH, EMBED_STORED], [OLD], [OLD]),
    "embed_stored_triples beside itself": Case([EMBED_STORED, EMBED_STORED], [OLD], [OLD]),
    "embed_stored_triples beside copy_to": Case([copy(from_source=True), EMBED_STORED], [OLD], [TWO], [TWO]),
    "copy_to beside add to its target": Case([copy(from_source=True), add(ONE)], [OLD], [ONE, TWO], [TWO]),
    "copy_to beside add to its target, nothing stored": Case([copy(from_source=True), add(ONE)], [], [ONE, TWO], [TWO]),
    "copy_to beside delete from its target": Case([copy(from_source=True), DELETE], [OLD], [TWO, None], [TWO]),
    "copy_to beside add to its source": Case([copy(from_source=False), add(ONE)], [OLD], [ONE]),
    "copy_to beside delete from its source": Case([copy(from_source=False), DELETE], [OLD], [None]),
}


@cache
def make_engines(*, is_replicated: bool = False) -> Sequence[Engines]:
    """Make the engines as each of three writers has them."""
    source = QdrantClient(":memory:")
    nodes = make_nodes() if is_replicated else [QdrantClient(":memory:")]
    return [Engines(node, source) for node in islice(cycle(nodes), 3)]


def prepare(case: Case, engines: Engines) -> None:
    """Empty the engines, and store what is stored before."""
    for client, nodes in zip(engines, (case.stored, case.source), strict=True):
        store = make_store(client)
        store.clear()
        store.add([*nodes, make_node("other", "Shared", node_id="other")])  # so that the collections are there
        settle(client)


def settle(client: QdrantClient) -> None:
    if isinstance(client, ReplicaNode):
        client.settle()


def find_faults(report: StoreReport) -> list[str]:
    names = ("incomplete", "outdated", "orphaned", "unlinked", "foreign", "without_vectors")
    return [name for name in names if getattr(report, name)]


def judge(case: Case, engines: Engines) -> list[str]:
    """Name what is wrong with the end: faults that `check` finds, or another passage than one of those written."""
    settle(engines.client)
    store = make_store(engines.client)
    faults = find_faults(store.check(sample_size=0))
    found = store.get_nodes(["p"])
    version = found[0].metadata["version"] if found else None
    if version not in [end.metadata["version"] if end else None for end in case.ends]:
        faults.append(f"ends as {version}")
    copied = make_process(engines.source, EMBED).check(sample_size=0)
    return [*faults, *(f"{fault} in the other store" for fault in find_faults(copied))]


class End(NamedTuple):
    """An order in which steps were taken, and what is wrong after it."""

    order: Sequence[int]
    faults: Sequence[str]


Choose: TypeAlias = Callable[[Sequence[int]], int]


def run_order(
    case: Case, choose: Choose, kill: tuple[int, int] | None = None, *, is_replicated: bool = False
) -> list[str]:
    """Take the writers' steps in the order that is chosen, and name what is wrong after it.

    With `kill` the writer of that number is killed after so many steps.
    """
    engines = make_engines(is_replicated=is_replicated)
    prepare(case, engines[0])
    writers = [begin(own) for begin, own in zip(case.writers, engines, strict=False)]
    take_steps(writers, choose, kill)
    errors = [f"raises {type(steps.error).__name__}: {steps.error}" for steps in writers if steps.error]
    return errors + judge(case, engines[0])


def take_steps(writers: Sequence[Steps], choose: Choose, kill: tuple[int, int] | None) -> None:
    taken = Counter[int]()
    while True:
        if kill and taken[kill[0]] == kill[1] and not writers[kill[0]].is_done:
            writers[kill[0]].kill()
        alive = [number for number, steps in enumerate(writers) if not steps.is_done]
        if not alive:
            return
        number = choose(alive)
        writers[number].take()
        taken[number] += 1
        assert sum(taken.values()) < 500, "writers that never end"


def enumerate_ends(case: Case, *, most: int | None = None) -> Iterator[End]:
    """Yield the ends of all orders in which the writers' steps can be taken.

    With `most` these are the orders in which a writer is left for another, before it has ended, so many times at most.
    """
    pending: list[tuple[list[int], int]] = [([], 0)]
    while pending:
        prefix, left = pending.pop()
        order = list[int]()

        def choose(alive: Sequence[int]) -> int:
            if len(order) < len(prefix):  # noqa: B023 - called within this round
                number = prefix[len(order)]  # noqa: B023
            else:
                number = order[-1] if order and order[-1] in alive else alive[0]  # noqa: B023
                is_leaving = bool(order) and order[-1] in alive  # noqa: B023
                others = [other for other in alive if other != number]
                if most is None or left + is_leaving <= most:  # noqa: B023
                    pending.extend(([*order, other], left + is_leaving) for other in others)  # noqa: B023
            order.append(number)  # noqa: B023
            return number

        yield End(order, run_order(case, choose))


def draw_end(
    case: Case, rng: random.Random, kill: tuple[int, int] | None = None, *, is_replicated: bool = False
) -> End:
    """Take the writers' steps in a random order."""
    order, stays = list[int](), rng.choice((0.5, 0.8))

    def choose(alive: Sequence[int]) -> int:
        is_staying = bool(order) and order[-1] in alive and rng.random() < stays
        order.append(order[-1] if is_staying else rng.choice(alive))
        return order[-1]

    return End(order, run_order(case, choose, kill, is_replicated=is_replicated))


def require_whole(ends: Sequence[End], about: str) -> None:
    bad = [end for end in ends if end.faults]
    assert ends and not bad, f"{about}: {len(bad)} of {len(ends)}, such as {bad[0]}"


@pytest.mark.parametrize("name", CASES)
def test_two_writers_end_whole_in_every_order_of_their_steps(name: str) -> None:
    require_whole(list(enumerate_ends(CASES[name], most=SWITCHES)), name)


@pytest.mark.parametrize("name", CASES)
def test_two_writers_end_whole_while_replicas_differ(name: str) -> None:
    """Each is at a node of its own, and wants to read what replicas agree on."""
    case = CASES[name]
    ends = []
    for seed in range(DRAWN // 2):
        writers = case.writers if seed % 2 else case.writers[::-1]
        ends.append(draw_end(replace(case, writers=writers), random.Random(f"{name} {seed}"), is_replicated=True))
    require_whole(ends, name)


def draw_case(rng: random.Random, number: int) -> Case:
    """Draw writers, and what is stored before them."""
    writers = [add(ONE), add(TWO), add(BARE), DELETE, DELETE_NODES, DELETE_OLD, UNCHANGED, FINISH]
    writers.append(copy(from_source=True))
    ends = [OLD, ONE, TWO, BARE, None]
    stored = rng.choice(([], [OLD], [BARE]))
    return Case(rng.choices(writers, k=number), stored, ends, [TWO])


def test_three_writers_end_whole_in_random_orders_of_their_steps() -> None:
    for seed in range(DRAWN):
        rng = random.Random(seed)
        require_whole([draw_end(draw_case(rng, 3), rng)], f"seed {seed}")


@pytest.mark.parametrize("taken", range(12))
def test_a_new_passage_has_its_triples_after_another_took_them_over_and_was_deleted(taken: int) -> None:
    """A triple that both passages state is one point: the second writer renames it, and its deletion takes it."""
    case = Case([add(ONE), add(TWO), DELETE], [], [ONE, None])  # None: it was stored before the others came
    order = list[int]()

    def choose(alive: Sequence[int]) -> int:
        order.append(0 if len(order) < taken and 0 in alive else next(n for n in (1, 2, 0) if n in alive))
        return order[-1]

    require_whole([End(order, run_order(case, choose))], f"after {taken} steps")


@pytest.mark.parametrize("name", CASES)
def test_a_writer_that_dies_beside_another_leaves_whole_passages_and_what_repair_removes(name: str) -> None:
    """Triples can be left over. No passage lacks one, in either store."""
    case = CASES[name]
    for seed in range(DRAWN // 10):
        rng = random.Random(f"{name} {seed}")
        end = draw_end(replace(case, ends=[*case.ends, *case.stored, None]), rng, (rng.randrange(2), rng.randrange(12)))
        faults = [fault for fault in end.faults if fault.split()[0] not in _MENDED]
        require_whole([End(end.order, faults)], f"{name}, seed {seed}")
        for client in make_engines()[0]:
            assert make_process(client, EMBED).repair().ok


class Blind(QdrantClient):
    """An engine whose lists lack some points, as those of a replica that has yet to get them."""

    unseen: Collection[str] = ()

    def scroll(self, *arguments: Any, **options: Any) -> Any:
        points, offset = super().scroll(*arguments, **options)
        return [point for point in points if str(point.id) not in self.unseen], offset


@pytest.mark.parametrize("unseen", [["Old"], ["Shared", "Old", "Both"]])
@pytest.mark.parametrize("name", ["add", "add without triples", "delete"])
def test_triples_that_a_read_missed_go_with_their_write(name: str, unseen: Sequence[str]) -> None:
    writer, end = {"add": (add(ONE), ONE), "add without triples": (add(BARE), BARE), "delete": (DELETE, None)}[name]
    case, engines = Case([writer], [OLD], [end]), Engines(Blind(":memory:"), make_engines()[0].source)
    prepare(case, engines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blind, "unseen", {Triple("Ann", "knows", object_).id("p") for object_ in unseen})
        steps = writer(engines)
        take_steps([steps], lambda alive: alive[0], None)
    assert not steps.error and not judge(case, engines)

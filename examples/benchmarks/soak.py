"""Test a store under random work and random kills: add, update, delete and query, with `kill -9` every few seconds.

    python examples/benchmarks/soak.py --minutes 10 --out soak.json

A child process works on an embedded store, and notes each action in a journal before and after it. It is killed at
random moments. The next child repeats the unfinished action (every second child repairs the store first), checks the
store, and goes on. After each kill the store must hold what the journal says, with whole passages and triples. After
each repetition there must be nothing to repair. At the end the store, which is not repaired then, must be equal, point
by point, to one into which the last version of every document was written once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters

from llama_index_gear import GeARVectorStore, NaiveGERetriever
from llama_index_gear.nodes import read_triples
from llama_index_gear.store.check_and_repair import StoreReport
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.tests.processes import PROCESSES
from llama_index_gear.tests.store_contract import contents, passage

EMBED = WordEmbedding(64)
DOCUMENTS = 300  # at most
PASSAGES = 4  # a document
GROUPS = 10  # of documents, which a filter deletes together
FIRST = 10  # actions before the first kill
State = dict[int, int]
"""Document → version."""


def make_nodes(document: int, version: int) -> list[BaseNode]:
    """Make a document's passages. They share entities with other documents, and facts with its other versions."""
    return [
        passage(
            f"d{document}-{number}",
            f"Entity {document} knows Entity {(document * 7 + number) % DOCUMENTS} since version V{version}.",
            [
                (f"Entity {document}", "knows", f"Entity {(document * 7 + number) % DOCUMENTS}"),
                (f"Entity {document}", "has version", f"V{version}"),
                (f"Entity {document}", "is in", f"Hub {document % GROUPS}"),
            ],
            document=f"d{document}",
            embed_model=EMBED,
            metadata={"version": version, "group": document % GROUPS},
        )
        for number in range(PASSAGES)
    ]


def choose_action(rng: random.Random, state: State) -> dict[str, Any]:
    """Choose a random action."""
    kind = rng.choices(("add", "delete", "filter", "query"), (4, 2, 0.2, 4))[0]
    if kind == "add":
        documents = rng.sample(range(DOCUMENTS), rng.randint(1, 12))
        versions = {document: state.get(document, 0) + rng.randint(0, 1) + 1 for document in documents}
        return {"kind": kind, "documents": versions}
    if kind == "delete":
        return {"kind": kind, "document": rng.randrange(DOCUMENTS)}
    return {"kind": kind, "group": rng.randrange(GROUPS), "entity": rng.randrange(DOCUMENTS)}


def apply_action(state: State, action: dict[str, Any]) -> State:
    """Return the state after an action."""
    if action["kind"] == "add":
        return {**state, **{int(document): version for document, version in action["documents"].items()}}
    if action["kind"] == "delete":
        return {document: version for document, version in state.items() if document != action["document"]}
    if action["kind"] == "filter":
        return {document: version for document, version in state.items() if document % GROUPS != action["group"]}
    return state


def perform(store: GeARVectorStore, action: dict[str, Any]) -> None:
    """Perform an action on the store. A query's passages must be whole."""
    if action["kind"] == "add":
        versions = action["documents"].items()
        store.add([node for document, version in versions for node in make_nodes(int(document), version)])
    elif action["kind"] == "delete":
        store.delete(f"d{action['document']}")
    elif action["kind"] == "filter":
        store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="group", value=action["group"])]))
    else:
        for result in NaiveGERetriever(store).retrieve(f"Whom does Entity {action['entity']} know?"):
            objects = {triple.object for triple in read_triples(result.node)}
            assert len(objects) == 3 and f"V{result.node.metadata['version']}" in objects


def read_journal(path: Path) -> tuple[State, dict[str, Any] | None, list[dict[str, Any]]]:
    """Read the expected state, the unfinished action, and the finished ones with their seconds and MiB."""
    state: State = {}
    begun: dict[str, Any] | None = None
    done: list[dict[str, Any]] = []
    for line in path.read_text("utf-8").split("\n") if path.exists() else []:
        if line.endswith("}"):  # a kill may have cut off the last line
            entry = json.loads(line)
            if "action" in entry:
                begun = entry["action"]
            else:
                assert begun is not None
                state = apply_action(state, begun)
                done.append({"kind": begun["kind"], **entry})
                begun = None
    return state, begun, done


def work(folder: Path, path: Path, seed: int, repairs: bool) -> None:
    """Finish the unfinished action, check the store, and go on until killed: the child process."""
    rng = random.Random(seed)
    state, begun, _ = read_journal(path)
    store = GeARVectorStore.from_path(folder, embed_model=EMBED, embed_triples=True, batch_size=8)
    if repairs:
        report = store.repair()
        assert report.ok, report
    with path.open("a", encoding="utf-8") as log:
        log.write("\n")  # ends a line that a kill cut off

        def note(entry: dict[str, Any]) -> None:
            log.write(json.dumps(entry) + "\n")
            log.flush()
            os.fsync(log.fileno())

        while True:
            action, is_repeated = begun or choose_action(rng, state), begun is not None
            if not is_repeated:
                note({"action": action})
            start = time.perf_counter()
            perform(store, action)
            mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            note({"seconds": round(time.perf_counter() - start, 4), "mib": mib})
            state, begun = apply_action(state, action), None
            if is_repeated:
                require_ok(store)


def require_ok(store: GeARVectorStore) -> StoreReport:
    """Assert that nothing is left to repair, and return the report."""
    report = store.check(sample_size=0)
    assert report.ok, report
    return report


def check_passages(folder: Path, state: State, begun: dict[str, Any] | None) -> None:
    """Assert that every passage is whole, and of the version before or after the unfinished action."""
    after = state if begun is None else apply_action(state, begun)
    with closing(GeARVectorStore.from_path(folder, embed_model=EMBED)) as store:
        report = store.check(sample_size=0)
        versions = {node.node_id: node.metadata["version"] for node in store.get_nodes()}
    assert not report.incomplete, report
    for document in {*state, *after} | {int(node_id[1:].partition("-")[0]) for node_id in versions}:
        allowed = {state.get(document), after.get(document)}
        for number in range(PASSAGES):
            assert versions.get(f"d{document}-{number}") in allowed, (document, number)


def kill_children(folder: Path, path: Path, seconds: float, seed: int) -> Iterator[bool]:
    """Start children and kill them until the time is over. Yield, for each kill, if an action was unfinished."""
    rng, end = random.Random(seed), time.monotonic() + seconds
    number = 0
    while time.monotonic() < end:
        number += 1
        child = PROCESSES.Process(target=work, args=(folder, path, rng.randrange(2**32), number % 2 == 0))
        child.start()
        while number == 1 and child.is_alive() and len(read_journal(path)[2]) < FIRST:
            child.join(timeout=0.1)
        child.join(timeout=rng.uniform(0.3, 6.0))
        if not child.is_alive():
            raise SystemExit(f"the child failed by itself, after {number - 1} kills")
        child.kill()
        child.join()
        state, begun, _ = read_journal(path)
        check_passages(folder, state, begun)
        yield begun is not None


def main() -> None:
    """Run the children, compare the store with a fresh one, print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, path = Path(scratch) / "store", Path(scratch) / "journal.jsonl"
        kills = []
        for in_the_middle in kill_children(folder, path, 60 * arguments.minutes, arguments.seed):
            kills.append(in_the_middle)
            print(f"{len(kills)} kills, {sum(kills)} in the middle of something", end="\r", file=sys.stderr, flush=True)
        state, begun, done = read_journal(path)
        store = GeARVectorStore.from_path(folder, embed_model=EMBED)
        if begun is not None:
            perform(store, begun)
            state = apply_action(state, begun)
        report = require_ok(store)
        fresh = GeARVectorStore.from_path(Path(scratch) / "fresh", embed_model=EMBED, embed_triples=True)
        fresh.add([node for document, version in state.items() for node in make_nodes(document, version)])
        result = {
            "minutes": arguments.minutes,
            "seed": arguments.seed,
            "kills": len(kills),
            "in_the_middle": sum(kills),
            "actions": dict(Counter(action["kind"] for action in done)),
            "median_ms": {
                kind: round(1000 * statistics.median(action["seconds"] for action in done if action["kind"] == kind), 1)
                for kind in sorted({action["kind"] for action in done})
            },
            "passages": report.passages,
            "triples": report.triples,
            "equal_unrepaired": contents(store) == contents(fresh),
            "peak_memory_mib": max(action["mib"] for action in done),
        }
        store.close()
        fresh.close()
    print(json.dumps(result))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    if not result["equal_unrepaired"]:
        raise SystemExit("the store differs from one that was not disturbed")


if __name__ == "__main__":
    main()

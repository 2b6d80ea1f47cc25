"""A store under random work and random kills: ingest, update, delete and query, `kill -9` every few seconds.

    python examples/benchmarks/soak.py --minutes 10 --out soak.json

A child process works on an embedded store and writes down, before and after, what it is about to do. It is killed at
random moments; the next one repeats what was begun and not finished (every second time it also repairs the store
first), looks the store over, and goes on. After each kill the store must hold what the list says, passages and triples
whole; after each repetition nothing may be left to mend; and at the end the store, which is not repaired then, must
equal, point by point, one into which the last version of everything was written once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
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

from llama_index_gear import GeARVectorStore, NaiveGERetriever, StoreReport, read_triples
from llama_index_gear.testing import WordEmbedding
from llama_index_gear.testing.store_contract import contents, passage

EMBED = WordEmbedding(64)
DOCUMENTS, PASSAGES, GROUPS = 300, 4, 10  # at most; a document; of documents, to delete by a filter
FIRST = 10  # actions, before the first kill
PROCESSES = multiprocessing.get_context("forkserver")
State = dict[int, int]
"""Document → version."""


def make_nodes(document: int, version: int) -> list[BaseNode]:
    """A document's passages: they share entities with other documents, and whole facts with its other versions."""
    return [
        passage(
            f"d{document}-{n}",
            f"Entity {document} knows Entity {(document * 7 + n) % DOCUMENTS} since version V{version}.",
            [
                (f"Entity {document}", "knows", f"Entity {(document * 7 + n) % DOCUMENTS}"),
                (f"Entity {document}", "has version", f"V{version}"),
                (f"Entity {document}", "is in", f"Hub {document % GROUPS}"),
            ],
            document=f"d{document}",
            embed_model=EMBED,
            metadata={"version": version, "group": document % GROUPS},
        )
        for n in range(PASSAGES)
    ]


def choose_action(rng: random.Random, state: State) -> dict[str, Any]:
    """Something to do."""
    kind = rng.choices(("add", "delete", "filter", "query"), (4, 2, 0.2, 4))[0]
    if kind == "add":
        documents = rng.sample(range(DOCUMENTS), rng.randint(1, 12))
        return {"kind": kind, "documents": {each: state.get(each, 0) + rng.randint(0, 1) + 1 for each in documents}}
    if kind == "delete":
        return {"kind": kind, "document": rng.randrange(DOCUMENTS)}
    return {"kind": kind, "group": rng.randrange(GROUPS), "entity": rng.randrange(DOCUMENTS)}


def apply_action(state: State, action: dict[str, Any]) -> State:
    """What there is once this is done."""
    if action["kind"] == "add":
        return {**state, **{int(document): version for document, version in action["documents"].items()}}
    if action["kind"] == "delete":
        return {document: version for document, version in state.items() if document != action["document"]}
    if action["kind"] == "filter":
        return {document: version for document, version in state.items() if document % GROUPS != action["group"]}
    return state


def perform(store: GeARVectorStore, action: dict[str, Any]) -> None:
    """Do it."""
    if action["kind"] == "add":
        store.add([node for document, v in action["documents"].items() for node in make_nodes(int(document), v)])
    elif action["kind"] == "delete":
        store.delete(f"d{action['document']}")
    elif action["kind"] == "filter":
        store.delete_nodes(filters=MetadataFilters(filters=[MetadataFilter(key="group", value=action["group"])]))
    else:
        for found in NaiveGERetriever(store).retrieve(f"Whom does Entity {action['entity']} know?"):
            said = {triple.object for triple in read_triples(found.node)}
            assert len(said) == 3 and f"V{found.node.metadata['version']}" in said


def read_journal(path: Path) -> tuple[State, dict[str, Any] | None, list[dict[str, Any]]]:
    """What there must be, what was begun and not finished, and what was done, with the seconds and MiB that it took."""
    state: State = {}
    begun: dict[str, Any] | None = None
    done: list[dict[str, Any]] = []
    for line in path.read_text("utf-8").split("\n") if path.exists() else []:
        if line.endswith("}"):  # the last may be torn
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
    """The child: finish, look over, and go on until killed."""
    rng = random.Random(seed)
    state, begun, _ = read_journal(path)
    store = GeARVectorStore.from_path(folder, embed_model=EMBED, batch_size=8)
    if repairs:
        report = store.repair()
        assert report.ok, report
    with path.open("a", encoding="utf-8") as log:
        log.write("\n")  # ends a torn line

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
    """Nothing is left to mend."""
    report = store.check(sample_size=0)
    assert report.ok, report
    return report


def check_passages(folder: Path, state: State, begun: dict[str, Any] | None) -> None:
    """Every passage is whole, and of a version that it may have."""
    after = state if begun is None else apply_action(state, begun)
    with closing(GeARVectorStore.from_path(folder, embed_model=EMBED)) as store:
        report = store.check(sample_size=0)
        there = {node.node_id: node.metadata["version"] for node in store.get_nodes()}
    assert not report.incomplete, report
    for document in {*state, *after} | {int(node_id[1:].partition("-")[0]) for node_id in there}:
        may_be = {state.get(document), after.get(document)}
        for n in range(PASSAGES):
            assert there.get(f"d{document}-{n}") in may_be, (document, n)


def kill_children(folder: Path, path: Path, seconds: float, seed: int) -> Iterator[bool]:
    """Have children work and kill them, until the time is over: whether each died in the middle of something."""
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
    """Soak, compare, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    PROCESSES.set_forkserver_preload(["llama_index_gear.testing.store_contract"])
    with tempfile.TemporaryDirectory() as scratch:
        folder, path = Path(scratch) / "store", Path(scratch) / "journal.jsonl"
        met = []
        for in_the_middle in kill_children(folder, path, 60 * arguments.minutes, arguments.seed):
            met.append(in_the_middle)
            print(f"{len(met)} kills, {sum(met)} in the middle of something", end="\r", file=sys.stderr, flush=True)
        state, begun, done = read_journal(path)
        store = GeARVectorStore.from_path(folder, embed_model=EMBED)
        if begun is not None:
            perform(store, begun)
            state = apply_action(state, begun)
        report = require_ok(store)
        fresh = GeARVectorStore.from_path(Path(scratch) / "fresh", embed_model=EMBED)
        fresh.add([node for document, version in state.items() for node in make_nodes(document, version)])
        result = {
            "minutes": arguments.minutes,
            "seed": arguments.seed,
            "kills": len(met),
            "in_the_middle": sum(met),
            "actions": dict(Counter(each["kind"] for each in done)),
            "median_ms": {
                kind: round(1000 * statistics.median(each["seconds"] for each in done if each["kind"] == kind), 1)
                for kind in sorted({each["kind"] for each in done})
            },
            "passages": report.passages,
            "triples": report.triples,
            "equal_unrepaired": contents(store) == contents(fresh),
            "peak_memory_mib": max(each["mib"] for each in done),
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

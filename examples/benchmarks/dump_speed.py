"""How fast a Wikidata dump is read, beside bare decompression and JSON parsing, and what memory it takes.

    python examples/benchmarks/dump_speed.py --megabytes 200 --out dump_speed.json

The dump is generated: entities in Wikidata's shape, in several languages, with statements of all kinds. Both readings
happen in this run, in processes of their own; memory is the process's largest resident set, after each quarter.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llama_index_gear import WikidataDump

LANGUAGES = ("en", "de", "fr", "es", "ja", "ru", "nl", "sv", "it", "pl", "pt", "zh")
PROPERTIES = 500
OPENERS: dict[str, Callable[[Path], Any]] = {"": lambda path: path.open("rb"), ".gz": gzip.open, ".bz2": bz2.open}


def draw_snak(chance: random.Random, property_: int, items: int) -> dict[str, Any]:
    """A value of some kind; half of them are items."""
    if chance.random() < 0.5:
        number = chance.randrange(1, items)
        value = {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}
        data = {"type": "wikibase-entityid", "value": value}
    else:
        data = {"type": "string", "value": f"{chance.getrandbits(64):x}"}
    name = f"P{property_}"
    return {"snaktype": "value", "property": name, "hash": f"{chance.getrandbits(160):040x}", "datavalue": data}


def draw_statement(chance: random.Random, property_: int, items: int) -> dict[str, Any]:
    """With qualifiers and a reference, as most have."""
    return {
        "mainsnak": draw_snak(chance, property_, items),
        "type": "statement",
        "id": f"{chance.getrandbits(128):032x}",
        "rank": chance.choices(("normal", "preferred", "deprecated"), (90, 5, 5))[0],
        "qualifiers": {"P580": [draw_snak(chance, 580, items)]},
        "references": [{"hash": f"{chance.getrandbits(160):040x}", "snaks": {"P248": [draw_snak(chance, 248, items)]}}],
    }


def draw_entity(chance: random.Random, name: str, items: int) -> bytes:
    """One line of the dump."""
    labels = {code: {"language": code, "value": f"{name} {chance.getrandbits(40):x}"} for code in LANGUAGES}
    claims: dict[str, list[Any]] = {}
    for _ in range(chance.randrange(2, 12) if name[0] == "Q" else 0):
        property_ = chance.randrange(1, PROPERTIES)
        claims.setdefault(f"P{property_}", []).append(draw_statement(chance, property_, items))
    found = {
        "type": "item" if name[0] == "Q" else "property",
        "id": name,
        "labels": labels,
        "descriptions": labels,
        "aliases": {"en": [{"language": "en", "value": f"also {name}"}]},
        "claims": claims,
        "sitelinks": {f"{code}wiki": {"site": f"{code}wiki", "title": name, "badges": []} for code in LANGUAGES},
    }
    return json.dumps(found, ensure_ascii=False).encode()


def generate(path: Path, megabytes: int) -> int:
    """A dump of so many megabytes, decompressed; returns how many entities it has."""
    chance = random.Random(0)
    items = megabytes * 100
    written = count = 0
    opened: dict[str, Callable[[], Any]] = {
        "": lambda: path.open("wb"),
        ".gz": lambda: gzip.open(path, "wb"),
        ".bz2": lambda: bz2.open(path, "wb"),
    }
    with opened[path.suffix if path.suffix in OPENERS else ""]() as out:
        out.write(b"[\n")
        while written < megabytes * 1_000_000:
            name = f"P{count + 1}" if count < PROPERTIES else f"Q{count - PROPERTIES + 1}"
            line = draw_entity(chance, name, items) + b",\n"
            out.write(line)
            written += len(line)
            count += 1
        out.write(b'{"id": "Q0"}\n]\n')
    return count


def measure_resident() -> float:
    """The process's largest resident set so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_bare(path: Path, entities: int, answers: Any) -> None:
    """Decompression and JSON parsing, nothing else."""
    start = time.perf_counter()
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path) as stream:
        for line in stream:
            text = line.strip().rstrip(b",")
            if text not in (b"[", b"]"):
                json.loads(text)
    answers.put({"seconds": time.perf_counter() - start, "mb": [measure_resident()]})


def read_dump(path: Path, entities: int, answers: Any) -> None:
    """The index, and then all triples."""
    with tempfile.TemporaryDirectory() as folder:
        dump = WikidataDump(path, folder)
        parse, memory, seen = dump._parse, [measure_resident()], 0

        def watch(*arguments: Any) -> Any:
            nonlocal seen
            for each in parse(*arguments):
                seen += 1
                if seen % (entities // 4) == 0:
                    memory.append(measure_resident())
                yield each

        dump._parse = watch  # type: ignore[assignment]
        start = time.perf_counter()
        dump.read()
        indexed = time.perf_counter() - start
        triples = sum(1 for _ in dump)
        answers.put(
            {
                "seconds": indexed,
                "triples": triples,
                "triple_seconds": time.perf_counter() - start - indexed,
                "mb": [*memory, measure_resident()],
                "index_mb": sum(each.stat().st_size for each in Path(folder).iterdir()) / 1e6,
                "statements": dump.report.kept,
            }
        )


def run_apart(work: Callable[..., None], path: Path, entities: int) -> dict[str, Any]:
    """The work's answer, from a process of its own."""
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=work, args=(path, entities, answers))
    process.start()
    answer: dict[str, Any] = answers.get()
    process.join()
    return answer


def main() -> None:
    """Generate, read, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="of the dump, decompressed")
    parser.add_argument("--suffixes", nargs="+", choices=tuple(OPENERS), default=tuple(OPENERS))
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the results")
    arguments = parser.parse_args()
    results = []
    for suffix in arguments.suffixes:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"dump.json{suffix}"
            entities = generate(path, arguments.megabytes)
            plain, ours = run_apart(read_bare, path, entities), run_apart(read_dump, path, entities)
        results.append(
            {
                "file": path.name,
                "megabytes": arguments.megabytes,
                "entities": entities,
                "statements": ours["statements"],
                "triples": ours["triples"],
                "entities_per_second": round(entities / ours["seconds"]),
                "ratio_to_bare": round(ours["seconds"] / plain["seconds"], 2),
                "triples_per_second": round(ours["triples"] / ours["triple_seconds"]),
                "resident_mb": [round(mb) for mb in ours["mb"]],
                "index_bytes_per_triple": round(1e6 * ours["index_mb"] / ours["triples"]),
            }
        )
        print(json.dumps(results[-1]), flush=True)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps({"dumps": results}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()

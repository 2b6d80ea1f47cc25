"""Measure the speed and the memory of reading a Wikidata dump, beside bare decompression and JSON parsing.

    python examples/benchmarks/dump_speed.py --megabytes 200 --out dump_speed.json

The dump is generated: entities in Wikidata's format, in several languages, with statements of all kinds. Each of the
two readings has a process of its own. Memory is the process's largest resident set, after each quarter of the dump.
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


def draw_snak(rng: random.Random, property_: int, items: int) -> dict[str, Any]:
    """Draw the value of a statement. Half of the values are items, half are texts."""
    if rng.random() < 0.5:
        number = rng.randrange(1, items)
        value = {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"}
        data = {"type": "wikibase-entityid", "value": value}
    else:
        data = {"type": "string", "value": f"{rng.getrandbits(64):x}"}
    name = f"P{property_}"
    return {"snaktype": "value", "property": name, "hash": f"{rng.getrandbits(160):040x}", "datavalue": data}


def draw_statement(rng: random.Random, property_: int, items: int) -> dict[str, Any]:
    """Draw a statement with qualifiers and a reference, as most have."""
    return {
        "mainsnak": draw_snak(rng, property_, items),
        "type": "statement",
        "id": f"{rng.getrandbits(128):032x}",
        "rank": rng.choices(("normal", "preferred", "deprecated"), (90, 5, 5))[0],
        "qualifiers": {"P580": [draw_snak(rng, 580, items)]},
        "references": [{"hash": f"{rng.getrandbits(160):040x}", "snaks": {"P248": [draw_snak(rng, 248, items)]}}],
    }


def draw_entity(rng: random.Random, name: str, items: int) -> bytes:
    """Draw an entity, as a line of the dump."""
    labels = {code: {"language": code, "value": f"{name} {rng.getrandbits(40):x}"} for code in LANGUAGES}
    claims: dict[str, list[Any]] = {}
    for _ in range(rng.randrange(2, 12) if name[0] == "Q" else 0):
        property_ = rng.randrange(1, PROPERTIES)
        claims.setdefault(f"P{property_}", []).append(draw_statement(rng, property_, items))
    fields = {
        "type": "item" if name[0] == "Q" else "property",
        "id": name,
        "labels": labels,
        "descriptions": labels,
        "aliases": {"en": [{"language": "en", "value": f"also {name}"}]},
        "claims": claims,
        "sitelinks": {f"{code}wiki": {"site": f"{code}wiki", "title": name, "badges": []} for code in LANGUAGES},
    }
    return json.dumps(fields, ensure_ascii=False).encode()


def generate(path: Path, megabytes: int) -> int:
    """Generate a dump of so many megabytes, decompressed, and return its number of entities."""
    rng = random.Random(0)
    items = megabytes * 100
    written = count = 0
    writers: dict[str, Callable[[], Any]] = {
        "": lambda: path.open("wb"),
        ".gz": lambda: gzip.open(path, "wb"),
        ".bz2": lambda: bz2.open(path, "wb"),
    }
    with writers[path.suffix if path.suffix in OPENERS else ""]() as out:
        out.write(b"[\n")
        while written < megabytes * 1_000_000:
            name = f"P{count + 1}" if count < PROPERTIES else f"Q{count - PROPERTIES + 1}"
            line = draw_entity(rng, name, items) + b",\n"
            out.write(line)
            written += len(line)
            count += 1
        out.write(b'{"id": "Q0"}\n]\n')
    return count


def measure_resident() -> float:
    """Return the process's largest resident set so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_bare(path: Path, entities: int, answers: Any) -> None:
    """Decompress the dump and parse its JSON, nothing else."""
    start = time.perf_counter()
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path) as stream:
        for line in stream:
            text = line.strip().rstrip(b",")
            if text not in (b"[", b"]"):
                json.loads(text)
    answers.put({"seconds": time.perf_counter() - start, "mb": [measure_resident()]})


def read_dump(path: Path, entities: int, answers: Any) -> None:
    """Read the dump as `WikidataDump` does: build the index, and then yield all triples."""
    with tempfile.TemporaryDirectory() as folder:
        dump = WikidataDump(path, folder)
        parse, memory, seen = dump._parse, [measure_resident()], 0

        def watch(*arguments: Any) -> Any:
            nonlocal seen
            for parsed in parse(*arguments):
                seen += 1
                if seen % (entities // 4) == 0:
                    memory.append(measure_resident())
                yield parsed

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
                "index_mb": sum(file.stat().st_size for file in Path(folder).iterdir()) / 1e6,
                "statements": dump.report.kept,
            }
        )


def run_apart(work: Callable[..., None], path: Path, entities: int) -> dict[str, Any]:
    """Do the work in a process of its own, and return its answer."""
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

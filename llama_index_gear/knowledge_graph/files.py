"""Files that hold a graph: read line by line, compressed or not; what cannot be read is counted, never fatal."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError, GraphFileError, TripleError, check_kind
from llama_index_gear.triple import GraphTriple, Triple

MAX_LINE = 2**24
"""Bytes of a line, its end included (16 MiB): Wikidata's largest entities have some millions."""
_EXAMPLES = 10
_TICKS = 1000  # lines between two updates of the progress bar


@dataclass
class ReadReport:
    """What came of reading a file.

    Attributes:
        lines: lines read, those of earlier, killed runs included.
        entities: entities among them (Wikidata only).
        kept: statements, or triples, that were taken.
        dropped: why → how many statements or triples were left out.
        malformed: lines, or statements in them, that could not be read.
        examples: the first ten of these: "line 7: …".
        seconds: of all runs.

    """

    lines: int = 0
    entities: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    malformed: int = 0
    examples: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def drop(self, why: str) -> None:
        """Count a statement that is left out."""
        self.dropped[why] = self.dropped.get(why, 0) + 1

    def complain(self, problem: str) -> None:
        """Count a line, or a part of one, that can't be read."""
        self.malformed += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"line {self.lines}: {problem[:200]}")

    def complain_of_length(self) -> None:
        """Count a line that was too long to be read."""
        self.complain(f"longer than {MAX_LINE:,} bytes")

    def __str__(self) -> str:
        """One line for people."""
        speed = f", {self.lines / self.seconds:,.0f} lines/s" if self.seconds else ""
        dropped = "".join(f", {count:,} {why}" for why, count in sorted(self.dropped.items()))
        broken = f", {self.malformed:,} malformed (first: {self.examples[0]})" if self.malformed else ""
        return f"{self.lines:,} lines{speed}: {self.kept:,} kept{dropped}{broken}"


@dataclass
class Position:
    """How far a file has been read: lines, and bytes as they are on the disk before decompression."""

    lines: int = 0
    offset: int = 0


def lines_of(path: Path, show_progress: bool, label: str, start: Position | None = None) -> Iterator[bytes]:
    """The lines of a plain, `.gz` or `.bz2` file; empty, without even its end, is one that is longer than 16 MiB.

    Args:
        path: the file.
        show_progress: a progress bar over the bytes of the file.
        label: stands before it.
        start: what has been read; kept up to date. A plain file is entered there at once, a compressed one has to be
            decompressed up to it.

    Raises:
        GraphFileError: it is cut short, or damaged.

    """
    position = Position() if start is None else start
    with open(path, "rb") as raw, closing(_decompressed(path, raw)) as stream:
        is_plain = stream is raw
        known = 0 if is_plain else position.lines
        if is_plain:
            raw.seek(position.offset)
        total = os.fstat(raw.fileno()).st_size
        bar = tqdm(total=total, initial=raw.tell(), desc=label, unit="B", unit_scale=True, disable=not show_progress)
        with bar:
            try:
                for number, (line, size) in enumerate(_bounded(stream), start=1):
                    if number % _TICKS == 0:
                        bar.update(raw.tell() - bar.n)
                    if number <= known:
                        continue
                    position.lines += 1
                    if is_plain:
                        position.offset += size
                    yield line
            except (EOFError, OSError, zlib.error) as error:
                raise GraphFileError(
                    f"{path.name} breaks off after line {position.lines}: {error}; fetch it anew"
                ) from error
            bar.update(total - bar.n)


def _bounded(stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Each line and its size; nothing is kept of one that is too long."""
    while line := stream.readline(MAX_LINE + 1):
        size = len(line)
        while len(line) > MAX_LINE and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE + 1)
            size += len(line)
        yield (line if size <= MAX_LINE else b""), size


def _decompressed(path: Path, raw: IO[bytes]) -> Any:
    match path.suffix:
        case ".gz":
            return gzip.open(raw)
        case ".bz2":
            return bz2.open(raw)
    return raw


class TriplesFile:
    """A graph of your own, to be loaded: `ExternalTripleStore.load(TriplesFile("graph.tsv"))`.

    `.tsv`: subject, predicate, object, and, if you have them, identifiers of subject and object, separated by tabs.
    `.jsonl`: `{"subject": …, "predicate": …, "object": …, "entities": […]}` (the last optional), or a list of three.
    Both as they are, or compressed as `.gz` or `.bz2`. Streamed; iterating again reads again.

    Args:
        path: the file.
        show_progress: a progress bar. Default False.

    Attributes:
        report: of the last time it was read.

    Raises:
        ArgumentError: the name ends otherwise, or is none.
        FileNotFoundError: there is no such file.

    """

    def __init__(self, path: str | Path, *, show_progress: bool = False) -> None:
        check_kind((str, Path), hint="write the file's path", path=path)
        self.path = Path(path)
        self.show_progress = show_progress
        self.report = ReadReport()
        self._parse = {"tsv": _from_tsv, "jsonl": _from_json}[kind_of(self.path, ("tsv", "jsonl"))]

    def __iter__(self) -> Iterator[GraphTriple]:
        """The triples."""
        self.report = report = ReadReport()
        start = time.perf_counter()
        for line in lines_of(self.path, self.show_progress, "Reading triples"):
            report.lines += 1
            report.seconds = time.perf_counter() - start
            if not line:
                report.complain_of_length()
            if not line.strip():
                continue
            try:
                triple = self._parse(line.decode("utf-8-sig" if report.lines == 1 else "utf-8"))
            except (ValueError, TypeError, KeyError, TripleError, RecursionError) as error:
                report.complain(f"{type(error).__name__}: {error}")
            else:
                report.kept += 1
                yield triple


def kind_of(path: Path, kinds: tuple[str, ...]) -> str:
    """Which of these kinds of file it is, by its name, compressed or not.

    Raises:
        ArgumentError: none of them.
        FileNotFoundError: there is no such file.

    """
    name = path.with_suffix("") if path.suffix in (".gz", ".bz2") else path
    kind = name.suffix.removeprefix(".")
    if kind not in kinds:
        wanted = ", ".join(f".{each}" for each in kinds)
        raise ArgumentError(f"{path.name}: the name must end in {wanted}, or in one of these and .gz or .bz2")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return kind


def _from_tsv(line: str) -> GraphTriple:
    subject, predicate, object_, *ids = line.rstrip("\r\n").split("\t")
    if len(ids) not in (0, 2):
        raise ValueError(f"3 or 5 columns are wanted, here are {3 + len(ids)}")
    return GraphTriple(Triple(subject, predicate, object_), tuple(dict.fromkeys(filter(None, ids))))


def _from_json(line: str) -> GraphTriple:
    value = json.loads(line)
    if isinstance(value, dict):
        entities = value.get("entities") or []
        if not isinstance(entities, list) or not all(isinstance(each, str) and each for each in entities):
            raise ValueError("entities must be a list of texts")
        return GraphTriple(Triple(value["subject"], value["predicate"], value["object"]), tuple(entities))
    if not isinstance(value, list):
        raise ValueError("an object or a list of three is wanted")
    subject, predicate, object_ = value
    return GraphTriple(Triple(subject, predicate, object_))

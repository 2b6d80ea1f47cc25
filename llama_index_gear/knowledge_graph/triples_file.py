"""Readers of files that hold a graph: line by line, compressed or not. Lines that cannot be read are counted."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import os
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tqdm.auto import tqdm

from llama_index_gear.errors import ArgumentError, GraphFileError, TripleError, read_path
from llama_index_gear.triple import GraphTriple, Triple

MAX_LINE = 2**24
"""Maximum bytes of a line, with its end (16 MiB); Wikidata's largest entities have some millions."""
_MAX_EXAMPLES = 10
_COLUMNS = tuple(
    set(names.split())
    for names in (
        "subject subjekt subj s head h source from start entity node",
        "predicate prädikat pred p relation relationship rel r property verb edge type label",
        "object objekt obj o tail t target to end entity node value",
    )
)
"""The names of the three columns, in small letters."""
_TICKS = 1000  # lines between two updates of the progress bar


@dataclass
class ReadReport:
    """The counts of a file that was read.

    Attributes:
        lines: number of lines read, also by earlier runs that were killed.
        entities: number of entities in them (Wikidata only).
        kept: number of statements or triples that were taken.
        dropped: reason → number of statements or triples that were left out.
        malformed: number of lines, or statements in them, that could not be read.
        examples: the first ten malformed ones: "line 7: …".
        seconds: duration of all runs together.

    """

    lines: int = 0
    entities: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    malformed: int = 0
    examples: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def drop(self, reason: str) -> None:
        """Count a statement that is left out."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def complain(self, problem: str) -> None:
        """Count a malformed line, or a malformed part of one; keep the first ten as examples."""
        self.malformed += 1
        if len(self.examples) < _MAX_EXAMPLES:
            self.examples.append(f"line {self.lines}: {problem[:200]}")

    def complain_of_length(self) -> None:
        """Count a line that is too long to be read."""
        self.complain(f"longer than {MAX_LINE:,} bytes")

    def __str__(self) -> str:
        """Format the counts as one line."""
        speed = f", {self.lines / self.seconds:,.0f} lines/s" if self.seconds else ""
        dropped = "".join(f", {count:,} {reason}" for reason, count in sorted(self.dropped.items()))
        broken = f", {self.malformed:,} malformed (first: {self.examples[0]})" if self.malformed else ""
        return f"{self.lines:,} lines{speed}: {self.kept:,} kept{dropped}{broken}"


@dataclass
class Position:
    """A position in a file: lines read, and bytes read of a plain file."""

    lines: int = 0
    offset: int = 0


def read_lines(path: Path, show_progress: bool, label: str, start: Position | None = None) -> Iterator[bytes]:
    """Read the lines of a plain, `.gz` or `.bz2` file. A line of more than 16 MiB is empty, without a line end.

    Args:
        path: the file.
        show_progress: show a progress bar over the bytes of the file.
        label: text before the bar.
        start: the position to start from; kept up to date. In a plain file it is reached at once; a compressed file is
            decompressed up to it.

    Raises:
        GraphFileError: the file is cut short or damaged.

    """
    position = Position() if start is None else start
    with open(path, "rb") as raw, closing(_decompress(path, raw)) as stream:
        is_plain = stream is raw
        lines_to_skip = 0 if is_plain else position.lines
        if is_plain:
            raw.seek(position.offset)
        total = os.fstat(raw.fileno()).st_size
        bar = tqdm(total=total, initial=raw.tell(), desc=label, unit="B", unit_scale=True, disable=not show_progress)
        with bar:
            try:
                for number, (line, size) in enumerate(_split_lines(stream), start=1):
                    if number % _TICKS == 0:
                        bar.update(raw.tell() - bar.n)
                    if number <= lines_to_skip:
                        continue
                    position.lines += 1
                    if is_plain:
                        position.offset += size
                    yield line.removeprefix(codecs.BOM_UTF8) if position.lines == 1 else line
            except (EOFError, OSError, zlib.error) as error:
                raise GraphFileError(
                    f"{path.name} breaks off after line {position.lines}: {error}; fetch it anew"
                ) from error
            bar.update(total - bar.n)


def _split_lines(stream: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """Split a stream into lines, each with its size; the content of a line that is too long is dropped."""
    while line := stream.readline(MAX_LINE + 1):
        size = len(line)
        while len(line) > MAX_LINE and not line.endswith(b"\n"):
            line = stream.readline(MAX_LINE + 1)
            size += len(line)
        yield (line if size <= MAX_LINE else b""), size


def _decompress(path: Path, raw: IO[bytes]) -> Any:
    match path.suffix:
        case ".gz":
            return gzip.open(raw)
        case ".bz2":
            return bz2.open(raw)
    return raw


class TriplesFile:
    """A graph of your own, to be loaded: `ExternalTripleStore.load(TriplesFile("graph.tsv"))`.

    A `.tsv` file has the columns subject, predicate, object and, optionally, the identifiers of subject and object. A
    line of a `.jsonl` file is `{"subject": …, "predicate": …, "object": …, "entities": […]}`, where `entities` is
    optional, or a list of three texts. A subject or object that is a number is the text that is written. A first line
    with the names of the columns is left out, and counted. Both may be compressed, as `.gz` or `.bz2`. Files are
    streamed; iterating again reads the file again.

    Args:
        path: the file.
        show_progress: show a progress bar. Default False.

    Attributes:
        report: the counts of the last iteration.

    Raises:
        ArgumentError: the file's name has another ending, or is no path.
        FileNotFoundError: there is no such file.

    """

    def __init__(self, path: str | Path, *, show_progress: bool = False) -> None:
        self.path = read_path(hint="write the file's path", path=path)
        self.show_progress = show_progress
        self.report = ReadReport()
        self._parse = {"tsv": _parse_tsv, "jsonl": _parse_json}[get_kind(self.path, ("tsv", "jsonl"))]

    def __iter__(self) -> Iterator[GraphTriple]:
        """Iterate over the triples."""
        self.report = report = ReadReport()
        start = time.perf_counter()
        for line in read_lines(self.path, self.show_progress, "Reading triples"):
            report.lines += 1
            report.seconds = time.perf_counter() - start
            if not line:
                report.complain_of_length()
            if not line.strip():
                continue
            try:
                triple = self._parse(line.decode())
            except (ValueError, TypeError, KeyError, TripleError, RecursionError) as error:
                report.complain(f"{type(error).__name__}: {error}")
            else:
                if not (report.kept or report.dropped) and _is_header(triple.triple):
                    report.drop("header")
                    continue
                report.kept += 1
                yield triple


def get_kind(path: Path, kinds: tuple[str, ...]) -> str:
    """Return which of these kinds the file has, by its name, compressed or not.

    Raises:
        ArgumentError: the file has none of these kinds.
        FileNotFoundError: there is no such file.

    """
    name = path.with_suffix("") if path.suffix in (".gz", ".bz2") else path
    kind = name.suffix.removeprefix(".")
    if kind not in kinds:
        endings = ", ".join(f".{kind}" for kind in kinds)
        raise ArgumentError(f"{path.name}: the name must end in {endings}, or in one of these and .gz or .bz2")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    return kind


def _parse_tsv(line: str) -> GraphTriple:
    subject, predicate, object_, *ids = line.rstrip("\r\n").split("\t")
    if len(ids) not in (0, 2):
        raise ValueError(f"3 or 5 columns are wanted, here are {3 + len(ids)}")
    return GraphTriple(Triple(subject, predicate, object_), tuple(dict.fromkeys(filter(None, ids))))


def _is_header(triple: Triple) -> bool:
    """Return True for a line that names the columns."""
    slots = (triple.subject, triple.predicate, triple.object)
    names = [re.sub(r"[\W_]|\d", "", slot).casefold() for slot in slots]
    return all(
        name in known or re.sub("(?:id|type|name|label|entity|node)$", "", name) in known
        for name, known in zip(names, _COLUMNS, strict=True)
    )


class _Number(str):
    """A number of JSON, as it is written."""


def _parse_json(line: str) -> GraphTriple:
    value = json.loads(line, parse_int=_Number, parse_float=_Number)
    if isinstance(value, dict):
        entities = value.get("entities") or []
        if not isinstance(entities, list) or not all(type(entity) is str and entity for entity in entities):
            raise ValueError("entities must be a list of texts")
        return GraphTriple(_make_triple(value["subject"], value["predicate"], value["object"]), tuple(entities))
    if not isinstance(value, list):
        raise ValueError("an object or a list of three is wanted")
    subject, predicate, object_ = value
    return GraphTriple(_make_triple(subject, predicate, object_))


def _make_triple(subject: Any, predicate: Any, object_: Any) -> Triple:
    """Make a triple of values of JSON, whose ends may be numbers."""
    if isinstance(predicate, _Number):
        raise ValueError(f"the predicate of a triple must be text, got {predicate}")
    ends = [str(end) if isinstance(end, _Number) else end for end in (subject, object_)]
    return Triple(ends[0], predicate, ends[1])

"""Wikidata's dumps as triples in words (Millions of GeAR-s §5): JSON with one entity a line, or truthy N-Triples."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from llama_index_gear.errors import ArgumentError, GraphFileError, check_counts, check_kinds, read_path
from llama_index_gear.knowledge_graph.triples_file import Position, ReadReport, get_kind, read_lines
from llama_index_gear.knowledge_graph.wikidata_formats import (
    Entity,
    EntitySelection,
    parse_json_dump,
    parse_properties,
    parse_triples_dump,
)
from llama_index_gear.triple import GraphTriple, Triple

CITES_WORK = "P2860"
"""The property "cites work": a large part of Wikidata, which misled the paper's own linking (Table 2)."""
LANGUAGES = ("en", "mul")
_ALL_LANGUAGES = "mul"  # Wikidata's own fallback: an item with one name in all languages has only this label
ALIAS = "alias"

_COMMIT = 5_000  # entities a commit
_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS label (id INTEGER PRIMARY KEY, label TEXT, language INTEGER);
CREATE TABLE IF NOT EXISTS alias (id INTEGER, number INTEGER, alias TEXT, PRIMARY KEY (id, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS redirect (id INTEGER PRIMARY KEY, target INTEGER);
CREATE TABLE IF NOT EXISTS statement (subject INTEGER, property INTEGER, object INTEGER);
"""
_CHUNK = 5_000  # rows that are read at once


class WikidataDump:
    """A Wikidata dump as triples, to be loaded: `ExternalTripleStore.load(WikidataDump("latest-all.json.bz2", …))`.

    It gives the statements between items, in words. It leaves out statements with a literal, "no value" and "some
    value", deprecated statements, those beside which a preferred one stands (as truthy N-Triples do), and those with an
    item or property that has no label in the chosen languages.
    `entities` of a triple are Wikidata's identifiers, so that two items of one name stay two. After all statements come
    the aliases, `(label, "alias", alias)`.

    A dump refers to items by number and gives their labels elsewhere. So it is first read into an index on the disk
    (some 50 bytes a statement, 60 a label), and the triples are taken from there. The memory used does not grow with
    the dump. A killed run is continued by the next one: in a plain file at once, in a compressed one after
    decompressing what was read.

    Args:
        path: the dump: `.json` (`latest-all.json`) or `.nt` (`latest-truthy.nt`), plain, `.gz` or `.bz2`.
        folder: folder of the index; each dump and choice of options needs its own.
        languages: languages of labels and aliases, best first, in any case. Default ("en", "mul"); "mul", the names
            that are the same in all languages, comes last if it is not named. N-Triples rename some of Wikidata's
            codes, as "simple" to "en-simple".
        aliases: maximum number of aliases an item. Default 1 (Millions of GeAR-s §5); 0: none.
        allow: properties to take ("P22"). Default: None, which takes all.
        deny: properties to leave out. Default ("P2860",), "cites work".
        show_progress: show progress bars. Default False.

    Attributes:
        report: the index's counts: read, kept, dropped (by reason) and malformed (with examples). After the last
            triple `dropped` names statements without a label too.

    Raises:
        ArgumentError: the file's name has another ending, a property's name is wrong, or (when read) the folder holds
            the index of another dump or of other options.
        FileNotFoundError: there is no such file.
        GraphFileError: (when read) the file is cut short or damaged; download it again, and choose another folder.

    """

    def __init__(
        self,
        path: str | Path,
        folder: str | Path,
        *,
        languages: Sequence[str] = LANGUAGES,
        aliases: int = 1,
        allow: Iterable[str] | None = None,
        deny: Iterable[str] = (CITES_WORK,),
        show_progress: bool = False,
    ) -> None:
        self.path = read_path(hint="write its path", path=path)
        self.folder = read_path(hint="write its path", folder=folder)
        self.show_progress = show_progress
        self.report = ReadReport()
        check_kinds(str, hint="write a list of codes, best first, ['en', 'mul']", languages=languages)
        if not languages:
            raise ArgumentError("languages is a list of codes, best first; it is empty")
        check_counts(least=0, aliases=aliases)
        allowed = None if allow is None else parse_properties(allow)
        chosen = tuple(dict.fromkeys([*(language.lower() for language in languages), _ALL_LANGUAGES]))
        self._selection = EntitySelection(chosen, aliases, allowed, parse_properties(deny))
        self._parse = {"json": parse_json_dump, "nt": parse_triples_dump}[get_kind(self.path, ("json", "nt"))]

    def read(self) -> ReadReport:
        """Make the index, or continue it; do nothing if it is complete."""
        index = WikidataIndex(self.folder / "wikidata.sqlite")
        try:
            self._read(index)
        finally:
            index.close()
        return self.report

    def __iter__(self) -> Iterator[GraphTriple]:
        """Iterate over the triples; make the index first if it is not complete."""
        self.read()
        index = WikidataIndex(self.folder / "wikidata.sqlite")
        unlabeled = 0
        try:
            for (subject, subject_label), property_, (object_, object_label) in index.statements():
                if subject_label and property_ and object_label:
                    ends = dict.fromkeys((f"Q{subject}", f"Q{object_}"))
                    yield GraphTriple(Triple(subject_label, property_, object_label), tuple(ends))
                else:
                    unlabeled += 1
            if unlabeled:
                self.report.dropped["no label"] = unlabeled
            for (item, subject_label), alias in index.aliases():
                if subject_label:
                    yield GraphTriple(Triple(subject_label, ALIAS, alias), (f"Q{item}",), is_name=True)
        finally:
            index.close()

    def _read(self, index: WikidataIndex) -> None:
        options = {"dump": self.path.name, "bytes": self.path.stat().st_size, **self._selection.to_json()}
        stored = index.get_note("options")
        if stored is not None and stored != options:
            changed = sorted(key for key in options if options[key] != stored.get(key))
            raise ArgumentError(
                f"{self.folder} holds an index of {stored['dump']} with other {', '.join(changed)}: "
                "choose another folder"
            )
        self.report = report = ReadReport(**(index.get_note("report") or {}))
        if index.get_note("complete"):
            return
        reading = Position(**(index.get_note("position") or {}))
        start = time.perf_counter() - report.seconds
        batch: list[Entity] = []
        lines = read_lines(self.path, self.show_progress, "Reading Wikidata", reading)

        def commit(position: Position, complete: bool) -> None:
            report.seconds = time.perf_counter() - start
            notes = {"options": options, "position": asdict(position), "complete": complete}
            index.add(batch, report=asdict(report), **notes)
            batch.clear()

        position = replace(reading)
        try:
            for entity, position in self._parse(lines, self._selection, report, reading):
                batch.append(entity)
                report.kept += len(entity.statements)
                if len(batch) >= _COMMIT:
                    commit(position, complete=False)
        except GraphFileError:
            commit(position, complete=False)
            raise
        commit(reading, complete=True)


class WikidataIndex:
    """An index in one SQLite file. Entities and the position in the dump are committed together.

    Args:
        path: the file; made if it does not exist.

    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A load iterates in worker threads, one at a time, so SQLite need not check the thread.
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -64000;")
        self._file.executescript(_TABLES)

    def get_note(self, key: str) -> Any:
        """Return the note under this key; None if there is none."""
        row = self._file.execute("SELECT value FROM about WHERE key = ?", [key]).fetchone()
        return None if row is None else json.loads(row[0])

    def add(self, entities: Sequence[Entity], **notes: Any) -> None:
        """Add entities and notes, all or nothing."""
        self._file.execute("BEGIN")
        try:
            self._insert(entities)
            rows = [(key, json.dumps(value)) for key, value in notes.items()]
            self._file.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", rows)
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def _insert(self, entities: Sequence[Entity]) -> None:
        self._file.executemany(
            "INSERT INTO label VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET label = excluded.label, "
            "language = excluded.language WHERE excluded.language < label.language",
            [(entity.id, entity.label, entity.language) for entity in entities if entity.label],
        )
        aliases = [(entity.id, number, alias) for entity in entities for number, alias in enumerate(entity.aliases)]
        self._file.executemany("INSERT OR IGNORE INTO alias VALUES (?, ?, ?)", aliases)
        redirects = [(entity.id, entity.target) for entity in entities if entity.target is not None]
        self._file.executemany("INSERT OR REPLACE INTO redirect VALUES (?, ?)", redirects)
        statements = [(entity.id, *statement) for entity in entities for statement in entity.statements]
        self._file.executemany("INSERT INTO statement VALUES (?, ?, ?)", statements)

    def statements(self) -> Iterator[tuple[tuple[int, str], str, tuple[int, str]]]:
        """Iterate over the statements: ((item, label), property's label, (item, label)). A missing label is empty."""
        last = 0
        properties: dict[int, tuple[int, str]] = {}  # some ten thousand, each looked up once
        while True:
            rows = self._file.execute(
                "SELECT rowid, subject, property, object FROM statement WHERE rowid > ? ORDER BY rowid LIMIT ?",
                [last, _CHUNK],
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            labels = self.labels({number for row in rows for number in (row[1], row[3])})
            properties |= self.labels({row[2] for row in rows} - properties.keys())
            for _, subject, property_, object_ in rows:
                yield labels[subject], properties[property_][1], labels[object_]

    def aliases(self) -> Iterator[tuple[tuple[int, str], str]]:
        """Iterate over the aliases: ((item, label), alias). A missing label is empty."""
        last = (0, -1)
        while True:
            rows = self._file.execute(
                "SELECT id, number, alias FROM alias WHERE (id, number) > (?, ?) ORDER BY id, number LIMIT ?",
                [*last, _CHUNK],
            ).fetchall()
            if not rows:
                return
            last = rows[-1][:2]
            labels = self.labels({row[0] for row in rows})
            for number, _, alias in rows:
                yield labels[number], alias

    def labels(self, numbers: Iterable[int]) -> dict[int, tuple[int, str]]:
        """Return for each entity the entity that it redirects to (else itself), and its label."""
        wanted = set(numbers)
        targets = dict(self._select("SELECT id, target FROM redirect", wanted))
        known = dict(self._select("SELECT id, label FROM label", {targets.get(number, number) for number in wanted}))
        return {
            number: (target, known.get(target, ""))
            for number, target in ((number, targets.get(number, number)) for number in wanted)
        }

    def _select(self, select: str, numbers: set[int]) -> list[tuple[Any, ...]]:
        where = f"{select} WHERE id IN (SELECT value FROM json_each(?))"
        return self._file.execute(where, [json.dumps(list(numbers))]).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

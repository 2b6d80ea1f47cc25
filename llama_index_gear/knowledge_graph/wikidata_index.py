"""What of a Wikidata dump is needed, on the disk: labels, aliases, redirects, and statements between items."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_TABLES = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS label (id INTEGER PRIMARY KEY, label TEXT, language INTEGER);
CREATE TABLE IF NOT EXISTS alias (id INTEGER, number INTEGER, alias TEXT, PRIMARY KEY (id, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS redirect (id INTEGER PRIMARY KEY, target INTEGER);
CREATE TABLE IF NOT EXISTS statement (subject INTEGER, property INTEGER, object INTEGER);
"""
_CHUNK = 5_000
_MOST_PROPERTIES = 100_000


@dataclass
class Entity:
    """An entity of a dump. Items are numbered as Wikidata does (42 is Q42), properties negatively (−31 is P31).

    Attributes:
        id: its number.
        label: in the best language that it has one in; empty if in none.
        language: the language's place among those asked for.
        aliases: in the best language that it has some in.
        statements: (property, item), none twice.
        target: the item that it is redirected to; None: it is none.

    """

    id: int
    label: str = ""
    language: int = 0
    aliases: Sequence[str] = ()
    statements: dict[tuple[int, int], None] = field(default_factory=dict)
    target: int | None = None


class WikidataIndex:
    """One SQLite file. What is added counts only once it is committed, with how far the dump has been read.

    Args:
        path: the file; made if it isn't there.

    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A load iterates in worker threads, one at a time.
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -64000;")
        self._file.executescript(_TABLES)

    def about(self, key: str) -> Any:
        """What was noted under this key; None if nothing was."""
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
            [(each.id, each.label, each.language) for each in entities if each.label],
        )
        aliases = [(each.id, number, alias) for each in entities for number, alias in enumerate(each.aliases)]
        self._file.executemany("INSERT OR IGNORE INTO alias VALUES (?, ?, ?)", aliases)
        redirects = [(each.id, each.target) for each in entities if each.target is not None]
        self._file.executemany("INSERT OR REPLACE INTO redirect VALUES (?, ?)", redirects)
        statements = [(each.id, *statement) for each in entities for statement in each.statements]
        self._file.executemany("INSERT INTO statement VALUES (?, ?, ?)", statements)

    def statements(self) -> Iterator[tuple[tuple[int, str], str, tuple[int, str]]]:
        """((item, label), property's label, (item, label)) of each statement; a label that is not known is empty."""
        last = 0
        properties = _Labels(self, _MOST_PROPERTIES)
        while True:
            rows = self._file.execute(
                "SELECT rowid, subject, property, object FROM statement WHERE rowid > ? ORDER BY rowid LIMIT ?",
                [last, _CHUNK],
            ).fetchall()
            if not rows:
                return
            last = rows[-1][0]
            labels = self.labels({number for row in rows for number in (row[1], row[3])})
            properties.learn(row[2] for row in rows)
            for _, subject, property_, object_ in rows:
                yield labels[subject], properties.known[property_][1], labels[object_]

    def aliases(self) -> Iterator[tuple[tuple[int, str], str]]:
        """((item, label), alias) of each alias; a label that is not known is empty."""
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
        """For each entity, where it is redirected to, and the label of that."""
        wanted = set(numbers)
        targets = dict(self._of("SELECT id, target FROM redirect", wanted))
        known = dict(self._of("SELECT id, label FROM label", {targets.get(number, number) for number in wanted}))
        return {
            number: (target, known.get(target, ""))
            for number, target in ((number, targets.get(number, number)) for number in wanted)
        }

    def _of(self, select: str, numbers: set[int]) -> list[tuple[Any, ...]]:
        where = f"{select} WHERE id IN (SELECT value FROM json_each(?))"
        return self._file.execute(where, [json.dumps(list(numbers))]).fetchall()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@dataclass
class _Labels:
    """Labels of properties, of which there are some ten thousand: looked up once."""

    index: WikidataIndex
    most: int
    known: dict[int, tuple[int, str]] = field(default_factory=dict)

    def learn(self, numbers: Iterable[int]) -> None:
        wanted = set(numbers)
        if len(self.known) > self.most:
            self.known.clear()
        new = wanted - self.known.keys()
        if new:
            self.known.update(self.index.labels(new))

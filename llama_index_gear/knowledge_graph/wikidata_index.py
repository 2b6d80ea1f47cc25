"""An index on the disk of a Wikidata dump: labels, aliases, redirects, and statements between items."""

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


@dataclass
class Entity:
    """An entity of a dump. Items have Wikidata's numbers (42 is Q42), properties their negatives (−31 is P31).

    Attributes:
        id: number of the entity.
        label: label in the best language that has one; empty if none has.
        language: rank of that language among the chosen ones, from 0.
        aliases: aliases in the best language that has some.
        statements: (property, item) pairs, each once.
        target: number of the item that this one redirects to; None: no redirect.

    """

    id: int
    label: str = ""
    language: int = 0
    aliases: Sequence[str] = ()
    statements: dict[tuple[int, int], None] = field(default_factory=dict)
    target: int | None = None


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

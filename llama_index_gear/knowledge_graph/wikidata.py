"""Wikidata's own dumps as triples in words (Millions of GeAR-s §5): JSON, one entity a line, or truthy N-Triples."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from llama_index_gear.errors import ArgumentError, GraphFileError, check_counts, check_kind, check_kinds
from llama_index_gear.knowledge_graph.files import Position, ReadReport, kind_of, lines_of
from llama_index_gear.knowledge_graph.wikidata_formats import Wanted, from_json, from_triples, properties_of
from llama_index_gear.knowledge_graph.wikidata_index import Entity, WikidataIndex
from llama_index_gear.triple import GraphTriple, Triple

CITES_WORK = "P2860"
"""Papers citing papers: a large part of Wikidata, and what misled the paper's own linking (Table 2)."""
LANGUAGES = ("en", "mul")
ALIAS = "alias"

_COMMIT = 5_000  # entities


class WikidataDump:
    """A Wikidata dump as triples, to be loaded: `ExternalTripleStore.load(WikidataDump("latest-all.json.bz2", …))`.

    Statements between items alone, in words: what a literal stands in is left out, as are "no value", "some value",
    deprecated statements, and whatever has no label in the languages asked for. `entities` of a triple are Wikidata's
    identifiers, so that two items of one name stay two. Behind all statements come the aliases, `(label, "alias",
    alias)`.

    The dump names items by number and says what they are called elsewhere, so it is first read into an index on the
    disk (some 50 bytes a statement, 60 a label), from which the triples are taken. Memory stays the same however large
    the dump is. What was killed goes on where it was; a plain file at once, a compressed one after decompressing
    what had been read.

    Args:
        path: the dump: `.json` (`latest-all.json`) or `.nt` (`latest-truthy.nt`), as it is or `.gz` or `.bz2`.
        folder: for the index; one a dump and choice of options.
        languages: of labels and aliases, best first, without regard to case. Default ("en", "mul"); "mul" holds names
            that are the same in all languages. N-Triples rename some of Wikidata's codes, as "simple" to "en-simple".
        aliases: at most so many an item. Default 1 (Millions of GeAR-s §5); 0: none.
        allow: properties to take ("P22"); None (default): all.
        deny: properties to leave out. Default ("P2860",), "cites work".
        show_progress: progress bars. Default False.

    Attributes:
        report: of the index: what was read, kept, dropped (why), malformed (with examples).
        unlabelled: statements that have no label somewhere; known when all triples have been taken.

    Raises:
        ArgumentError: the file's name ends otherwise, a property is none, or (when read) the folder holds the index of
            another dump or of other options.
        FileNotFoundError: there is no such file.
        GraphFileError: (when read) it is cut short or damaged; fetch it anew, and choose another folder.

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
        check_kind((str, Path), hint="write its path", path=path, folder=folder)
        self.path = Path(path)
        self.folder = Path(folder)
        self.show_progress = show_progress
        self.report = ReadReport()
        self.unlabelled = 0
        check_kinds(str, hint="write a list of codes, best first, ['en', 'mul']", languages=languages)
        if not languages:
            raise ArgumentError("languages is a list of codes, best first; it is empty")
        check_counts(least=0, aliases=aliases)
        allowed = None if allow is None else properties_of(allow)
        self._wanted = Wanted(tuple(each.lower() for each in languages), aliases, allowed, properties_of(deny))
        self._entities = {"json": from_json, "nt": from_triples}[kind_of(self.path, ("json", "nt"))]

    def read(self) -> ReadReport:
        """Make the index, or go on with it; nothing is done if it is complete."""
        index = WikidataIndex(self.folder / "wikidata.sqlite")
        try:
            self._read(index)
        finally:
            index.close()
        return self.report

    def __iter__(self) -> Iterator[GraphTriple]:
        """The triples; the index is made first if need be."""
        self.read()
        index = WikidataIndex(self.folder / "wikidata.sqlite")
        self.unlabelled = 0
        try:
            for (subject, its_label), property_, (object_, other_label) in index.statements():
                if its_label and property_ and other_label:
                    ends = dict.fromkeys((f"Q{subject}", f"Q{object_}"))
                    yield GraphTriple(Triple(its_label, property_, other_label), tuple(ends))
                else:
                    self.unlabelled += 1
            for (item, its_label), alias in index.aliases():
                if its_label:
                    yield GraphTriple(Triple(its_label, ALIAS, alias), (f"Q{item}",), is_name=True)
        finally:
            index.close()

    def _read(self, index: WikidataIndex) -> None:
        options = {"dump": self.path.name, "bytes": self.path.stat().st_size, **self._wanted.noted()}
        noted = index.about("options")
        if noted is not None and noted != options:
            changed = sorted(key for key in options if options[key] != noted.get(key))
            raise ArgumentError(
                f"{self.folder} holds an index of {noted['dump']} with other {', '.join(changed)}: "
                "choose another folder"
            )
        self.report = report = ReadReport(**(index.about("report") or {}))
        if index.about("complete"):
            return
        reading = Position(**(index.about("position") or {}))
        start = time.perf_counter() - report.seconds
        batch: list[Entity] = []
        lines = lines_of(self.path, self.show_progress, "Reading Wikidata", reading)

        def commit(position: Position, complete: bool) -> None:
            report.seconds = time.perf_counter() - start
            notes = {"options": options, "position": asdict(position), "complete": complete}
            index.add(batch, report=asdict(report), **notes)
            batch.clear()

        position = replace(reading)
        try:
            for entity, position in self._entities(lines, self._wanted, report, reading):
                batch.append(entity)
                report.kept += len(entity.statements)
                if len(batch) >= _COMMIT:
                    commit(position, complete=False)
        except GraphFileError:
            commit(position, complete=False)
            raise
        commit(reading, complete=True)

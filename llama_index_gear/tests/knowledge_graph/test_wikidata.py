"""Wikidata's dumps: exact triples from every kind of statement, resumed reads, broken input."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear.errors import ArgumentError, GraphFileError, TripleError
from llama_index_gear.knowledge_graph import triples_file, wikidata
from llama_index_gear.knowledge_graph.triples_file import TriplesFile
from llama_index_gear.knowledge_graph.wikidata import WikidataDump, WikidataIndex
from llama_index_gear.knowledge_graph.wikidata_formats import Entity
from llama_index_gear.tests.growth import assert_linear
from llama_index_gear.triple import GraphTriple, Triple


def _make_item(number: int) -> dict[str, Any]:
    return {
        "type": "wikibase-entityid",
        "value": {"entity-type": "item", "numeric-id": number, "id": f"Q{number}"},
    }


def _make_statement(value: dict[str, Any] | None, kind: str = "value", rank: str = "normal") -> dict[str, Any]:
    snak: dict[str, Any] = {"snaktype": kind, "property": "P1", "hash": "0" * 40}
    if value is not None:
        snak["datavalue"] = value
    return {"mainsnak": snak, "type": "statement", "id": "Q1$0", "rank": rank, "qualifiers": {}, "references": []}


def _make_labels(labels: dict[str, str]) -> dict[str, Any]:
    return {language: {"language": language, "value": value} for language, value in labels.items()}


def _make_entity(
    name: str, labels: dict[str, str], claims: Any = None, aliases: dict[str, list[str]] | None = None
) -> dict[str, Any]:
    several = {
        language: [{"language": language, "value": value} for value in values]
        for language, values in (aliases or {}).items()
    }
    return {
        "type": "item" if name[0] == "Q" else "property",
        "id": name,
        "labels": _make_labels(labels),
        "descriptions": {},
        "aliases": several or [],  # Wikibase writes an empty object as an empty list
        "claims": claims if claims is not None else [],
        "sitelinks": {},
        "lastrevid": 1,
    }


SPIELBERG = _make_entity(
    "Q8877",
    {"en": "Steven Spielberg", "de": "Steven  Spielberg"},
    {
        "P19": [
            _make_statement(_make_item(43196)),
            _make_statement(_make_item(65), rank="deprecated"),
            _make_statement(None, "somevalue"),
            _make_statement(None, "novalue"),
        ],
        "P26": [
            _make_statement(_make_item(7)),
            _make_statement(_make_item(8), rank="preferred"),
            _make_statement(_make_item(8), rank="preferred"),
        ],
        "P569": [_make_statement({"type": "time", "value": {"time": "+1946-12-18T00:00:00Z", "precision": 11}})],
        "P2048": [_make_statement({"type": "quantity", "value": {"amount": "+1.72", "unit": "1"}})],
        "P1477": [_make_statement({"type": "monolingualtext", "value": {"text": "Steven Allan", "language": "en"}})],
        "P373": [_make_statement({"type": "string", "value": "Steven Spielberg"})],
        "P2860": [_make_statement(_make_item(43196))],
        "P5": [_make_statement({"type": "wikibase-entityid", "value": {"entity-type": "property", "id": "P19"}})],
        "P4": [_make_statement({"type": "wikibase-entityid", "value": {"entity-type": "item", "numeric-id": 99}})],
        "P3": [_make_statement(_make_item(404)), _make_statement(_make_item(7))],
    },
    {"en": ["Spielberg", "Steven Spielberg", "Steven Allan Spielberg"], "de": ["Spielberg, S."]},
)
ENTITIES: list[Any] = [
    _make_entity("P19", {"en": "place of birth", "de": "Geburtsort"}),
    _make_entity("P26", {"en": "spouse"}),
    _make_entity("P3", {"en": "heir"}),
    _make_entity("P4", {"en": "knows"}),
    _make_entity("P2860", {"en": "cites work"}),
    SPIELBERG,
    _make_entity("Q43196", {"en": "Cincinnati", "de": "Cincinnati"}),
    _make_entity("Q8", {"mul": "Kate Capshaw", "fr": "K. Capshaw"}, {"P26": [_make_statement(_make_item(8877))]}),
    {"entity": "Q99", "redirect": "Q100", "type": "item"},
    _make_entity("Q100", {"en": "George Lucas"}),
    _make_entity("Q7", {"fr": "Amy Irving"}),  # no label in the languages asked for; Q404 has no entity at all
]
TRIPLES = [
    ("Steven Spielberg", "place of birth", "Cincinnati", ("Q8877", "Q43196")),
    ("Steven Spielberg", "spouse", "Kate Capshaw", ("Q8877", "Q8")),
    ("Steven Spielberg", "knows", "George Lucas", ("Q8877", "Q100")),
    ("Kate Capshaw", "spouse", "Steven Spielberg", ("Q8", "Q8877")),
    ("Steven Spielberg", "alias", "Spielberg", ("Q8877",)),
]


def _write_dump(path: Path, entities: Sequence[Any] = ENTITIES, broken: dict[int, str] | None = None) -> Path:
    lines = ["[", *(json.dumps(entity, ensure_ascii=False) + "," for entity in entities)]
    lines[-1] = lines[-1].removesuffix(",")
    for number, text in sorted((broken or {}).items()):
        lines.insert(number, text)
    whole = ("\n".join([*lines, "]"]) + "\n").encode()
    pack: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".bz2": bz2.compress}
    path.write_bytes(pack.get(path.suffix, bytes)(whole))
    return path


def _flatten_triples(triples: Any) -> list[tuple[Any, ...]]:
    return [
        (triple.triple.subject, triple.triple.predicate, triple.triple.object, triple.entities) for triple in triples
    ]


@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.bz2"])
def test_exact_triples(tmp_path: Path, suffix: str) -> None:
    dump = WikidataDump(_write_dump(tmp_path / f"dump{suffix}"), tmp_path / "index")
    assert _flatten_triples(dump) == TRIPLES
    report = dump.report
    assert (report.lines, report.entities, report.kept, report.malformed) == (len(ENTITIES) + 2, len(ENTITIES), 6, 0)
    assert report.dropped == {
        "deprecated": 1,
        "no or some value": 2,
        "said twice": 1,
        "literal": 4,
        "property left out": 1,
        "not an item": 1,
        "another preferred": 1,
        "no label": 2,  # heirs Q404 and Q7
    }
    assert [triple.is_name for triple in dump] == [False] * 4 + [True]  # an alias leads to nothing else
    assert _flatten_triples(dump) == TRIPLES and dump.report == report  # again, from the index


def test_what_has_no_label_is_left_out_and_counted(tmp_path: Path) -> None:
    """A statement whose subject, property or item has no label is left out, and so are aliases of such an item."""
    entities = [
        _make_entity("P1", {"en": "knows"}),
        _make_entity("P2", {"fr": "sans nom"}),
        _make_entity(
            "Q1", {"en": "One"}, {"P1": [_make_statement(_make_item(2))], "P2": [_make_statement(_make_item(1))]}
        ),
        _make_entity("Q2", {}, {"P1": [_make_statement(_make_item(1))]}, {"en": ["Two"]}),
    ]
    dump = WikidataDump(_write_dump(tmp_path / "dump.json", entities), tmp_path / "index")
    assert _flatten_triples(dump) == [] and dump.report.dropped == {"no label": 3}


def test_what_is_said_of_itself_has_one_entity(tmp_path: Path) -> None:
    entities = [
        _make_entity("P1", {"en": "knows"}),
        _make_entity("Q1", {"en": "One"}, {"P1": [_make_statement(_make_item(1))]}),
    ]
    assert _flatten_triples(WikidataDump(_write_dump(tmp_path / "dump.json", entities), tmp_path / "index")) == [
        ("One", "knows", "One", ("Q1",))
    ]


def test_of_an_entity_in_two_places_the_better_label_stays(tmp_path: Path) -> None:
    """The better label stays, in either order."""
    rest = [_make_label("P1", "knows"), _make_direct("Q2", "P1", _make_uri(1)), _make_label("Q2", "Two")]
    named = {"en": _make_label("Q1", "One"), "de": _make_label("Q1", "Eins", "de")}
    for order in (("en", "de"), ("de", "en")):
        folder = tmp_path / order[0]
        folder.mkdir()
        path = _write_truthy(folder / "truthy.nt", [named[order[0]], *rest, named[order[1]]])
        (triple,) = WikidataDump(path, folder / "index", languages=["en", "de"])
        assert triple.triple.object == "One"


def test_options(tmp_path: Path) -> None:
    path = _write_dump(tmp_path / "dump.json")
    count = itertools.count()

    def read_triples(**options: Any) -> list[tuple[Any, ...]]:
        return _flatten_triples(WikidataDump(path, tmp_path / f"index{next(count)}", **options))

    assert read_triples(aliases=0) == TRIPLES[:-1]
    assert [slots[2] for slots in read_triples(aliases=5)[4:]] == ["Spielberg", "Steven Allan Spielberg"]
    assert ("Steven Spielberg", "cites work", "Cincinnati", ("Q8877", "Q43196")) in read_triples(deny=())
    assert [slots[1] for slots in read_triples(allow=["P26"])] == ["spouse", "spouse", "alias"]
    assert read_triples(allow=["P26"], deny=["P26"]) == [TRIPLES[-1]]
    german = read_triples(languages=["de", "en", "mul"])
    assert german[0][1] == "Geburtsort" and german[-1][2] == "Spielberg, S."
    assert ("Steven Spielberg", "heir", "Amy Irving", ("Q8877", "Q7")) in read_triples(languages=["en", "mul", "fr"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"languages": []}, "list of codes"),
        ({"deny": ["cites work"]}, "named like P22"),
        ({"allow": ["Q42"]}, "named like P22, not 'Q42'"),
        ({"allow": "P22"}, "named like P22"),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        WikidataDump(_write_dump(tmp_path / "dump.json"), tmp_path, **options)


def test_files_of_another_kind(tmp_path: Path) -> None:
    for reader in (lambda path: WikidataDump(path, tmp_path), TriplesFile):
        with pytest.raises(ArgumentError, match="the name must end in"):
            reader(tmp_path / "dump.xml.bz2")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        WikidataDump(tmp_path / "no.json", tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        TriplesFile(tmp_path / "no.tsv")


BROKEN = {
    1: "{",
    3: "no JSON at all",
    4: '"a text"',
    5: "[1, 2]",
    6: '{"id": "L7", "labels": {}, "claims": {}}',
    7: '{"id": "Q99999999999999999999999", "labels": {}, "claims": {}}',
    8: '{"labels": {}}',
    9: "[" * 100_000,
    10: '{"id": "Q55", "labels": {"en": {"value": 5}}}',
}


def test_what_is_malformed_is_counted_and_costs_nothing_else(tmp_path: Path) -> None:
    odd = _make_entity(
        "Q1",
        {"en": "Odd"},
        {
            "P19": [{"rank": "normal"}, 7, None, _make_statement(_make_item(43196))],
            "P0": [_make_statement(_make_item(8))],
            "P26": [{}],
        },
    )
    path = _write_dump(tmp_path / "dump.json", [*ENTITIES, odd], BROKEN)
    dump = WikidataDump(path, tmp_path / "index")
    assert _flatten_triples(dump) == [
        *TRIPLES[:4],
        ("Odd", "place of birth", "Cincinnati", ("Q1", "Q43196")),
        TRIPLES[4],
    ]
    assert dump.report.malformed == len(BROKEN) + 5 and len(dump.report.examples) == 10
    assert dump.report.examples[0].startswith("line 2: JSONDecodeError")
    assert "malformed (first: line 2:" in str(dump.report)


@pytest.mark.parametrize("commit", [1, 2])
@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".nt", ".nt.bz2"])
def test_a_killed_read_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, commit: int
) -> None:
    """After a kill at any entity, the index and the counts equal those of an undisturbed run. A line is too long."""
    monkeypatch.setattr(triples_file, "MAX_LINE", 10_000)
    endless = "x" * 20_000
    if "json" in suffix:
        path = _write_dump(tmp_path / f"dump{suffix}", broken={4: endless})
    else:
        path = _write_truthy(tmp_path / f"dump{suffix}", [*LINES[:9], endless, *LINES[9:]])
    whole = WikidataDump(path, tmp_path / "whole")
    expected = _flatten_triples(whole)
    assert whole.report.malformed == 1
    monkeypatch.setattr(wikidata, "_COMMIT", commit)
    for moment in range(1, whole.report.entities + 1):
        dump = WikidataDump(path, tmp_path / f"killed{moment}")
        seen = 0
        parse = dump._parse

        def parse_until_killed(*arguments: Any, until: int = moment, parse: Any = parse) -> Any:
            nonlocal seen
            for entity in parse(*arguments):
                seen += 1
                if seen > until:
                    raise KeyboardInterrupt
                yield entity

        monkeypatch.setattr(dump, "_parse", parse_until_killed)
        if moment < whole.report.entities:
            with pytest.raises(KeyboardInterrupt):
                dump.read()
        monkeypatch.setattr(dump, "_parse", parse)
        assert _flatten_triples(dump) == expected
        dump.report.seconds = whole.report.seconds
        assert dump.report == whole.report


def test_what_cannot_be_noted_is_not_added_either(tmp_path: Path) -> None:
    index = WikidataIndex(tmp_path / "wikidata.sqlite")
    with pytest.raises(TypeError, match="not JSON serializable"):
        index.add([Entity(1, "One", statements={(-1, 1): None})], position=object())
    assert list(index.statements()) == [] and index.get_note("position") is None
    index.close()


def test_an_index_is_not_mixed_up(tmp_path: Path) -> None:
    path = _write_dump(tmp_path / "dump.json")
    WikidataDump(path, tmp_path / "index").read()
    with pytest.raises(ArgumentError, match="dump.json with other aliases, languages: choose another folder"):
        WikidataDump(path, tmp_path / "index", languages=["de"], aliases=3).read()
    _write_dump(path, ENTITIES[:-1])
    with pytest.raises(ArgumentError, match="with other bytes"):
        WikidataDump(path, tmp_path / "index").read()


# -- Truthy N-Triples -------------------------------------------------------------------------------------------------

_WD = "http://www.wikidata.org"


def _make_line(subject: str, predicate: str, object_: str) -> str:
    return f"<{_WD}/entity/{subject}> <{predicate}> {object_} ."


def _make_label(subject: str, label: str, language: str = "en", kind: str = "2000/01/rdf-schema#label") -> str:
    return _make_line(subject, f"http://www.w3.org/{kind}", f'"{label}"@{language}')


def _make_direct(subject: str, property_: str, object_: str) -> str:
    return _make_line(subject, f"{_WD}/prop/direct/{property_}", object_)


def _make_uri(number: int) -> str:
    return f"<{_WD}/entity/Q{number}>"


ALIASED = "2004/02/skos/core#altLabel"
LINES = [
    f"<https://www.wikidata.org/wiki/Special:EntityData/Q8877> <http://schema.org/about> {_make_uri(8877)} .",
    _make_label("Q8877", "Steven Spielberg"),
    _make_line("Q8877", "http://www.w3.org/2004/02/skos/core#prefLabel", '"Steven Spielberg"@en'),
    _make_line("Q8877", "http://schema.org/description", '"American director"@en'),
    _make_label("Q8877", 'Steven \\"Steve\\" Spielberg', "de"),
    _make_label("Q8877", "Spielberg", kind=ALIASED),
    _make_label("Q8877", "Steven Allan", kind=ALIASED),
    _make_direct("Q8877", "P19", _make_uri(43196)),
    _make_direct("Q8877", "P19", _make_uri(43196)),
    _make_direct("Q8877", "P569", '"1946-12-18T00:00:00Z"^^<http://www.w3.org/2001/XMLSchema#dateTime>'),
    _make_direct("Q8877", "P26", "_:b7"),
    _make_direct("Q8877", "P5", f"<{_WD}/entity/P19>"),
    _make_direct("Q8877", "P2860", _make_uri(43196)),
    _make_direct("Q8877", "P4", _make_uri(99)),
    _make_line("Q8877", "http://schema.org/version", '"7"^^<http://www.w3.org/2001/XMLSchema#integer>'),
    _make_label("Q43196", "Zürich".encode("ascii", "backslashreplace").decode().replace("\\xfc", "\\u00FC")),
    _make_label("P19", "place of birth"),
    _make_label("P4", "knows"),
    _make_label("P2860", "cites work"),
    _make_line("Q99", "http://www.w3.org/2002/07/owl#sameAs", _make_uri(100)),
    _make_label("Q100", "George \\U0001F600 Lucas"),
]


def _write_truthy(path: Path, lines: Sequence[str] = LINES) -> Path:
    whole = ("\n".join(lines) + "\n").encode()
    path.write_bytes(bz2.compress(whole) if path.suffix == ".bz2" else whole)
    return path


def test_truthy_triples(tmp_path: Path) -> None:
    dump = WikidataDump(_write_truthy(tmp_path / "truthy.nt"), tmp_path / "index")
    assert _flatten_triples(dump) == [
        ("Steven Spielberg", "place of birth", "Zürich", ("Q8877", "Q43196")),
        ("Steven Spielberg", "knows", "George 😀 Lucas", ("Q8877", "Q100")),
        ("Steven Spielberg", "alias", "Spielberg", ("Q8877",)),
    ]
    report = dump.report
    assert (report.lines, report.entities, report.kept, report.malformed) == (len(LINES), 7, 2, 0)
    assert report.dropped == {
        "literal": 1,
        "no or some value": 1,
        "not an item": 1,
        "said twice": 1,
        "property left out": 1,
    }
    german = WikidataDump(tmp_path / "truthy.nt", tmp_path / "german", languages=["de", "en"], aliases=0)
    assert _flatten_triples(german)[0][0] == 'Steven "Steve" Spielberg'


def test_malformed_n_triples(tmp_path: Path) -> None:
    broken = ["", "# a comment", "nonsense", f"<{_WD}/entity/Q8877> <cut", _make_label("Q8877", "x\\U0011FFFF", "fr")]
    broken += [
        _make_direct("Q8877", "P0", _make_uri(1)),
        _make_line("Q8877", "http://www.w3.org/2000/01/rdf-schema#label", '"bare"'),
    ]
    path = _write_truthy(tmp_path / "truthy.nt", [*LINES[:7], *broken, *LINES[7:]])
    dump = WikidataDump(path, tmp_path / "index")
    assert [slots[2] for slots in _flatten_triples(dump)] == ["Zürich", "George 😀 Lucas", "Spielberg"]
    assert dump.report.malformed == 5


def test_statements_about_properties_are_left_out_of_both_dumps(tmp_path: Path) -> None:
    about = _make_entity("P19", {"en": "place of birth"}, {"P4": [_make_statement(_make_item(43196))]})
    entities = [about, _make_entity("P4", {"en": "knows"}), _make_entity("Q43196", {"en": "Cincinnati"})]
    assert _flatten_triples(WikidataDump(_write_dump(tmp_path / "dump.json", entities), tmp_path / "json")) == []
    lines = [
        _make_label("P19", "place of birth"),
        _make_direct("P19", "P4", _make_uri(43196)),
        _make_label("P4", "knows"),
    ]
    lines += [_make_label("Q43196", "Cincinnati")]
    assert _flatten_triples(WikidataDump(_write_truthy(tmp_path / "truthy.nt", lines), tmp_path / "nt")) == []


def test_half_characters_and_numbers_without_end_are_no_end(tmp_path: Path) -> None:
    born = {"P19": [_make_statement(_make_item(2))]}
    entities = [
        _make_entity("P19", {"en": "born"}),
        _make_entity("Q1", {"en": "A\ud83d"}, born),
        _make_entity("Q2", {"en": "\ud83d\ude00"}),
    ]
    whole = "\n".join(["[", *(json.dumps(entity) + "," for entity in entities), "]"])
    (tmp_path / "dump.json").write_text(whole, "utf-8")
    assert _flatten_triples(WikidataDump(tmp_path / "dump.json", tmp_path / "json", aliases=0)) == [
        ("A\ufffd", "born", "😀", ("Q1", "Q2"))
    ]
    endless = f"<{_WD}/entity/Q{'9' * 40}>"
    lines = [
        _make_label("P19", "born"),
        _make_label("Q1", "A\\uD83D"),
        _make_direct("Q1", "P19", _make_uri(2)),
        _make_direct("Q1", "P19", endless),
    ]
    lines += [f'{endless} <http://www.w3.org/2000/01/rdf-schema#label> "x"@en .', _make_label("Q2", "\\uD83D\\uDE00")]
    dump = WikidataDump(_write_truthy(tmp_path / "truthy.nt", lines), tmp_path / "nt", aliases=0)
    assert _flatten_triples(dump) == [("A\ufffd", "born", "😀", ("Q1", "Q2"))]
    with pytest.raises(TripleError, match="lone surrogate"):
        GraphTriple(Triple("A\ud83d", "is", "B"))


def test_languages_without_regard_to_case_and_no_others(tmp_path: Path) -> None:
    lines = [
        _make_label("P19", "born", "zh-Hans"),
        _make_label("Q1", "A", "zh-Hans"),
        _make_label("Q2", "B", "ZH-HANS"),
    ]
    path = _write_truthy(tmp_path / "truthy.nt", [*lines, _make_direct("Q2", "P19", _make_uri(1))])
    assert _flatten_triples(WikidataDump(path, tmp_path / "index", languages=["zh-hans"])) == [
        ("B", "born", "A", ("Q2", "Q1"))
    ]
    odd = _make_entity("Q1", {"en": "A"})
    odd["labels"]["fr"] = {"language": "fr", "value": None}  # nobody asked for it
    dump = WikidataDump(_write_dump(tmp_path / "dump.json", [odd]), tmp_path / "json")
    assert list(dump) == [] and (dump.report.entities, dump.report.malformed) == (1, 0)


@pytest.mark.parametrize("junk", [" ", '"', "\\", "<a> ", ". "])
def test_time_grows_with_a_line_and_not_faster(tmp_path: Path, junk: str) -> None:
    def write(size: int) -> Path:
        line = f"<{_WD}/entity/Q1> <b> {junk * (size // len(junk))}x"
        return _write_truthy(tmp_path / f"{size}.nt", [line])

    def read(path: Path) -> None:
        dump = WikidataDump(path, Path(tempfile.mkdtemp(dir=tmp_path)))
        assert list(dump) == [] and dump.report.malformed == 1

    assert_linear(read, write, 400_000)


@pytest.mark.parametrize("suffix", [".json.gz", ".json.bz2"])
def test_a_file_that_breaks_off_says_so_and_keeps_what_was_read(tmp_path: Path, suffix: str) -> None:
    many = [_make_entity(f"Q{n}", {"en": f"{n} {random.Random(n).random()}"}) for n in range(1, 3000)]
    path = _write_dump(tmp_path / f"dump{suffix}", many)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if "gz" in suffix else whole[:-20])
    dump = WikidataDump(path, tmp_path / "index")
    with pytest.raises(GraphFileError, match=r"dump\.json\.\w+ breaks off after line \d+: .*; fetch it anew"):
        dump.read()
    index = WikidataIndex(tmp_path / "index" / "wikidata.sqlite")
    assert index.get_note("position")["lines"] == dump.report.lines and not index.get_note("complete")
    assert len(index.labels(range(1, 3000))) and ("gz" not in suffix or index.labels([1])[1][1])
    index.close()
    damaged = tmp_path / f"damaged{suffix}"
    damaged.write_bytes(whole[:40] + b"damage" + whole[46:])
    with pytest.raises(GraphFileError, match="breaks off"):
        WikidataDump(damaged, tmp_path / "other").read()


# -- Graphs of one's own ----------------------------------------------------------------------------------------------


def test_a_file_of_triples(tmp_path: Path) -> None:
    tsv = "Jaws\tdirector\tSteven Spielberg\nA\tb\tC\tQ1\tQ2\n\nA\tis\tA\tQ1\tQ1\none\ttwo\na\tb\tc\td\n \tb\tc\n"
    (tmp_path / "graph.tsv.gz").write_bytes(gzip.compress(tsv.encode() + b"\xff\tb\tc\n"))
    file = TriplesFile(tmp_path / "graph.tsv.gz")
    expected = [
        GraphTriple(Triple("Jaws", "director", "Steven Spielberg"), ("jaws", "steven spielberg")),
        GraphTriple(Triple("A", "b", "C"), ("Q1", "Q2")),
        GraphTriple(Triple("A", "is", "A"), ("Q1",)),
    ]
    assert list(file) == expected == list(file)
    assert (file.report.lines, file.report.kept, file.report.malformed) == (8, 3, 4)
    rows = [
        '{"subject": "Jaws", "predicate": "director", "object": "Steven Spielberg"}',
        '["A", "b", "C"]',
        '{"subject": "A", "predicate": "b", "object": "C", "entities": ["Q1", "Q2"]}',
        '{"subject": "A", "predicate": "b", "object": "C", "entities": [1]}',
        '{"subject": "A", "object": "C"}',
        '["A", "b"]',
        "5",
        '["A", 5, "C"]',
    ]
    (tmp_path / "graph.jsonl").write_text("\n".join(rows), "utf-8")
    file = TriplesFile(tmp_path / "graph.jsonl")
    assert [triple.entities for triple in file] == [("jaws", "steven spielberg"), ("a", "c"), ("Q1", "Q2")]
    assert file.report.malformed == 5
    (tmp_path / "odd.jsonl").write_text('{"subject": "a", "predicate": "b", "object": "c", "entities": "Q42"}\n"abc"\n')
    odd = TriplesFile(tmp_path / "odd.jsonl")
    assert list(odd) == [] and odd.report.malformed == 2
    (tmp_path / "mark.tsv").write_text("a\tb\tc\n", "utf-8-sig")
    assert [triple.triple.subject for triple in TriplesFile(tmp_path / "mark.tsv")] == ["a"]


# -- what the formats allow --------------------------------------------------------------------------------------------


WD, WDT = "http://www.wikidata.org/entity/", "http://www.wikidata.org/prop/direct/"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
N_TRIPLES = [
    f'<{WD}Q1> <{LABEL}> "Ada > Byron . # \\"x\\""@en .',
    f"<{WD}Q1> <{WDT}P22> <{WD}Q2> .",
    f'<{WD}Q1> <{WDT}P9> "1815-12-10"^^<http://www.w3.org/2001/XMLSchema#date> .',
    f'<{WD}Q2> <{LABEL}> "Lord Byron"@en .',
    f'<{WD}P22> <{LABEL}> "father"@en .',
]
FORMS: dict[str, Callable[[str], str]] = {
    "as Wikidata writes it": str,
    "a comment": lambda line: f"{line} # of Ada",
    "a comment with a dot": lambda line: f"{line}# of Ada. And more .",
    "a comment behind a tab": lambda line: f"{line}\t#.",
    "blanks before": lambda line: f" \t {line}",
    "tabs": lambda line: line.replace("> <", ">\t<").replace('> "', '>\t"').replace(" .", "\t."),
    "no blanks": lambda line: (
        line.replace("> <", "><").replace('> "', '>"').replace('"@en .', '"@en.').replace("> .", ">.")
    ),
    "a blank less": lambda line: line.replace("> <", "><", 1).replace('> "', '>"', 1),
    "many": lambda line: f"{line.replace(' .', '   .')}  \r",
}


@pytest.mark.parametrize("name", FORMS)
def test_n_triples_are_read_as_their_grammar_allows_them(tmp_path: Path, name: str) -> None:
    lines = ["# a comment", "  # another.", "", *map(FORMS[name], N_TRIPLES)]
    (tmp_path / "dump.nt").write_text("\n".join(lines) + "\n", "utf-8", newline="")
    dump = WikidataDump(tmp_path / "dump.nt", tmp_path / "index")
    assert [triple.triple for triple in dump] == [Triple('Ada > Byron . # "x"', "father", "Lord Byron")]
    assert (dump.report.entities, dump.report.malformed, dump.report.dropped) == (3, 0, {"literal": 1})


@pytest.mark.parametrize(
    "line",
    [
        f"<{WD}Q1> <{WDT}P22> <{WD}Q2>",
        f"<{WD}Q1> <{WDT}P22> <{WD}Q2> . <{WD}Q3>",
        f"  <{WD}Q1> <{WDT}P22> .",
        f'<{WD}Q1> <{LABEL}> "Ada"@en',
        f'<{WD}Q1> <{LABEL}> "Ada"@en # .',
        f"<{WD}Q1> P22 <{WD}Q2> . # fact",
    ],
)
def test_what_the_grammar_does_not_allow_is_counted(tmp_path: Path, line: str) -> None:
    (tmp_path / "dump.nt").write_text(f"{line}\n", "utf-8")
    dump = WikidataDump(tmp_path / "dump.nt", tmp_path / "index")
    assert not list(dump) and dump.report.malformed + sum(dump.report.dropped.values()) == 1


@pytest.mark.parametrize(
    ("ranks", "left"),
    [
        (["normal", "preferred", "normal"], [1]),
        (["preferred", "preferred", "normal"], [0, 1]),
        (["normal", "normal", "deprecated"], [0, 1]),
        (["deprecated", "preferred"], [1]),
        (["deprecated"], []),
    ],
)
def test_of_a_property_s_statements_the_best_count_as_in_truthy_dumps(
    tmp_path: Path, ranks: list[str], left: list[int]
) -> None:
    statements = [_make_statement(_make_item(100 + n), rank=rank) for n, rank in enumerate(ranks)]
    entities = [
        _make_entity("Q1", {"en": "Germany"}, {"P36": statements, "P37": [_make_statement(_make_item(100))]}),
        *(_make_entity(f"Q{100 + n}", {"en": f"City {n}"}) for n in range(3)),
        *(_make_entity(name, {"en": label}) for name, label in (("P36", "capital"), ("P37", "language"))),
    ]
    dump = WikidataDump(_write_dump(tmp_path / "dump.json", entities), tmp_path / "index")
    found = [triple.triple.object for triple in dump if triple.triple.predicate == "capital"]
    assert found == [f"City {n}" for n in left]
    assert sum(dump.report.dropped.values()) == len(ranks) - len(left) and dump.report.kept == len(left) + 1


def test_some_value_that_is_preferred_replaces_the_others_too(tmp_path: Path) -> None:
    statements = [_make_statement(_make_item(2)), _make_statement(None, "somevalue", rank="preferred")]
    entities = [_make_entity("Q1", {"en": "Ada"}, {"P1": statements}), _make_entity("P1", {"en": "p"})]
    dump = WikidataDump(_write_dump(tmp_path / "dump.json", entities), tmp_path / "index")
    assert not list(dump) and dump.report.dropped == {"another preferred": 1, "no or some value": 1}


@pytest.mark.parametrize("languages", [["de", "en"], ["de"], ["MUL"], ["de", "mul", "en"]])
def test_a_name_for_all_languages_is_one_of_each(tmp_path: Path, languages: list[str]) -> None:
    entities = [
        _make_entity(
            "Q1", {"mul": "Nora Blum"}, {"P1": [_make_statement(_make_item(2)), _make_statement(_make_item(3))]}
        ),
        _make_entity("Q2", {"mul": "Osthafen", "fr": "Port"}),
        _make_entity("Q3", {"fr": "Port"}),
        _make_entity("P1", {"mul": "in"}),
    ]
    dump = WikidataDump(_write_dump(tmp_path / "dump.json", entities), tmp_path / "index", languages=languages)
    for _ in range(2):
        assert [triple.triple for triple in dump] == [Triple("Nora Blum", "in", "Osthafen")]
        assert "1 no label" in str(dump.report), "counted once, however often it is read"


# -- a file of one's own -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        "subject\tpredicate\tobject",
        "head_entity\trelation_type\ttail_entity",
        ":START_ID\t:TYPE\t:END_ID",
        "Subject\tPredicate\tObject\tsubject_id\tobject_id",
        "head\trelation\ttail",
        "Entity1\tRelationship\tEntity2",
        "source\ttype\ttarget",
        "\ufeffSUBJ\tPRED\tOBJ",
        "\n# of a graph\nSubjekt\tPrädikat\tObjekt",
    ],
)
def test_a_header_is_no_triple(tmp_path: Path, header: str) -> None:
    ids = "\tQ1\tQ2" if header.count("\t") == 4 else ""
    (tmp_path / "graph.tsv").write_text(f"{header}\nAda\tmet\tBob{ids}\nsubject\tpredicate\tobject{ids}\n", "utf-8")
    graph = TriplesFile(tmp_path / "graph.tsv")
    assert [triple.triple.subject for triple in graph] == ["Ada", "subject"], "of a later line it is a fact"
    assert graph.report.dropped == {"header": 1} and graph.report.kept == 2


def test_a_fact_in_the_first_line_is_one(tmp_path: Path) -> None:
    for line in ("Subject\tis part of\tGrammar", "Ada\tpredicate\tobject", "Source\tof\tRhine"):
        (tmp_path / "graph.tsv").write_text(f"{line}\n", "utf-8")
        assert len(list(TriplesFile(tmp_path / "graph.tsv"))) == 1


def test_numbers_of_json_are_texts_as_they_are_written(tmp_path: Path) -> None:
    rows = [
        '{"subject": "Ada", "predicate": "born in", "object": 1815}',
        '["Everest", "height", 8848.860]',
        '[1e400, "is", -0]',
        '{"subject": 12345678901234567890123, "predicate": "p", "object": "o", "entities": ["Q7"]}',
        '{"subject": "a", "predicate": "p", "object": "o", "entities": [7]}',
        '["Ada", 5, "Bob"]',
        '["Ada", "is", true]',
        '["Ada", "is", null]',
        '["Ada", "is", NaN]',
        '["Ada", "is", [1]]',
    ]
    (tmp_path / "graph.jsonl").write_text("\n".join(rows), "utf-8")
    graph = TriplesFile(tmp_path / "graph.jsonl")
    read = list(graph)
    assert [triple.triple.text for triple in read] == [
        *("Ada born in 1815", "Everest height 8848.860", "1e400 is -0", "12345678901234567890123 p o"),
    ]
    assert {type(triple.triple.object) for triple in read} == {str} and graph.report.malformed == 6

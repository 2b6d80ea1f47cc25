"""Wikidata's dumps: exact triples from every kind of statement, resumed reads, broken input."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_index_gear.errors import ArgumentError, GraphFileError, TripleError
from llama_index_gear.knowledge_graph import triples_file, wikidata
from llama_index_gear.knowledge_graph.triples_file import TriplesFile
from llama_index_gear.knowledge_graph.wikidata import Entity, WikidataDump, WikidataIndex
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
        "no label": 2,
    }
    assert dump.unlabeled == 2  # heirs Q404 and Q7
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
    assert _flatten_triples(dump) == [] and dump.unlabeled == 3


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
    rest = [
        _make_entity("P1", {"en": "knows"}),
        _make_entity("Q2", {"en": "Two"}, {"P1": [_make_statement(_make_item(1))]}),
    ]
    named = {"en": _make_entity("Q1", {"en": "One"}), "de": _make_entity("Q1", {"de": "Eins"})}
    for order in (("en", "de"), ("de", "en")):
        folder = tmp_path / order[0]
        folder.mkdir()
        path = _write_dump(folder / "dump.json", [named[order[0]], *rest, named[order[1]]])
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
        ({"aliases": -1}, "aliases must be a whole number.*0 or more"),
        ({"languages": "en"}, "list of codes"),
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
@pytest.mark.parametrize("suffix", [".json", ".json.gz", ".json.bz2"])
def test_a_killed_read_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, commit: int
) -> None:
    """After a kill at any entity, the index and the counts equal those of an undisturbed run. A line is too long."""
    monkeypatch.setattr(triples_file, "MAX_LINE", 10_000)
    endless = "x" * 20_000
    path = _write_dump(tmp_path / f"dump{suffix}", broken={4: endless})
    whole = WikidataDump(path, tmp_path / "whole")
    expected = _flatten_triples(whole)
    assert whole.report.malformed == 1
    monkeypatch.setattr(wikidata, "_COMMIT", commit)
    for moment in range(1, whole.report.entities + 1):
        dump = WikidataDump(path, tmp_path / f"killed{moment}")
        seen = 0
        parse = wikidata.parse_dump

        def parse_until_killed(*arguments: Any, until: int = moment, parse: Any = parse) -> Any:
            nonlocal seen
            for entity in parse(*arguments):
                seen += 1
                if seen > until:
                    raise KeyboardInterrupt
                yield entity

        monkeypatch.setattr(wikidata, "parse_dump", parse_until_killed)
        if moment < whole.report.entities:
            with pytest.raises(KeyboardInterrupt):
                dump.read()
        monkeypatch.setattr(wikidata, "parse_dump", parse)
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


def test_statements_about_properties_are_left_out(tmp_path: Path) -> None:
    about = _make_entity("P19", {"en": "place of birth"}, {"P4": [_make_statement(_make_item(43196))]})
    entities = [about, _make_entity("P4", {"en": "knows"}), _make_entity("Q43196", {"en": "Cincinnati"})]
    assert _flatten_triples(WikidataDump(_write_dump(tmp_path / "dump.json", entities), tmp_path / "json")) == []


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
    with pytest.raises(TripleError, match="lone surrogate"):
        GraphTriple(Triple("A\ud83d", "is", "B"))


def test_languages_without_regard_to_case_and_no_others(tmp_path: Path) -> None:
    entities = [
        _make_entity("P19", {"zh-Hans": "born"}),
        _make_entity("Q1", {"zh-Hans": "A"}),
        _make_entity("Q2", {"ZH-HANS": "B"}, {"P19": [_make_statement(_make_item(1))]}),
    ]
    path = _write_dump(tmp_path / "dump.json", entities)
    assert _flatten_triples(WikidataDump(path, tmp_path / "index", languages=["zh-hans"])) == [
        ("B", "born", "A", ("Q2", "Q1"))
    ]
    odd = _make_entity("Q1", {"en": "A"})
    odd["labels"]["fr"] = {"language": "fr", "value": None}  # nobody asked for it
    dump = WikidataDump(_write_dump(tmp_path / "dump.json", [odd]), tmp_path / "json")
    assert list(dump) == [] and (dump.report.entities, dump.report.malformed) == (1, 0)


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
    (tmp_path / "dump.json").write_text("[\n" + ",\n".join(map(json.dumps, entities)) + "\n]\n", "utf-8")
    dump = WikidataDump(tmp_path / "dump.json", tmp_path / "index")
    found = [triple.triple.object for triple in dump if triple.triple.predicate == "capital"]
    assert found == [f"City {n}" for n in left]
    assert sum(dump.report.dropped.values()) == len(ranks) - len(left) and dump.report.kept == len(left) + 1


def test_some_value_that_is_preferred_replaces_the_others_too(tmp_path: Path) -> None:
    statements = [_make_statement(_make_item(2)), _make_statement(None, "somevalue", rank="preferred")]
    entities = [_make_entity("Q1", {"en": "Ada"}, {"P1": statements}), _make_entity("P1", {"en": "p"})]
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, entities)), "utf-8")
    dump = WikidataDump(tmp_path / "dump.json", tmp_path / "index")
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
    (tmp_path / "dump.json").write_text("\n".join(map(json.dumps, entities)), "utf-8")
    dump = WikidataDump(tmp_path / "dump.json", tmp_path / "index", languages=languages)
    for _ in range(2):
        assert [triple.triple for triple in dump] == [Triple("Nora Blum", "in", "Osthafen")]
        assert dump.unlabeled == 1 and "1 no label" in str(dump.report), "counted once, however often it is read"


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

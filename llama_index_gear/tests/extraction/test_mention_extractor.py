import os
import pickle
import subprocess
import sys
import unicodedata
from collections.abc import Callable

import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import MetadataMode, TextNode

from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.nodes import TRIPLES_KEY, attach_triples, read_triples
from llama_index_gear.tests.growth import assert_linear
from llama_index_gear.triple import Triple

TEXT = "Curry was born in Akron. His father Dell Curry played for the Charlotte Hornets. It rained."


def objects(text: str, title: str | None = "T") -> list[str]:
    return [triple.object for triple in MentionTripleExtractor().extract(text, title)]


def make_node(text: str = TEXT, title: str | None = "Stephen Curry") -> TextNode:
    return TextNode(id_="n", text=text, metadata={} if title is None else {"title": title})


def test_one_triple_per_sentence_and_mention() -> None:
    assert MentionTripleExtractor().extract(TEXT, "Stephen Curry") == [
        Triple("Stephen Curry", "Curry was born in Akron.", "Curry"),
        Triple("Stephen Curry", "Curry was born in Akron.", "Akron"),
        Triple("Stephen Curry", "His father Dell Curry played for the Charlotte Hornets.", "Dell Curry"),
        Triple("Stephen Curry", "His father Dell Curry played for the Charlotte Hornets.", "Charlotte Hornets"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Émile Zola met Ångström and Лев Толстой in Łódź.", ["Émile Zola", "Ångström", "Лев Толстой", "Łódź"]),
        ("the works of J. K. Rowling and of George W. Bush.", ["J. K. Rowling", "George W. Bush"]),
        ("He left the U.S. in 1965 for St. Louis with Dr. Who.", ["U.S.", "St. Louis", "Dr. Who"]),
        (
            "He met Dr. Which in Bonn. She wrote to Hiranmoy Sen. She lives in Kiel.",
            ["Dr. Which", "Bonn", "Hiranmoy Sen", "Kiel"],
        ),
        ("She lived in the U.S. The house fell.", ["U.S."]),
        ("Then came World War I.", ["World War I"]),
        ("the Republic of Austria and the City of New York", ["Republic of Austria", "City of New York"]),
        ("Ludwig van Beethoven, Oscar de la Hoya (Mexico)", ["Ludwig van Beethoven", "Oscar de la Hoya", "Mexico"]),
        (
            "Côte d'Ivoire, AT&T, Jean-Luc Godard–Anne O’Brien",
            ["Côte d'Ivoire", "AT&T", "Jean-Luc Godard", "Anne O’Brien"],
        ),
        ("an iPhone by Apple's friends and a Boeing 747 in July 1999", ["iPhone", "Apple", "Boeing 747", "July 1999"]),
        ("In 1914, to 1918; 12345 or 42 or (2001)", []),
        ("However, It was he. In Paris it is. Vitamin A was.", ["Paris", "Vitamin A"]),
        ("Construction began. The construction ended.", []),
        ("🙂Paris \u200fRome\u200f (🎉) «Milan»", ["Paris", "Rome", "Milan"]),
        ("“Hello,” said Ann. “Goodbye!” Bob left.", ["Ann", "Goodbye", "Bob"]),
        ("...  ,,, –– ((( )))", []),
        # a nation's adjective is no name, a name with one in it is
        ("the British physicist and French. German troops met the British Museum", ["British Museum"]),
    ],
)
def test_mentions(text: str, expected: list[str]) -> None:
    assert objects(text) == expected


def test_combining_characters_stay_with_their_letter() -> None:
    decomposed = unicodedata.normalize("NFD", "in Orléans, Émile Brontë")
    assert [unicodedata.normalize("NFC", name) for name in objects(decomposed)] == ["Orléans", "Émile Brontë"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("It rained. Stephen Curry left; STEPHEN  CURRY came back.", "Stephen Curry"),
        ("`certifi` is certifi, and Certifi is `certifi`.", "certifi"),
        ("東京は日本の首都です。人口は多い。", "東京"),
        ("Vienna it was. It was Vienna.", None),
    ],
)
def test_no_triple_has_one_entity_at_both_ends(text: str, title: str | None) -> None:
    assert MentionTripleExtractor().extract(text, title) == []


def test_the_title_counts_without_its_parenthesis_and_is_no_object_beside_others() -> None:
    triples = MentionTripleExtractor().extract(
        "Song of Solomon is a novel by Toni Morrison.", "Song of Solomon (novel)"
    )
    assert [(triple.subject, triple.object) for triple in triples] == [("Song of Solomon", "Toni Morrison")]
    (strange,) = MentionTripleExtractor().extract("it is in Rome", "(film)")
    assert strange.subject == "(film)"


@pytest.mark.parametrize("title", [None, "", "  "])
def test_without_a_title_the_first_mention_is_the_subject(title: str | None) -> None:
    triples = MentionTripleExtractor().extract("it began so. In Vienna lived Franz Schubert. He met Beethoven.", title)
    assert [(triple.subject, triple.object) for triple in triples] == [
        ("Vienna", "Franz Schubert"),
        ("Vienna", "Beethoven"),
    ]


@pytest.mark.parametrize("text", ["", " \n\n ", "\n"])
def test_empty_text(text: str) -> None:
    assert MentionTripleExtractor().extract(text, "T") == []
    (extracted,) = MentionTripleExtractor()([make_node(text)])
    assert read_triples(extracted) == []


def test_a_blank_line_ends_a_sentence() -> None:
    assert [triple.predicate for triple in MentionTripleExtractor().extract("in Rome\n \nby Ann", "T")] == [
        "in Rome",
        "by Ann",
    ]


def test_long_sentences_are_clipped_around_the_mention() -> None:
    words = [f"w{n}" for n in range(150)]
    words[75] = "Rome"
    (triple,) = MentionTripleExtractor().extract(" ".join(words), "T")
    assert triple.predicate.split() == words[56:96]


def test_a_long_chunk_keeps_all_its_facts() -> None:
    """LlamaIndex's chunks of 1,024 tokens name a hundred things and more."""
    text = " ".join(f"Then Ann{chr(97 + n // 26)}{chr(97 + n % 26)} met Bob{chr(97 + n // 26)}." for n in range(120))
    found = set(objects(text))
    assert {f"Ann{chr(97 + n // 26)}{chr(97 + n % 26)}" for n in range(120)} <= found and len(found) > 120


def test_triples_per_passage_are_bounded_and_distinct() -> None:
    text = "In Rome, by Ann. In Rome, by Ann. In Bonn, by Bob."
    assert objects(text) == ["Rome", "Ann", "Bonn", "Bob"]
    assert [t.object for t in MentionTripleExtractor(max_triples_per_passage=3).extract(text, "T")] == [
        "Rome",
        "Ann",
        "Bonn",
    ]
    with pytest.raises(ValueError, match="max_triples_per_passage"):
        MentionTripleExtractor(max_triples_per_passage=0)


def test_input_is_not_mutated_and_earlier_triples_are_replaced() -> None:
    before = attach_triples(make_node(), [Triple("a", "b", "c")])
    dump = before.model_dump_json()
    (after,) = MentionTripleExtractor()([before])
    assert before.model_dump_json() == dump
    assert Triple("a", "b", "c") not in read_triples(after)
    assert after.get_content(metadata_mode=MetadataMode.EMBED) == make_node().get_content(
        metadata_mode=MetadataMode.EMBED
    )
    assert after.node_id == before.node_id


def test_title_key_and_titles_that_are_no_text() -> None:
    other = TextNode(text="in Rome", metadata={"year": 1999})
    (extracted,) = MentionTripleExtractor(title_key="year")([other])
    assert read_triples(extracted) == [Triple("1999", "in Rome", "Rome")]


async def test_async_equals_sync(capsys: pytest.CaptureFixture[str]) -> None:
    extractor = MentionTripleExtractor()
    assert await extractor.acall([make_node()], show_progress=True) == extractor([make_node()])
    assert "Extracting mentions" in capsys.readouterr().err


def test_pickling_and_serialising() -> None:
    extractor = MentionTripleExtractor(title_key="name", max_triples_per_passage=5, show_progress=True)
    assert pickle.loads(pickle.dumps(extractor)) == extractor
    assert "show_progress" not in extractor.to_dict()
    assert MentionTripleExtractor.from_dict(extractor.to_dict()).max_triples_per_passage == 5
    assert MentionTripleExtractor.class_name() == "MentionTripleExtractor"


def test_same_triples_in_every_process() -> None:
    door = "from llama_index_gear import MentionTripleExtractor"
    code = f"{door}; print(MentionTripleExtractor().extract({TEXT!r}, 'Stephen Curry'))"
    expected = repr(MentionTripleExtractor().extract(TEXT, "Stephen Curry"))
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert run.stdout.strip() == expected


def test_pipeline_twice() -> None:
    pipeline = IngestionPipeline(transformations=[MentionTripleExtractor()])
    first = pipeline.run(nodes=[make_node()], show_progress=False)
    second = pipeline.run(nodes=[make_node()], show_progress=False)
    assert first == second
    assert len(first[0].metadata[TRIPLES_KEY]) == 4


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda part: "Paris is in the France of Émile Zola. " * (81_000 // part), id="sentences"),
        pytest.param(lambda part: "A" * (1_000_000 // part), id="one capitalised word"),
        pytest.param(lambda part: "a" * (1_000_000 // part), id="one word"),
        pytest.param(lambda part: "." * (1_000_000 // part), id="full stops"),
        pytest.param(lambda part: "Word " * (10_000 // part), id="capitalised words"),
        pytest.param(lambda part: "Word of the " * (80_000 // part), id="connectors"),
        pytest.param(lambda part: "\n \n" * (300_000 // part), id="blank lines"),
        pytest.param(lambda part: "`" * (500_000 // part), id="backticks"),
        pytest.param(lambda part: "`a" * (100_000 // part), id="inline code"),
        pytest.param(lambda part: "`" + "a b " * (100_000 // part), id="inline code without an end"),
        pytest.param(lambda part: "```\n" * (100_000 // part), id="fences"),
        pytest.param(lambda part: "| a " * (100_000 // part) + "\n" + "|---" * (100_000 // part), id="table"),
        pytest.param(lambda part: "> - " * (200_000 // part), id="marks of lists"),
        pytest.param(lambda part: "](" * (200_000 // part), id="links"),
        pytest.param(lambda part: "a-" * (300_000 // part) + " " + "a-b " * (100_000 // part), id="hyphens"),
        pytest.param(
            lambda part: "a.b_c/d@e:" * (60_000 // part) + " ab.cd_ef/gh@ij:" * (20_000 // part), id="identifiers"
        ),
        pytest.param(lambda part: "pip install " + "-a " * (200_000 // part), id="installs"),
        pytest.param(lambda part: "《" * (300_000 // part) + "「東」" * (20_000 // part), id="quotation marks"),
        pytest.param(lambda part: "".join(f"「東{n}」" for n in range(60_000 // part)), id="quotations"),
        pytest.param(
            lambda part: "pip " + "a-" * (200_000 // part) + "".join(f" x{n} package" for n in range(40_000 // part)),
            id="packages",
        ),
        pytest.param(lambda part: "ア・" * (200_000 // part), id="katakana"),
        pytest.param(lambda part: "<!--" * (200_000 // part), id="comments without an end"),
        pytest.param(lambda part: "<!-- a -->\n" * (50_000 // part), id="comments"),
        pytest.param(lambda part: "[[a|" * (200_000 // part), id="wikilinks without an end"),
        pytest.param(lambda part: "[a](b) *c* " * (20_000 // part), id="marks"),
        pytest.param(lambda part: "    # a\n" * (50_000 // part), id="indented comments"),
        pytest.param(lambda part: "----\na = 1\n" * (50_000 // part), id="rules"),
        pytest.param(lambda part: "2025-03-03 09:15 a\n" * (30_000 // part), id="log"),
        pytest.param(lambda part: "Die große " * (50_000 // part) + "Stadt und der " * (50_000 // part), id="German"),
    ],
)
def test_hostile_texts_take_linear_time(make: Callable[[int], str]) -> None:
    extractor = MentionTripleExtractor(max_triples_per_passage=1_000_000)
    assert_linear(lambda text: extractor.extract(text, "T"), lambda size: make(24 // size), 8)
    triples = extractor.extract(make(3), "T")
    assert all(len(triple.text) < 40 * 202 + 10 * 202 for triple in triples)

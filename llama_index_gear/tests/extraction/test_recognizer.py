"""A recognizer of the user's in place of the rules: a function, or an object with spaCy's protocol."""

from __future__ import annotations

import copy
import json
import pickle
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.ingestion.pipeline import get_transformation_hash
from llama_index.core.schema import TextNode
from pydantic import ValidationError

from llama_index_gear.errors import ArgumentError
from llama_index_gear.extraction.mention_extractor import MentionTripleExtractor
from llama_index_gear.nodes import read_triples
from llama_index_gear.triple import Triple

TEXT = "* In **new york** met ann\n  and bob.\n\nThen `ann` left Annual for new\nyork. 北京是首都。"


@dataclass
class Entity:
    start_char: int
    end_char: int
    text: str


@dataclass
class Document:
    ents: tuple[Entity, ...]


@dataclass
class Pipeline:
    """spaCy's `Language` as a caller sees it: called with a text, it returns a `Doc` with `ents`."""

    words: tuple[str, ...] = ("new york", "ann", "北京")
    meta: dict[str, Any] = field(default_factory=lambda: {"lang": "xx", "name": "ent_wiki_sm", "version": "3.8.0"})

    def __call__(self, text: str) -> Document:
        pattern = "|".join(map(re.escape, self.words))
        return Document(tuple(Entity(*match.span(), match[0]) for match in re.finditer(pattern, text)))


def some_names(text: str) -> list[str]:
    return [name for name in ("new york", "ann", "bob", "北京") if name in text]


def some_places(text: str) -> Iterable[tuple[int, int]]:
    return (match.span() for match in re.finditer(r"new\s+york|\bann\b|bob|北京", text))


def some_dicts(text: str) -> list[dict[str, Any]]:
    return [{"word": text[start:end], "start": start, "end": end} for start, end in some_places(text)]


def extract(recognizer: Any, text: str = TEXT, title: str | None = "T") -> list[Triple]:
    return MentionTripleExtractor(recognizer=recognizer).extract(text, title)


FIRST, SECOND, THIRD = "In new york met ann and bob.", "Then `ann` left Annual for new york.", "北京是首都。"


@pytest.mark.parametrize("recognizer", [some_places, some_dicts])
def test_places_in_the_text(recognizer: Callable[[str], Any]) -> None:
    found = [(triple.subject, triple.predicate, triple.object) for triple in extract(recognizer)]
    assert found == [
        ("T", FIRST, "new york"),
        ("T", FIRST, "ann"),
        ("T", FIRST, "bob"),
        ("T", SECOND, "ann"),
        ("T", SECOND, "new york"),
        ("T", THIRD, "北京"),
    ]


def test_names_are_found_as_words() -> None:
    assert [(triple.predicate, triple.object) for triple in extract(some_names)] == [
        (FIRST, "new york"),
        (FIRST, "ann"),
        (FIRST, "bob"),
        (SECOND, "ann"),
        (THIRD, "北京"),
    ]


def test_a_pipeline_with_ents() -> None:
    assert [(triple.predicate, triple.object) for triple in extract(Pipeline())] == [
        (FIRST, "new york"),
        (FIRST, "ann"),
        (SECOND, "ann"),
        (THIRD, "北京"),
    ]


def test_its_names_alone_count_and_the_first_is_the_title_of_a_passage_without_one() -> None:
    assert [triple.object for triple in extract(lambda text: ["rome"], "Ann saw rome. Bob saw rome.")] == ["rome"] * 2
    assert extract(lambda text: [], "Ann saw Rome.") == []
    assert [
        (triple.subject, triple.object) for triple in extract(lambda text: ["bob", "ann"], "ann and bob", None)
    ] == [("ann", "bob")]
    assert extract(lambda text: [text], "ann", "Ann") == []


def test_a_long_sentence_is_cut_around_the_name() -> None:
    words = [f"w{number}" for number in range(150)]
    (triple,) = extract(lambda text: ["w75"], " ".join(words))
    assert triple.predicate.split() == words[56:96]


def test_scripts_without_capitals_are_the_recognizer_s_to_know(caplog: pytest.LogCaptureFixture) -> None:
    extractor = MentionTripleExtractor(recognizer=lambda text: ["东京"])
    assert extractor.extract("他住在东京。", "他") == [Triple("他", "他住在东京。", "东京")]
    assert extractor.caseless_passages == 0 and not caplog.records


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "the recognizer returned None: return the names"),
        ("Ann", "the recognizer returned 'Ann': return the names"),
        (5, "the recognizer returned 5"),
        ([5], "the recognizer returned 5 among the names"),
        ([("Ann", "PERSON")], "returned \\('Ann', 'PERSON'\\) among the names"),
        ([(0, 3, "PERSON")], "among the names"),
        ([(0.0, 3.0)], "among the names"),
        ([{"word": "Ann"}], "among the names"),
        ([(3, 0)], "returned the place \\(3, 0\\) in a passage of 9 characters"),
        ([(0, 10)], "returned the place"),
        ([(-3, 3)], "returned the place"),
        (["Bob"], "returned 'Bob', which does not stand in the passage"),
        ([" "], "which does not stand in the passage"),
        (Document((Entity(0, 99, "Ann"),)), "returned the place"),
    ],
)
def test_what_else_a_recognizer_returns_is_refused(returned: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        extract(lambda text: returned, "Ann left.")


def test_its_own_errors_are_raised_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError):
        extract(lambda text: 1 // 0)


@pytest.mark.parametrize("recognizer", ["en_core_web_sm", 5, ["Ann"], Pipeline])
def test_what_cannot_be_called_is_refused(recognizer: Any) -> None:
    with pytest.raises(
        ValidationError, match="recognizer must be a function that takes a text, a spaCy pipeline or None"
    ):
        MentionTripleExtractor(recognizer=recognizer)


@pytest.mark.parametrize("recognizer", [some_names, Pipeline()], ids=["function", "pipeline"])
def test_it_is_pickled_and_copied(recognizer: Any) -> None:
    extractor = MentionTripleExtractor(recognizer=recognizer, title_key="name")
    for again in (pickle.loads(pickle.dumps(extractor)), copy.deepcopy(extractor)):
        assert again == extractor and again.extract(TEXT, "T") == extractor.extract(TEXT, "T")


def test_it_works_in_other_processes() -> None:
    extractor = MentionTripleExtractor(recognizer=Pipeline(), title_key="name")
    nodes = [TextNode(id_=str(number), text=TEXT, metadata={"name": f"T{number}"}) for number in range(3)]
    pipeline = IngestionPipeline(transformations=[extractor], disable_cache=True)
    alone, together = pipeline.run(nodes=nodes), pipeline.run(nodes=nodes, num_workers=2)
    assert [read_triples(node) for node in together] == [read_triples(node) for node in alone]
    assert len(read_triples(alone[0])) > 3


def test_one_that_cannot_be_pickled_is_said_and_kept() -> None:
    extractor = MentionTripleExtractor(recognizer=lambda text: ["ann"])
    with pytest.raises(ArgumentError, match="the extractor's recognizer can't be pickled: pass a function of a module"):
        pickle.dumps(extractor)
    assert [triple.object for triple in extractor.extract("ann", "T")] == ["ann"]


def test_the_form_names_it_and_cannot_make_it() -> None:
    extractor = MentionTripleExtractor(recognizer=Pipeline(), title_key="name")
    form = json.loads(json.dumps(extractor.to_dict()))
    assert form["recognizer"] == f"{__name__}.Pipeline xx-ent_wiki_sm-3.8.0"
    with pytest.raises(ValidationError, match="recognizer must be a function"):
        MentionTripleExtractor.from_dict(dict(form))
    assert form["title_key"] == "name", "the form was changed"


def test_the_pipeline_s_cache_tells_recognizers_apart() -> None:
    nodes = [TextNode(text=TEXT)]
    other = Pipeline(meta={"lang": "de", "name": "core_news_sm", "version": "3.8.0"})
    extractors = [
        MentionTripleExtractor(recognizer=recognizer)
        for recognizer in (None, some_names, some_places, Pipeline(), other)
    ]
    hashes = [get_transformation_hash(nodes, extractor) for extractor in extractors]
    assert len(set(hashes)) == len(hashes)
    assert "recognizer" not in MentionTripleExtractor().to_dict()


async def test_async_equals_sync() -> None:
    extractor, nodes = MentionTripleExtractor(recognizer=some_names), [TextNode(text=TEXT, metadata={"title": "T"})]
    (extracted,) = await extractor.acall(nodes)
    assert [extracted] == extractor(nodes) and len(read_triples(extracted)) == 5


def test_a_pipeline_of_spacy() -> None:
    spacy = pytest.importorskip("spacy")
    language = spacy.blank("de")
    language.add_pipe("entity_ruler").add_patterns(
        [{"label": "PER", "pattern": "petra lindner"}, {"label": "ORG", "pattern": [{"LOWER": "nordwell"}]}]
    )
    extractor = MentionTripleExtractor(recognizer=language)
    text = "Die Fabrik gehört Nordwell.\n\n* Direktorin ist petra lindner."
    node = TextNode(text=text, metadata={"title": "Fabrik"})
    for again in (extractor, pickle.loads(pickle.dumps(extractor))):
        assert read_triples(again([node])[0]) == [
            Triple("Fabrik", "Die Fabrik gehört Nordwell.", "Nordwell"),
            Triple("Fabrik", "Direktorin ist petra lindner.", "petra lindner"),
        ]
    assert extractor.to_dict()["recognizer"].startswith("spacy.lang.de.German de-pipeline-")

"""Extraction with a schema: what the prompt asks for, what is refused, and where that is counted."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import PromptTemplate
from llama_index.core.llms import MockLLM
from llama_index.core.schema import TextNode
from llama_index.core.storage.kvstore import SimpleKVStore

from llama_index_gear import GeARTripleExtractor, Triple
from llama_index_gear.errors import ArgumentError
from llama_index_gear.extraction.accounting import ExtractionLedger
from llama_index_gear.extraction.calls import EXTRACT_PROMPT, fit_to_schema, read_types
from llama_index_gear.extraction.schema import ALL_ALLOWED, ExtractionSchema
from llama_index_gear.llm.json_scan import ScannedReply
from llama_index_gear.nodes import read_triples
from llama_index_gear.testing import ScriptedLLM

TYPES = ["person", "place"]
RELATIONS = ["born in", "works for"]
FACTS = [
    ["Max Born", "BORN_IN", "Breslau"],
    ["Max Born", "won", "Nobel Prize"],
    ["Max Born", "works for", "University of Göttingen"],
    ["Max Born", "born-in", "1882"],
]
ENTITIES = {"Max Born": "Person", "Breslau": "place", "Nobel Prize": "award", "University of Göttingen": "organisation"}
KEPT = [Triple("Max Born", "born in", "Breslau")]
TYPED, BOTH = ExtractionSchema(entity_types=TYPES), ExtractionSchema(entity_types=TYPES, relation_types=RELATIONS)


def make_passage(text: str = "Max Born was born in Breslau in 1882.") -> TextNode:
    return TextNode(id_="born", text=text, metadata={"title": "Max Born"})


def write_reply(entities: Any = ENTITIES, triples: Any = FACTS, **more: Any) -> str:
    return json.dumps({**more, "entities": entities, "triples": triples}, ensure_ascii=False)


@pytest.mark.parametrize(
    "reply",
    [
        write_reply(),
        write_reply([[name, kind] for name, kind in ENTITIES.items()]),
        write_reply([{"name": name, "type": kind} for name, kind in ENTITIES.items()]),
        write_reply([{"entity_name": name, "entity_type": kind} for name, kind in ENTITIES.items()]),
        write_reply([[name, kind, 0.9] for name, kind in ENTITIES.items()]),
        write_reply([{name: kind} for name, kind in ENTITIES.items()]),
        write_reply([], nodes=[{"id": name, "label": kind} for name, kind in ENTITIES.items()]),
        write_reply({"Person": ["Max Born"], "place": ["Breslau"], "award": ["Nobel Prize"]}),
        f"Here they are:\n```json\n{write_reply()}\n```",
        write_reply()[:-2] + ', ["Max Born", "bo',
    ],
    ids=["object", "pairs", "objects", "other names", "sure", "one by one", "nodes", "by type", "fenced", "cut off"],
)
def test_what_the_schema_does_not_allow_is_refused_and_counted(reply: str) -> None:
    extractor = GeARTripleExtractor(ScriptedLLM([reply]), kg_schema=BOTH)
    (node,) = extractor([make_passage()])
    assert read_triples(node) == KEPT, "the predicate as the schema writes it"
    record = node.metadata["gear_extraction"]
    assert (record["outcome"], record["refused"], record["calls"]) == ("extracted", 3, 1)
    assert "relations 'won'" in record["problem"] and "an end that is not among the entities" in record["problem"]
    ledger = extractor.ledger
    assert (ledger.triples, ledger.refused) == (1, 3) == (ledger.triples, (ledger + ledger).refused // 2)
    assert "1 triple and 3 refused" in str(ledger)
    assert ExtractionLedger.of([node]).refused == 3


def test_the_types_of_ends_may_stand_in_triples() -> None:
    fact = {"head": "Max Born", "head_type": "person", "relation": "born in", "tail": "Breslau", "tail_type": "place"}
    ends = {"subject": {"name": "Max Born", "type": "person"}, "object": {"name": "Breslau", "type": "place"}}
    for triple in (fact, {**ends, "predicate": "born in"}):
        reply = json.dumps({"triples": [triple]})
        (node,) = GeARTripleExtractor(ScriptedLLM([reply]), kg_schema=BOTH)([make_passage()])
        assert read_triples(node) == KEPT


def test_relations_alone_want_no_types() -> None:
    extractor = GeARTripleExtractor(
        ScriptedLLM([write_reply(["Max Born", "Breslau"])]), kg_schema=ExtractionSchema(relation_types=["born in"])
    )
    (node,) = extractor([make_passage()])
    assert read_triples(node) == [*KEPT, Triple("Max Born", "born in", "1882")]
    assert node.metadata["gear_extraction"]["problem"] == "2 triples refused: relations 'won', 'works for'"


def test_types_alone_leave_predicates_as_they_are() -> None:
    (node,) = GeARTripleExtractor(
        ScriptedLLM([write_reply()]), kg_schema=ExtractionSchema(entity_types=["PERSON", "Place"])
    )([make_passage()])
    assert read_triples(node) == [Triple("Max Born", "BORN_IN", "Breslau")]
    assert "types 'award', 'organisation'; 1 with an end" in node.metadata["gear_extraction"]["problem"]


def test_a_passage_of_which_all_is_refused_has_no_facts_and_a_reply_without_types_is_asked_for_again() -> None:
    llm = ScriptedLLM([write_reply(list(ENTITIES)), write_reply({"Max Born": "star", "Breslau": "star"})])
    extractor = GeARTripleExtractor(llm, kg_schema=TYPED)
    (node,) = extractor([make_passage()])
    assert "the entities have no types" in llm.history[1]
    record = node.metadata["gear_extraction"]
    assert (record["outcome"], record["refused"], record["calls"]) == ("no facts", 4, 2)
    assert extractor([node]) and extractor.ledger.reused == 1 and extractor.ledger.refused == 4


def test_a_schema_that_refuses_most_is_warned_of_without_quoting(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        GeARTripleExtractor(ScriptedLLM([write_reply()]), kg_schema=TYPED)([make_passage()])
    assert any("3 of 4 triples were refused" in message for message in caplog.messages)
    assert "Nobel" not in caplog.text and "award" not in caplog.text
    caplog.clear()
    kept = write_reply({"Max Born": "person", "Breslau": "place"}, FACTS[:1])
    with caplog.at_level(logging.WARNING):
        GeARTripleExtractor(ScriptedLLM([kept]), kg_schema=TYPED)([make_passage()])
    assert caplog.messages == []


SCHEMAS = {
    "types": ExtractionSchema(entity_types=TYPES),
    "relations": ExtractionSchema(relation_types=RELATIONS),
    "domain": ExtractionSchema(domain="physicists of Göttingen"),
    "all": ExtractionSchema(entity_types=TYPES, relation_types=RELATIONS, domain="physicists of Göttingen"),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_prompt_states_the_schema_and_nothing_against_it(name: str) -> None:
    schema = SCHEMAS[name]
    variables: dict[str, Any] = dict(schema.variables)
    text = fit_to_schema(EXTRACT_PROMPT, schema).format(**variables, passage="P.", title="T", problem="")
    stated = {"person, place": "types", "born in, works for": "relations", "physicists of Göttingen": "domain"}
    assert {part for words, part in stated.items() if words in text} == (
        set(stated.values()) & {name} or set(stated.values())
    )
    assert ('"entities": {name: type, …}' in text) == bool(schema.entity_types)
    assert ('"entities": [name, …]' in text) != bool(schema.entity_types)
    assert ("Le Corbusier" in text) == (name == "domain"), "an example of another schema would be copied"
    assert text.count("\n#####\n") == 2 and "_types}" not in text and "{domain" not in text


def test_the_usual_prompts_are_what_they_were() -> None:
    """Replies that were recorded, caches and the records of stored passages depend on every letter."""
    assert hashlib.sha256(EXTRACT_PROMPT.template.encode()).hexdigest()[:16] == "4489804a4ff09578"
    extractor = GeARTripleExtractor(MockLLM())
    assert extractor._passage_calls.fingerprint() == "1c205fde4f9b6ab99083245999a0ef58f9c726ae350556cea32d612a2e240a8f"


def test_keys_of_caches_know_the_schema_and_the_form_gives_it_back() -> None:
    extractors = [GeARTripleExtractor(MockLLM(), kg_schema=schema) for schema in (ALL_ALLOWED, *SCHEMAS.values())]
    assert len({extractor._passage_calls.fingerprint() for extractor in extractors}) == 5
    assert len({json.dumps(extractor.to_dict(), sort_keys=True) for extractor in extractors}) == 5


def test_the_cache_keeps_what_was_refused_and_another_schema_asks_again() -> None:
    cache = SimpleKVStore()
    GeARTripleExtractor(ScriptedLLM([write_reply()]), kg_schema=TYPED, cache=cache)([make_passage()])
    second = GeARTripleExtractor(ScriptedLLM([]), kg_schema=TYPED, cache=cache)
    second([make_passage()])
    assert (second.ledger.reused, second.ledger.refused, second.ledger.calls) == (1, 3, 0)
    llm = ScriptedLLM([write_reply()])
    GeARTripleExtractor(llm, kg_schema=ExtractionSchema(entity_types=[*TYPES, "award"]), cache=cache)([make_passage()])
    assert llm.remaining == 0


def test_the_estimate_is_what_the_run_then_takes() -> None:
    extractor = GeARTripleExtractor(ScriptedLLM([write_reply()]), kg_schema=SCHEMAS["all"])
    estimate = extractor.estimate([make_passage()])
    extractor([make_passage()])
    assert extractor.ledger.prompt_tokens == estimate.prompt_tokens


def test_a_prompt_of_one_s_own_says_what_is_allowed() -> None:
    own = PromptTemplate("Only {relation_types}, of {domain}: {passage}")
    with pytest.raises(ArgumentError, match="lacks the variable entity_types: a prompt of yours"):
        GeARTripleExtractor(MockLLM(), extract_prompt=own, kg_schema=SCHEMAS["all"])
    llm = ScriptedLLM([write_reply()])
    GeARTripleExtractor(
        llm, extract_prompt=own, kg_schema=ExtractionSchema(relation_types=RELATIONS, domain="physics")
    )([make_passage()])
    assert "Only born in, works for, of physics: Max Born was born in Breslau in 1882." in llm.history[0]


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"entity_types": "person"}, "must be a list of str"),
        ({"relation_types": [" "]}, "without a letter"),
        ({"relation_types": ["{passage}"]}, "without braces"),
        ({"relation_types": [5]}, "must be a list of str"),
        ({"domain": "two\nlines"}, "one line"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        ExtractionSchema(**wrong)


@pytest.mark.parametrize("write", [lambda n: '{"entities": ' * n, lambda n: '{"entities": {"a": "b"}, ' * n])
def test_types_of_hostile_replies_are_read_in_time(write: Callable[[int], str]) -> None:
    assert set(read_types(ScannedReply(write(5_000)))) <= {"a"}

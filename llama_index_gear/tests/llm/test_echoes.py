"""A model that repeats the example of its prompt states no fact (LlamaIndex's `MockLLM` repeats the whole prompt)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import QueryBundle, TextNode

from llama_index_gear import GeARTripleExtractor, Triple, read_triples
from llama_index_gear.agents.gear.gist import GistState
from llama_index_gear.agents.gear.reasoning import READ_AND_REASON_PROMPT, read_and_reason_flow, read_gist_flow
from llama_index_gear.agents.gear.selection import read_step_flow
from llama_index_gear.agents.memory import GistMemory, PassagePool
from llama_index_gear.errors import ReplyError
from llama_index_gear.expansion.reader import READ_PROMPT, read_facts_flow
from llama_index_gear.extraction.calls import EXTRACT_PROMPT
from llama_index_gear.flow import run
from llama_index_gear.llm.echoes import drop_echoes, require_own
from llama_index_gear.requests import CallLLM, Reply
from llama_index_gear.testing import ScriptedLLM
from llama_index_gear.trace.trace import Trace

OWN = Triple("Dell Curry", "joined", "Hornets")
EXAMPLE = Triple("Sydney Opera House", "designed by", "Jørn Utzon")
PASSAGES = ["Dell Curry joined the Hornets."]


def write_reply(*triples: Triple) -> str:
    slots = [[triple.subject, triple.predicate, triple.object] for triple in triples]
    return json.dumps({"triples": slots, "answerable": False, "reason": "-"})


def answer(reply: str) -> Callable[[CallLLM], Reply]:
    """Answer every call with the same reply, or with its own prompt."""

    def answer_request(request: CallLLM) -> Reply:
        variables: dict[str, Any] = dict(request.variables)
        return Reply(reply or request.prompt.format(**variables))

    return answer_request


def test_what_stands_in_the_example_and_in_no_passage_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    assert drop_echoes([OWN, EXAMPLE], READ_PROMPT, PASSAGES) == [OWN]
    with caplog.at_level(logging.WARNING):
        assert require_own([EXAMPLE, OWN], READ_PROMPT, PASSAGES) == (OWN,)
    assert [record.getMessage() for record in caplog.records] == [
        "1 facts left out that a reply copied from its prompt's example"
    ]
    with pytest.raises(ReplyError, match="repeats the prompt's example"):
        require_own([EXAMPLE], READ_PROMPT, PASSAGES)
    assert require_own([], READ_PROMPT, PASSAGES) == ()


def test_a_passage_about_the_example_may_state_it() -> None:
    passages = ["The Sydney Opera House stands at the harbor.", "Jørn Utzon designed it."]
    assert require_own([EXAMPLE], READ_PROMPT, passages) == (EXAMPLE,)
    assert drop_echoes([EXAMPLE], READ_PROMPT, ["Sydney Opera Houses and Jørn Utzon"]) == []  # whole words


@pytest.mark.parametrize("reply", ["", write_reply(EXAMPLE)])
def test_a_reader_that_repeats_its_prompt_is_asked_again_and_then_notes_nothing(reply: str) -> None:
    reading = run(read_facts_flow("Who?", PASSAGES), answer(reply))
    assert (reading.triples, len(reading.replies)) == ((), 2) and "example" in reading.problem
    flow = read_and_reason_flow("Who?", PASSAGES, GistMemory(9), READ_AND_REASON_PROMPT)
    parsed = run(flow, answer(reply))
    assert parsed.value is None and parsed.problem


def test_an_example_in_a_prompt_of_the_users_own_is_no_fact_either() -> None:
    form = '{"needed": [1], "triples": [["Ann", "knows", "Bob"]], "answerable": false, "query": "Who?"}'
    prompt = PromptTemplate(f"{form}\n{{passages}}{{gist}}{{question}}{{queries}}{{problem}}")
    noted = run(read_gist_flow("Who?", PASSAGES, GistMemory(9), prompt), answer(form))
    trace = Trace(question="Who?")
    state = GistState(trace, QueryBundle("Who?"), GistMemory(9), PassagePool(trace))
    step = run(read_step_flow(state, PASSAGES, "", prompt), answer(form))
    for parsed in (noted, step):
        assert parsed.value is None and "example" in parsed.problem
    stated = run(read_step_flow(state, ["Ann and Bob know each other."], "", prompt), answer(form))
    assert stated.value is not None and stated.value.facts == (Triple("Ann", "knows", "Bob"),)


def test_an_extractor_stores_no_fact_of_its_prompts_example() -> None:
    (extracted,) = GeARTripleExtractor(llm=MockLLM())([TextNode(id_="a", text=PASSAGES[0])])
    assert read_triples(extracted) == []
    assert extracted.metadata["gear_extraction"]["outcome"] == "unreadable"


def test_an_extractor_counts_what_it_left_out() -> None:
    example = Triple("Le Corbusier", "built", "Villa Savoye")
    assert drop_echoes([example], EXTRACT_PROMPT, PASSAGES) == []
    extractor = GeARTripleExtractor(llm=ScriptedLLM([write_reply(example, OWN)]))
    (extracted,) = extractor([TextNode(id_="a", text=PASSAGES[0])])
    assert read_triples(extracted) == [OWN]
    assert extracted.metadata["gear_extraction"]["problem"] == "1 triples of the prompt's example left out"

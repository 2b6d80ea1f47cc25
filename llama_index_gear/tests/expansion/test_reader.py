"""The reader's prompt and replies; its second try is that of all calls (`test_paper_calls.py`, `test_echoes.py`)."""

import json
from typing import Any

import pytest
from llama_index.core.prompts import PromptTemplate

from llama_index_gear.expansion.reader import READ_PROMPT, Reading, read_facts_flow
from llama_index_gear.flow import CallLLM, Reply, run
from llama_index_gear.triple import Triple

FACT = Triple("Stephen Curry", "father", "Dell Curry")


def read(*replies: str, passages: tuple[str, ...] = ("Stephen Curry, son of Dell.",)) -> tuple[Reading, list[CallLLM]]:
    """Have the reader read; return its result, and the requests that it made."""
    left, asked = iter(replies), list[CallLLM]()

    def answer(request: CallLLM) -> Reply:
        asked.append(request)
        return Reply(next(left))

    return run(read_facts_flow("Who?", passages), answer), asked


@pytest.mark.parametrize("reply", ['{"triples": []}', "[]", "No facts found."])
def test_no_facts_is_an_answer_and_not_asked_for_again(reply: str) -> None:
    assert read(reply)[0] == Reading(())


def test_what_is_malformed_beside_good_triples_is_not_asked_for_again() -> None:
    assert read(json.dumps([["Stephen Curry", "father", "Dell Curry"], ["Dell Curry", "joined"]]))[0] == Reading(
        (FACT,)
    )


def test_the_prompt_names_its_variables_and_its_example_can_be_read() -> None:
    assert set(READ_PROMPT.template_vars) == {"question", "passages", "problem"}
    line = next(line for line in READ_PROMPT.template.splitlines() if line.startswith('{"triples"'))
    reading, _ = read(line, passages=("Jørn Utzon was born in Copenhagen.",))
    assert Triple("Jørn Utzon", "born in", "Copenhagen") in reading.triples


def test_a_prompt_of_the_users_own() -> None:
    flow = read_facts_flow("Qui ?", ["un", "deux"], PromptTemplate("Lis : {passages} Q : {question} {problem}"))
    shown: list[Any] = []

    def answer(request: CallLLM) -> Reply:
        shown.append(request.prompt.format(llm=None, **request.variables))
        return Reply("?")

    assert run(flow, answer).problem and shown[0] == "Lis : [1] un\n\n[2] deux Q : Qui ? "
    assert "could not be read" in shown[1]


def test_a_heading_in_a_passage_keeps_its_words() -> None:
    _, (request,) = read("[]", passages=("# Curry\n#### Youth\n##### Early life\nC# is a language.",))
    assert request.variables["passages"] == "[1] # Curry\n#### Youth\n#### Early life\nC# is a language."

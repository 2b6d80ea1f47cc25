"""A model that repeats the example of its prompt states no fact (LlamaIndex's `MockLLM` repeats the whole prompt)."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index_gear import (
    DiverseTripleBeamSearch,
    ExternalGeARRetriever,
    GeARRetriever,
    GeARTripleExtractor,
    PassageSelector,
    SyncGERetriever,
    T2RAGRetriever,
    Triple,
)
from llama_index_gear.agents.gear.paper_calls import READ_AND_REASON_PROMPT, read_and_reason_flow, read_gist_flow
from llama_index_gear.agents.gear.paper_policy import GistState
from llama_index_gear.agents.gear.policy import read_step_flow
from llama_index_gear.agents.memory import GistMemory, PassagePool
from llama_index_gear.agents.t2rag.clues import Clues
from llama_index_gear.agents.t2rag.prompts import DECOMPOSE_PROMPT, RESOLVE_PROMPT, decompose_flow, resolve_flow
from llama_index_gear.errors import ReplyError
from llama_index_gear.expansion.reader import READ_PROMPT, read_facts_flow
from llama_index_gear.extraction.calls import EXTRACT_PROMPT
from llama_index_gear.flow import CallLLM, Reply, run
from llama_index_gear.llm.prompting import drop_echoes, require_own
from llama_index_gear.nodes import read_triples
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import ScriptedLLM
from llama_index_gear.tests.asking import House, fill_house
from llama_index_gear.tests.store_contract import passage
from llama_index_gear.trace.trace import Trace
from llama_index_gear.triple import GraphTriple

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
    assert reading.triples == () and "example" in reading.problem
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


def test_an_extractor_counts_what_it_left_out() -> None:
    example = Triple("Le Corbusier", "built", "Villa Savoye")
    assert drop_echoes([example], EXTRACT_PROMPT, PASSAGES) == []
    extractor = GeARTripleExtractor(llm=ScriptedLLM([write_reply(example, OWN)]))
    (extracted,) = extractor([TextNode(id_="a", text=PASSAGES[0])])
    assert read_triples(extracted) == [OWN]
    assert extracted.metadata["gear_extraction"]["problem"] == "1 triple of the prompt's example left out"


# -- every method -----------------------------------------------------------------------------------------------------

QUESTION = "Which team did the father of Stephen Curry join?"


@pytest.fixture(scope="module")  # nobody writes to it
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    nodes = [passage("a", PASSAGES[0], [("Dell Curry", "joined", "Hornets")])]
    yield from fill_house(tmp_path_factory.mktemp("echoes"), nodes, [GraphTriple(OWN, ("Q1", "Q2"))])


def repeat_first_example(prompt: str) -> str:
    """Return the first example of a prompt; the whole prompt if it has none."""
    return next((line for line in prompt.splitlines() if line.startswith("{")), prompt)


ECHOING: dict[str, Callable[[], LLM]] = {
    "whole prompt": MockLLM,
    "first example": lambda: ScriptedLLM(otherwise=repeat_first_example),
}
AGENTS: dict[str, Callable[[House, LLM], Any]] = {
    "selection": lambda house, llm: GeARRetriever(house.store, llm=llm),
    "separate": lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm)),
    "merged": lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm), calls="merged"),
    "single": lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm), calls="single"),
    "separate, graph": lambda house, llm: PaperGeARRetriever(SyncGERetriever(house.store, llm=llm, graph=house.graph)),
    "external": lambda house, llm: ExternalGeARRetriever(SyncGERetriever(house.store, llm=llm, graph=house.graph)),
    "T²RAG": lambda house, llm: T2RAGRetriever(house.store, llm=llm),
    "T²RAG, ungrounded": lambda house, llm: T2RAGRetriever(house.store, llm=llm, require_grounding=False),
}


@pytest.mark.parametrize("echoing", ECHOING)
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_whose_model_repeats_its_prompt_notes_nothing_and_says_so(
    house: House, agent: str, echoing: str
) -> None:
    found, trace = AGENTS[agent](house, ECHOING[echoing]()).retrieve_with_trace(QUESTION)
    assert [result.node.node_id for result in found] == ["a"]
    assert trace.gist == [] and [slots for step in trace.steps for slots in step.proximal] == []
    assert {step.query for step in trace.steps} == {QUESTION}
    assert all(step.problems for step in trace.steps)
    # A prompt of "separate" has a form for "no facts" beside no example: that is what its echo says.
    assert bool(trace.warning) == (not agent.startswith("separate"))
    assert sum(not call.unreadable for call in trace.calls) <= agent.startswith("separate")


@pytest.mark.parametrize("echoing", ECHOING)
def test_what_makes_one_call_warns_of_a_model_that_repeats_its_prompt(
    house: House, echoing: str, caplog: pytest.LogCaptureFixture
) -> None:
    llm = ECHOING[echoing]()
    nodes = [NodeWithScore(node=TextNode(id_="a", text=PASSAGES[0]))]
    search = DiverseTripleBeamSearch(house.store, llm=llm)
    runs: list[tuple[str, Callable[[], list[NodeWithScore]]]] = [
        ("no fact could be read", lambda: SyncGERetriever(house.store, llm=llm).retrieve(QUESTION)),
        ("no fact could be read", lambda: SyncGERetriever(house.store, llm=llm, graph=house.graph).retrieve(QUESTION)),
        ("no fact could be read", lambda: search.postprocess_nodes(nodes, query_str=QUESTION)),
        ("no selection", lambda: PassageSelector(llm=llm).postprocess_nodes(nodes, query_str=QUESTION)),
    ]
    for words, ask in runs:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            found = ask()
        assert [result.node.node_id for result in found] == ["a"]
        (warning,) = [record.getMessage() for record in caplog.records]
        assert words in warning and QUESTION not in warning and PASSAGES[0] not in warning


@pytest.mark.parametrize("echoing", ECHOING)
def test_an_extractor_stores_nothing_of_a_model_that_repeats_its_prompt(
    echoing: str, caplog: pytest.LogCaptureFixture
) -> None:
    extractor = GeARTripleExtractor(llm=ECHOING[echoing]())
    texts = ["Dell Curry joined the Hornets.", "The Hornets play in Charlotte.", "Charlotte is a city."]
    with caplog.at_level(logging.WARNING):
        nodes = extractor([TextNode(text=text) for text in texts])
    assert [read_triples(node) for node in nodes] == [[], [], []]
    assert {node.metadata["gear_extraction"]["outcome"] for node in nodes} == {"unreadable"}
    assert "3 of 3 passages could not be extracted" in caplog.text


def test_a_question_that_names_the_example_may_be_taken_apart_like_it() -> None:
    examples = {
        "In which country was the architect of the Sydney Opera House born?": 2,
        "Who was born first, the author of Dune or that of Solaris?": 4,
    }
    lines = [line for line in DECOMPOSE_PROMPT.get_template().splitlines() if line.startswith(("{", "["))]
    replies = [lines[0], "".join(lines[1:])]
    for (question, count), reply in zip(examples.items(), replies, strict=True):
        assert len(run(decompose_flow(question, DECOMPOSE_PROMPT), answer(reply)).value) == count
        parsed = run(decompose_flow(QUESTION, DECOMPOSE_PROMPT), answer(reply))
        assert parsed.value is None and "example" in parsed.problem


def resolve(reply: str, question: str, passages: dict[str, str]) -> Any:
    clues = Clues()
    clues.add([Triple("Sydney Opera House", "designed by", "?architect")], 0, 9)
    flow = resolve_flow(question, clues, [], [], passages, RESOLVE_PROMPT)
    return run(flow, answer(reply))


def test_a_resolution_takes_the_example_for_a_statement_only_where_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    copied = {"clue": 1, "triple": ["Sydney Opera House", "designed by", "Jørn Utzon"], "passages": [3]}
    own = {"clue": 1, "triple": ["Dell Curry", "joined", "Hornets"], "passages": [1]}
    alone = resolve(json.dumps({"facts": [copied]}), QUESTION, {"a": PASSAGES[0]})
    assert alone.value is None and "example" in alone.problem
    with caplog.at_level(logging.WARNING):
        both = resolve(json.dumps({"facts": [copied, own]}), QUESTION, {"a": PASSAGES[0]})
    assert [statement.triple for statement in both.value] == [OWN] and "1 facts left out" in caplog.text
    asked, told = "Who designed the Sydney Opera House?", {"a": "The architect of the house was Jørn Utzon."}
    assert [statement.triple for statement in resolve(json.dumps({"facts": [copied]}), asked, told).value] == [EXAMPLE]

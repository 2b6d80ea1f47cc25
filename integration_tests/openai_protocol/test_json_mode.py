"""A model's JSON mode is a setting of its client: it passes through every reader, and costs, limits and errors hold."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai_server import OpenAIServer, Reply

from llama_index_gear import (
    GeARRetriever,
    GeARVectorStore,
    SyncGERetriever,
    T2RAGRetriever,
)
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.tests.asking import fill_store
from llama_index_gear.tests.store_contract import passage

QUESTION = "Where does the father of Ann live?"
TEXTS = {"a": "Cheese is made of milk", "b": "Ann has a father, who is Bob", "c": "Bob lives in Rome"}
JSON_OBJECT = {"type": "json_object"}
FACTS = [["Ann", "father", "Bob"], ["Bob", "lives in", "Rome"]]
VERDICT = {"answerable": True, "answer": "Rome"}
REPLIES: dict[str, dict[str, Any]] = {  # by the first key of the form that the prompt asks for
    "needed": {"needed": [2, 1], "facts": FACTS, **VERDICT},
    "triples": {"triples": FACTS, **VERDICT},
    "answerable": VERDICT,
    "entities": {"entities": ["Ann", "Bob"], "triples": FACTS},
    "facts": {
        "facts": [
            {"clue": 1, "triple": FACTS[0], "passages": [1, 2, 3]},
            {"clue": 2, "triple": FACTS[1], "passages": [1, 2, 3]},
        ]
    },
}
CLUES = {"triples": [["Ann", "father", "?father"], ["?father", "lives in", "?town"]]}
MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def write_form(body: dict[str, Any]) -> dict[str, Any]:
    """Return the object that the prompt asks for."""
    prompt = body["messages"][-1]["content"]
    asked = re.findall(r'of the form \{"(\w+)"', prompt)
    return CLUES if "Put ?name" in prompt else REPLIES[asked[-1]]


def honor(body: dict[str, Any]) -> Reply:
    """Answer as a server that knows JSON mode: without it in prose; OpenAI's refuses prompts that don't say JSON."""
    form = body.get("response_format")
    if form is None:
        return Reply("I would say that it is Rome.")
    if form == JSON_OBJECT and not re.search("json", str(body["messages"]), re.IGNORECASE):
        return Reply("'messages' must contain the word 'json' in some form", status=400)
    reply = write_form(body)
    if form != JSON_OBJECT:
        names = form["json_schema"]["schema"]["properties"]
        reply = {name: reply[name] for name in names if name in reply}
    return Reply(json.dumps(reply))


def ignore(body: dict[str, Any]) -> Reply:
    """Answer as a server that does not know of JSON mode."""
    return Reply(f"Surely:\n```json\n{json.dumps(write_form(body))}\n```\nThat is all.")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GeARVectorStore]:
    facts = [(text.split()[0], " ".join(text.split()[1:-1]), text.split()[-1]) for text in TEXTS.values()]
    nodes = [passage(name, text, [fact]) for (name, text), fact in zip(TEXTS.items(), facts, strict=True)]
    yield from fill_store(tmp_path / "store", nodes)


AGENTS: dict[str, Callable[[GeARVectorStore, Any], Any]] = {
    "selection": lambda store, llm: GeARRetriever(store, llm=llm),
    **{
        calls: lambda store, llm, calls=calls: PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls=calls)  # type: ignore[misc]
        for calls in ("merged", "separate", "single")
    },
    "T²RAG": lambda store, llm: T2RAGRetriever(store, llm=llm),
}


@MODES
@pytest.mark.parametrize("answer", [honor, ignore])
@pytest.mark.parametrize("agent", AGENTS)
async def test_an_agents_calls_carry_it_and_every_token_is_counted(
    store: GeARVectorStore, server: OpenAIServer, agent: str, answer: Callable[..., Reply], mode: str
) -> None:
    server.answer = answer
    llm = server.llm(additional_kwargs={"response_format": JSON_OBJECT}, reuse_client=False)
    retriever = AGENTS[agent](store, llm)
    if mode == "sync":
        found, trace = retriever.retrieve_with_trace(QUESTION)
    else:
        found, trace = await retriever.aretrieve_with_trace(QUESTION)
    assert {result.node.node_id for result in found[:2]} == {"b", "c"}
    assert [problem for step in trace.steps for problem in step.problems] == [] and len(trace.gist) == 2
    assert {str(body["response_format"]) for body in server.requests} == {str(JSON_OBJECT)}
    assert trace.llm_calls == len(server.requests)
    assert (trace.prompt_tokens, trace.completion_tokens) == (
        server.usage.prompt_tokens,
        server.usage.completion_tokens,
    )

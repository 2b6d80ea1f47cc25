"""Thoughts, odd arguments and odd errors over real HTTP: what is read of them, how often is asked, what is counted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import TextNode
from openai_server import OpenAIServer, Reply

from llama_index_gear import (
    GeARQueryEngine,
    GeARTripleExtractor,
    GeARVectorStore,
    SyncGERetriever,
    Triple,
    attach_triples,
)
from llama_index_gear.cli import models
from llama_index_gear.cli.any_openai import AnyOpenAI
from llama_index_gear.cli.main import main
from llama_index_gear.errors import ModelServerError
from llama_index_gear.nodes import read_triples
from llama_index_gear.retrievers.paper_gear import PaperGeARRetriever
from llama_index_gear.testing import WordEmbedding

FACTS = json.dumps({"entities": ["Nora Blum"], "triples": [["Nora Blum", "founded", "Osthafen"]]})
FACT = Triple("Nora Blum", "founded", "Osthafen")
CUT_OFF = [
    Reply("", reasoning="Let me think", finish_reason="length"),
    Reply("", finish_reason="length"),
    Reply("<think>Let me think", finish_reason="length"),
    Reply("[THINK]Let me think", finish_reason="length"),
]
PASSAGES = [
    TextNode(id_=f"p{n}", text="Nora Blum founded Osthafen.", metadata={"title": f"Nora {n}"}) for n in range(3)
]


def make_extractor(server: OpenAIServer, llm: dict[str, Any] | None = None, **arguments: Any) -> GeARTripleExtractor:
    model = server.llm(timeout=30.0, reuse_client=False, max_retries=0, **{"max_tokens": 100, **(llm or {})})
    arguments = {"num_workers": 1, **arguments}
    return GeARTripleExtractor(llm=model, **arguments)


def list_limits(server: OpenAIServer) -> list[Any]:
    return [request.get("max_tokens") for request in server.requests]


@pytest.mark.parametrize("cut", CUT_OFF)
def test_a_passage_whose_reply_ends_in_thoughts_gets_more_room_once(server: OpenAIServer, cut: Reply) -> None:
    server.script(cut)
    server.answer = lambda _: Reply(f"<think>hm</think>{FACTS}")
    extractor = make_extractor(server)
    assert [read_triples(node) for node in extractor(PASSAGES)] == [[FACT]] * 3
    assert list_limits(server) == [100, 400, 400, 400]  # the room is kept
    assert (extractor.ledger.calls, extractor.ledger.failures) == (4, ())
    assert extractor.ledger.prompt_tokens == server.usage.prompt_tokens
    assert extractor.ledger.completion_tokens == server.usage.completion_tokens


def test_thoughts_beyond_the_room_are_told_apart_and_paid_for_once_more(server: OpenAIServer) -> None:
    server.answer = lambda _: CUT_OFF[0]
    extractor = make_extractor(server)
    extractor(PASSAGES)
    assert list_limits(server) == [100, 400, 400, 400] and extractor.ledger.outcomes == {"truncated": 3}
    assert all("thoughts: raise its max_tokens" in problem for _, _, problem in extractor.ledger.failures)


def test_a_server_without_more_room_keeps_the_first_reply(server: OpenAIServer) -> None:
    server.script(CUT_OFF[0], Reply("the context is too small", status=400))
    extractor = make_extractor(server)
    extractor(PASSAGES[:1])
    assert extractor.ledger.outcomes == {"truncated": 1} and extractor.ledger.calls == 2


def test_more_room_is_not_asked_for_beyond_the_ceiling(server: OpenAIServer) -> None:
    server.script(Reply("<think>" + "hm " * 3_000, finish_reason="length"))
    extractor = make_extractor(server, price=(0.0, 1_000_000.0), max_cost=1_000.0)
    extractor(PASSAGES[:1])
    assert len(server.requests) == 1 and extractor.ledger.outcomes == {"truncated": 1}


def test_a_reply_that_is_cut_off_behind_its_thoughts_is_not_asked_for_again(server: OpenAIServer) -> None:
    server.script(Reply(f'<think>hm</think>{FACTS[:-1]}, ["Ann"', finish_reason="length"))
    extractor = make_extractor(server)
    (node,) = extractor(PASSAGES[:1])
    assert read_triples(node) == [FACT] and extractor.ledger.outcomes == {"truncated": 1} and len(server.requests) == 1


@pytest.mark.parametrize(
    "thoughts", [FACTS, f"```json\n{FACTS}\n```", f"First {{}}, then\n{FACTS}", f"hm\n</think>\n{FACTS}"]
)
def test_json_among_the_thoughts_is_the_reply(server: OpenAIServer, thoughts: str) -> None:
    server.script(Reply("", reasoning=thoughts))
    (node,) = make_extractor(server)(PASSAGES[:1])
    assert read_triples(node) == [FACT] and len(server.requests) == 1


def test_facts_that_the_thoughts_reject_are_no_reply(server: OpenAIServer) -> None:
    server.answer = lambda _: Reply("", reasoning=f"Is it {FACTS}? No, nobody says so.")
    (node,) = make_extractor(server)(PASSAGES[:1])
    assert read_triples(node) == []


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Is it Ada?"}]}
REFERENCE = {"type": "reference", "reference_ids": [1]}
IN_PARTS: list[list[Any]] = [
    [THOUGHT, {"type": "text", "text": FACTS}],
    [{"type": "reasoning", "text": "Is it [1]?"}, FACTS[:9], {"type": "output_text", "text": FACTS[9:]}],
    [{"type": "text", "text": FACTS[:9]}, REFERENCE, {"type": "text", "text": FACTS[9:]}],
    [{"type": "thinking", "thinking": f"hm\n{FACTS}"}],
    [{"type": "text", "text": f"<think>Is it Ada?</think>{FACTS}"}, None, 1],
]  # fmt: skip


@pytest.mark.parametrize("parts", IN_PARTS)
def test_a_reply_in_parts_is_read_without_its_thoughts(server: OpenAIServer, parts: list[Any]) -> None:
    server.script(Reply(parts=parts))
    extractor = make_extractor(server)
    (node,) = extractor(PASSAGES[:1])
    assert read_triples(node) == [FACT] and len(server.requests) == 1
    assert extractor.ledger.prompt_tokens == server.usage.prompt_tokens


def test_thoughts_in_parts_that_are_cut_off_get_more_room(server: OpenAIServer) -> None:
    server.script(Reply(parts=[THOUGHT], finish_reason="length"), Reply(FACTS))
    (node,) = make_extractor(server)(PASSAGES[:1])
    assert read_triples(node) == [FACT] and list_limits(server) == [100, 400]


PASSING: list[dict[str, Any]] = [
    {"error": {"message": "Rate limit exceeded: free tier", "code": 429}},
    {"error": {"message": "Provider returned error", "code": "502"}},
    {"error": {"message": "Overloaded", "type": "overloaded_error"}},
    {"error": "Too many requests, slow down"},
    {"object": "error", "message": "Service unavailable", "code": 503},
    {"choices": [{"index": 0, "finish_reason": "error", "message": {"role": "assistant", "content": ""},
                  "error": {"code": 502, "message": "upstream"}}]},
    {"code": 429, "msg": "slow down"},
    {"base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
    {"success": False, "error_code": 429, "error_msg": "slow down"},
    {"message": "Rate limit exceeded", "type": "rate_limit"},
    {"fault": {"faultstring": "Rate limit quota violation"}},
    {"errors": [{"code": 3040, "message": "Capacity temporarily exceeded, please try again."}]},
]  # fmt: skip
LASTING = [
    ({"error": {"message": "No such key", "code": 401}}, "No such key (status code: 401)"),
    ({"error": {"message": "Insufficient credits", "code": 402}}, "Insufficient credits (status code: 402)"),
    ({"error": {"message": "bad", "code": "invalid_request"}}, "bad (status code: None; invalid_request)"),
    ({"choices": []}, "the answer has no reply"),
    ({"choices": [{"index": 0, "message": None, "finish_reason": "stop"}]}, "the answer has no reply"),
]
HEAD: dict[str, Any] = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
MESSAGES: list[dict[str, Any]] = [
    {"content": None, "function_call": {"name": "PassageFacts", "arguments": FACTS}},
    {"content": "", "reasoning_details": [{"type": "reasoning.text", "text": f"hm\n{FACTS}"}]},
    {"content": "", "thinking_blocks": [{"type": "thinking", "thinking": FACTS}]},
    {"content": {"type": "text", "text": FACTS}},
    {"content": json.loads(FACTS)},
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_in_another_form_is_read(server: OpenAIServer, message: dict[str, Any]) -> None:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **message}}
    server.script(Reply(body={**HEAD, "choices": [choice]}))
    (node,) = make_extractor(server)(PASSAGES[:1])
    assert read_triples(node) == [FACT] and len(server.requests) == 1


@pytest.mark.parametrize("body", PASSING)
def test_an_error_of_status_200_that_may_pass_is_retried(server: OpenAIServer, body: dict[str, Any]) -> None:
    server.script(Reply(body={**HEAD, **body}), Reply(body=body), Reply(FACTS))
    extractor = make_extractor(server)
    (node,) = extractor(PASSAGES[:1])
    assert read_triples(node) == [FACT] and extractor.ledger.calls == 3


@pytest.mark.parametrize(
    "page", ["<html>Too many requests</html>", '[{"error": {"code": 503, "message": "busy"}}]', " "]
)
def test_a_page_that_says_so_is_retried_too(server: OpenAIServer, page: str) -> None:
    server.script(Reply(body=page), Reply(FACTS))
    extractor = make_extractor(server)
    (node,) = extractor(PASSAGES[:1])
    assert read_triples(node) == [FACT] and extractor.ledger.calls == 2


def test_a_server_behind_a_proxy_that_waits_in_vain_is_asked_again(server: OpenAIServer) -> None:
    server.script(Reply("busy", status=524), Reply(FACTS))
    extractor = make_extractor(server)
    (node,) = extractor(PASSAGES[:1])
    assert read_triples(node) == [FACT] and extractor.ledger.calls == 2


def test_a_page_in_place_of_an_answer_is_told(server: OpenAIServer) -> None:
    server.script(Reply(body="<html>Welcome</html>"))
    extractor = make_extractor(server)
    extractor(PASSAGES[:1])
    ((_, outcome, problem),) = extractor.ledger.failures
    assert outcome == "failed" and "ModelServerError: the answer is no JSON: '<html>Welcome" in problem


@pytest.mark.parametrize(("body", "words"), LASTING)
def test_an_error_of_status_200_is_told_in_the_server_s_words(
    server: OpenAIServer, body: dict[str, Any], words: str
) -> None:
    server.script(Reply(body={**HEAD, **body}))
    extractor = make_extractor(server)
    extractor(PASSAGES[:1])
    ((_, outcome, problem),) = extractor.ledger.failures
    assert outcome == "failed" and f"ModelServerError: {words}" in problem and len(server.requests) == 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GeARVectorStore]:
    with GeARVectorStore.from_path(tmp_path / "s", embed_model=WordEmbedding(), embed_triples=True) as store:
        node = TextNode(id_="nora", text="Nora Blum founded Osthafen.")
        store.add(store.embed_model([attach_triples(node, [FACT])]))
        yield store


STEP = {"needed": [1], "facts": [], "answerable": True, "answer": "Osthafen"}


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_an_agent_retries_and_gives_room_by_itself(
    server: OpenAIServer, store: GeARVectorStore, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.001)
    llm = AnyOpenAI(model="any", api_key="none", api_base=server.base_url, max_retries=0, max_tokens=100)
    server.script(Reply("full", status=529), Reply(body={**HEAD, **PASSING[0]}), CUT_OFF[0], Reply(json.dumps(STEP)))
    engine = GeARQueryEngine.from_vector_store(store, llm=llm)
    question = "What did Nora Blum found?"
    response = engine.query(question) if mode == "sync" else await engine.aquery(question)
    assert str(response) == "Osthafen [1]" and list_limits(server) == [100, 100, 100, 400]
    told = response.metadata or {}
    assert (told["gear_llm_calls"], told["gear_prompt_tokens"]) == (4, server.usage.prompt_tokens)


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_streamed_answer_has_no_thoughts_and_gets_room(
    server: OpenAIServer, store: GeARVectorStore, mode: str
) -> None:
    llm = AnyOpenAI(model="any", api_key="none", api_base=server.base_url, max_retries=0, max_tokens=100)
    server.script(Reply('{"triples": []}'), Reply("<think>Is it [2]?", finish_reason="length"))
    server.answer = lambda _: Reply("<think>Is it [2]?</think>\nOsthafen [1]")
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"), streaming=True)
    question = "What did Nora Blum found?"
    response: Any = engine.query(question) if mode == "sync" else await engine.aquery(question)
    pieces = response.response_gen if mode == "sync" else [piece async for piece in response.async_response_gen()]
    said = "".join(pieces)
    assert said == "Osthafen [1]" and list_limits(server) == [100, 100, 400]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("error", [{"code": 429}, {"type": "overloaded_error"}, {"message": "Rate limit exceeded"}])
async def test_a_stream_that_begins_with_a_passing_error_is_asked_for_again(
    server: OpenAIServer, store: GeARVectorStore, mode: str, error: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_index_gear.llm.client.RETRY_BACKOFF", 0.001)
    llm = AnyOpenAI(model="any", api_key="none", api_base=server.base_url, max_retries=0)
    event = f"data: {json.dumps({'error': error})}\n\n"
    server.script(Reply('{"triples": []}'), Reply(body=event), Reply("Osthafen [1]"))
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"), streaming=True)
    response: Any = engine.query("Who?") if mode == "sync" else await engine.aquery("Who?")
    pieces = response.response_gen if mode == "sync" else [piece async for piece in response.async_response_gen()]
    assert "".join(pieces) == "Osthafen [1]" and len(server.requests) == 3


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_an_agent_reads_replies_in_parts_and_streams_no_such_model_twice(
    server: OpenAIServer, store: GeARVectorStore, mode: str
) -> None:
    llm = AnyOpenAI(model=f"in parts, {mode}", api_key="none", api_base=server.base_url, max_retries=0)
    step, answer = (
        [THOUGHT, {"type": "text", "text": '{"triples": []}'}],
        [THOUGHT, {"type": "text", "text": "Osthafen [1]"}],
    )
    server.answer = lambda body: Reply(parts=step if "JSON" in str(body["messages"]) else answer)
    question = "What did Nora Blum found?"
    for streaming in (False, True, True):
        engine = GeARQueryEngine(
            PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"), streaming=streaming
        )
        response: Any = engine.query(question) if mode == "sync" else await engine.aquery(question)
        if not streaming:
            assert str(response) == "Osthafen [1]"
            continue
        pieces = response.response_gen if mode == "sync" else [piece async for piece in response.async_response_gen()]
        assert "".join(pieces) == "Osthafen [1]"
    assert [bool(request.get("stream")) for request in server.requests] == [False] * 3 + [True] + [False] * 3


@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_stream_that_goes_over_to_parts_fails(server: OpenAIServer, store: GeARVectorStore, mode: str) -> None:
    llm = AnyOpenAI(model=f"late parts, {mode}", api_key="none", api_base=server.base_url, max_retries=0)
    server.script(Reply('{"triples": []}'), Reply("Osthafen is\nthe yard", parts=[{"type": "text", "text": "[1]"}]))
    engine = GeARQueryEngine(PaperGeARRetriever(SyncGERetriever(store, llm=llm), calls="single"), streaming=True)
    question = "What did Nora Blum found?"
    response: Any = engine.query(question) if mode == "sync" else await engine.aquery(question)
    with pytest.raises(ModelServerError, match="went over to a stream in parts"):
        if mode == "sync":
            list(response.response_gen)
        else:
            [piece async for piece in response.async_response_gen()]


def test_index_ends_at_the_first_passage_of_a_model_that_thinks_for_too_long(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("llama_index_gear.cli.store_folder.load_embedding", lambda name: WordEmbedding())
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    (tmp_path / "docs").mkdir()
    for number in range(4):
        (tmp_path / "docs" / f"Yard {number}.txt").write_text(f"Nora Blum founded Yard {number}.\n")
    server.answer = lambda _: CUT_OFF[0]
    command = ["index", str(tmp_path / "docs"), "--store", str(tmp_path / "s"), "--llm", "thinker"]
    assert main(command) == 1 and list_limits(server) == [2_048, 8_192]
    assert "paid: 2 calls" in (said := capsys.readouterr().err) and "raise OPENAI_MAX_TOKENS" in said
    monkeypatch.setenv("OPENAI_MAX_TOKENS", "9000")
    server.answer = lambda _: Reply(FACTS)
    assert main(command) == 0 and list_limits(server)[2:] == [9_000] * 4
    assert isinstance(models.open_llm("thinker"), AnyOpenAI)

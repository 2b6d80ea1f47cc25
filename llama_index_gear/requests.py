"""The requests that a flow makes of the outside world, each with its answer.

A flow yields them in batches (see `flow`). Each leaves the process, or would block an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.prompts import BasePromptTemplate

from llama_index_gear.errors import repair_surrogates
from llama_index_gear.flow import Answer_co, Request


@dataclass(frozen=True)
class EmbedQuery(Request[list[float]]):
    """Embed a question. Answer: `list[float]`."""

    text: str


@dataclass(frozen=True)
class EmbedTexts(Request[list[list[float]]]):
    """Embed documents. Answer: one `list[float]` a text."""

    texts: Sequence[str]


@dataclass(frozen=True)
class Reply:
    """The result of one LLM call.

    Attributes:
        text: the reply without thoughts: text, or the structured output as JSON. If the model refused, its words of
            refusal. Lone surrogates are replaced, since neither a trace nor a store can keep them.
        refused: True if the model, or its provider's filter, refused.
        truncated: True if the reply was cut off at the model's limit.
        is_thought: True if it was cut off in the model's thoughts, so that there is no text.
        error: the exception that ended the last try; None if there is a reply.
        calls: calls made, retries included.
        prompt_tokens: tokens of the answered calls' prompts, as the LLM's client counts them, else by LlamaIndex's
            tokenizer; for more than 500,000 characters, a quarter of their number. Two calls are answered if the first
            reply was cut off in its thoughts, and asked for again.
        completion_tokens: tokens of the replies, counted likewise.
        ms: duration in milliseconds, retries included.

    """

    text: str = ""
    refused: bool = False
    truncated: bool = False
    is_thought: bool = False
    error: Exception | None = None
    calls: int = 1
    prompt_tokens: int = 0
    completion_tokens: int = 0
    ms: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", repair_surrogates(self.text))


@dataclass(frozen=True)
class CallLLM(Request[Reply]):
    """Call the language model. Answer: a `Reply`, which holds the error if the call failed.

    `purpose` names the call in a trace. `timeout` is the time limit of the reply in seconds (None: no limit).
    `max_calls` limits the calls that are made for it, retries included (None: no further limit).
    """

    prompt: BasePromptTemplate
    variables: Mapping[str, str]
    purpose: str = ""
    timeout: float | None = None
    max_calls: int | None = None


@dataclass(frozen=True)
class RunFunction(Request[Answer_co]):
    """Run a function that would block an event loop for too long. Answer: what the function returns.

    An event loop awaits `afunction`. Without one, the function runs in a thread.
    """

    function: Callable[[], Answer_co]
    afunction: Callable[[], Awaitable[Answer_co]] | None = None


@dataclass(frozen=True)
class QdrantCall(Request[Any]):
    """Call a method of a Qdrant client. Answer: what the method returns."""

    method: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

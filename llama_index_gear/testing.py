"""Fakes with known answers: real LlamaIndex components that need no model and no network."""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.llms.custom import CustomLLM
from numpy.typing import NDArray

from llama_index_gear.resources import free_in_child

Reply: TypeAlias = str | BaseException | Callable[[str], str]
"""A reply of a `ScriptedLLM`: a text, an exception that it raises, or a function from the prompt to a text."""


class ScriptedLLM(CustomLLM):
    """A language model that gives scripted replies and records the prompts.

    `complete`, `chat`, `stream_complete`, `predict`, their async twins and all threads take replies from the same
    queue.

    Args:
        replies: the replies, one a call: a text, an exception to raise, or a function from the prompt to a text.
        otherwise: a function that answers every prompt after the last reply. Default: none, so that a further call is
            an error.

    Raises:
        AssertionError: (from a call) no reply is left.

    """

    model_config = ConfigDict(extra="forbid")

    _replies: deque[Reply] = PrivateAttr()
    _otherwise: Callable[[str], str] | None = PrivateAttr(default=None)
    _history: list[str] = PrivateAttr(default_factory=list)
    _turn: Any = PrivateAttr(default_factory=lambda: free_in_child(threading.Lock()))

    def __init__(
        self, replies: Iterable[Reply] = (), *, otherwise: Callable[[str], str] | None = None, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._replies = deque([replies] if isinstance(replies, str) else replies)
        self._otherwise = otherwise

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the model."""
        return "ScriptedLLM"

    @property
    def metadata(self) -> LLMMetadata:
        """The metadata of a completion model with a large context window."""
        return LLMMetadata(model_name="scripted", context_window=128_000, num_output=4_096)

    @property
    def history(self) -> list[str]:
        """The prompts so far, in the order of the calls."""
        with self._turn:
            return list(self._history)

    @property
    def remaining(self) -> int:
        """The number of unused replies; 0 at the end of a test shows that the whole script was used."""
        with self._turn:
            return len(self._replies)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Return the next reply of the script."""
        return CompletionResponse(text=self._next(prompt))

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Stream the next reply of the script, word by word."""
        reply = self._next(prompt)

        def stream() -> CompletionResponseGen:
            text = ""
            for delta in re.findall(r"\s*\S+|\s+$", reply):
                text += delta
                yield CompletionResponse(text=text, delta=delta)

        return stream()

    def _next(self, prompt: str) -> str:
        with self._turn:
            self._history.append(prompt)
            number = len(self._history)
            reply: Reply | None = self._replies.popleft() if self._replies else self._otherwise
        if reply is None:
            raise AssertionError(
                f"ScriptedLLM has no reply left for call {number}: add one to its script. The prompt was:\n{prompt}"
            )
        if isinstance(reply, BaseException):
            raise reply
        return reply if isinstance(reply, str) else reply(prompt)


class WordEmbedding(BaseEmbedding):
    r"""Bag-of-words vectors: each lower-cased `\w+` word has its own direction; a text is their normalized sum.

    Directions of different words are nearly orthogonal (cosine 0 ± 1/√dimension), and the same in every process. So the
    cosine of two texts is, up to that noise, `|shared words| / √(|words of one| · |words of the other|)`. All texts
    without words share one direction.

    Args:
        dimension: dimension of the vectors. Default 256.

    """

    model_config = ConfigDict(extra="forbid")

    dimension: int = 256

    def __init__(self, dimension: int = 256, **arguments: Any) -> None:
        super().__init__(dimension=dimension, **arguments)  # type: ignore[call-arg]  # pydantic's plugin is not at work

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex serializes the model."""
        return "WordEmbedding"

    def _get_text_embedding(self, text: str) -> list[float]:
        words = Counter(re.findall(r"\w+", text.lower()) or [""])
        summed = np.sum([count * _compute_direction(word, self.dimension) for word, count in words.items()], axis=0)
        return [float(value) for value in summed / np.linalg.norm(summed)]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


@lru_cache(maxsize=65_536)
def _compute_direction(word: str, dimension: int) -> NDArray[np.float64]:
    digest = hashlib.shake_256(word.encode("utf-8", "surrogatepass")).digest(2 * dimension)
    centered = np.frombuffer(digest, dtype="<u2").astype(np.float64) - 32_767.5
    return np.asarray(centered / np.linalg.norm(centered))

"""A warning where the embedding model reads only the beginning of a passage."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode

from llama_index_gear.characters import count
from llama_index_gear.flow import Flow, ask
from llama_index_gear.requests import RunFunction
from llama_index_gear.store.average_length import get_embedded_text

_MARKS = 8  # tokens, at most, that a model adds to a text


@dataclass
class TruncationCheck:
    """Warns once where passages are longer than what the embedding model reads.

    It knows the limit of models that run in this process: of `LightEmbedding`, and of those that have the parts of
    LlamaIndex's `HuggingFaceEmbedding`, `max_length` and a tokenizer at `_model.tokenizer`. Of other models it says
    nothing.

    Attributes:
        get_model: returns the embedding model; None if none is set.
        has_warned: True once it has warned.

    """

    get_model: Callable[[], BaseEmbedding | None]
    has_warned: bool = False
    _tokenizers: list[tuple[Any, Any]] = field(default_factory=list)  # the model's own, and our copy

    def check_flow(self, nodes: Sequence[BaseNode]) -> Flow[None]:
        """Warn if some of these passages are too long, unless it has warned before."""
        model = None if self.has_warned else self.get_model()
        limit = getattr(model, "max_length", None)
        tokenizer = getattr(getattr(model, "_model", None), "tokenizer", None)
        count_tokens = getattr(model, "count_tokens", None)
        if not callable(count_tokens) and callable(tokenizer):
            count_tokens = partial(self._count_tokens, tokenizer)
        if not isinstance(limit, int) or limit < 1 or not callable(count_tokens):
            return
        prefix = getattr(model, "text_instruction", None) or ""
        texts = [prefix + get_embedded_text(node) for node in nodes]
        texts = [text for text in texts if len(text.encode()) + _MARKS > limit]  # a token has a byte or more
        numbers: Sequence[int] = (yield from ask(RunFunction(partial(count_tokens, texts)))) if texts else []
        too_long = sum(number > limit for number in numbers)
        if too_long and not self.has_warned:
            self.has_warned = True
            size = 3 * limit // 4
            warnings.warn(
                f"{too_long} of {count(len(nodes), 'passage')} {'is' if too_long == 1 else 'are'} longer than the "
                f"{limit} tokens that the embedding model {getattr(model, 'model_name', '')} reads: dense search does "
                f"not see what lies behind. Make passages shorter, SentenceSplitter(chunk_size={size}, "
                f"chunk_overlap={size // 10}), say; it counts with another tokenizer than the model, and metadata "
                "count too",
                stacklevel=2,
            )

    def _count_tokens(self, tokenizer: Any, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text."""
        if not self._tokenizers or self._tokenizers[0][0] is not tokenizer:
            # A copy: a tokenizer that is at work in another thread may not be told not to truncate.
            self._tokenizers[:] = [(tokenizer, copy.deepcopy(tokenizer))]
        tokens = self._tokenizers[0][1](list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        return [len(ids) for ids in tokens]

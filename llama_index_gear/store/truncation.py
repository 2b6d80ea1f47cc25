"""A warning where the embedding model reads only the beginning of a passage."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import BaseNode

from llama_index_gear.counts import count
from llama_index_gear.flow import Flow, ask
from llama_index_gear.requests import RunFunction
from llama_index_gear.store.average_length import get_embedded_text

_MARKS = 8  # tokens, at most, that a model adds to a text


@dataclass
class TruncationCheck:
    """Warns once where passages are longer than what the embedding model reads.

    It knows the limit of models that run in this process and have LlamaIndex's `HuggingFaceEmbedding`'s parts:
    `max_length`, and a tokenizer at `_model.tokenizer`. Of other models it says nothing.

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
        if not isinstance(limit, int) or limit < 1 or not callable(tokenizer):
            return
        prefix = getattr(model, "text_instruction", None) or ""
        texts = [prefix + get_embedded_text(node) for node in nodes]
        texts = [text for text in texts if len(text.encode()) + _MARKS > limit]  # a token has a byte or more
        too_long = yield from ask(RunFunction(lambda: self._count_longer(texts, limit, tokenizer)))
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

    def _count_longer(self, texts: Sequence[str], limit: int, tokenizer: Any) -> int:
        """Count the texts of more tokens than the limit."""
        if not texts:
            return 0
        if not self._tokenizers or self._tokenizers[0][0] is not tokenizer:
            # A copy: a tokenizer that is at work in another thread may not be told not to truncate.
            self._tokenizers[:] = [(tokenizer, copy.deepcopy(tokenizer))]
        tokens = self._tokenizers[0][1](list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        return sum(len(ids) > limit for ids in tokens)

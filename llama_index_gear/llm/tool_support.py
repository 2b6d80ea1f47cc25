"""Remembers of a model, from earlier calls, if it takes tools, and if it needs more room for its thoughts."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from llama_index.core.llms import LLM

logger = logging.getLogger(__name__)

_REFUSALS = frozenset({400, 404, 405, 422, 500, 501})  # HTTP status of servers that refuse tools


@dataclass
class ToolSupport:
    """Remembers the models that took tools, and that refused them.

    Attributes:
        accepting: the last model whose server took tools; None: none has.
        refusing: the last model whose server refused them, and has never taken any; None: none has.

    """

    accepting: LLM | None = None
    refusing: LLM | None = None

    def note_accepted(self, llm: LLM) -> None:
        """Note that a call with tools was answered."""
        self.accepting, self.refusing = llm, None

    def note_refused(self, llm: LLM, error: Exception) -> None:
        """Note that a server refused tools, and warn once. Of a model that has taken tools, it says nothing."""
        if llm is self.accepting or llm is self.refusing:
            return
        self.refusing = llm
        logger.warning(
            "the server of %s takes no tools (%s, status %s): the model is asked for text from now on",
            *(llm.metadata.model_name, type(error).__name__, getattr(error, "status_code", None)),
        )


@dataclass
class ReplyRoom:
    """The room that a model's replies need.

    Attributes:
        llm: the model with more room, once a reply of it was cut off in its thoughts; None: none was.

    """

    llm: LLM | None = None


def refuses_tools(error: Exception) -> bool:
    """Return True if a server says that its model has no tools."""
    return getattr(error, "status_code", None) in _REFUSALS and "tool" in str(error).lower()

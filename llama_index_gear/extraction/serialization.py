"""The language model and the prompts of an extractor as plain data, and back: LlamaIndex's own form leaves them out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import LLM
from llama_index.core.llms.loading import RECOGNIZED_LLMS, load_llm
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, RichPromptTemplate

from llama_index_gear.errors import ArgumentError, check_kind, shown

_TEXTS: dict[str, tuple[Any, str]] = {
    "PromptTemplate": (PromptTemplate, "template"),
    "ChatPromptTemplate": (ChatPromptTemplate, "message_templates"),
    "RichPromptTemplate": (RichPromptTemplate, "template_str"),
}
"""Prompts that are text alone, and the field that holds it."""
_ACCESS = re.compile("key|secret|passw|credential|header|cookie|token(?!s)|timeout|retries|reuse", re.IGNORECASE)
"""Settings of a model that don't change what it answers: how it is reached, and secrets, which no form may hold."""


def llm_to_dict(llm: LLM) -> dict[str, Any]:
    """LlamaIndex's form of a model that LlamaIndex can load, without its keys; of any other model its class alone."""
    if RECOGNIZED_LLMS.get(llm.class_name()) is not type(llm):
        return {"class_name": type(llm).__qualname__}
    return _without_access(llm.to_dict())  # type: ignore[no-any-return]


def _without_access(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_access(member) for key, member in value.items() if not _ACCESS.search(str(key))}
    return value


def llm_from_dict(data: Any) -> LLM:
    """The model of such a form, as LlamaIndex loads it: its key comes from where its class looks for one.

    Raises:
        ArgumentError: LlamaIndex can't load it.

    """
    if isinstance(data, LLM):
        return data
    check_kind(Mapping, hint="pass what to_dict gave, or a model", llm=data)
    name = data.get("class_name")
    problem = f"LlamaIndex can't load a model of class {shown(name)}"
    if not isinstance(name, str) or name not in RECOGNIZED_LLMS:
        raise ArgumentError(f"{problem}: pass it, from_dict(data, llm=…)")
    try:
        return load_llm(dict(data))
    except Exception as error:
        raise ArgumentError(
            f"{problem} from this form ({type(error).__name__}): pass it, from_dict(data, llm=…)"
        ) from error


def prompt_to_dict(prompt: BasePromptTemplate) -> dict[str, Any] | None:
    """A prompt with its text; None of one that is more than text: that has functions, or chooses by the model."""
    kind, _ = _TEXTS.get(type(prompt).__name__, (None, ""))
    if type(prompt) is not kind or prompt.function_mappings or prompt.output_parser is not None:
        return None
    return {**prompt.model_dump(mode="json"), "class_name": type(prompt).__name__}


def prompt_from_dict(name: str, data: Any) -> BasePromptTemplate:
    """The prompt of such a form.

    Args:
        name: of the argument, for the message.
        data: the form, or a prompt.

    Raises:
        ArgumentError: it is neither, or no form of a prompt that is text alone.

    """
    if isinstance(data, BasePromptTemplate):
        return data
    check_kind(Mapping, hint="pass what to_dict gave, or a prompt", **{name: data})
    kind, text_field = _TEXTS.get(str(data.get("class_name")), (None, ""))
    problem = f"{name} can't be made from data: pass it, from_dict(data, {name}=…)"
    if kind is None:
        raise ArgumentError(problem)
    try:
        text = data[text_field]
        if kind is ChatPromptTemplate:
            text = [ChatMessage.model_validate(message) for message in text]
        return kind(  # type: ignore[no-any-return]
            text,
            metadata=dict(data["metadata"]),
            template_var_mappings=data["template_var_mappings"],
            **data["kwargs"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"{problem} ({error})") from error

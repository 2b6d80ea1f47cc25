"""Serialization of an extractor's LLM and prompts, which LlamaIndex's own form leaves out."""

from __future__ import annotations

import re
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import LLM
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate, RichPromptTemplate
from llama_index.core.schema import BaseComponent

from llama_index_gear.errors import ArgumentError, format_value

_TEXT_PROMPTS: dict[str, tuple[Any, str]] = {
    "PromptTemplate": (PromptTemplate, "template"),
    "ChatPromptTemplate": (ChatPromptTemplate, "message_templates"),
    "RichPromptTemplate": (RichPromptTemplate, "template_str"),
}
"""Prompt classes that consist of text alone, and the field that holds the text."""
_ACCESS = re.compile("key|secret|passw|credential|header|cookie|token(?!s)|timeout|retries|reuse", re.IGNORECASE)
"""Settings of a model that don't change its answers (how its client waits and retries), and secrets, not for forms."""
_HANDLING = frozenset(
    {
        *("api_base", "base_url", "azure_endpoint", "api_version", "default_headers", "reuse_client"),
        *("max_retries", "timeout", "request_timeout", "num_workers", "show_progress"),
    }
)
"""Settings that change no triples: where an LLM is, how its client waits and retries, how an extractor runs."""


def check_nothing_lost(component: BaseComponent, settings: dict[str, Any], advice: str) -> None:
    """Refuse to pickle a component of which LlamaIndex's `__getstate__` left out a setting that can't be pickled.

    LlamaIndex deletes it from the component too; it is put back.

    Args:
        component: the component, after `__getstate__`.
        settings: its `__dict__` before.
        advice: what to do instead, for the message.

    Raises:
        ArgumentError: a setting was left out.

    """
    if lost := sorted(settings.keys() - component.__dict__.keys()):
        component.__dict__.update(settings)
        raise ArgumentError(f"the extractor's {' and '.join(lost)} can't be pickled: {advice}")


def llm_to_dict(llm: LLM) -> dict[str, Any]:
    """Return LlamaIndex's form of an LLM that LlamaIndex can load, without secrets; of any other LLM only its class."""
    from llama_index.core.llms.loading import RECOGNIZED_LLMS  # imports the clients of all models that are installed

    if RECOGNIZED_LLMS.get(llm.class_name()) is not type(llm):
        return {"class_name": type(llm).__qualname__}
    return _without_access(llm.to_dict())  # type: ignore[no-any-return]


def _without_access(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_access(member) for key, member in value.items() if not _ACCESS.search(str(key))}
    return value


def drop_handling(form: Any, *, is_llm: bool = False) -> Any:
    """Return a component's form, as `to_dict` gives it, without the settings that don't change what it extracts.

    Args:
        form: the form, or a part of it.
        is_llm: it is a part of a model's form. Default False.

    """
    if isinstance(form, dict):
        return {
            name: drop_handling(value, is_llm=is_llm or name == "llm")
            for name, value in form.items()
            if name not in _HANDLING and not (is_llm and _ACCESS.search(str(name)))
        }
    return [drop_handling(value, is_llm=is_llm) for value in form] if isinstance(form, list) else form


def llm_from_dict(data: Any) -> LLM:
    """Load an LLM from its form with LlamaIndex. Its class finds the API key in its usual place.

    Raises:
        ArgumentError: LlamaIndex can't load it.

    """
    if isinstance(data, LLM):
        return data
    from llama_index.core.llms.loading import RECOGNIZED_LLMS, load_llm

    name = data.get("class_name")
    problem = f"LlamaIndex can't load a model of class {format_value(name)}"
    if not isinstance(name, str) or name not in RECOGNIZED_LLMS:
        raise ArgumentError(f"{problem}: pass it, from_dict(data, llm=…)")
    try:
        return load_llm(dict(data))
    except Exception as error:
        raise ArgumentError(
            f"{problem} from this form ({type(error).__name__}): pass it, from_dict(data, llm=…)"
        ) from error


def prompt_to_dict(prompt: BasePromptTemplate) -> dict[str, Any] | None:
    """Return a prompt's form; None if the prompt is more than text: if it has functions, or chooses by the LLM."""
    kind, _ = _TEXT_PROMPTS.get(type(prompt).__name__, (None, ""))
    if type(prompt) is not kind or prompt.function_mappings or prompt.output_parser is not None:
        return None
    return {**prompt.model_dump(mode="json"), "class_name": type(prompt).__name__}


def prompt_from_dict(name: str, data: Any) -> BasePromptTemplate:
    """Make a prompt from its form.

    Args:
        name: name of the argument, for the message.
        data: the form, or a prompt.

    Raises:
        ArgumentError: `data` is neither, or not the form of a prompt that is text alone.

    """
    if isinstance(data, BasePromptTemplate):
        return data
    kind, text_field = _TEXT_PROMPTS.get(str(data.get("class_name")), (None, ""))
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

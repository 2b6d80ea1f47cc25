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
"""Names of the lists that a pool may have; "base" is the list of a retriever whose scores say nothing."""
_LIST_SIGNALS = ("reciprocal_rank", "log_rank", "score")
COMPANY_SIGNALS = ("new_words", "named", "named_likeness", "linked", "in_question")
"""Names of the signals beside the best passages."""
_BASE_SCORE = "base.score"  # no signal
SIGNALS = (
    *(key for name in LISTS for signal in _LIST_SIGNALS if (key := f"{name}.{signal}") != _BASE_SCORE),
    *COMPANY_SIGNALS,
)
_DEFAULT = Path(__file__).parent / "default_weights.json"
FIRST = "first"
"""Name, among the second ranking's weights, of that of the first ranking's score."""


@dataclass(frozen=True)
class RankingWeights:
    """The weights of both rankings: a passage's score is the sum of weight · signal.

    The first ranking scores a passage by its places in the lists. The second adds what the passage is beside the five
    best of the first (`ranking.signals` describes every signal). A signal without a weight counts nothing.

    Attributes:
        first: signal of a list, as "dense.log_rank" → weight.
        second: signal beside the best passages, as "linked" → weight; "first" is the weight of the first score.

    Raises:
        ArgumentError: an unknown signal, or a weight that is no finite number of 32 bits.

    """

    first: Mapping[str, float]
    second: Mapping[str, float]

    def __post_init__(self) -> None:
        first = {name for name in SIGNALS if name not in COMPANY_SIGNALS}
        for field, known in (("first", first), ("second", {FIRST, *COMPANY_SIGNALS})):
            weights = getattr(self, field)
            for name, weight in weights.items():
                if name not in known:
                    raise ArgumentError(
                        f"{field} knows no signal {format_value(name)}; it knows {', '.join(sorted(known))}"
                    )
                check_numbers("a finite number of 32 bits", lambda _: True, **{f"the weight of {name!r}": weight})
            object.__setattr__(self, field, MappingProxyType(dict(weights)))

    def __hash__(self) -> int:
        """Hash the tables, whatever their order."""
        return hash((frozenset(self.first.items()), frozenset(self.second.items())))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the plain tables."""
        return type(self), (dict(self.first), dict(self.second))

    @classmethod
    def default(cls) -> RankingWeights:
        """Return the weights that come with the package."""
        return cls.from_json(_DEFAULT.read_text("utf-8"))

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return both tables as plain dicts; `from_dict` reads them."""
        return {"first": dict(self.first), "second": dict(self.second)}

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any]) -> RankingWeights:
        """Read weights from `to_dict`'s tables.

        Raises:
            ArgumentError: these are no such tables, or an unknown signal or no number stands in them.

        """
        is_mapping = isinstance(tables, Mapping) and all(isinstance(table, Mapping) for table in tables.values())
        if not is_mapping or set(tables) != {"first", "second"}:
            raise ArgumentError('weights must have the tables "first" and "second", as to_dict and to_json write them')
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

"""The weights of a ranking, which one can read, save and load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from llama_index_gear.errors import ArgumentError, check_numbers, format_value, read_path

SIGNALS = ("shared_words", "walk", "phrases", "new_words", "linked", "named", "in_question", "tied", "page_links")
"""Names of the signals.

A new one also needs its values in `signals.Company`, words in `reasons._DESCRIBED`, a weight in `default_weights.json`
(`learning`), and a row in the guide. What it reads of a node is in `pool.PoolPassage`, filled by
`reasons.to_pool_passage`.
"""
_DEFAULT = Path(__file__).parent / "default_weights.json"


@dataclass(frozen=True)
class RankingWeights:
    """The weights of a ranking: a passage's score is the sum of weight · signal (`ranking.signals` describes these).

    A signal without a weight counts nothing.

    Attributes:
        signals: signal → weight.

    Raises:
        ArgumentError: an unknown signal, or a weight that is no finite number of 32 bits.

    """

    signals: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, weight in self.signals.items():
            if name not in SIGNALS:
                known = ", ".join(sorted(SIGNALS))
                raise ArgumentError(f"the ranking has no signal {format_value(name)}; it has {known}")
            check_numbers("a finite number of 32 bits", lambda _: True, **{f"the weight of {name!r}": weight})
        object.__setattr__(self, "signals", MappingProxyType(dict(self.signals)))

    def __hash__(self) -> int:
        """Hash the weights, whatever their order."""
        return hash(frozenset(self.signals.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy the plain weights."""
        return type(self), (dict(self.signals),)

    @classmethod
    def default(cls) -> RankingWeights:
        """Return the weights that come with the package."""
        return cls.from_json(_DEFAULT.read_text("utf-8"))

    def to_dict(self) -> dict[str, float]:
        """Return signal → weight as a plain dict; `from_dict` reads it."""
        return dict(self.signals)

    @classmethod
    def from_dict(cls, weights: Mapping[str, Any]) -> RankingWeights:
        """Read weights from `to_dict`'s dict.

        Raises:
            ArgumentError: it is no dict, or an unknown signal or no number stands in it.

        """
        if not isinstance(weights, Mapping):
            raise ArgumentError(
                f"weights must be signal → weight, as to_dict and to_json write them, got {format_value(weights)}"
            )
        return cls(weights)

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
            weights = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ArgumentError(f"weights must be JSON, as RankingWeights.to_json writes it: {error}") from error
        return cls.from_dict(weights)

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

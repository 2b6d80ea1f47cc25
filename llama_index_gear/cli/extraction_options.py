"""The options of `index` and `extract` that say how triples are extracted. Nothing here takes seconds to import."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import click

_NO_MODEL = "none"

Command = Callable[..., Any]


@dataclass(frozen=True)
class ExtractionOptions:
    """The way in which triples are extracted: by rule, or by a model.

    Attributes:
        llm: the model's name, "none" for rules; None if the command line says nothing.
        price: of a million prompt and completion tokens; None: not known.
        max_cost: highest amount to spend; None: no ceiling.
        entity_types: types of entities that triples may have at their ends; empty: all.
        relation_types: predicates that triples may have; empty: all.
        domain: what the passages are about, in a line; None: the model is not told.
        estimate: say what the model would cost, and do nothing.

    """

    llm: str | None = None
    price: tuple[float, float] | None = None
    max_cost: float | None = None
    entity_types: tuple[str, ...] = ()
    relation_types: tuple[str, ...] = ()
    domain: str | None = None
    estimate: bool = False

    @property
    def model(self) -> str:
        """Name of the model that extracts; empty if rules do."""
        return "" if self.llm in (None, _NO_MODEL) else str(self.llm)

    def check(self) -> ExtractionOptions:
        """Return these options, if they go together.

        Raises:
            UsageError: options of a model are given, and no model; or a price or a ceiling is below 0 or no number; or
                there is a ceiling and no price.

        """
        given = [f"--{option.name.replace('_', '-')}" for option in fields(self)[1:] if getattr(self, option.name)]
        given += ["--max-cost"] if self.max_cost == 0 else []
        if given and not self.model:
            names = " and ".join(given)
            raise click.UsageError(f"{names} {'is' if len(given) == 1 else 'are'} of a model: give --llm")
        for option, costs in (("--price", self.price or ()), ("--max-cost", (self.max_cost or 0.0,))):
            if wrong := [cost for cost in costs if not cost >= 0]:
                raise click.UsageError(f"{option} must be 0 or more, not {wrong[0]}")
        if self.max_cost is not None and self.price is None:
            raise click.UsageError("--max-cost needs --price: what a million prompt and completion tokens cost")
        return self


def read_model(context: click.Context, option: click.Parameter, name: str | None) -> str | None:
    """Return the name of a model.

    Raises:
        BadParameter: it is empty, or ends where the model's name should begin: "ollama/".

    """
    if name is not None and not name.split("/")[-1].strip():
        raise click.BadParameter("it names no model; write gpt-4o-mini, ollama/llama3.2 or none, say")
    return name


def _split(context: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Read names with commas between them."""
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    if text is not None and not names:
        raise click.BadParameter("it names none; write some, with commas between them")
    return names


def with_extraction(command: Command) -> Command:
    """Add the options of an extraction; the command takes them as the fields of `ExtractionOptions`."""
    names: dict[str, Any] = {"metavar": "NAME,NAME,…", "callback": _split}
    options = [
        click.option(
            "--llm",
            callback=read_model,
            help="A model that extracts the triples, as in `ask`. Default: rules, without a model.",
        ),
        click.option(
            "--price",
            type=(float, float),
            help="What a million prompt and completion tokens cost. --max-cost and costs are in its unit.",
        ),
        click.option(
            "--max-cost", type=float, help="Stop asking the model there. The next run goes on. Needs --price."
        ),
        click.option("--entity-types", **names, help="Take facts between such entities alone: person,place."),
        click.option("--relation-types", **names, help="Take facts with such relations alone: born in,works for."),
        click.option("--domain", metavar="LINE", help="Tell the model what the passages are about."),
        click.option("--estimate", is_flag=True, help="Say what the model would cost, and do nothing."),
    ]
    for option in reversed(options):
        command = option(command)
    return command

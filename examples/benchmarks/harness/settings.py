"""The names and settings of methods. A method is a base retriever, and may have an expansion on top.

    BASE = bm25 | dense | hybrid | graph | rank-bm25 | rank-hybrid | hipporag[-synonyms][-filter]
    METHOD = BASE[+naive | +sync | +gear][+pagerank | +external] | BASE+ircot | BASE+selection | BASE+RERANKER
             | t2rag | gold | closed-book
    RERANKER = select | llmrerank | rankgpt

"graph" is `GraphRetriever`. "+gear" is `PaperGeARRetriever`, "+selection" is `GeARRetriever`. The latter gathers its
pool as "graph" does; over another base the pool begins with that base's list. "+select" is `PassageSelector` over the
base; "+llmrerank" and "+rankgpt" are LlamaIndex's `LLMRerank` and `RankGPTRerank`, over as many passages.
"+external" walks an external graph, made of the data's own triples without their passages. "gold" finds the gold
passages, "closed-book" finds nothing: they are bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from llama_index.core.vector_stores.types import VectorStoreQueryMode

from llama_index_gear import LocalPageRank
from llama_index_gear.expansion.beam_search import Scorer

CUTS = (5, 10, 15)
MODES = {
    "bm25": VectorStoreQueryMode.SPARSE,
    "dense": VectorStoreQueryMode.DEFAULT,
    "hybrid": VectorStoreQueryMode.HYBRID,
}
HIPPORAG = ("hipporag", "hipporag-synonyms", "hipporag-filter", "hipporag-synonyms-filter")
BASES = (*MODES, "graph", "rank-bm25", "rank-hybrid", *HIPPORAG)
BOUNDS = ("gold", "closed-book")
WHOLE = ("t2rag", *BOUNDS)
RERANKERS = ("select", "llmrerank", "rankgpt")
EXPANSIONS = ("naive", "sync", "gear", "selection", "ircot", *RERANKERS)
OF_PASSAGES, OF_AGENTS = 10, ("gear", "selection", "ircot", "t2rag")  # base passages of a step (GeAR App. B.2)
NO_GRAPH = ("", "ircot", *RERANKERS)  # expansions that walk no graph
BEAMS = "naive sync gear"
GEAR_OUTSIDE = ("gear", "external")
STEPS = {"gear": 4, "selection": 4, "ircot": 4, "t2rag": 3, "gear+external": 2}  # the papers'


def _define_setting(default: Any, parse: Any, of: str, help_: str) -> Any:
    """Define a setting of the bases, expansions or additions that `of` names."""
    return field(default=default, metadata={"parse": parse, "of": of.split(), "help": help_})


def flag(value: str) -> bool:
    """Parse "true", "on", "false" or "off"."""
    return {"true": True, "on": True, "false": False, "off": False}[value.lower()]


def _parse_or_none(parse: Any) -> Any:
    return lambda value: None if value.lower() == "none" else parse(value)


def _parse_one_of(*values: str) -> Any:
    def parse(value: str) -> str:
        if value not in values:
            raise ValueError(f"{value!r} is none of {', '.join(values)}")
        return value

    return parse


@dataclass(frozen=True)
class Settings:
    """The settings of all methods, which can also be swept over. A method ignores those that it doesn't have."""

    scorer: Scorer = _define_setting(
        "novelty", _parse_one_of("novelty", "composed", "additive", "exact"), BEAMS, "of chains"
    )
    diversity: bool = _define_setting(True, flag, BEAMS, "diverse, or plain, beam search")
    beam_size: int = _define_setting(10, int, BEAMS, "chains kept")
    beam_length: int = _define_setting(2, int, BEAMS, "triples a chain")
    neighbors: int = _define_setting(100, int, BEAMS, "candidates a chain")
    gamma: float | None = _define_setting(
        None, _parse_or_none(float), BEAMS, "of the penalty; none: twice the beam size"
    )
    epsilon: float = _define_setting(LocalPageRank().epsilon, float, "pagerank", "exactness")
    base_top_k: int | None = _define_setting(
        None, _parse_or_none(int), f"{BEAMS} ircot", "base passages; none: the recall cut, or 10 in an agent"
    )
    fact_weight: float = _define_setting(
        1.0, float, " ".join(HIPPORAG), "of a fact's edge; 2 in its authors' program (see baselines/hipporag.py)"
    )
    link_top_k: int = _define_setting(1, int, "sync gear", "triples that a noted fact is linked to")
    passage_link_top_k: int = _define_setting(3, int, "gear", "passages that a fact of the gist is linked to")
    max_steps: int | None = _define_setting(
        None,
        _parse_or_none(int),
        "gear selection ircot t2rag",
        "none: the papers' 4 (gear, ircot), 3 (t2rag), 2 (gear+external)",
    )
    calls: str = _define_setting(
        "separate", _parse_one_of("separate", "merged", "single"), "gear", "a stand-in makes one"
    )
    show_top_k: int | None = _define_setting(
        None,
        _parse_or_none(int),
        f"selection {' '.join(RERANKERS)}",
        "passages that a reader selects from; none: the default of the class",
    )
    show_tokens: int | None = _define_setting(
        None, _parse_or_none(int), "selection select", "tokens that these have at most; none: the default of the class"
    )
    show_order: str = _define_setting(
        "given", _parse_one_of("given", "reversed", "shuffled"), "select", "in which a reader sees them"
    )
    search_by: Any = _define_setting("triples", _parse_one_of("triples", "passages"), "t2rag", "what is searched")
    graph_share: float = _define_setting(1.0, float, "external", "of the data's triples that the external graph has")
    check_alignment: bool = _define_setting(True, flag, "external", "drop links to triples about something else")

    @classmethod
    def applies(cls, name: str, method: str) -> bool:
        """Say if a method has this setting; true as well if no setting has this name."""
        known = cls.__dataclass_fields__.get(name)
        return known is None or bool({*split_method(method)} & {*known.metadata["of"]})

    def with_defaults_of(self, method: str) -> Settings:
        """Return the settings with a method's own defaults where none is given."""
        _, expansion, extra = split_method(method)
        steps = STEPS.get(f"{expansion}+{extra}", STEPS.get(expansion))
        base_top_k = OF_PASSAGES if expansion in OF_AGENTS else None
        return replace(
            self,
            gamma=2.0 * self.beam_size if self.gamma is None else self.gamma,
            max_steps=self.max_steps or steps,
            base_top_k=self.base_top_k or base_top_k,
        )

    def with_value(self, name: str, value: str) -> Settings:
        """Return the settings with one of them parsed from a text.

        Raises:
            ValueError: there is no such setting, or it can't have that value.

        """
        fields = type(self).__dataclass_fields__
        if name not in fields:
            raise ValueError(f"there is no setting {name!r}; there are {', '.join(fields)}")
        try:
            return replace(self, **{name: fields[name].metadata["parse"](value)})
        except (ValueError, KeyError) as error:
            raise ValueError(f"{name} cannot be {value!r}") from error


def split_method(method: str) -> tuple[str, str, str]:
    """Split a method's name into base, expansion and addition, each empty if there is none.

    Raises:
        SystemExit: there is no such method.

    """
    if method in WHOLE:
        return "", "t2rag" if method == "t2rag" else "", ""
    base, *parts = method.split("+")
    expansion = parts.pop(0) if parts and parts[0] in EXPANSIONS else ""
    extra = parts.pop(0) if parts and expansion not in NO_GRAPH and parts[0] in ("pagerank", "external") else ""
    if parts or base not in BASES or (base in HIPPORAG and expansion not in NO_GRAPH):
        raise SystemExit(f"unknown method {method!r}: {str(__doc__).split(chr(10) * 2)[1].strip()}")
    return base, expansion, extra


def needs_triple_vectors(method: str) -> bool:
    """Say if a method searches or compares triples by their vectors."""
    return split_method(method)[1] not in NO_GRAPH


def makes_one_list(method: str, settings: Settings) -> bool:
    """Say if a method makes one list for all recall cuts, which is only shortened."""
    base, expansion, extra = split_method(method)
    if method in WHOLE or base in HIPPORAG or expansion in (*OF_AGENTS, *RERANKERS):
        return True
    if base == "graph" and not expansion:
        return True
    return bool(expansion) and settings.base_top_k is not None and extra != "pagerank"

"""Facts that a reply copies from the example in its prompt: they are no facts of the passages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache

from llama_index.core.prompts import BasePromptTemplate

from llama_index_gear.errors import ReplyError
from llama_index_gear.llm.json_scan import find_objects, scan
from llama_index_gear.llm.parsing import collect_triples
from llama_index_gear.triple import Triple, contains_entity, entity_key

logger = logging.getLogger(__name__)

ECHO_PROBLEM = "the reply repeats the prompt's example"


def drop_echoes(triples: Iterable[Triple], prompt: BasePromptTemplate, passages: Sequence[str]) -> list[Triple]:
    """Leave out the triples of the prompt's example whose two entities the passages don't both name."""
    examples = _find_examples(prompt.get_template())
    return [triple for triple in triples if triple not in examples or _is_stated(triple, passages)]


def require_own(triples: Sequence[Triple], prompt: BasePromptTemplate, passages: Sequence[str]) -> tuple[Triple, ...]:
    """`drop_echoes`; a warning says how many triples were left out.

    Raises:
        ReplyError: there were triples, and none is left.

    """
    own = drop_echoes(triples, prompt, passages)
    if triples and not own:
        raise ReplyError(ECHO_PROBLEM)
    if len(own) < len(triples):
        logger.warning("%d facts left out that a reply copied from its prompt's example", len(triples) - len(own))
    return tuple(own)


@lru_cache(maxsize=64)
def _find_examples(template: str) -> frozenset[Triple]:
    """Return the triples in the JSON objects of a template."""
    objects = find_objects(span.value for span in scan(template))
    return frozenset(triple for example in objects for triple in collect_triples(example))


def _is_stated(triple: Triple, passages: Sequence[str]) -> bool:
    texts = list(map(entity_key, passages))
    return all(any(contains_entity(text, entity) for text in texts) for entity in triple.entities)

"""A reply as the parsers get it, and all parsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index_gear.agents.gear.external_policy import parse_decision, parse_ranking
from llama_index_gear.agents.gear.paper_calls import parse_facts_and_verdict, parse_query, parse_verdict
from llama_index_gear.agents.t2rag.prompts import DECOMPOSE_PROMPT, parse_decomposition, parse_statements
from llama_index_gear.extraction.calls import parse_extraction, read_types
from llama_index_gear.extraction.schema import ExtractionSchema
from llama_index_gear.flow import Reply
from llama_index_gear.llm.json_scan import ScannedReply
from llama_index_gear.llm.parsing import parse_triples
from llama_index_gear.llm.selection import parse_selection
from llama_index_gear.llm.thoughts import clean_reply

TEMPLATE = DECOMPOSE_PROMPT.get_template()
SCHEMA = ExtractionSchema(entity_types=("person", "ada"), relation_types=("knows", "x"))

PARSERS: dict[str, Callable[[ScannedReply], Any]] = {
    "triples": parse_triples,
    "facts and verdict": parse_facts_and_verdict,
    "verdict": parse_verdict,
    "query": parse_query,
    "decision": parse_decision,
    "ranking": lambda reply: parse_ranking(reply, 9),
    "selection": lambda reply: parse_selection(reply, 9),
    "decomposition": lambda reply: parse_decomposition(reply, TEMPLATE),
    "statements": parse_statements,
    "types": read_types,
    "extraction": lambda reply: parse_extraction(Reply(reply.text)),
    "extraction with a schema": lambda reply: parse_extraction(Reply(reply.text), SCHEMA),
}


def scan_reply(reply: str) -> ScannedReply:
    """Scan a reply as the parsers get it: without thoughts."""
    return ScannedReply(clean_reply(reply).text)

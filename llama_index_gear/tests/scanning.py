"""A reply as the parsers get it."""

from llama_index_gear.llm.json_scan import ScannedReply
from llama_index_gear.llm.thoughts import clean_reply


def scan_reply(reply: str) -> ScannedReply:
    """Scan a reply as the parsers get it: without thoughts."""
    return ScannedReply(clean_reply(reply).text)

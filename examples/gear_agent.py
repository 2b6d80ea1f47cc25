"""Ask an agent about the sample passages: it searches, notes facts, and searches again until they answer the question.

    python examples/gear_agent.py
    python examples/gear_agent.py --method t2rag
    python examples/gear_agent.py "Which river flows through the city where the author of … was born?"

With OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for a compatible server) a real model extracts, reads, reasons
and answers. Without a key the passages' triples are made by rule, and a scripted model answers one question with the
replies below: retrieval and ranking are real, the model's replies are not.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from openai_model import language_model
from quickstart import open_store

from llama_index_gear import GeARQueryEngine, T2RAGQueryEngine
from llama_index_gear.testing import ScriptedLLM
from llama_index_gear.trace.trace import TraceEvent

QUESTION = (
    "What year did the father of Stephen Curry join the team from which he started his college basketball career?"
)
GEAR = [
    # Step 1: the passages that the answer needs, their facts, and the next query.
    '{"needed": [2, 5], "facts": [["Dell Curry", "father of", "Stephen Curry"], '
    '["Dell Curry", "played college basketball for", "Virginia Tech Hokies"]], '
    '"answerable": false, "query": "When did Dell Curry join the Virginia Tech Hokies?"}',
    # Step 2: the answer.
    '{"needed": [2], "facts": [["Dell Curry", "member of Virginia Tech Hokies from", "1982"]], '
    '"answerable": true, "answer": "1982"}',
]
T2RAG = [
    # The question as triples with unknowns.
    '{"triples": [["Stephen Curry", "son of", "?father"], ["?father", "played college basketball for", "?team"], '
    '["?father", "joined ?team in", "?year"]]}',
    # One reply a round.
    '{"facts": [{"clue": 1, "triple": ["Stephen Curry", "son of", "Dell Curry"]}]}',
    '{"facts": [{"clue": 2, "triple": ["Dell Curry", "played college basketball for", "Virginia Tech Hokies"]}]}',
    '{"facts": [{"clue": 3, "triple": ["Dell Curry", "joined Virginia Tech Hokies in", "1982"]}]}',
    # The answer.
    "1982 [3]",
]
METHODS: dict[str, tuple[type[GeARQueryEngine | T2RAGQueryEngine], list[str]]] = {
    "gear": (GeARQueryEngine, GEAR),
    "t2rag": (T2RAGQueryEngine, T2RAG),
}


async def ask(engine: GeARQueryEngine | T2RAGQueryEngine, question: str) -> None:
    """Ask, and print events as they come."""
    print(f"\nQ: {question}")
    async for event in engine.astream_events(question):
        if not isinstance(event, TraceEvent):
            print(f"A: {event}\n   {(event.metadata or {})['gear_stopped']}")
        elif event.kind in ("query", "gist", "answer", "values") and event.value:
            print(f"   {event.step}. {event.kind}: {event.value}")


def main() -> None:
    """Ingest, ask, and show the evidence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--method", choices=METHODS, default="gear")
    parser.add_argument("--store", type=Path, default=Path("stores/sample"), help="folder to keep the store in")
    parser.add_argument("--html", type=Path, default=Path("gear_trace.html"), help="file for the picture")
    arguments = parser.parse_args()

    llm = language_model()
    if llm is None and arguments.question != QUESTION:
        parser.error("without OPENAI_API_KEY only the rehearsed question can be asked")
    store = open_store(arguments.store, llm)
    if arguments.method == "t2rag":
        store.embed_stored_triples()  # T²RAG searches triples by vector

    engine_class, replies = METHODS[arguments.method]

    def make_engine() -> GeARQueryEngine | T2RAGQueryEngine:
        return engine_class.from_vector_store(store, llm=ScriptedLLM(replies) if llm is None else llm)

    asyncio.run(ask(make_engine(), arguments.question))
    response, trace = make_engine().query_with_trace(arguments.question)
    print()
    trace.show()
    print(f"\nThe same as a page to click through: {trace.to_html(arguments.html)}")
    for number, passage in enumerate(response.source_nodes[:5], start=1):
        print(f"[{number}] {passage.node.metadata['title']}")
    store.close()


if __name__ == "__main__":
    main()

"""Let a LlamaIndex agent use GeAR as one of its tools: it asks the sample passages, and calculates with the answer.

    python examples/function_agent.py
    python examples/function_agent.py "How old was the director of … when the film was made?"

With OPENAI_API_KEY (and OPENAI_BASE_URL, OPENAI_MODEL for a compatible server) or OLLAMA_MODEL a real model chooses the
tools, and works in GeAR's search. Without one a scripted model answers one question: retrieval and ranking are real,
the model's replies are not.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gear_agent import GEAR, QUESTION
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent, ToolCall, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms import LLM
from llama_index.core.llms.mock import MockFunctionCallingLLM
from openai_model import language_model
from quickstart import open_store

from llama_index_gear import GeARQueryEngine
from llama_index_gear.testing import ScriptedLLM

AGE = f"{QUESTION[:-1]}, and how many years ago was that in 2024?"


def subtract(later: int, earlier: int) -> int:
    """Subtract a year from a later one."""
    return later - earlier


def script_agent() -> LLM:
    """Return a model that calls both tools, one after the other, and then answers."""
    calls: list[tuple[str, dict[str, Any]]] = [
        ("answer_from_documents", {"input": QUESTION}),
        ("subtract", {"later": 2024, "earlier": 1982}),
    ]

    def reply(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
        results = [message.content or "" for message in messages if message.role == MessageRole.TOOL]
        if len(results) < len(calls):
            name, arguments = calls[len(results)]
            call = ToolCallBlock(tool_call_id=str(len(results)), tool_name=name, tool_kwargs=arguments)
            return ChatMessage(role=MessageRole.ASSISTANT, blocks=[call])
        year = results[0].split()[0]
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"In {year}, {results[1]} years ago.")

    return MockFunctionCallingLLM(response_generator=reply)


async def ask(engine: GeARQueryEngine, llm: LLM, question: str) -> None:
    """Ask an agent that has two tools, and print which it calls and what they return."""
    calls_functions = llm.metadata.is_function_calling_model
    agent = (FunctionAgent if calls_functions else ReActAgent)(tools=[engine.as_tool(), subtract], llm=llm)
    print(f"\nQ: {question}")
    handler = agent.run(question)
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            print(f"   = {event.tool_output.content}".replace("\n", "\n     "))
            if event.tool_name == "answer_from_documents" and not event.tool_output.is_error:
                trace = event.tool_output.raw_output.trace
                print(f"     ({trace.stopped}; it searched: {'; '.join(step.query for step in trace.steps)})")
        elif isinstance(event, ToolCall):
            print(f"   {event.tool_name}({event.tool_kwargs})")
    print(f"A: {await handler}")


def main() -> None:
    """Ingest, and ask."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", nargs="?", default=AGE)
    parser.add_argument("--store", type=Path, default=Path("stores/sample"), help="folder to keep the store in")
    arguments = parser.parse_args()

    llm = language_model()
    if llm is None and arguments.question != AGE:
        parser.error("without a model only the rehearsed question can be asked: set OPENAI_API_KEY or OLLAMA_MODEL")
    with open_store(arguments.store, llm) as store:
        engine = GeARQueryEngine.from_vector_store(store, llm=ScriptedLLM(GEAR) if llm is None else llm)
        asyncio.run(ask(engine, script_agent() if llm is None else llm, arguments.question))
    if llm is None:
        print("(The model was rehearsed: set OPENAI_API_KEY or OLLAMA_MODEL for one that thinks.)")


if __name__ == "__main__":
    main()

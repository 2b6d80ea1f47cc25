"""A model for LlamaIndex's synthesizers, whose answers come as the replies of all calls do: without thoughts."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from itertools import chain
from typing import Any

from llama_index.core.base.llms.types import CompletionResponse, CompletionResponseGen, LLMMetadata
from llama_index.core.instrumentation.events.llm import LLMPredictEndEvent, LLMPredictStartEvent
from llama_index.core.llms import LLM
from llama_index.core.llms.custom import CustomLLM
from llama_index.core.prompts import BasePromptTemplate
from llama_index.core.types import TokenAsyncGen, TokenGen
from llama_index_instrumentation import get_dispatcher

from llama_index_gear.flow import CallLLM, Reply
from llama_index_gear.llm.client import Retries, aask_llm, ask_llm
from llama_index_gear.llm.client_responses import UNREAD, give_room, note_parts, streams_parts, thinks_unopened
from llama_index_gear.llm.thoughts import ReplyStream

dispatcher = get_dispatcher(__name__)


class AnsweringLLM(CustomLLM):
    """Another model, whose answers to a prompt have no thoughts in them, streamed or not.

    Attributes:
        llm: the model.

    """

    llm: LLM

    @property
    def metadata(self) -> LLMMetadata:
        """The model's."""
        return self.llm.metadata

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """Call the model."""
        return self.llm.complete(prompt, formatted, **kwargs)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponseGen:
        """Call the model."""
        return self.llm.stream_complete(prompt, formatted, **kwargs)

    def predict(self, prompt: BasePromptTemplate, **prompt_args: Any) -> str:
        """Return the model's answer; empty if it only thought."""
        dispatcher.event(LLMPredictStartEvent(template=prompt, template_args=prompt_args))
        answer = _read_text(ask_llm(self.llm, CallLLM(prompt, prompt_args)))
        dispatcher.event(LLMPredictEndEvent(output=answer))
        return answer

    async def apredict(self, prompt: BasePromptTemplate, **prompt_args: Any) -> str:
        """`predict`, without blocking the event loop."""
        dispatcher.event(LLMPredictStartEvent(template=prompt, template_args=prompt_args))
        answer = _read_text(await aask_llm(self.llm, CallLLM(prompt, prompt_args)))
        dispatcher.event(LLMPredictEndEvent(output=answer))
        return answer

    def stream(self, prompt: BasePromptTemplate, **prompt_args: Any) -> TokenGen:
        """Stream the model's answer. It comes in one piece if the server streams it in parts.

        A stream without a word is asked for again, whole and with more room.
        """

        def open_stream() -> tuple[str, Iterator[str]]:
            pieces = iter(self.llm.stream(prompt, **prompt_args))
            return next(pieces, ""), pieces

        if not streams_parts(self.llm):
            try:
                first, rest = Retries().call(open_stream)
                return self._clean(first, rest, prompt, prompt_args)
            except UNREAD as error:
                note_parts(self.llm, error)
        answer = _read_text(ask_llm(self.llm, CallLLM(prompt, prompt_args)))
        return (piece for piece in [answer])

    def _clean(
        self, first: str, rest: Iterator[str], prompt: BasePromptTemplate, prompt_args: dict[str, Any]
    ) -> TokenGen:
        said = ""
        try:
            for piece in clean_stream(chain([first], rest), self.metadata.model_name):
                said += piece
                yield piece
        except UNREAD as error:
            note_parts(self.llm, error, said)
            yield _read_text(ask_llm(self.llm, CallLLM(prompt, prompt_args)))
            return
        roomy = None if said.strip() else give_room(self.llm, Reply(is_thought=True))
        if roomy is not None:
            yield ask_llm(roomy, CallLLM(prompt, prompt_args)).text

    async def astream(self, prompt: BasePromptTemplate, **prompt_args: Any) -> TokenAsyncGen:
        """`stream`, without blocking the event loop."""

        async def open_stream() -> tuple[str, AsyncIterator[str]]:
            pieces = aiter(await self.llm.astream(prompt, **prompt_args))
            return await anext(pieces, ""), pieces

        async def hand_on(answer: str) -> TokenAsyncGen:
            yield answer

        if not streams_parts(self.llm):
            try:
                first, rest = await Retries().acall(open_stream)
                return self._aclean(first, rest, prompt, prompt_args)
            except UNREAD as error:
                note_parts(self.llm, error)
        return hand_on(_read_text(await aask_llm(self.llm, CallLLM(prompt, prompt_args))))

    async def _aclean(
        self, first: str, rest: AsyncIterator[str], prompt: BasePromptTemplate, prompt_args: dict[str, Any]
    ) -> TokenAsyncGen:
        async def join() -> TokenAsyncGen:
            yield first
            async for piece in rest:
                yield piece

        said = ""
        try:
            async for piece in aclean_stream(join(), self.metadata.model_name):
                said += piece
                yield piece
        except UNREAD as error:
            note_parts(self.llm, error, said)
            yield _read_text(await aask_llm(self.llm, CallLLM(prompt, prompt_args)))
            return
        roomy = None if said.strip() else give_room(self.llm, Reply(is_thought=True))
        if roomy is not None:
            yield (await aask_llm(roomy, CallLLM(prompt, prompt_args))).text


def _read_text(reply: Reply) -> str:
    """Return the text of a reply, or raise its error."""
    if reply.error is not None:
        raise reply.error
    return reply.text


def clean_stream(pieces: Iterable[str], model_name: str = "") -> TokenGen:
    """Hand on the pieces of an answer that are no thoughts; see `ReplyStream`."""
    stream = ReplyStream(waits=thinks_unopened(model_name))
    for piece in pieces:
        if said := stream.add(piece):
            yield said
    if said := stream.end():
        yield said


async def aclean_stream(pieces: AsyncIterable[str], model_name: str = "") -> TokenAsyncGen:
    """`clean_stream` for an async stream."""
    stream = ReplyStream(waits=thinks_unopened(model_name))
    async for piece in pieces:
        if said := stream.add(piece):
            yield said
    if said := stream.end():
        yield said

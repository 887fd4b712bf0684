"""`Telling`: what happens in a step, for whoever streams the graph.

`stream_mode="custom"` gets the loop's events as they are (`TextDelta`, `ToolCallStarted`, …). `stream_mode="messages"`, and
whatever else listens to LangChain's callbacks, is told of an answer as of any chat model's: its pieces as message chunks as
they come, and the whole message at the end, under one id. Handlers that must be awaited are not told: events come in the middle
of a stream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from antiphon.conversation import LoopEvent, RoundStarted, TextDelta, ThinkingDelta
from antiphon.graph.to_langchain import to_langchain
from antiphon.history import ModelOutputEntry


class Telling:
    """Passes events on to a stream writer and to the handlers of `callbacks`."""

    def __init__(self, write: Callable[[Any], None] | None, callbacks: Any = None) -> None:
        self._write = write
        self._callbacks = callbacks
        self._run: Any = None

    def tell(self, event: LoopEvent) -> None:
        """Pass one event on."""
        if self._write is not None:
            self._write(event)
        if isinstance(event, RoundStarted):
            self._run = _chat_model_run(self._callbacks, event.model)
        elif self._run is not None and isinstance(event, TextDelta | ThinkingDelta):
            self._tell_chunk(event)

    def answered(self, output: ModelOutputEntry | None) -> str:
        """The answer is whole. Returns the id under which it was told, if somebody listened."""
        run, self._run = self._run, None
        if run is None:
            return ""
        from langchain_core.outputs import ChatGeneration, LLMResult

        messages = to_langchain([output]) if output is not None else []
        for message in messages:
            message.id = _id(run)
        run.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message) for message in messages]]))
        return _id(run)

    def failed(self, error: BaseException) -> None:
        """There will be no answer."""
        run, self._run = self._run, None
        if run is not None:
            run.on_llm_error(error)

    def _tell_chunk(self, event: TextDelta | ThinkingDelta) -> None:
        from langchain_core.messages import AIMessageChunk
        from langchain_core.outputs import ChatGenerationChunk

        is_text = isinstance(event, TextDelta)
        content: Any = event.text if is_text else [{"type": "reasoning", "reasoning": event.text}]
        chunk = ChatGenerationChunk(message=AIMessageChunk(content=content, id=_id(self._run)))
        self._run.on_llm_new_token(event.text if is_text else "", chunk=chunk)


def _chat_model_run(callbacks: Any, model: str) -> Any:
    """The run of a chat model as LangChain's handlers know it; None if no handler would hear of it."""
    if callbacks is None or not getattr(callbacks, "handlers", None):
        return None
    from langchain_core.callbacks import AsyncCallbackHandler, CallbackManager

    listening = [
        handler
        for handler in callbacks.handlers
        if not isinstance(handler, AsyncCallbackHandler) and not handler.ignore_chat_model
    ]
    if not listening:
        return None
    manager = CallbackManager(
        listening, parent_run_id=callbacks.parent_run_id, tags=callbacks.tags, metadata={**callbacks.metadata}
    )
    (run,) = manager.on_chat_model_start({"name": model}, [[]], name=model)
    return run


def _id(run: Any) -> str:
    return f"run-{run.run_id}"

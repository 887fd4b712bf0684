"""LangChain beside Antiphon: its tools and chat models accepted wherever ours are, and its agents repaired by ours.

`ToolRegistry` and `Conversation` call `adapt_tool` and `adapt_model` with what is not theirs. A tool gets
its schema, its name and its description from LangChain, runs with `ainvoke`, and is `once` like every tool that does not say
otherwise (`LangChainTool(tool, effect="read")`). Arguments that it wants injected come from `Conversation(state=…)`, by name.

    agent = create_agent(model, tools, middleware=[RepairMiddleware()])

`RepairMiddleware` sends a model no sequence that its API refuses. Messages that need no change are passed on as the same objects.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cache
from types import new_class
from typing import TYPE_CHECKING, Any, Self, Unpack

from antiphon.errors import ExtraMissing, InvalidTool, ToolError
from antiphon.history import ContextEntry, ModelOutputEntry, Origin
from antiphon.integrations.langchain_blocks import from_block
from antiphon.integrations.langchain_messages import from_langchain, message_blocks, read_usage, to_langchain
from antiphon.parts import OutputPart, Text, Thinking, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.providers.call import Attempt, ProviderCallOptions, ProviderClient
from antiphon.repair import fix_tool_call_sequence
from antiphon.tools.arguments import SchemaValidator
from antiphon.tools.context import ToolContext
from antiphon.tools.tool import Tool, ToolSettings
from antiphon.wire.delta import (
    Failed,
    Finished,
    ModelOutputDelta,
    PartDelta,
    PartEnded,
    PartExtended,
    PartStarted,
    Started,
    UsageReported,
)
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError, StopReason, kind_of_status
from antiphon.wire.request import ModelRequest, ToolChoice

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessageChunk, BaseMessage
    from langchain_core.tools import BaseTool

_SETTINGS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens", "stop": "stop"}
"""The settings that LangChain's chat models take with a call, under their names."""
_ELSEWHERE = frozenset({"tool_choice", "parallel_tool_calls", "messages", "model", "stream", "tools", *_SETTINGS})
_STOP_REASONS: Mapping[str, StopReason] = {
    "length": "length",
    "max_tokens": "length",
    "MAX_TOKENS": "length",
    "content_filter": "content_filter",
    "SAFETY": "content_filter",
    "refusal": "refusal",
    "stop_sequence": "stop_sequence",
    "pause_turn": "paused",
}
_INDEX = "antiphon_index"


def adapt_tool(offered: object) -> Tool | None:
    """A tool of LangChain as one of ours; None if it is none."""
    from langchain_core.tools import BaseTool

    return LangChainTool(offered) if isinstance(offered, BaseTool) else None


def adapt_model(model: object) -> ProviderClient | None:
    """A chat model of LangChain as a client; None if it is none."""
    from langchain_core.language_models import BaseChatModel

    return LangChainModel(model) if isinstance(model, BaseChatModel) else None


class LangChainTool(Tool):
    """A tool of LangChain. `settings` are those of `@tool`: effect, timeout, needs_approval, …"""

    def __init__(self, inner: BaseTool, **settings: Unpack[ToolSettings]) -> None:
        from langchain_core.utils.function_calling import convert_to_openai_tool

        try:
            function = convert_to_openai_tool(inner)["function"]
            fields: Any = inner.get_input_schema()
            self._injected = fields.model_fields.keys() - function["parameters"].get("properties", {})
        except Exception as error:  # of a schema that pydantic cannot write down
            raise InvalidTool(f"the LangChain tool {inner.name!r} has no JSON Schema: {error}") from error
        super().__init__(inner.name, function.get("description", ""), function["parameters"], **settings)
        self.inner = inner
        self._validator = SchemaValidator(inner.name, self.parameters)

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._validator(arguments)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolCallResult:
        from langchain_core.tools import ToolException

        state = context.state if isinstance(context.state, Mapping) else getattr(context.state, "__dict__", {})
        injected = {name: state[name] for name in self._injected if name in state}
        call_id = context.tool_call_id or "call"
        call = {"type": "tool_call", "id": call_id, "name": self.name, "args": {**arguments, **injected}}
        try:
            message = await self.inner.ainvoke(call)
        except ToolException as error:
            raise ToolError(str(error)) from error
        parts = tuple(from_block(block) for block in message_blocks(message))
        status = ToolExecutionStatus.FAILED if message.status == "error" else ToolExecutionStatus.SUCCESS
        return ToolCallResult(self.name, context.tool_call_id, status, parts)


class LangChainModel(ProviderClient):
    """A chat model of LangChain as a client. Keys, retries and addresses are those it was made with."""

    def __init__(self, inner: BaseChatModel, name: str = "") -> None:
        self.inner = inner
        self._model = str(getattr(inner, "model_name", "") or getattr(inner, "model", "") or inner.get_name())
        self.name = name or f"langchain/{self._model}"

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        report, settings = options.report, options.settings
        report.origin = Origin("langchain", "", self._model)
        messages = to_langchain(context)
        report.losses += (*messages.losses, *_unknown_settings(settings))
        given = {theirs: getattr(settings, ours) for ours, theirs in _SETTINGS.items()}
        given = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if value}
        answer, began = _Answer(), time.perf_counter()
        error: ProviderError | None = None
        try:
            async for chunk in self._bound(options).astream(messages, **given):
                for delta in answer.add(chunk):
                    yield delta
            deltas = answer.close()
        except Exception as raised:  # whatever the provider's SDK raises
            error = _provider_error(raised)
            deltas = [Failed(error)]
        report.attempts.append(
            Attempt(provider="langchain", model=self._model, seconds=time.perf_counter() - began, error=error)
        )
        for delta in deltas:
            yield delta

    def _bound(self, options: ProviderCallOptions) -> Any:
        """The model with the tools of the call."""
        if not options.tools:
            return self.inner
        functions = [
            {
                "type": "function",
                "function": {
                    "name": one.name,
                    "description": one.description or "",
                    "parameters": one.parameters or {},
                },
            }
            for one in options.tools
        ]
        more: dict[str, Any] = {}
        if (choice := _tool_choice(options.settings.tool_choice)) is not None:
            more["tool_choice"] = choice
        if options.settings.parallel_tool_calls is not None:
            more["parallel_tool_calls"] = options.settings.parallel_tool_calls
        return self.inner.bind_tools(functions, **more)


def _tool_choice(choice: ToolChoice | None) -> str | None:
    if choice is None or choice.mode == "auto":
        return None
    if choice.mode != "none" and len(choice.names) == 1:
        return choice.names[0]
    return "none" if choice.mode == "none" else "any"


def _unknown_settings(settings: ModelRequest) -> list[Loss]:
    given = (
        name for name in settings.__struct_fields__ if name not in _ELSEWHERE and getattr(settings, name) is not None
    )
    return [Loss(f"settings.{name}", name, "give it to the LangChain model itself") for name in given]


def _provider_error(raised: Exception) -> ProviderError:
    status = getattr(raised, "status_code", None) or getattr(getattr(raised, "response", None), "status_code", None)
    status = status if isinstance(status, int) else None
    kind = kind_of_status(status) or ("timeout" if isinstance(raised, TimeoutError) else "unknown")
    return ProviderError(f"{type(raised).__name__}: {raised}", kind, status)


class _Answer:
    """The chunks of an answer as deltas: text and thinking as they come, calls and all else when it is complete."""

    def __init__(self) -> None:
        self._whole: AIMessageChunk | None = None
        self._open: tuple[int, type[OutputPart]] | None = None
        self._count = 0
        self._thinking: list[int] = []

    def add(self, chunk: AIMessageChunk) -> list[ModelOutputDelta]:
        deltas: list[ModelOutputDelta] = []
        if self._whole is None:
            deltas.append(Started(chunk.id or ""))
        self._whole = chunk if self._whole is None else self._whole + chunk
        for block in message_blocks(chunk):
            if block.get("type") == "text":
                deltas += self._text(Text, str(block.get("text", "")))
            elif block.get("type") == "reasoning":
                deltas += self._text(Thinking, str(block.get("reasoning", "")))
        return deltas

    def _text(self, kind: type[Text] | type[Thinking], text: str) -> list[ModelOutputDelta]:
        deltas: list[ModelOutputDelta] = []
        if not text:
            return deltas
        if self._open is None or self._open[1] is not kind:
            deltas += self._end_part()
            deltas += [PartStarted(self._next(), kind(""))]
            self._open = (self._count - 1, kind)
            if kind is Thinking:
                self._thinking.append(self._count - 1)
        assert self._open is not None
        return [*deltas, PartDelta(self._open[0], text)]

    def close(self) -> list[ModelOutputDelta]:
        """What is known only at the end: extras of what was streamed, calls, usage, and why it ended."""
        if self._whole is None:
            return [Failed(ProviderError("the LangChain model ended its stream without a message", "stream_cut"))]
        (entry,) = from_langchain([self._whole])
        assert isinstance(entry, ModelOutputEntry), "a message of a model"
        deltas: list[ModelOutputDelta] = []
        thoughts = [part for part in entry.content if isinstance(part, Thinking)]
        for index, thought in zip(self._thinking, thoughts, strict=False):
            if thought.native:  # a signature, without which the provider takes no thinking back
                deltas.append(PartExtended(index, thought.native))
        deltas += self._end_part()
        chunks = getattr(
            self._whole, "tool_call_chunks", ()
        )  # a model that does not stream gives one whole message instead
        written = {chunk["id"]: chunk["args"] for chunk in chunks}  # as the model wrote them
        for part in entry.content:
            if isinstance(part, ToolCallRequest):
                index = self._next()
                bare = ToolCallRequest(part.tool_name, part.tool_call_id, "")
                arguments = written.get(part.tool_call_id) or part.arguments
                deltas += [PartStarted(index, bare), PartDelta(index, arguments), PartEnded(index)]
            elif not isinstance(part, Text | Thinking):
                index = self._next()
                deltas += [PartStarted(index, part), PartEnded(index)]
        if self._whole.usage_metadata:
            usage = read_usage(self._whole.usage_metadata)
            deltas += [UsageReported(usage)] if usage is not None else []
        reason: StopReason = "tool_calls" if entry.tool_calls else "end"
        return [*deltas, Finished(_STOP_REASONS.get(entry.stop_reason, reason))]

    def _end_part(self) -> list[ModelOutputDelta]:
        ended, self._open = self._open, None
        return [] if ended is None else [PartEnded(ended[0])]

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


class RepairMiddleware:
    """Middleware of a LangChain agent (`create_agent`, Deep Agents): what a model is sent is a sequence that its API takes.

    Calls get their results, results their calls, and what interrupted them comes after; every word stays.
    """

    def __new__(cls) -> Self:
        kind: Any = cls
        middleware: Self = object.__new__(_as_middleware(kind))
        return middleware

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return handler(_repaired(request))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return await handler(_repaired(request))


def _repaired(request: Any) -> Any:
    messages = repair_messages(request.messages)
    return request if messages is request.messages else request.override(messages=messages)


@cache
def _as_middleware(kind: Any) -> Any:
    """The class with LangChain's own mixed in; late, so that importing this module does not load LangChain."""
    try:
        from langchain.agents.middleware import AgentMiddleware
    except ImportError as error:
        raise ExtraMissing("RepairMiddleware needs LangChain 1: pip install langchain") from error
    if issubclass(kind, AgentMiddleware):
        return kind
    return new_class(
        kind.__name__, (kind, AgentMiddleware), exec_body=lambda body: body.update(__module__=kind.__module__)
    )


def repair_messages(messages: list[BaseMessage]) -> list[BaseMessage]:
    """Messages of LangChain in an order that every provider takes; the same list if it is one already."""
    outline = [_outline(message, index) for index, message in enumerate(messages)]
    fixed = fix_tool_call_sequence(outline)
    if fixed is outline:
        return messages
    known = {id(one): messages[one[_INDEX]] for one in outline}
    return [known.get(id(one)) or _rewritten(one, messages) for one in fixed]


def _outline(message: BaseMessage, index: int) -> dict[str, Any]:
    """What decides about the order: who speaks, and which calls are made and answered."""
    if message.type == "ai" or message.type == "AIMessageChunk":
        made: Any = message
        calls = [*made.tool_calls, *made.invalid_tool_calls]
        outline: dict[str, Any] = {"role": "assistant", "content": str(message.text), _INDEX: index}
        if calls:
            outline["tool_calls"] = [
                {
                    "id": call["id"] or "",
                    "type": "function",
                    "function": {"name": call["name"] or "", "arguments": "{}"},
                }
                for call in calls
            ]
        return outline
    if message.type == "tool":
        result: Any = message
        return {"role": "tool", "tool_call_id": result.tool_call_id, "content": str(message.text), _INDEX: index}
    return {"role": "system" if message.type == "system" else "user", "content": str(message.text), _INDEX: index}


def _rewritten(outline: dict[str, Any], messages: Sequence[BaseMessage]) -> BaseMessage:
    """The message of an outline that repair changed or added."""
    from langchain_core.messages import HumanMessage, ToolMessage

    original: Any = messages[outline[_INDEX]] if _INDEX in outline else None
    if outline["role"] == "tool":
        if original is not None and original.type == "tool":
            return original.model_copy(update={"tool_call_id": outline["tool_call_id"]})  # type: ignore[no-any-return]
        return ToolMessage(outline["content"], tool_call_id=outline["tool_call_id"], status="error")
    if outline["role"] == "assistant" and original is not None:
        return _with_calls(original, [call["id"] for call in outline.get("tool_calls", ())])
    content = outline["content"]
    return HumanMessage(content if isinstance(content, str) else [dict(block) for block in content])


def _with_calls(message: Any, ids: Sequence[str]) -> BaseMessage:
    """The message with these ids for its calls, in order."""
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    renamed = [{**call, "id": name} for call, name in zip(calls, ids, strict=False)]
    valid = len(message.tool_calls)
    content = message.content
    if not isinstance(content, str):  # a provider's own blocks of the calls would contradict them
        content = [
            one for one in content if not (isinstance(one, dict) and one.get("type") in ("tool_use", "tool_call"))
        ]
    update = {"tool_calls": renamed[:valid], "invalid_tool_calls": renamed[valid:], "content": content}
    return message.model_copy(update=update)  # type: ignore[no-any-return]

"""`Tool`: something a model may call; `@tool`, which makes one from a function.

A tool is a name, a description and a JSON Schema for the model, plus `validate`, which converts or rejects arguments, and `call`.
`FunctionTool` takes its schema from a Python signature; `SchemaTool` has a raw JSON Schema (from an MCP server) and passes
arguments on unchanged.

`effect` decides what happens after a crash and whether a call may be retried or cached: `read` changes nothing, `idempotent`
may run twice, `once` (the default) must not be repeated.
"""

from __future__ import annotations

import asyncio
import dis
import functools
import inspect
import logging
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeAlias, TypedDict, TypeVar, Unpack, overload
from weakref import WeakKeyDictionary

from antiphon.errors import InvalidTool, ToolError, ToolWarning
from antiphon.parts import ToolCallRequest
from antiphon.threads import TOOLS
from antiphon.tools.arguments import SchemaValidator, SignatureValidator, invalid_json_error
from antiphon.tools.context import ToolContext
from antiphon.tools.function_schema import read_docstring, signature_of
from antiphon.tools.settling import SETTLE_SECONDS, Reconcile
from antiphon.wire.request import ToolDefinition


class ConcurrencyLimit:
    """`async with slots:` waits until fewer than `limit` others are inside."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def _semaphore(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        semaphore = self._semaphores.get(loop)
        if semaphore is None:
            semaphore = self._semaphores[loop] = asyncio.Semaphore(self.limit)
        return semaphore

    async def __aenter__(self) -> None:
        await self._semaphore().acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._semaphore().release()


logger = logging.getLogger("antiphon.tools")

P = ParamSpec("P")
R = TypeVar("R")

Effect: TypeAlias = Literal["read", "idempotent", "once"]
EFFECTS = ("read", "idempotent", "once")

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class ToolSettings(TypedDict, total=False):
    """How a tool is run.

    `timeout` is in seconds (None: none), `retries` are tries after the first, `needs_approval` may be a function of the
    arguments, `cache_seconds` is how long an answer is remembered, `concurrency` how many calls of this tool run at once,
    `max_result_chars` how much of its answer the model sees, and `keep_result` that no compaction takes it away. `reconcile`
    says what became of a call that a crash interrupted, for `effect="once"`; it is asked `settle_seconds` after the call was
    started (see `settling`).
    """

    effect: Effect
    timeout: float | None
    retries: int
    needs_approval: bool | Callable[[dict[str, Any]], bool]
    cache_seconds: float | None
    concurrency: int | None
    max_result_chars: int | None
    keep_result: bool
    reconcile: Reconcile | None
    settle_seconds: float


class Tool(ABC):
    """Something a model may call. Made by `@tool` or `Tool.from_schema`; a subclass gives `validate` and `call`."""

    runs_in_thread: bool = False
    """Whether the work is done in a thread, which cannot be stopped."""
    can_wait: bool = True
    """Whether the work may wait for something; an async function without `await` cannot."""
    needs_context: bool = True
    """Whether `call` reads the call and the attempt of its context; a function without a parameter for it does not."""
    is_log_only: bool = False
    """Whether the tool reads and writes nothing but the log of its conversation, as the notebook does."""

    def __init__(
        self, name: str, description: str, parameters: dict[str, Any] | None, **settings: Unpack[ToolSettings]
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = NO_PARAMETERS if parameters is None else parameters
        self.effect: Effect = settings.pop("effect", "once")
        self.timeout: float | None = settings.pop("timeout", 60.0)
        self.retries: int = settings.pop("retries", 0)
        self.needs_approval: bool | Callable[[dict[str, Any]], bool] = settings.pop("needs_approval", False)
        self.cache_seconds: float | None = settings.pop("cache_seconds", None)
        self.concurrency: int | None = settings.pop("concurrency", None)
        self.max_result_chars: int | None = settings.pop("max_result_chars", None)
        self.keep_result: bool = settings.pop("keep_result", False)
        self.reconcile: Reconcile | None = settings.pop("reconcile", None)
        self.settle_seconds: float = settings.pop("settle_seconds", SETTLE_SECONDS)
        if settings:
            raise InvalidTool(
                f"tool {name!r} has no setting {', '.join(settings)}; "
                f"the settings are {', '.join(ToolSettings.__annotations__)}"
            )
        self._validate_settings()
        self.definition = ToolDefinition(self.name, self.description or None, self.parameters)
        self.slots = ConcurrencyLimit(self.concurrency) if self.concurrency is not None else None

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: dict[str, Any] | None,
        handler: Callable[[dict[str, Any], ToolContext], Any],
        **settings: Unpack[ToolSettings],
    ) -> Tool:
        """A tool of a raw JSON Schema. `handler(arguments, context)`, sync or async, gets the arguments as they came."""
        return SchemaTool(name, description, parameters, handler, **settings)

    @abstractmethod
    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as `call` takes them. Raises `InvalidArguments`, whose text is for the model."""

    @abstractmethod
    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Do the work, with arguments that `validate` gave."""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        """Validate what a model sent and do the work, once, without timeout or retries: those are the executor's."""
        return await self.call(self.validate(arguments), context)

    def asks_approval(self, arguments: dict[str, Any]) -> bool:
        """Whether a person must allow this call. A question that fails is answered with yes."""
        if not callable(self.needs_approval):
            return self.needs_approval
        try:
            return bool(self.needs_approval(arguments))
        except Exception:
            logger.exception("needs_approval of tool %s failed, so the call needs approval", self.name)
            return True

    def _validate_settings(self) -> None:
        def refuse(what: str) -> NoReturn:
            raise InvalidTool(f"tool {self.name!r}: {what}")

        if not self.name or any(letter.isspace() for letter in self.name):
            refuse("a tool's name is a word: not empty, without spaces")
        if not isinstance(self.parameters, dict):
            refuse(f"the parameters must be a JSON Schema, not {type(self.parameters).__name__}")
        if self.parameters.get("type", "object") != "object":
            refuse("the parameters must be a JSON Schema of type 'object'")
        if self.effect not in EFFECTS:
            refuse(f"effect is one of {', '.join(EFFECTS)}, not {self.effect!r}")
        if not isinstance(self.retries, int):
            refuse(f"retries={self.retries!r}: must be a number")
        if self.retries < 0:
            refuse(f"retries must not be negative, and they are {self.retries}")
        for setting in ("timeout", "cache_seconds", "concurrency", "max_result_chars"):
            value = getattr(self, setting)
            if not isinstance(value, int | float | None):
                refuse(f"{setting}={value!r}: must be a number")
            if value is not None and value <= 0:
                refuse(f"{setting}={value}: must be above 0; use None for no limit")
        if self.effect == "once" and self.retries:
            refuse(
                "a tool with effect 'once' is not tried again; declare effect='idempotent' or 'read', or leave retries out"
            )
        if not self.settle_seconds >= 0:
            refuse(f"settle_seconds={self.settle_seconds!r}: must be a number of seconds, at least 0")
        if self.reconcile is not None and not callable(self.reconcile):
            refuse(f"reconcile={self.reconcile!r}: expected a function of call and context that returns Settled")
        if self.reconcile is not None and self.effect != "once":
            refuse(f"reconcile is for effect='once'; a tool with effect={self.effect!r} is simply run again")
        if self.effect == "once" and self.cache_seconds is not None:
            refuse("a tool with effect 'once' must run each time; declare effect='read', or leave cache_seconds out")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} effect={self.effect}>"


class FunctionTool(Tool, Generic[P, R]):
    """A Python function as a tool. Called, it is the function."""

    __name__: str

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        lax: bool = False,
        local_names: dict[str, Any] | None = None,
        **settings: Unpack[ToolSettings],
    ) -> None:
        name = name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise InvalidTool(f"{function!r} has no name of its own; give one: tool(name=…)")
        documented = read_docstring(inspect.getdoc(function) if _has_own_docstring(function) else None)
        self.signature = signature_of(function, name, documented.arguments, local_names or {})
        self.function = function
        self.lax = lax
        self._is_async = _is_async(function)
        self.runs_in_thread = not self._is_async
        has_own_call = type(self).call is not FunctionTool.call
        self.can_wait = has_own_call or _may_wait(function)
        self.needs_context = has_own_call or self.signature.context_name is not None
        super().__init__(
            name, description if description is not None else documented.description, self.signature.schema, **settings
        )
        self._validator = SignatureValidator(name, self.signature, lax=lax)
        functools.update_wrapper(self, function, updated=())
        self._warn_of_gaps()

    def _warn_of_gaps(self) -> None:
        """Warn if the model cannot know what the tool does or takes."""
        gaps = [] if self.description else ["no description; give it a docstring"]
        known = inspect.get_annotations(self.function) if inspect.isfunction(self.function) else self.signature.names
        untyped = [name for name in self.parameters["properties"] if name not in known]
        if untyped:
            gaps.append(f"no type hint for {', '.join(untyped)}")
        if gaps:
            warnings.warn(f"tool {self.name!r} has {'; and '.join(gaps)}", ToolWarning, stacklevel=_caller_depth())

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._validator(arguments)

    def call(self, arguments: dict[str, Any], context: ToolContext) -> Coroutine[Any, Any, Any]:
        if self.signature.context_name is not None:
            arguments = {**arguments, self.signature.context_name: context}
        function: Callable[..., Any] = self.function
        return self._call(arguments) if self.can_wait else function(**arguments)

    async def _call(self, arguments: dict[str, Any]) -> Any:
        function: Callable[..., Any] = self.function
        if self._is_async:
            return await function(**arguments)
        returned = await TOOLS.run(functools.partial(function, **arguments))
        return await returned if inspect.isawaitable(returned) else returned

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


class SchemaTool(Tool):
    """A raw JSON Schema and a handler as a tool."""

    def __init__(
        self,
        name: str,
        description: str,
        parameters: dict[str, Any] | None,
        handler: Callable[[dict[str, Any], ToolContext], Any],
        **settings: Unpack[ToolSettings],
    ) -> None:
        super().__init__(name, description, parameters, **settings)
        self.handler = handler
        self._validator = SchemaValidator(name, self.parameters)
        self._is_async = _is_async(handler)
        self.runs_in_thread = not self._is_async

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        return self._validator(arguments)

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> Any:
        if self._is_async:
            return await self.handler(arguments, context)
        returned = await TOOLS.run(self.handler, arguments, context)
        return await returned if inspect.isawaitable(returned) else returned


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    lax: bool = False,
    **settings: Unpack[ToolSettings],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    lax: bool = False,
    **settings: Unpack[ToolSettings],
) -> Any:
    """Make a function a tool. `idempotent=True` is short for `effect="idempotent"`; `lax` takes "5" for 5 and "true" for true."""
    if idempotent and settings.get("effect", "once") == "once":
        settings["effect"] = "idempotent"

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        # Annotations written as text may name classes of the function around the decorated one.
        local_names = sys._getframe(1).f_locals
        return FunctionTool(
            function, name=name, description=description, lax=lax, local_names=dict(local_names), **settings
        )

    if function is None:
        return decorate
    return FunctionTool(function, local_names=dict(sys._getframe(1).f_locals))


def _is_async(function: Callable[..., Any]) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


_SEND = dis.opmap.get("SEND")
"""The instruction that `await`, `async for` and `async with` compile to."""


def _may_wait(function: Callable[..., Any]) -> bool:
    """Whether a call may wait: True unless it is an async function that contains no `await`."""
    code = getattr(function, "__code__", None)
    if _SEND is None or code is None or not code.co_flags & inspect.CO_COROUTINE:
        return True
    return _SEND in code.co_code[::2]


def _caller_depth() -> int:
    """How many frames above the caller the code of the application is."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__") == __name__:
        depth, frame = depth + 1, frame.f_back
    return depth


def _has_own_docstring(function: Callable[..., Any]) -> bool:
    """Whether the docstring is the function's, and not that of a class of callables such as `partial`."""
    return inspect.isroutine(function) or getattr(function, "__doc__", None) != type(function).__doc__


ApprovalPolicy: TypeAlias = Callable[[Tool | None, ToolCallRequest], bool]
"""Whether a person must allow a call before it runs. The tool is None if the registry has none of that name."""


def tool_policy(tool: Tool | None, call: ToolCallRequest) -> bool:
    """Ask if the tool's `needs_approval` is or returns true. Arguments that cannot be read need a person."""
    if tool is None or tool.needs_approval is False:
        return False
    if not callable(tool.needs_approval):
        return bool(tool.needs_approval)
    try:
        return tool.asks_approval(read_arguments(tool, call))
    except ToolError:
        return True


def ask_before_changes(tool: Tool | None, call: ToolCallRequest) -> bool:
    """Ask for every tool that changes something, whatever its own `needs_approval` is (`antiphon chat --ask`)."""
    return tool is not None and (tool.effect != "read" or tool_policy(tool, call))


def read_arguments(tool: Tool, call: ToolCallRequest) -> dict[str, Any]:
    """The arguments of a call as an object. Raises `InvalidArguments`, whose text is for the model, if they are not one."""
    if call.freeform:
        # Free text for a tool that takes an object: it can only be meant for its one argument.
        names = list(tool.parameters.get("properties", ())) or ["input"]
        return {names[0]: call.arguments}
    try:
        return call.parse_arguments()
    except ValueError as error:
        raise invalid_json_error(tool.name, call.arguments, str(error), tool.parameters) from None


def has_valid_arguments(tool: Tool, call: ToolCallRequest) -> bool:
    """Whether the tool accepts the arguments of a call. If a validator of the application fails, that is not known: True."""
    try:
        tool.validate(read_arguments(tool, call))
    except ToolError:
        return False
    except Exception:
        logger.warning("%s could not check the arguments of call %s", tool.name, call.tool_call_id, exc_info=True)
    return True

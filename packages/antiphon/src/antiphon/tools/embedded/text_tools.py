"""Tools for models without tool support: described in the prompt, called and answered in text.

`with_text_tools` rewrites a call: the tools go into the system instruction, earlier calls become `<tool_call>` tags and results
become user messages. The answer is then read with `EmbeddedCalls`. The log keeps calls and results as such, so the next turn can
go to a model that has tools.

`EmbeddedSetting` says when that happens, for all models or by name (globs); `mode_for` resolves it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

import msgspec
from msgspec import structs

from antiphon.context import RenderedContextEntry
from antiphon.errors import ConversationError
from antiphon.history import (
    ContextEntry,
    ContextEntryRole,
    DecoratedContextEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
)
from antiphon.parts import InputPart, OutputPart, Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.providers.call import ProviderCallOptions
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ToolDefinition

EmbeddedMode: TypeAlias = bool | Literal["auto", "prompt"]
"""False: never. True: calls in text are read in every dialect, besides the model's own. `prompt`: tools are described in the
prompt. `auto`: closed tags are read, besides the model's own calls; as `prompt` for a model whose provider answers that it does
not support tools."""

EmbeddedSetting: TypeAlias = EmbeddedMode | Mapping[str, EmbeddedMode]
"""A mode for every model, or by globs of model names; the first that matches counts, and `auto` is the default."""

_MODES: tuple[EmbeddedMode, ...] = (False, True, "auto", "prompt")
_WORDS: dict[str, EmbeddedMode] = {"off": False, "on": True, "auto": "auto", "prompt": "prompt"}

_TOOLS = r"(?:tools?|tool[ -]?(?:use|calls?|calling)|functions?|function[ -]?(?:calls?|calling))"
_UNSUPPORTED = re.compile(
    rf"(?:not|n't) support (?:the )?(?:use of )?{_TOOLS}\b|{_TOOLS} (?:is|are) (?:not|un)[ -]?supported"
    rf"|no endpoints found that support {_TOOLS}|unsupported parameter:? ['\"]?tools\b|enable-auto-tool-choice",
    re.IGNORECASE,
)

_PROMPT = """\
You can call tools. To call one, write the call in your answer, exactly like this, and then stop and wait for its result:
<tool_call>{"name": "tool name", "arguments": {…}}</tool_call>
The result comes in the next message. Call a tool only if you need it; answer in plain text when you are done.

The tools, each with a JSON Schema of its arguments:
"""


def mode_for(setting: EmbeddedSetting, model: str) -> EmbeddedMode:
    """The mode for a model."""
    if not isinstance(setting, Mapping):
        return setting
    return next((mode for pattern, mode in setting.items() if fnmatchcase(model, pattern)), "auto")


def check_setting(setting: EmbeddedSetting) -> EmbeddedSetting:
    """The setting, if it is one. Raises `ConversationError`."""
    for mode in setting.values() if isinstance(setting, Mapping) else (setting,):
        if mode not in _MODES:
            raise ConversationError(
                f"embedded_calls={mode!r}: expected True, False, 'auto' or 'prompt', or these by model"
            )
    return setting


def parse_setting(text: str) -> EmbeddedSetting:
    """A setting from the command line or a file: `on`, or `ollama/*=prompt,*=off`. Raises `ConversationError`."""
    if "=" not in text:
        return _parse_mode(text)
    pairs = (item.partition("=") for item in text.split(",") if item.strip())
    return {pattern.strip(): _parse_mode(mode) for pattern, _, mode in pairs}


def _parse_mode(text: str) -> EmbeddedMode:
    mode = _WORDS.get(text.strip().lower())
    if mode is None:
        raise ConversationError(
            f"embedded calls {text!r}: expected off, on, auto or prompt, or by model: 'ollama/*=prompt'"
        )
    return mode


def is_unsupported(error: ProviderError) -> bool:
    """Whether a provider refused a request because the model has no tools."""
    return error.kind not in ("authentication", "permission", "billing") and bool(_UNSUPPORTED.search(error.message))


def with_text_tools(
    context: Sequence[ContextEntry], options: ProviderCallOptions
) -> tuple[list[ContextEntry], ProviderCallOptions]:
    """The call without tools: what they are and what they returned is text."""
    entries = [_entry_as_text(entry) for entry in context]
    choice = options.settings.tool_choice
    if options.tools and (choice is None or choice.mode != "none"):
        prompt = Text(_PROMPT + "\n".join(map(_describe, options.tools)))
        if entries and entries[0].role is ContextEntryRole.SYSTEM:
            entries[0] = RenderedContextEntry(ContextEntryRole.SYSTEM, (*entries[0].content, prompt))
        else:
            entries.insert(0, RenderedContextEntry(ContextEntryRole.SYSTEM, (prompt,)))
    settings = structs.replace(options.settings, tool_choice=None, parallel_tool_calls=None)
    return entries, structs.replace(options, tools=(), settings=settings)


def _describe(tool: ToolDefinition) -> str:
    fields = {"name": tool.name, "description": tool.description or "", "parameters": tool.parameters or {}}
    return msgspec.json.encode(fields).decode()


def _entry_as_text(entry: ContextEntry) -> ContextEntry:
    if isinstance(entry, ModelOutputEntry):
        return structs.replace(entry, content=tuple(map(_call_as_text, entry.content))) if entry.tool_calls else entry
    if isinstance(entry, DecoratedContextEntry):
        shown = _entry_as_text(entry.entry)
        return shown.with_live_screen(entry.live_screen) if isinstance(shown, ModelInputEntry) else entry
    if isinstance(entry, ToolCallResultsEntry):
        results = [part for result in entry.results for part in _result_as_text(result)]
        overall = [Text(entry.overall_result)] if entry.overall_result else []
        return ModelInputEntry((*results, *overall))
    return entry


def _call_as_text(part: OutputPart) -> OutputPart:
    if not isinstance(part, ToolCallRequest):
        return part
    name = msgspec.json.encode(part.tool_name).decode()
    return Text(f'\n<tool_call>{{"name": {name}, "arguments": {part.arguments or "{}"}}}</tool_call>')


def _result_as_text(result: ToolCallResult) -> list[InputPart]:
    status = "" if result.status is ToolExecutionStatus.SUCCESS else f" ({result.status})"
    text = Text(f"Result of {result.tool_name}{status}:\n{result.result_markdown}")
    return [text, *(part for part in result.content if not isinstance(part, Text))]

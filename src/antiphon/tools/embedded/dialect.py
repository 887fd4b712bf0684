"""`DIALECTS`: how models mark a call that they write into their text, as a table.

A call begins with the dialect's `opener`, has a body of one of a few shapes (`grammar` reads each of them), and ends with its
`closer`, if it has one. Two more ways have no mark of their own, a line that is a JSON object and a fenced block of one; they
are in `grammar` too, with the languages of such a block here.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Dialect(Struct, frozen=True):
    """One way to mark a call.

    `body`: `objects` is JSON, one object a call; `function` names the tool in a tag and holds an object or a tag for each
    parameter; `objects or functions` is either; `objects or name` may name the tool before its arguments; `steps` is a list
    of marked calls. A `is_token` opener is a control token of the model's template, which prose does not use.
    """

    name: str
    opener: str
    body: Literal["objects", "function", "objects or functions", "objects or name", "steps"]
    closer: str = ""
    is_token: bool = False


DIALECTS = (
    Dialect("tag", "<tool_call>", "objects or functions", "</tool_call>"),
    Dialect("function tag", "<function_call>", "objects or functions", "</function_call>"),
    Dialect("function", "<function=", "function"),
    Dialect("llama", "<|python_tag|>", "objects", is_token=True),
    Dialect("granite", "<|tool_call|>", "objects", is_token=True),
    Dialect("mistral", "[TOOL_CALLS]", "objects or name", is_token=True),
    Dialect("deepseek", "<｜tool▁calls▁begin｜>", "steps", "<｜tool▁calls▁end｜>", is_token=True),
)

FENCE_LANGUAGES = frozenset({"json", "tool_call", "tool_calls"})
"""The languages of a fenced block that may be a call."""

STEP_BEGIN, STEP_NAME_END, STEP_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
"""How the calls of a `steps` body are told apart."""

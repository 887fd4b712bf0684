"""The parameters of a Messages request: everything beside the messages themselves.

Each check takes the `Request` under way and appends to what it found; `PARAMETER_CHECKS` is the order they run in. The checks
are independent of each other but for what `Request` carries: the model's generation, the cache marks in the order the provider
counts them, and whether a document asks for citations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from antiphon.wire.anthropic.blocks import (
    LIST,
    OBJECT,
    REQUIRED,
    SHAPE,
    STRING,
    check_block,
    check_tool,
    extras,
    located,
    shown,
)
from antiphon.wire.anthropic.target import Target
from antiphon.wire.json_schema import count_optional_and_unions, walk
from antiphon.wire.rules import Violation, name_set

PARAMETERS = name_set(
    "model messages max_tokens system metadata stop_sequences stream temperature top_p top_k tools tool_choice thinking "
    "service_tier container context_management mcp_servers output_config output_format cache_control inference_geo speed "
    "user_profile_id diagnostics fallbacks fallback_credit_token compaction"
)
# Hosts that name the model in the URL take the version and the betas in the body (AN-01, errata).
HOST_PARAMETERS = PARAMETERS | {"anthropic_version", "anthropic_beta"}
SAMPLING = ("temperature", "top_p", "top_k")
EFFORTS = ("low", "medium", "high", "xhigh", "max")
UNSUPPORTED_KEYWORDS = name_set(
    "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems uniqueItems "
    "minProperties maxProperties oneOf patternProperties"
)


class Request(Struct):
    """A body under check: what was found so far, and what later rules need from earlier parts."""

    body: dict[str, Any]
    target: Target
    found: list[Violation] = []
    cache_marks: list[tuple[str, Any]] = []
    cites: bool = False
    first_call: int | None = None
    first_system: int | None = None

    def error(self, rule: str, path: str, message: str) -> None:
        self.found.append(Violation(rule, path, message))

    def advise(self, rule: str, path: str, message: str) -> None:
        self.found.append(Violation(rule, path, message, advisory=True))

    def given(self, name: str, kind: type, rule: str, message: str) -> Any:
        """The value of a parameter; None if it is absent, or not of its kind, which is reported."""
        value = self.body.get(name)
        if value is None or isinstance(value, kind):
            return value
        self.error(rule, name, message)
        return None

    def note_cache_mark(self, path: str, block: Any) -> None:
        """Keep a block's cache mark for the count over the whole request (AN-18)."""
        if isinstance(block, dict) and isinstance(block.get("cache_control"), dict):
            self.cache_marks.append((path, block["cache_control"]))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _check_names_and_limit(request: Request) -> None:
    body = request.body
    request.found.extend(extras("AN-27", body, PARAMETERS if "model" in body else HOST_PARAMETERS))
    if "model" not in body:
        request.advise("AN-01", "model", REQUIRED)
    elif not isinstance(body["model"], str):
        request.error("AN-01", "model", STRING)
    if "max_tokens" not in body:
        request.error("AN-01", "max_tokens", REQUIRED)
    elif not _is_integer(body["max_tokens"]):
        request.error("AN-01", "max_tokens", "Input should be a valid integer")
    elif body["max_tokens"] < 0:
        request.error("AN-01", "max_tokens", "Input should be greater than or equal to 0")


def _check_sampling(request: Request) -> None:
    body = request.body
    present = [name for name in SAMPLING if name in body]
    for name in present:
        if request.target.is_new:
            request.error("AN-28", name, "Extra inputs are not permitted")
        else:
            _check_sampling_value(request, name, body[name])
    if "temperature" in present and "top_p" in present and request.target.is_at_least(4, 1):
        message = "`temperature` and `top_p` cannot both be specified for this model. Please use only one."
        request.advise("AN-31", "top_p", message)


def _check_sampling_value(request: Request, name: str, value: Any) -> None:
    # -1 for "unset" was accepted in top_p and top_k: the corpus knows better than the rule (AN-21).
    if not _is_number(value):
        request.error("AN-21", name, "Input should be a valid number")
    elif value == -1 and name != "temperature":
        pass
    elif name == "top_k" and value < 0:
        request.error("AN-21", name, "Input should be greater than or equal to 0")
    elif name != "top_k" and not 0 <= value <= 1:
        request.error("AN-21", name, "range: 0..1")
    elif not request.target.takes_sampling and not is_neutral(name, value):
        request.error("AN-21", name, f"`{name}` is deprecated for this model.")


def is_neutral(name: str, value: float) -> bool:
    """Whether a setting says no more than to say nothing."""
    return (name == "temperature" and value == 1) or (name == "top_p" and value >= 0.99)


def _check_stop_sequences(request: Request) -> None:
    for index, sequence in enumerate(request.given("stop_sequences", list, "AN-22", LIST) or ()):
        if not isinstance(sequence, str):
            request.error("AN-22", f"stop_sequences.{index}", STRING)
        elif not sequence or sequence.isspace():
            request.error("AN-22", f"stop_sequences.{index}", "each stop sequence must contain non-whitespace")


def _check_metadata(request: Request) -> None:
    metadata = request.given("metadata", dict, "AN-23", OBJECT)
    if metadata is None:
        return
    request.found.extend(located("metadata", extras("AN-23", metadata, ("user_id",))))
    user = metadata.get("user_id")
    if user is not None and not isinstance(user, str):
        request.error("AN-23", "metadata.user_id", STRING)
    elif user is not None and len(user) > 512:
        request.error("AN-23", "metadata.user_id", "String should have at most 512 characters")


def _check_thinking(request: Request) -> None:
    thinking = request.body.get("thinking")
    if thinking is None:
        return
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if kind == "enabled":
        _check_budget(request, thinking.get("budget_tokens"))
        _check_enabled_thinking(request)
    elif kind == "disabled":
        if not request.target.takes_disabled:
            request.error("AN-19", "thinking.type", '"thinking.type.disabled" is not supported for this model.')
    elif kind == "adaptive":
        if not request.target.takes_adaptive:
            request.error("AN-19", "thinking.type", "adaptive thinking is not supported on this model")
    else:
        request.error("AN-19", "thinking", SHAPE)


def _check_budget(request: Request, budget: Any) -> None:
    path, limit = "thinking.budget_tokens", request.body.get("max_tokens")
    if not _is_integer(budget):
        request.error("AN-19", path, "Input should be a valid integer" if budget is not None else REQUIRED)
    elif budget < 1024:
        request.error("AN-19", path, "Input should be greater than or equal to 1024")
    elif not request.body.get("tools") and _is_number(limit) and budget >= limit:
        # With tools, interleaved thinking may spend more than one answer's tokens.
        request.error("AN-19", path, "`max_tokens` must be greater than `thinking.budget_tokens`.")


def _check_enabled_thinking(request: Request) -> None:
    body, choice = request.body, request.body.get("tool_choice")
    if not request.target.takes_budget:
        request.error("AN-19", "thinking.type", '"thinking.type.enabled" is not supported for this model.')
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        request.error("AN-19", "tool_choice", "Thinking may not be enabled when tool_choice forces tool use.")
    if body.get("temperature", 1) != 1 and not request.target.is_new:
        request.error("AN-19", "temperature", "`temperature` may only be set to 1 when thinking is enabled.")
    if body.get("top_k") not in (None, -1) and not request.target.is_new:
        request.error("AN-19", "top_k", "`top_k` must be unset when thinking is enabled.")


def _check_output(request: Request) -> None:
    config = request.given("output_config", dict, "AN-32", OBJECT)
    if config:
        request.found.extend(located("output_config", extras("AN-32", config, ("effort", "format", "task_budget"))))
        effort, path = config.get("effort"), "output_config.effort"
        if effort is not None and effort not in EFFORTS:
            request.error("AN-32", path, "Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
        elif effort == "xhigh" and not request.target.takes_xhigh:
            message = "This model does not support effort level 'xhigh'. Supported levels: high, low, max, medium."
            request.error("AN-32", path, message)
        _check_format(request, "output_config.format", config.get("format"))
    _check_format(request, "output_format", request.body.get("output_format"))


def _check_format(request: Request, path: str, form: Any) -> None:
    if form is None:
        return
    if not isinstance(form, dict):
        request.error("AN-32", path, OBJECT)
        return
    if form.get("type") != "json_schema":
        request.error("AN-32", f"{path}.type", "Input should be 'json_schema'" if "type" in form else REQUIRED)
    if not isinstance(form.get("schema"), dict):
        request.error("AN-32", f"{path}.schema", OBJECT if "schema" in form else REQUIRED)
    for _, node in walk(form.get("schema")):
        for keyword in sorted(UNSUPPORTED_KEYWORDS & node.keys()):
            message = f"For {shown(node.get('type'))} type, property '{keyword}' is not supported"
            request.error("AN-32", f"{path}.schema", message)


def _check_tools(request: Request) -> None:
    tools = request.given("tools", list, "AN-16", LIST) or []
    for index, tool in enumerate(tools):
        path = f"tools.{index}"
        request.found.extend(located(path, check_tool(tool)))
        request.note_cache_mark(path, tool)
    known = [tool for tool in tools if isinstance(tool, dict)]
    names = [tool["name"] for tool in known if isinstance(tool.get("name"), str)]
    if len(set(names)) < len(names):
        request.error("AN-16", "tools", "Tool names must be unique.")
    if known and all(tool.get("defer_loading") is True for tool in known):
        request.error("AN-33", "tools", "All tools have defer_loading set")
    _check_strict_limits(request, [tool.get("input_schema") for tool in known if tool.get("strict") is True])


def _check_strict_limits(request: Request, schemas: list[Any]) -> None:
    if len(schemas) > 20:
        message = (
            f"Too many strict tools ({len(schemas)}). The maximum number of strict tools supported is 20. "
            "Try reducing the number of tools marked as strict."
        )
        request.error("AN-16", "tools", message)
    counts = [count_optional_and_unions(schema) for schema in schemas]
    optional, unions = sum(count[0] for count in counts), sum(count[1] for count in counts)
    if optional > 24:
        message = (
            f"Schemas contains too many optional parameters ({optional}), which would make grammar compilation "
            "inefficient. Reduce the number of optional parameters in your tool schemas (limit: 24)."
        )
        request.error("AN-16", "tools", message)
    if unions > 16:
        message = (
            f"Schemas contains too many parameters with union types ({unions} parameters with type arrays or anyOf). "
            "This causes exponential compilation cost. Reduce the number of nullable or union-typed parameters "
            "(limit: 16 parameters with unions)."
        )
        request.error("AN-16", "tools", message)


def _check_tool_choice(request: Request) -> None:
    choice = request.body.get("tool_choice")
    if choice is None:
        return
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind not in ("auto", "any", "tool", "none"):
        request.error("AN-17", "tool_choice", SHAPE)
        return
    fields = ("type", "name", "disable_parallel_tool_use")
    request.found.extend(located("tool_choice", extras("AN-17", choice, fields)))
    if not request.body.get("tools") and not request.body.get("mcp_servers"):
        request.error("AN-17", "tool_choice", "tool_choice may only be specified while providing tools")
    elif kind == "tool":
        _check_chosen_name(request, choice.get("name"))
    if kind in ("any", "tool"):
        if request.body.get("max_tokens") == 0:
            request.error("AN-17", "tool_choice", "tool_choice may not force tool use while max_tokens is 0")
        if not request.target.takes_forced_choice:
            request.error("AN-17", "tool_choice.type", f"tool_choice type '{kind}' is not supported on this model")


def _check_chosen_name(request: Request, name: Any) -> None:
    if not isinstance(name, str):
        request.error("AN-17", "tool_choice.name", REQUIRED if name is None else STRING)
        return
    given = request.body.get("tools")
    tools = given if isinstance(given, list) else []
    declared = [tool.get("name") if isinstance(tool, dict) else None for tool in tools]
    # A toolset brings names this body does not show.
    if declared and None not in declared and name not in declared:
        request.error("AN-17", "tool_choice.name", f"Tool {shown(name)} not found in provided tools")


def _check_system(request: Request) -> None:
    if isinstance(request.body.get("system"), str):
        return
    for index, block in enumerate(request.given("system", list, "AN-26", SHAPE) or ()):
        path = f"system.{index}"
        if isinstance(block, dict) and block.get("type") == "text":
            for fault in located(path, check_block(block, "system")):
                request.error("AN-26" if fault.rule == "AN-05" else fault.rule, fault.path, fault.message)
            request.note_cache_mark(path, block)
        else:
            request.error("AN-26", path, SHAPE)


PARAMETER_CHECKS: tuple[Callable[[Request], None], ...] = (
    _check_names_and_limit,
    _check_sampling,
    _check_stop_sequences,
    _check_metadata,
    _check_thinking,
    _check_output,
    _check_tools,
    _check_tool_choice,
    _check_system,
)

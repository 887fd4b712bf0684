"""Everything in a request beside messages and tools: how to sample, how long, in what shape, how much to think.

Theory of operation. Reading is a table from a key of the body to a field of the request and the types it may have; a value of
another type stays a native extra under its key. Reasoning is switched in four ways (OpenAI's `reasoning_effort`, the
`thinking` of DeepSeek and others, OpenRouter's `reasoning`, Alibaba's `enable_thinking`); all are read into `Reasoning`, and
all but the first are also kept as they came. Writing puts numbers into their range (OC-20) and takes out what the model is
known to refuse (OC-26), and reports both.

Normalisations: null is absent; `max_tokens` and `max_completion_tokens` are the same; `stop` is a list; a streamed request
asks for its usage unless it says that it does not want it.
"""

from __future__ import annotations

from typing import Any

from antiphon.wire.json_schema import first_strict_problem, is_object_schema
from antiphon.wire.loss import Loss, lose_native, own_extras
from antiphon.wire.openai_chat import rules
from antiphon.wire.openai_chat.content import FORMAT, SHARED, stable_text
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.openai_parameters import FIELDS, NUMBER, TIERS, Fields, read_fields
from antiphon.wire.request import BUDGETS, ModelRequest, OutputFormat, Reasoning
from antiphon.wire.tool_calls import safe_name
from antiphon.wire.vendors import openai

_FIELDS: Fields = FIELDS | {
    "top_k": ("top_k", (int,)),
    "seed": ("seed", (int,)),
    "presence_penalty": ("presence_penalty", NUMBER),
    "frequency_penalty": ("frequency_penalty", NUMBER),
    "n": ("candidates", (int,)),
    "logprobs": ("logprobs", (bool,)),
    "verbosity": ("verbosity", (str,)),
}
_PLAIN = ("store", "verbosity", "user", "service_tier", "prompt_cache_key", "logprobs")
_RANGED = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "n", "top_logprobs")
_SCHEMA_FIELDS = ("schema", "name", "description", "strict")
_EFFORTS = (  # what the older reasoning models take for words they do not know
    (openai.model_family("o1|o3|o3-mini|o4-mini"), {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}),
    (openai.model_family("gpt-5|gpt-5-mini|gpt-5-nano"), {"none": "minimal", "xhigh": "high", "max": "high"}),
)
_MOST_STOPS, _MOST_PAIRS, _LONGEST_KEY, _LONGEST_VALUE = 4, 16, 64, 512


def read_parameters(body: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    """Read the keys of a body into fields of the request; returns what is left, tools among it."""
    native = read_fields(body, _FIELDS, fields)
    _read_output_tokens(fields, native)
    stop = native.get("stop")
    if type(stop) is str or (type(stop) is list and all(type(sequence) is str for sequence in stop)):
        fields["stop"] = (stop,) if type(stop) is str else tuple(stop)
        del native["stop"]
    _read_reasoning(fields, native)
    wanted = _read_output_format(native.get("response_format"))
    if wanted is not None:
        fields["output_format"] = wanted
        del native["response_format"]
    options = native.get("stream_options")
    if type(options) is dict and options.get("include_usage") is True and fields.get("stream"):
        native["stream_options"] = {key: value for key, value in options.items() if key != "include_usage"}
        if not native["stream_options"]:
            del native["stream_options"]
    return native


def _read_output_tokens(fields: dict[str, Any], native: dict[str, Any]) -> None:
    given = [key for key in ("max_completion_tokens", "max_tokens") if key in native]
    for key in given:
        value = native[key]
        if type(value) is int and value > 0 and "max_output_tokens" not in fields:
            fields["max_output_tokens"] = value
            if len(given) == 1:  # both (OC-23) go back as they came
                del native[key]


def _read_reasoning(fields: dict[str, Any], native: dict[str, Any]) -> None:
    effort = native.pop("reasoning_effort") if type(native.get("reasoning_effort")) is str else None
    is_said, budget, enabled, shown = effort is not None, None, None, None
    kept: dict[str, Any] = {}
    thinking, reasoning, switch = native.get("thinking"), native.get("reasoning"), native.get("enable_thinking")
    if type(thinking) is dict and type(thinking.get("type")) is str:
        kept["thinking"] = native.pop("thinking")
        enabled, budget = thinking["type"] != "disabled", _count(thinking, "budget_tokens")
    if type(reasoning) is dict:
        kept["reasoning"] = native.pop("reasoning")
        word = reasoning.get("effort")
        effort = effort or (word if type(word) is str else None)
        budget = _count(reasoning, "max_tokens") or budget
        enabled = reasoning["enabled"] if type(reasoning.get("enabled")) is bool else enabled
        shown = "omitted" if reasoning.get("exclude") is True else None
    if type(switch) is bool:
        enabled = kept["enable_thinking"] = native.pop("enable_thinking")
    if is_said or kept:
        fields["reasoning"] = Reasoning(effort, budget, enabled, shown, {FORMAT: kept} if kept else None)


def _count(value: dict[str, Any], key: str) -> int | None:
    count = value.get(key)
    return count if type(count) is int else None


def _read_output_format(wanted: Any) -> OutputFormat | None:
    if type(wanted) is not dict:
        return None
    kind = wanted.get("type")
    if kind in ("text", "json_object") and len(wanted) == 1:
        return OutputFormat("text" if kind == "text" else "json_object")
    described = wanted.get("json_schema")
    if kind != "json_schema" or len(wanted) != 2 or type(described) is not dict:
        return None
    name, description = described.get("name"), described.get("description")
    given, strict = described.get("schema"), described.get("strict")
    more = {key for key, value in described.items() if value is not None} - {"name", "description", "schema", "strict"}
    if type(name) is not str or type(description) not in (str, type(None)) or more:
        return None
    if type(given) not in (dict, type(None)) or type(strict) not in (bool, type(None)):
        return None
    return OutputFormat("json_schema", given, name, description, strict)


def write_parameters(request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    """Put everything but messages and tools into a body."""
    for key in _PLAIN:
        value = getattr(request, _FIELDS[key][0])
        if value is not None:
            body[key] = value
    if dialect.enforces_schemas and request.service_tier in TIERS:
        body["service_tier"] = TIERS[request.service_tier]
    for key in _RANGED:
        field = _FIELDS[key][0]
        value = getattr(request, field)
        if value is not None:
            _write_number(body, key, field, value, losses)
    if request.max_output_tokens is not None:
        _write_number(body, dialect.output_tokens_field, "max_output_tokens", request.max_output_tokens, losses)
    if request.seed is not None:
        body[dialect.seed_field] = request.seed
    if request.top_k is not None:
        if dialect.takes_top_k:
            body["top_k"] = request.top_k
        else:
            losses.append(Loss("top_k", "top_k", "the host does not take it (OC-26)"))
    if request.stop is not None:
        body["stop"] = list(request.stop[:_MOST_STOPS])
        if len(request.stop) > _MOST_STOPS:
            losses.append(Loss("stop", "stop", f"at most {_MOST_STOPS} stop sequences are taken (OC-21)"))
    if request.metadata is not None:
        _write_metadata(request.metadata, body, losses)
    if request.output_format is not None:
        _write_output_format(request.output_format, body, losses, dialect)
    if request.reasoning is not None:
        _write_reasoning(request.reasoning, body, losses, dialect)
        _fit_effort(request, body, losses)
    if request.stream is not None:
        body["stream"] = request.stream


def finish_parameters(request: ModelRequest, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    """What can be told only when the body is whole: native extras, stream options, what the model refuses."""
    own = own_extras(request.native, losses, "native", SHARED, FORMAT)
    body.update(own)
    if body.get("stream") is True and dialect.has_stream_options:
        options = body.get("stream_options")
        if type(options) in (dict, type(None)):
            body["stream_options"] = {"include_usage": True, **(options or {})}
    refused: list[Any] = []
    openai.check_limits(refused, "OC-26", body, rules.MODEL_LIMITS)
    for violation in refused:
        if violation.path in own:
            continue
        value = body.pop(violation.path)
        if violation.path == "max_tokens":
            body["max_completion_tokens"] = value
        else:
            losses.append(Loss(violation.path, violation.path, violation.message))


def _write_number(body: dict[str, Any], key: str, field: str, value: Any, losses: list[Loss]) -> None:
    allowed = rules.RANGES[key]
    if value != value:  # not a number at all
        losses.append(Loss(field, field, "it is not a number"))
    elif key.startswith("max_") and value < allowed.minimum:
        losses.append(Loss(field, field, f"{value!r} tokens cannot be asked for (OC-20)"))
    elif value < allowed.minimum or (allowed.maximum is not None and value > allowed.maximum):
        nearest = allowed.minimum if value < allowed.minimum else allowed.maximum
        body[key] = nearest
        losses.append(Loss(field, field, f"{value!r} is out of range; {nearest} is asked for (OC-20)"))
    else:
        body[key] = value


def _write_metadata(metadata: dict[str, Any], body: dict[str, Any], losses: list[Loss]) -> None:
    pairs: dict[str, str] = {}
    for key, value in metadata.items():
        path = f"metadata.{key}"
        if len(pairs) == _MOST_PAIRS or len(key) > _LONGEST_KEY:
            losses.append(Loss(path, key, "at most 16 pairs are taken, with keys of at most 64 letters (OC-27)"))
            continue
        text = stable_text(value)
        if text is not value:
            losses.append(Loss(path, key, "only text is taken; it is written as JSON (OC-27)"))
        if len(text) > _LONGEST_VALUE:
            losses.append(Loss(path, key, "at most 512 letters are taken; it is cut (OC-27)"))
        pairs[key] = text[:_LONGEST_VALUE]
    body["metadata"] = pairs


def _write_output_format(wanted: OutputFormat, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    more = own_extras(wanted.native, losses, "output_format", SHARED, FORMAT)
    if wanted.kind != "json_schema":
        body["response_format"] = {"type": wanted.kind, **more}
        said = [field for field in _SCHEMA_FIELDS if getattr(wanted, field) is not None]
        losses.extend(Loss(f"output_format.{field}", field, f"{wanted.kind} has none") for field in said)
        return
    name = wanted.name or "response"
    described: dict[str, Any] = {"name": name if openai.is_name(name) else safe_name(name, 64)}
    if wanted.description is not None:
        described["description"] = wanted.description
    if wanted.schema is not None:
        described["schema"] = wanted.schema
    if wanted.strict is not None:
        if wanted.strict and dialect.enforces_schemas and not _is_closed(wanted.schema):
            losses.append(Loss("output_format.strict", "strict", "its schema is not closed (OC-17)"))
        else:
            described["strict"] = wanted.strict
    body["response_format"] = {"type": "json_schema", "json_schema": described, **more}


def _is_closed(wanted: dict[str, Any] | None) -> bool:
    if wanted is None:
        return True
    may_be_object = wanted.get("type") is None or is_object_schema(wanted)
    return may_be_object and first_strict_problem(wanted) is None


def asks_to_think(reasoning: Reasoning | None) -> bool:
    """Whether thinking is asked for."""
    if reasoning is None or reasoning.enabled is False:
        return False
    return reasoning.effort != "none" and reasoning.budget_tokens != 0


def _effort(reasoning: Reasoning) -> str:
    """The word for how much to think; it goes up to `xhigh`."""
    if reasoning.effort is not None:
        return reasoning.effort
    if reasoning.enabled is False:
        return "none"
    if reasoning.budget_tokens is None:
        return "medium"
    most = min(reasoning.budget_tokens, BUDGETS["xhigh"])
    return next((word for word, tokens in reversed(BUDGETS.items()) if most >= tokens), "none")


def _write_reasoning(reasoning: Reasoning, body: dict[str, Any], losses: list[Loss], dialect: Dialect) -> None:
    native = reasoning.native or {}
    lose_native(losses, "reasoning", native, FORMAT)
    own, switch = native.get(FORMAT, {}), dialect.reasoning_switch
    if own and (dialect.keeps_reasoning or switch in own):
        body.update(own)
        openrouter = own.get("reasoning")
        word = openrouter.get("effort") if isinstance(openrouter, dict) else None
        if reasoning.effort is not None and word != reasoning.effort:
            body["reasoning_effort"] = reasoning.effort
        return
    said = (reasoning.effort, reasoning.budget_tokens, reasoning.enabled)
    if reasoning.shown is not None and switch != "reasoning":
        losses.append(Loss("reasoning.shown", "shown", "how much of the reasoning is shown cannot be chosen"))
    if said == (None, None, None) and reasoning.shown is None:
        return
    if switch == "reasoning":
        body["reasoning"] = _openrouter_reasoning(reasoning)
    elif said == (None, None, None):
        return
    elif dialect.takes_effort and reasoning.effort not in (None, "none"):
        body["reasoning_effort"] = reasoning.effort
    elif switch == "thinking":
        body["thinking"] = {"type": "enabled" if asks_to_think(reasoning) else "disabled"}
    elif switch == "enable_thinking":
        body["enable_thinking"] = asks_to_think(reasoning)
        if reasoning.budget_tokens:
            body["thinking_budget"] = reasoning.budget_tokens
    else:
        body["reasoning_effort"] = _effort(reasoning)


def _fit_effort(request: ModelRequest, body: dict[str, Any], losses: list[Loss]) -> None:
    word = body.get("reasoning_effort")
    for is_of_family, words in _EFFORTS:
        if word in words and is_of_family(request.model):
            body["reasoning_effort"] = words[word]
            if request.reasoning is not None and request.reasoning.effort is not None:
                why = f"{request.model} does not know it; {words[word]} is asked for"
                losses.append(Loss("reasoning.effort", str(word), why))


def _openrouter_reasoning(reasoning: Reasoning) -> dict[str, Any]:
    written: dict[str, Any] = {}
    if reasoning.effort is not None:
        written["effort"] = reasoning.effort
    elif reasoning.budget_tokens is not None:
        written["max_tokens"] = reasoning.budget_tokens
    if reasoning.enabled is not None:
        written["enabled"] = reasoning.enabled
    if reasoning.shown is not None:
        written["exclude"] = reasoning.shown in ("omitted", "none")
    return written

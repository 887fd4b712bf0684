"""A candidate: why it stopped, and what is said about it; a whole response and the end of a stream share this.

What Gemini says about an answer beyond its parts (grounding, citations, safety ratings, log probabilities) is in
`native["gemini"]` of the output, under its own name; what it says about the response as a whole (`promptFeedback`,
`createTime`) beside it, and names we do not know in `response` and `candidate`, so that they go back to where they stood.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from antiphon.parts import NativeExtras
from antiphon.wire.gemini.spelling import FORMAT, forms, mark
from antiphon.wire.output import StopReason
from antiphon.wire.rules import name_set

RESPONSE = forms(
    ("candidates", "promptFeedback", "usageMetadata", "modelVersion", "responseId", "createTime", "modelStatus")
)
CANDIDATE = forms(
    name_set(
        "content finishReason index safetyRatings citationMetadata tokenCount groundingAttributions groundingMetadata"
        " avgLogprobs logprobsResult urlContextMetadata finishMessage continuationToken"
    )
)
CONTENT = forms(("role", "parts"))
OF_THE_RESPONSE = frozenset({"promptFeedback", "createTime", "modelStatus", "usageMetadata"})
"""Names in `native` that belong to the response, not to the candidate."""
NO_CANDIDATES = "no-candidates"
"""The mark of a response that had none."""

_STOPS: dict[str, StopReason] = {"STOP": "end", "MAX_TOKENS": "length", "CONTINUATION": "paused"}
_STOPS |= dict.fromkeys(name_set("MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS"), "malformed_call")
_STOPS |= dict.fromkeys(name_set("SAFETY RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR"), "content_filter")
_STOPS |= dict.fromkeys(name_set("IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION"), "content_filter")
# As the Gemini API numbers them where enums are encoded as numbers.
_NUMBERED = (
    *("", "STOP", "MAX_TOKENS", "SAFETY", "RECITATION", "OTHER", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    *("MALFORMED_FUNCTION_CALL", "IMAGE_SAFETY"),
)
# A pause of another provider's is no CONTINUATION: on that word clients ask again by themselves.
_WORDS: dict[StopReason, str] = {
    "end": "STOP",
    "stop_sequence": "STOP",
    "tool_calls": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "refusal": "SAFETY",
    "malformed_call": "MALFORMED_FUNCTION_CALL",
    "paused": "OTHER",
    "other": "OTHER",
}


def read_stop(word: Any, has_calls: bool) -> StopReason:
    """Why the candidate stopped. Gemini says STOP for calls, too: they are known by their presence."""
    if word is None:
        return ""
    if type(word) is int and 0 < word < len(_NUMBERED):
        word = _NUMBERED[word]
    stop = _STOPS.get(word, "other") if type(word) is str else "other"
    return "tool_calls" if stop == "end" and has_calls else stop


def write_stop(stop: StopReason) -> str | None:
    """Gemini's word for it; None where the answer has not stopped."""
    return _WORDS.get(stop)


def output_native(
    response: dict[str, Any], about: dict[str, Any], unknown: dict[str, Any], has_candidates: bool
) -> NativeExtras | None:
    """What is said about an answer: of the response, of the candidate, and what of the candidate we do not know."""
    extras: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in response.items():
        (extras if name in OF_THE_RESPONSE else rest)[name] = value
    if rest:
        extras["response"] = rest
    extras.update(about)
    if unknown:
        extras["candidate"] = unknown
    native: NativeExtras = {FORMAT: extras} if extras else {}
    if not has_candidates:
        native |= mark(NO_CANDIDATES)
    return native or None


def split_native(native: NativeExtras | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that `output_native` put together: those of the response, and those of the candidate."""
    response: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    for name, value in (native or {}).get(FORMAT, {}).items():
        if name in ("response", "candidate"):
            (response if name == "response" else candidate).update(value)
        else:
            (response if name in OF_THE_RESPONSE else candidate)[name] = value
    return response, candidate


def is_blocked(feedback: Any) -> bool:
    """Whether the prompt itself was refused."""
    return isinstance(feedback, dict) and bool(feedback.get("blockReason") or feedback.get("block_reason"))


def seconds_of(time: Any) -> int | None:
    """A `createTime` in seconds."""
    if type(time) is not str:
        return None
    try:
        read = datetime.fromisoformat(time)
        return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        return None


def time_of(seconds: int) -> str | None:
    """Seconds as a `createTime`."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None

"""OpenAI's legacy completions (`/v1/completions`): a prompt in, a text out.

The prompt becomes a user message, the other parameters are those of Chat Completions, and each choice has a `text` in place of a
message. What a chat model cannot do (several prompts, token ids, `echo`, `suffix`, `logprobs` other than a number) stays in
`native["openai-completions"]`, and the gateway refuses it unless the upstream serves completions itself. Reading an upstream's
answer reshapes its choices and leaves the rest to the reader of Chat Completions.

Normalisation: without `max_tokens` a chat model may write as much as it likes; the legacy default was 16 tokens.
"""

from __future__ import annotations

import time
from typing import Any

from antiphon.errors import WireError
from antiphon.ids import new_id
from antiphon.json_text import NOT_JSON, decode_json
from antiphon.parts import Native, NativeExtras, OutputPart, Refusal, Text
from antiphon.wire.delta import Finished, Started
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.openai_chat import response as chat
from antiphon.wire.openai_chat.content import NAME
from antiphon.wire.openai_chat.errors import read_error, write_error
from antiphon.wire.openai_chat.request import read_parameters
from antiphon.wire.openai_chat.stream_reader import StreamReader as ChatStreamReader
from antiphon.wire.openai_chat.stream_writer import ChatPart
from antiphon.wire.openai_chat.stream_writer import StreamWriter as ChatStreamWriter
from antiphon.wire.output import ModelOutput, lose_stop_sequence
from antiphon.wire.request import Message, ModelRequest
from antiphon.wire.rules import each, json_type_name
from antiphon.wire.spec import FormatSpec, SequenceRule
from antiphon.wire.streams.sse import SseEvent, SseReader
from antiphon.wire.streams.writer import encode_line

__all__ = ["read_error", "write_error"]

FORMAT = "openai-completions"
SPEC = FormatSpec(messages_key="prompt", sequence_rule=SequenceRule())
scan_usage = chat.scan_usage
_CHAT = "openai-chat"
_ONLY_HERE = ("prompt", "echo", "suffix", "best_of")
_FINGERPRINT = "system_fingerprint"


def read_request(body: dict[str, Any]) -> ModelRequest:
    """A completions body as a request with one user message."""
    unread = {name: value for name, value in body.items() if name not in (*_ONLY_HERE, "logprobs")}
    fields: dict[str, Any] = {}
    extras = read_parameters(unread, fields)
    own = {name: body[name] for name in _ONLY_HERE[1:] if body.get(name)}
    if own.get("best_of") == 1:
        del own["best_of"]
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    if isinstance(prompt, str):
        fields["messages"] = (Message("user", (Text(prompt),)),)
    elif isinstance(prompt, list) and prompt:
        own["prompt"] = prompt
    else:
        raise WireError(f"prompt: expected a string or an array, got {json_type_name(prompt)}")
    logprobs = body.get("logprobs")
    if isinstance(logprobs, int) and not isinstance(logprobs, bool):
        fields["logprobs"], fields["top_logprobs"] = True, logprobs
    elif logprobs is not None:
        own["logprobs"] = logprobs
    native = {origin: found for origin, found in ((_CHAT, extras), (FORMAT, own)) if found}
    return ModelRequest(native=native or None, **fields)


def check_request(body: Any, options: Any, *, advisories: bool) -> list[Any]:
    """There are no rules to check: bodies are passed on as they came, or translated."""
    del body, options, advisories
    return []


def read_response(body: dict[str, Any]) -> ModelOutput:
    """An upstream's completion in neutral terms."""
    choices = body.get("choices")
    reshaped = [_as_message(choice) for choice in choices] if isinstance(choices, list) else choices
    return chat.read_response({**body, "object": "chat.completion", "choices": reshaped})


def _as_message(choice: Any) -> Any:
    if not isinstance(choice, dict):
        return choice
    kept = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
    return {**kept, "message": {"role": "assistant", "content": choice.get("text")}}


def write_response(output: ModelOutput, losses: list[Loss]) -> dict[str, Any]:
    """An answer as clients of completions expect it."""
    candidates = (output, *output.others)
    body: dict[str, Any] = {
        "id": _completion_id(output.id),
        "object": "text_completion",
        "created": int(time.time()) if output.created is None else output.created,
        "model": output.model,
        "choices": [_write_choice(candidate, index, losses) for index, candidate in enumerate(candidates)],
    }
    body.update(_head_fields(output.native))
    if output.usage is not None:
        body["usage"] = chat.write_usage(output.usage)
    return body


def _head_fields(native: NativeExtras | None) -> dict[str, Any]:
    """The fields of a chat completion that a completion has too."""
    extras = (native or {}).get(_CHAT, {})
    return {_FINGERPRINT: extras[_FINGERPRINT]} if _FINGERPRINT in extras else {}


def _write_choice(output: ModelOutput, index: int, losses: list[Loss]) -> dict[str, Any]:
    path = "" if index == 0 else f"others[{index - 1}]."
    texts: list[str] = []
    for position, part in enumerate(output.parts):
        if isinstance(part, Text | Refusal):
            texts.append(part.text)
            lose_native(losses, f"{path}parts[{position}]", part.native)
        else:
            losses.append(_lost_part(part, f"{path}parts[{position}]"))
    logprobs = _read_end(output.native, output.stop_sequence, losses, path)
    return {
        "text": "".join(texts),
        "index": index,
        "logprobs": write_logprobs(logprobs),
        "finish_reason": chat.write_stop_reason(output.stop_reason, output.parts, is_same_format=False, losses=losses),
    }


def _read_end(native: NativeExtras | None, stop_sequence: str | None, losses: list[Loss], path: str = "") -> Any:
    """The log probabilities among what an answer has beside its parts; everything else is reported."""
    lose_stop_sequence(stop_sequence, losses, NAME, path)
    extras = (native or {}).get(_CHAT, {})
    choice = extras.get("choice", {})
    rest = {name: value for name, value in choice.items() if name != "logprobs"}
    kept = {name: value for name, value in extras.items() if name not in ("choice", "finish_reason", _FINGERPRINT)}
    lose_native(losses, f"{path}native", {**(native or {}), _CHAT: {**kept, **({"choice": rest} if rest else {})}})
    return choice.get("logprobs")


def write_logprobs(logprobs: Any) -> dict[str, Any] | None:
    """Log probabilities of Chat Completions in the legacy shape; None if there are none."""
    tokens = logprobs.get("content") if isinstance(logprobs, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, dict) for token in tokens):
        return None
    offsets, offset = [], 0
    for token in tokens:
        offsets.append(offset)
        offset += len(str(token.get("token")))
    return {
        "tokens": [token.get("token") for token in tokens],
        "token_logprobs": [token.get("logprob") for token in tokens],
        "top_logprobs": [
            {str(other.get("token")): other.get("logprob") for _, other in each(token, "top_logprobs")}
            for token in tokens
        ],
        "text_offset": offsets,
    }


def _lost_part(part: OutputPart, path: str) -> Loss:
    kind = part.origin if isinstance(part, Native) else type(part).__name__.lower()
    return Loss(path, kind, "completions have text only; dropped")


def _completion_id(answer_id: str) -> str:
    return f"cmpl-{answer_id.removeprefix('chatcmpl-')}" if answer_id else f"cmpl-{new_id()}"


class StreamReader(ChatStreamReader):
    """Reads an upstream's stream: each chunk is reshaped for the reader of Chat Completions."""

    def __init__(self) -> None:
        super().__init__()
        self._source = self._bytes = _ReshapedEvents()


class _ReshapedEvents(SseReader):
    def feed(self, data: bytes) -> list[SseEvent]:
        return [SseEvent(event.event, _reshaped(event.data)) for event in super().feed(data)]

    def close(self) -> list[SseEvent]:
        return [SseEvent(event.event, _reshaped(event.data)) for event in super().close()]


def _reshaped(data: bytes) -> bytes:
    try:
        chunk = decode_json(data)
    except NOT_JSON:
        return data  # [DONE], or an error that the reader reports
    if not isinstance(chunk, dict) or not isinstance(chunk.get("choices"), list):
        return data
    choices = []
    for choice in chunk["choices"]:
        if isinstance(choice, dict):
            kept = {name: value for name, value in choice.items() if name not in ("text", "logprobs")}
            choice = {**kept, "delta": {"content": choice.get("text")}}
        choices.append(choice)
    return encode_line({**chunk, "object": "chat.completion.chunk", "choices": choices})


class StreamWriter(ChatStreamWriter):
    """Deltas of any format in, the bytes of a stream out: chunks of Chat Completions whose choices have a text."""

    def _on_start(self, started: Started) -> None:
        _read_end(started.native, None, self.losses)
        self._head = {
            "id": _completion_id(started.id),
            "object": "text_completion",
            "created": int(time.time()) if started.created is None else started.created,
            "model": self._model or started.model,
            **_head_fields(started.native),
        }

    def _open_choices(self, candidate: int) -> None:
        self._parts_by_choice.setdefault(candidate, [])

    def _on_part(self, part: ChatPart) -> None:
        if not isinstance(part.part, Text | Refusal):
            self._on_whole(part)
            return
        self._begin_part(part)
        self.losses.report_extras(part.part.native)
        part.before = b"data: " + encode_line(self._head)[:-1] + b',"choices":[{"text":'
        part.after = b',"index":%d,"logprobs":null,"finish_reason":null}]}\n\n' % part.candidate

    def _on_text(self, part: ChatPart, text: str) -> None:
        if part.before:
            super()._on_text(part, text)

    def _on_extension(self, part: ChatPart, native: NativeExtras) -> None:
        if part.before:
            self.losses.report_extras(native)

    def _on_part_end(self, part: ChatPart) -> None:
        """A text needs no end."""

    def _on_whole(self, part: ChatPart) -> None:
        self._begin_part(part)
        self.losses.append(_lost_part(part.part, self.losses.path()))

    def _on_finish(self, finished: Finished) -> None:
        self._head.update(_head_fields(finished.native))
        parts = self._parts_by_choice.get(finished.candidate, [])
        reason = chat.write_stop_reason(finished.stop_reason, parts, is_same_format=False, losses=self.losses)
        logprobs = write_logprobs(_read_end(finished.native, finished.stop_sequence, self.losses))
        last = {"text": "", "index": finished.candidate, "logprobs": logprobs, "finish_reason": reason}
        self._emit({**self._head, "choices": [last]})

"""`FaultyProvider`: a Chat Completions host that fails on purpose; the model's name picks the fault.

It logs every request it saw with its time.

A healthy model answers `ANSWER`. One that ends with an assistant message that begins the answer continues it, as models with
prefill do; `healthy-no-prefill` refuses such a request.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import msgspec
from msgspec import Struct

from antiphon_devtools.conform.http_server import Connection, RawServer, Request

HEALTHY, NO_PREFILL = "healthy", "healthy-no-prefill"
ANSWER = (
    "A gateway is trusted for the bad days. When a provider stays silent it asks another one in time, and when an answer "
    "breaks it never passes the torn half as whole. It waits as long as configured, seldom asks a dead host, returns to it "
    "once it has recovered, and reports which model really answered and what that cost."
)
WORDS = ANSWER.split(" ")
assert len(WORDS) == 60, len(WORDS)


class Times(Struct, frozen=True, kw_only=True):
    """How long the faults last, and what a gateway may take, in seconds. The defaults are those of the public bench."""

    retry_after: float = 2.0
    first_gap: float = 1.8
    """The least time between the first two attempts, where the provider asked for `retry_after`."""
    slow_start: float = 20.0
    first_token_budget: float = 15.0
    stall: float = 30.0
    stall_budget: float = 45.0
    silence: float = 120.0
    silence_budget: float = 100.0
    end_budget: float = 8.0
    outage: float = 60.0
    recovery_budget: float = 30.0
    requests: int = 20
    interval: float = 4.0
    word: float = 0.015
    longest: float = 130.0
    """After this time a request hangs."""


class LoggedRequest(Struct, frozen=True):
    """One request that arrived: when, for which model, and what it got."""

    at: float
    model: str
    action: str


class FaultyProvider(RawServer):
    """A server at `url`. Use it as a context manager."""

    def __init__(self, times: Times) -> None:
        super().__init__({"chat": 0})
        self._times = times
        self._seen: list[LoggedRequest] = []
        self._counts: dict[str, int] = {}
        self._began = time.monotonic()
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['chat']}/v1"

    def restart(self) -> None:
        """Forget what was seen; an outage begins now."""
        with self._lock:
            self._seen, self._counts, self._began = [], {}, time.monotonic()

    def seen(self, model: str) -> list[LoggedRequest]:
        """The requests for a model since the restart."""
        with self._lock:
            return [seen for seen in self._seen if seen.model == model]

    async def respond(self, request: Request, connection: Connection) -> bool:
        if not request.body:
            await connection.send_json(200, {"object": "list", "data": [{"id": HEALTHY, "object": "model"}]})
            return True
        return await self._answer(connection, msgspec.json.decode(request.body))

    async def _answer(self, connection: Connection, body: dict[str, Any]) -> bool:
        times, model = self._times, str(body["model"]).rpartition("/")[2]
        with self._lock:
            count = self._counts[model] = self._counts.get(model, 0) + 1
            at = time.monotonic() - self._began
        fault = model.partition("-")[2] if model.startswith("s") else model
        messages = body["messages"]
        words, is_continued = WORDS, False
        action = "answer"
        if messages[-1]["role"] == "assistant":
            shown = str(messages[-1]["content"]).strip()
            if model == NO_PREFILL:
                self._log(at, model, "prefill refused")
                message = "This model does not support assistant message prefill. The conversation must end with a user message."
                return await self._error(connection, 400, message, "invalid_prefill")
            if ANSWER.startswith(shown):
                words, is_continued = ANSWER[len(shown) :].split(), True
        match fault:
            case "limited-once" if count == 1:
                self._log(at, model, "429")
                return await self._error(connection, 429, "rate limit", "rate_limit_exceeded", times.retry_after)
            case "limited":
                self._log(at, model, "429")
                return await self._error(connection, 429, "rate limit", "rate_limit_exceeded")
            case "broken-once" if count == 1:
                self._log(at, model, "500")
                return await self._error(connection, 500, "internal error", None)
            case "overloaded":
                self._log(at, model, "503")
                return await self._error(connection, 503, "overloaded", "overloaded")
            case "down" if at < times.outage:
                self._log(at, model, "503")
                return await self._error(connection, 503, "overloaded", "overloaded")
            case "reset-once" if count == 1:
                self._log(at, model, "reset")
                connection.reset()
                return False
            case "silent":
                self._log(at, model, "silent")
                await connection.wait_closed(times.silence)
                return False
            case "too-long":
                self._log(at, model, "400")
                message = "This model's maximum context length is 8192 tokens. However, your messages have 9631 tokens."
                return await self._error(connection, 400, message, "context_length_exceeded")
            case "filtered":
                self._log(at, model, "400")
                message = "Your request was rejected as a result of our safety system."
                return await self._error(connection, 400, message, "content_policy_violation")
            case "slow" | "cut" | "stalled" | "malformed" | "no-done":
                action = fault
        self._log(at, model, action)
        has_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        prompt = sum(len(str(message.get("content")).split()) + 4 for message in messages)
        if not body.get("stream"):
            return await self._whole(connection, model, " ".join(words), prompt)
        return await self._stream(
            connection, model, words, action, prompt if has_usage else None, is_continued=is_continued
        )

    async def _whole(self, connection: Connection, model: str, text: str, prompt: int) -> bool:
        message = {"role": "assistant", "content": text}
        completion = {"index": 0, "message": message, "finish_reason": "stop"}
        head = {"id": "chatcmpl-1", "object": "chat.completion", "created": int(time.time()), "model": model}
        await connection.send_json(200, {**head, "choices": [completion], "usage": _usage(prompt, len(text.split()))})
        return True

    async def _stream(
        self,
        connection: Connection,
        model: str,
        words: list[str],
        fault: str,
        prompt: int | None,
        *,
        is_continued: bool,
    ) -> bool:
        times = self._times
        head = {
            "id": f"chatcmpl-{model}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }

        async def send(*choices: dict[str, Any], **more: Any) -> None:
            chunk = {**head, "choices": list(choices), **more}
            await connection.send_chunk(b"data: " + msgspec.json.encode(chunk) + b"\n\n")

        await connection.start_stream()
        if fault == "slow":
            await asyncio.sleep(times.slow_start)
        await send({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        for number, word in enumerate(words):
            if fault == "cut" and number == 40:
                return False
            if fault == "stalled" and number == 20:
                await asyncio.sleep(times.stall)
                return False
            if fault == "malformed" and number == 10:
                await connection.send_chunk(b'data: {"id": "chatcmpl-1", "choices": [{"delta": {"content": \n\n')
            text = f" {word}" if number or is_continued else word
            await send({"index": 0, "delta": {"content": text}, "finish_reason": None})
            await asyncio.sleep(times.word)
        await send({"index": 0, "delta": {}, "finish_reason": "stop"})
        if prompt is not None:
            await send(usage=_usage(prompt, len(words)))
        if fault != "no-done":
            await connection.send_chunk(b"data: [DONE]\n\n")
        await connection.end_stream()
        return True

    async def _error(
        self,
        connection: Connection,
        status: int,
        message: str,
        code: str | None,
        retry_after: float | None = None,
    ) -> bool:
        kind = "invalid_request_error" if status == 400 else "server_error"
        headers = f"retry-after: {retry_after:g}\r\n" if retry_after is not None else ""
        value = {"error": {"message": message, "type": kind, "code": code}}
        await connection.send_json(status, value, headers)
        return True

    def _log(self, at: float, model: str, action: str) -> None:
        with self._lock:
            self._seen.append(LoggedRequest(at, model, action))


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}

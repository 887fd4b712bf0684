"""A hosted API for `--client-only`: right in four formats, unless a defect is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from antiphon_devtools.conform.conversation import Answer, Call, Contents, Usage
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.http_server import Connection, RawServer, Request
from antiphon_devtools.conform.rules import violations

KEY = "sk-hosted"
MODEL = "hosted-model"
PORTS = dict.fromkeys(FORMATS, 0)
ARGUMENTS: dict[str, dict[str, Any]] = {"weather": {"city": "Oslo"}, "clock": {}, "book_table": {"guests": 2}}


class HostedApi(RawServer):
    """`on_answer` and `on_error` change what it sends: the defects. `is_stuck_after_a_leave` answers nothing any more."""

    def __init__(self) -> None:
        super().__init__(PORTS)
        self.make_right()

    def make_right(self) -> None:
        self.on_answer: Callable[[Answer, Contents], Answer] = lambda answer, asked: answer
        self.on_bytes: Callable[[bytes], bytes] = lambda data: data
        self.on_error: Callable[[int, bytes], tuple[int, bytes]] = lambda status, data: (status, data)
        self.accepts_everything = False
        self.is_stuck_after_a_leave = False
        self._is_stuck = False

    async def respond(self, request: Request, connection: Connection) -> bool:
        known = FORMATS[request.service]
        problem = None if self.accepts_everything else self._problem(request)
        if self._is_stuck:
            problem = (503, "stuck")
        if problem is not None:
            status, data = self.on_error(problem[0], msgspec.json.encode(known.write_error(*problem)))
            await connection.send(status, data, "application/json")
            return True
        body = msgspec.json.decode(request.body) if request.body.endswith(b"}") else {}
        asked = known.read_request(body)
        answer = self.on_answer(answer_of(asked), asked)
        if not (body.get("stream") or ":streamGenerateContent" in request.path):
            await connection.send(
                200, self.on_bytes(msgspec.json.encode(known.write_answer(answer, MODEL))), "application/json"
            )
            return True
        await connection.start_stream("text/event-stream")
        self._is_stuck = self.is_stuck_after_a_leave
        for event in known.write_events(answer, MODEL):
            if changed := self.on_bytes(event):
                await connection.send_chunk(changed)
        await connection.end_stream()
        return True

    def _problem(self, request: Request) -> tuple[int, str] | None:
        known = FORMATS[request.service]
        if not any(KEY in value for value in request.headers.values()):
            return 401, "wrong key"
        if not known.endpoint.generates(request.path):
            return 404, "no such path"
        try:
            body = msgspec.json.decode(request.body)
        except msgspec.DecodeError:
            return 400, "the body is not JSON"
        if MODEL not in (body.get("model") or request.path):
            return 404, "no such model"
        broken = violations(request.service, body, request.path)
        return (400, broken[0].message) if broken else None


def answer_of(asked: Contents) -> Answer:
    usage = Usage(input=20, output=10)
    if asked.tool_choice == "required" or asked.tool_choice in asked.tools:
        name = asked.tool_choice if asked.tool_choice in asked.tools else next(iter(asked.tools))
        return Answer(text="", calls=(Call("call_1", name, ARGUMENTS[name]),), finish="tool_calls", usage=usage)
    if asked.schema is not None:
        return Answer(text='{"city":"Oslo","degrees":7}', usage=usage)
    if asked.settings.get("max_tokens", 1024) <= 64:
        return Answer(text="Once upon", finish="length", usage=usage)
    return Answer(text="It rains in Oslo.", usage=usage)


def without_calls(answer: Answer, asked: Contents) -> Answer:
    return replace(answer, calls=(), text=answer.text or "I would rather not.", finish="stop")


def with_arguments(**arguments: Any) -> Callable[[Answer, Contents], Answer]:
    return lambda answer, asked: replace(
        answer, calls=tuple(replace(call, arguments=arguments) for call in answer.calls)
    )

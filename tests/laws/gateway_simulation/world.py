"""One gateway process between real sockets: steps are taken, everything that can be seen of them is gathered and judged.

`World.take` performs a step and returns what is wrong, each problem as one line that begins with its rule. The judging is the
model's (`model.py`) where it concerns attempts, charges and statuses; here are the rules that need the bytes: error shapes,
secrets, log lines, metrics, status records, contents, and bodies that are held too long.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import structs

from antiphon.parts import Text, TokenUsage, ToolCallRequest
from antiphon.wire import formats
from antiphon.wire.request import Message, ModelRequest
from gateway.rig import path_of
from laws.gateway_simulation.contents import content_problems, error_problems
from laws.gateway_simulation.fault_upstream import Attempt, FaultUpstream
from laws.gateway_simulation.model import ANYTHING, judged
from laws.gateway_simulation.process import GatewayProcess
from laws.gateway_simulation.raw_client import Answer, KeptConnection, exchange
from laws.gateway_simulation.setup import (
    ANSWER,
    LONG_ANSWER,
    NOTE,
    PATIENCE,
    PROVIDERS,
    READ_SECONDS,
    change_model,
    config_text,
    credential,
    fresh_model,
    request_body,
    upstream_key,
)
from laws.gateway_simulation.steps import (
    BAD_NAMES,
    Ask,
    Count,
    DamageState,
    Embed,
    Foreign,
    HeadOnly,
    Pause,
    Read,
    Reload,
    Revoke,
    Step,
    targets_of,
)
from laws.gateway_simulation.view import GatewayView

FOREIGN_HEADERS = {
    "host": {"host": "evil.example:8000"},
    "origin": {"origin": "https://evil.example"},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "text/plain": {"content-type": "text/plain"},
}
_SLOW_READING = 0.3
TIMED = "overhead:"
"""The beginning of problems that are about measured times."""
_PAUSE = 1.3
_AT_ITS_LIMIT = b"rate limit exceeded for this key"


class World:
    """A fresh gateway. Close it with the context that made it (`fresh_world`)."""

    def __init__(self, process: GatewayProcess, folder: Path, upstreams: dict[str, FaultUpstream], *, has_keys: bool):
        self._process = process
        self._upstreams = upstreams
        self._trace: list[Attempt] = upstreams["chat"].trace
        self._config = folder / "antiphon.toml"
        self._state = folder / "responses.db"
        self._is_damaged = False
        self._number = 0
        self._reloads = 0.0
        self._kept = KeptConnection()
        self.unjudged = 0
        """How many steps this machine was too slow for."""
        self.model = fresh_model(has_keys=has_keys)
        self._state.unlink(missing_ok=True)
        (folder / "note.txt").write_text(NOTE)
        self._config.write_text(self._config_text)
        self.port, _ = process.start(self._config)
        self._view = GatewayView(process, self.port)

    def close(self) -> None:
        self._kept.close()
        self._process.stop()

    def take(self, step: Step) -> list[str]:
        """Take a step; what is wrong about it."""
        self._number += 1
        self._view.begin()
        self._trace.clear()
        for upstream in self._upstreams.values():
            upstream.queue.clear()
            upstream.refused.clear()
            upstream.gone.clear()
            upstream.text, upstream.parts = ANSWER, ()
            upstream.usage = TokenUsage(
                prompt_tokens=4 + self._number % 5, completion_tokens=3 + self._number % 7, total_tokens=0
            )
        problems = list(self._taken(step))
        problems += self._awaited_reload()
        return [*problems, *self._view.end()]

    def _taken(self, step: Step) -> Iterator[str]:
        requests: dict[type, Callable[[Any], Iterator[str]]] = {
            Ask: self._ask,
            Embed: self._embed,
            Count: self._count,
            Read: self._look,
            Foreign: self._foreign,
            HeadOnly: self._head_only,
            Reload: self._reload,
        }
        if type(step) in requests:
            yield from requests[type(step)](step)
        elif isinstance(step, Revoke):
            keys = self._upstreams[step.provider].keys
            (keys.add if step.is_restored else keys.discard)(upstream_key(step.provider, 0))
        elif isinstance(step, Pause):
            time.sleep(_PAUSE)
        elif isinstance(step, DamageState):
            with closing(sqlite3.connect(self._state)) as database:
                for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                    if not name.startswith("sqlite_"):
                        database.execute(f"DROP TABLE {name}")
                database.commit()
            self._is_damaged = True

    def _ask(self, step: Ask) -> Iterator[str]:
        mark = self._new_mark()
        body = request_body(step, mark)
        self._queue(step.faults)
        first = next((target.partition("/")[0] for target in targets_of(step.model)), "")
        if step.leaves and first:
            self._upstreams[first].queue.append("stall" if step.leaves == "before the head" else "stall in half")
        for upstream in self._upstreams.values():
            if step.shape == "tools":
                upstream.parts = (ToolCallRequest("weather", "call_1", '{"city": "Oslo"}'),)
            if step.long_answer:
                upstream.text = LONG_ANSWER
        if step.is_reloaded:
            self._reload_meanwhile(first)
        yield from self._asked(step, body, mark)
        if step.is_reloaded:
            self.model.reloaded_meanwhile()

    def _asked(self, step: Ask, body: bytes, mark: str) -> Iterator[str]:
        path = path_of(step.client, quote(step.model, safe=""), streams=step.streams)
        begin = time.monotonic()
        got = exchange(
            self.port,
            "POST",
            path,
            {"content-type": "application/json", "x-request-id": mark, **credential(step.client, step.key)},
            body,
            leaves=step.leaves,
            pause=_SLOW_READING if step.reads_slowly else 0.0,
            patience=PATIENCE,
            kept=self._kept if step.is_kept and not step.reads_slowly else None,
        )
        is_turned_away = got.status == 401 or (got.status == 429 and _AT_ITS_LIMIT in got.body)
        record = None if is_turned_away else self._view.record(mark)
        end = time.monotonic()
        yield from self._view.leaks("the answer", got.text)
        if step.leaves == "before the head" and (not self._trace or self.model.admitted(step.key, begin, end) is None):
            self.model.may_take_request(step.key, begin, end)
            return  # its answer is unknown
        is_in = yield from self._gate(step.key, got, begin, end, name=step.model)
        if not is_in:
            yield from self._refused_without(got, step.client)
            return
        client = self.model.clients.get(step.key) if self.model.has_keys else None
        name = client.name if client else ""
        if step.model in BAD_NAMES.values() or (client is not None and not client.may_use(step.model)):
            if not 400 <= got.status < 500:
                yield f"names: {step.model[:40]!r} is answered with {got.status}"
            yield from self._refused_without(got, step.client)
            if b"no route for" not in got.body:  # a name of Gemini's is in the path, which may then lead nowhere
                yield from self._written_down(record, frozenset({got.status}), name, (0, 0))
            return
        attempts = judged(self._trace)
        if _is_too_slow(record, attempts):
            self.unjudged += 1
            self.model.forget(name)
        elif step.leaves:
            yield from self._left(step, got, record, name, attempts)
        elif step.previous_field and (self._is_store_asked(step) or (self._is_damaged and got.status >= 500)):
            # The gateway looks it up for upstreams that cannot: it does not exist, or its own store fails.
            if got.status not in (400, 404) and not (self._is_damaged and got.status == 503):
                yield f"status: {got.status} for a response that does not exist"
            yield from self._refused_without(got, step.client)
            yield from self._written_down(record, frozenset({got.status}), name, (0, 0))
            yield from self._view.counted(got.status, name, (0, 0), 0, 0)
        else:
            yield from self._ended(step, got, record, name, attempts, begin)
            yield from content_problems(step, got, mark, attempts, self._upstreams["chat"].text)
        if step.shape == "large":
            self._trace.clear()
            for by in self._process.held(mark)[:1]:
                yield f"memory: after the request its body is still held: {by}"

    def _reload_meanwhile(self, provider: str) -> None:
        """Let the first answer take its time, and have the configuration read again while it comes."""
        if self.model.has_rejections:
            return  # the request may have met them before or after the reload
        if provider:
            self._upstreams[provider].queue.append("slow trickle")
        self._reloads = self._view.before.reloads + 1
        self._process.hang_up()

    def _ended(
        self, step: Ask, got: Answer, record: dict[str, Any] | None, name: str, attempts: list[Attempt], begin: float
    ) -> Iterator[str]:
        cost = self._upstreams["chat"].usage.total
        ending = self.model.ending(step.model, attempts, got.status, cost, begin)
        reported = ending.charge
        if ending.is_answer and self._is_usage_unknown(step, attempts[-1]):
            reported = (0, cost)
        for problem in ending.problems:
            yield f"attempts: {problem}"
        if got.status not in ending.statuses:
            yield f"status: {got.status or got.trouble} instead of {sorted(ending.statuses)} after {_attempts_text(attempts)}"
        if got.status >= 400:
            yield from error_problems(got, step.client)
        charge = self._estimate(step) if ending.is_broken else ending.charge
        yield from self._written_down(record, ending.statuses, name, charge, reported=reported, attempts=attempts)
        self._charge_cut(name, attempts, self._estimate(step)[1])
        if record is not None and ending.is_broken and not record["error"]:
            yield "record: a stream that broke is recorded without an error"
        if record is not None and step.reads_slowly and record["seconds"] >= _SLOW_READING:
            ours = record["seconds"] - 0.5 * _SLOW_READING  # until the buffers are full the gateway works meanwhile
            if record["overhead_seconds"] > ours:
                yield f"{TIMED} the client's slow reading counts as overhead ({record['overhead_seconds']:.2f} s)"
        yield from self._view.counted(got.status, name, reported, len(attempts), ending.failed)
        if got.status == 429 and ending.last is not None:
            yield from self._view.check_announced_waits(got, ending.last)

    def _charge_cut(self, name: str, attempts: list[Attempt], most: int) -> None:
        """What an attempt may have cost that was cut before anything was shown: its provider had begun to answer."""
        if self.model.has_keys:
            self.model.charge(name, 0, most * sum("stream_cut" in attempt.outcome for attempt in attempts))

    def _left(
        self, step: Ask, got: Answer, record: dict[str, Any] | None, name: str, attempts: list[Attempt]
    ) -> Iterator[str]:
        for attempt in attempts:
            self.model.note(attempt, counts=attempt is not attempts[-1])
        if not attempts or attempts[-1].outcome == "authentication" or got.status not in (0, 200):
            return  # it had ended before the client could leave
        if not attempts[-1].fault.startswith("stall"):  # another target answered, perhaps before the client left
            charge = (0, self._estimate(step)[1])
            yield from self._written_down(record, frozenset({200, 499}), name, charge, reported=(0, ANYTHING))
            return
        is_shown = step.leaves == "in mid-stream"
        charge = self._estimate(step) if is_shown else (0, self._estimate(step)[1])
        if is_shown and not got.body:
            yield f"status: nothing of a stream came ({got.trouble})"
        upstream = self._upstreams[attempts[-1].provider]
        if not upstream.gone.wait(PATIENCE):
            yield "left: the upstream's connection is kept after the client left"
        known = attempts if is_shown else None  # an attempt that was given up before its answer came may be left out
        yield from self._written_down(record, frozenset({499}), name, charge, reported=(0, ANYTHING), attempts=known)

    def _is_store_asked(self, step: Ask) -> bool:
        """Whether the gateway looks up itself what a request continues from: its first target cannot."""
        same_format = {"openai-responses": "responses/", "gemini-interactions": "interactions/"}[step.client]
        return not targets_of(step.model)[0].startswith(same_format)

    def _is_usage_unknown(self, step: Ask, last: Attempt) -> bool:
        """Whether an upstream was not asked what its stream cost: the client did not, and is not limited by tokens."""
        is_chat = step.streams and step.client == "openai-chat" and last.provider in ("chat", "spare")
        client = self.model.clients.get(step.key) if self.model.has_keys else None
        return is_chat and not step.has_usage and (client is None or client.tokens_per_minute is None)

    def _estimate(self, step: Ask) -> tuple[int, int]:
        """What a stream without an end may be charged: something, and no more than a token for each byte that passed."""
        return 1, len(request_body(step, "mark")) + len(self._upstreams["chat"].text.encode()) + 100

    def _embed(self, step: Embed) -> Iterator[str]:
        self._queue(step.faults)
        body = {"model": step.model, "input": "Is it raining?"}
        request_id = self._new_mark()
        begin = time.monotonic()
        got = self._json("/v1/embeddings", body, step.key, request_id)
        end = time.monotonic()
        yield from self._view.leaks("the answer", got.text)
        is_in = yield from self._gate(step.key, got, begin, end)
        if not is_in:
            yield from self._refused_without(got, "openai-chat")
            return
        client = self.model.clients.get(step.key) if self.model.has_keys else None
        if step.model in BAD_NAMES.values() or (client is not None and not client.may_use(step.model)):
            if not 400 <= got.status < 500:
                yield f"names: {step.model[:40]!r} is answered with {got.status} for embeddings"
            yield from self._refused_without(got, "openai-chat")
            return
        attempts = judged(self._trace)
        cost = self._upstreams["chat"].usage.prompt_tokens
        ending = self.model.ending(step.model, attempts, got.status, cost, begin)
        for problem in ending.problems:
            yield f"embeddings: {problem}"
        if got.status not in ending.statuses:
            yield f"embeddings: status {got.status} instead of {sorted(ending.statuses)} after {_attempts_text(attempts)}"
        name = client.name if client else ""
        record = self._view.record(request_id)
        yield from self._written_down(record, ending.statuses, name, ending.charge, attempts=attempts)
        self._charge_cut(name, attempts, len(msgspec.json.encode(body)))
        yield from self._view.counted(got.status, name, ending.charge, len(attempts), ending.failed)

    def _count(self, step: Count) -> Iterator[str]:
        request = ModelRequest(messages=(Message("user", (Text("Is it raining?"),)),), max_output_tokens=100)
        named = structs.replace(request, model=step.model)
        body = formats[step.client].write_request(named).body
        if step.client == "gemini":
            path = f"/v1beta/models/{quote(step.model, safe='')}:countTokens"
            body = {"contents": body["contents"]}
        else:
            path = "/v1/messages/count_tokens"
            body.pop("max_tokens", None)
        begin = time.monotonic()
        got = self._json(path, body, step.key, self._new_mark(), client=step.client)
        yield from self._view.leaks("the answer", got.text)
        is_in = yield from self._gate(step.key, got, begin, time.monotonic())
        client = self.model.clients.get(step.key) if self.model.has_keys else None
        if not is_in or step.model in BAD_NAMES.values() or (client is not None and not client.may_use(step.model)):
            if got.status < 400:
                yield f"names: {step.model[:40]!r} is counted with {got.status}"
            yield from self._refused_without(got, step.client)
            return
        for attempt in self._trace:
            self.model.note(attempt, counts=False)
        is_rejected = any(attempt.outcome == "authentication" for attempt in self._trace)
        may_fail = is_rejected or (not self._trace and self._may_lack_keys(step.model))
        if got.status != 200 and not may_fail:
            yield f"count: status {got.status}: {got.text[:200]}"

    def _look(self, step: Read) -> Iterator[str]:
        begin = time.monotonic()
        got = exchange(self.port, "GET", step.path, credential("openai-chat", step.key), b"", patience=PATIENCE)
        yield from self._view.leaks(step.path, got.text)
        if step.path == "/healthz":
            if got.status != 200:
                yield f"status: {step.path} is {got.status}"
            return
        if step.path == "/readyz":
            names = [name for name in PROVIDERS if f'"{name}"' in got.text]
            if names and self.model.has_keys:
                yield f"readyz: names providers to anybody: {', '.join(names)}"
            return
        if self.model.has_keys and step.path.startswith(("/status", "/metrics")):  # refused before limits are looked at
            if got.status not in (401, 403):
                yield f"status: {step.path} is answered with {got.status} to a client that is not the operator"
            return
        is_in = yield from self._gate(step.key, got, begin, time.monotonic())
        if is_in and got.status != 200:
            yield f"status: {step.path} is {got.status}"

    def _foreign(self, step: Foreign) -> Iterator[str]:
        headers = {"content-type": "application/json", **credential("openai-chat", "open"), **FOREIGN_HEADERS[step.how]}
        body = request_body(Ask(), "mark")
        if step.path == "generate":
            got = exchange(self.port, "POST", "/v1/chat/completions", headers, body, patience=PATIENCE)
        else:
            got = exchange(self.port, "GET", step.path, headers, b"", patience=PATIENCE)
        if not self.model.has_keys and (got.status < 400 or self._trace):
            yield f"foreign: {step.how} is answered with {got.status} at {step.path}"
        for attempt in self._trace:
            self.model.note(attempt)

    def _head_only(self, step: HeadOnly) -> Iterator[str]:
        if not self.model.has_keys:
            return
        path = path_of(step.client, "to-openai-chat", streams=False)
        headers = {
            "content-type": "application/json",
            "content-length": "3000000",
            **credential(step.client, step.key),
        }
        got = exchange(self.port, "POST", path, headers, None, patience=1.5)
        if got.status != 401:
            yield f"keys: the body is awaited before the key is checked ({got.status or got.trouble})"
        yield from self._view.leaks("the answer", got.text)

    def _reload(self, step: Reload) -> Iterator[str]:
        change_model(self.model, step.change)
        if step.change == "bad file":
            yield from self._reloaded("[[models]\nname =")
        yield from self._reloaded(self._config_text)
        self.model.reloaded()

    def _reloaded(self, text: str) -> Iterator[str]:
        """Save a configuration and wait until it was read."""
        self._reloads = self._view.counters().reloads + 1
        self._config.write_text(text)
        self._process.hang_up()
        yield from self._awaited_reload()

    def _awaited_reload(self) -> Iterator[str]:
        until = time.monotonic() + PATIENCE
        while self._view.counters().reloads < self._reloads:
            if time.monotonic() > until:
                yield "reload: the configuration is neither applied nor refused"
                return
            time.sleep(0.01)

    def _gate(self, key: str, got: Answer, begin: float, end: float, *, name: str = "") -> Generator[str, None, bool]:
        """Whether the request was let in; and whether that was right."""
        is_no_path = name in BAD_NAMES.values() and got.status in (400, 404)  # such a name may stand in the path
        model = self.model
        if model.has_keys and key not in model.clients:
            if got.status != 401 and not is_no_path:
                yield f"keys: a {key or 'missing'} key is answered with {got.status}"
            yield from self._view.counted(got.status, "", (0, 0), 0, 0, is_asked=False)
            return False
        if b"no route for" in got.body:
            return True  # refused before limits are looked at
        may_enter = model.admitted(key, begin, end)
        is_in = not (got.status == 429 and _AT_ITS_LIMIT in got.body)
        if may_enter is not None and may_enter != is_in:
            yield f"limits: {key} is {'let in' if is_in else 'refused'} against its limits ({self._level(key)})"
        if is_in:
            model.take_request(key)
        elif "retry-after" not in got.headers:
            yield "limits: a refusal does not say when to come back"
        return is_in

    def _level(self, key: str) -> str:
        return ", ".join(
            f"{kind} {bounds.least:.2f} to {bounds.most:.2f}"
            for (name, kind), bounds in self.model.buckets.items()
            if name == key
        )

    def _refused_without(self, got: Answer, client: str) -> Iterator[str]:
        """Nothing was asked of anybody, and the refusal is one that the client understands."""
        if self._trace:
            yield f"refused: {_attempts_text(self._trace)} was asked for a request that is refused with {got.status}"
        for attempt in self._trace:
            self.model.note(attempt)
        if got.status >= 400:
            yield from error_problems(got, client)

    def _written_down(
        self,
        record: dict[str, Any] | None,
        statuses: frozenset[int],
        name: str,
        charge: tuple[int, int],
        *,
        reported: tuple[int, int] | None = None,
        attempts: list[Attempt] | None = None,
    ) -> Iterator[str]:
        """The request is recorded as it was, and its key is charged; `reported` is what is known of its usage, if less."""
        yield from self._view.written_down(record, statuses, name, reported or charge, attempts=attempts)
        if self.model.has_keys:
            self.model.charge(name, *charge)

    @property
    def _config_text(self) -> str:
        return config_text(self.model, self._upstreams, self._state)

    def _may_lack_keys(self, model: str) -> bool:
        now = time.monotonic()
        targets = [target.partition("/") for target in targets_of(model)]
        return any(not self.model.free_keys(provider, name, now) for provider, _, name in targets)

    def _new_mark(self) -> str:
        return f"mark{self._number}x{time.monotonic_ns()}"

    def _queue(self, faults: tuple[tuple[str, str], ...]) -> None:
        for provider, fault in faults:
            self._upstreams[provider].queue.append(fault)

    def _json(self, path: str, body: Any, key: str, request_id: str, client: str = "openai-chat") -> Answer:
        headers = {"content-type": "application/json", "x-request-id": request_id, **credential(client, key)}
        return exchange(self.port, "POST", path, headers, msgspec.json.encode(body), patience=PATIENCE)


@contextmanager
def fresh_world(
    process: GatewayProcess, upstreams: dict[str, FaultUpstream], folder: Path, *, has_keys: bool
) -> Iterator[World]:
    """A gateway that has seen nothing yet."""
    for name, (_, count) in PROVIDERS.items():
        upstreams[name].keys = {upstream_key(name, number) for number in range(count)}
    world = World(process, folder, upstreams, has_keys=has_keys)
    try:
        yield world
    finally:
        world.close()


def _is_too_slow(record: dict[str, Any] | None, attempts: list[Attempt]) -> bool:
    """Whether an upstream that did not stall took longer than the gateway waits: it runs on the same busy machine."""
    if record is None or any(attempt.fault.startswith("stall") for attempt in attempts):
        return False
    errors = [record["error"], *(known.get("error", "") for known in record["attempts"])]
    return record["seconds"] >= READ_SECONDS and any(error.startswith("timeout:") for error in errors)


def _attempts_text(attempts: list[Attempt]) -> str:
    return ", ".join(f"{attempt.provider} ({attempt.fault or attempt.outcome})" for attempt in attempts) or "no attempt"

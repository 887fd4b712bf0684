"""What can be seen of a gateway from outside: `/status`, `/metrics` and the log; and whether they say what happened."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from laws.gateway_simulation.fault_upstream import Attempt
from laws.gateway_simulation.model import UNCERTAIN
from laws.gateway_simulation.process import GatewayProcess
from laws.gateway_simulation.raw_client import Answer, exchange
from laws.gateway_simulation.setup import OPERATOR, PATIENCE, SECRETS, bearer

_LINE_OF_A_REQUEST = re.compile(r"\b(\d{3}) in [\d.]+ s")
_METRIC = re.compile(r"^(antiphon_\w+)(?:\{(.*)\})? ([0-9.e+-]+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Counters(Struct, frozen=True):
    """What the metrics count, as far as the law speaks of it."""

    requests: dict[tuple[str, str], float]
    tokens: dict[str, float]
    attempts: float
    failures: float
    reloads: float


class GatewayView:
    """The operator's eyes on one gateway. Everything that is read is searched for secrets."""

    def __init__(self, process: GatewayProcess, port: int) -> None:
        self._process = process
        self._port = port
        self._log = ""
        self._leaked: set[str] = set()
        self._known_leaks: set[str] = set()
        process.new_log()
        self.before = self.counters()
        """The counters before the step."""

    def begin(self) -> None:
        """A step begins."""
        self._log = ""

    def end(self) -> list[str]:
        """A step is over: the secrets that were seen meanwhile."""
        self._log += self._process.new_log()
        problems = list(self.leaks("the log", self._log))
        self.before = self.counters()
        problems += sorted(self._leaked - self._known_leaks)
        self._known_leaks |= self._leaked
        return problems

    def leaks(self, place: str, text: str) -> Iterator[str]:
        """The secrets in a text."""
        for secret in SECRETS:
            if secret in text:
                at = text.index(secret)
                yield f"secrets: {secret[:14]}… is in {place}: {text[max(0, at - 60) : at]!r}"

    def record(self, request_id: str) -> dict[str, Any] | None:
        """The record of a request, once it is over."""
        until = time.monotonic() + 2.0
        while True:
            found = [known for known in self.status()["requests"] if known["id"] == request_id]
            if found or time.monotonic() > until:
                return found[0] if found else None
            time.sleep(0.01)

    def status(self) -> Any:
        """What `/status` says."""
        got = exchange(self._port, "GET", "/status?format=json", bearer(OPERATOR), b"", patience=PATIENCE)
        assert got.status == 200, got.text
        self._leaked.update(self.leaks("/status", got.text))
        return got.json

    def counters(self) -> Counters:
        """What `/metrics` says."""
        got = exchange(self._port, "GET", "/metrics", bearer(OPERATOR), b"", patience=PATIENCE)
        assert got.status == 200, got.text
        self._leaked.update(self.leaks("/metrics", got.text))
        requests: dict[tuple[str, str], float] = {}
        tokens: dict[str, float] = {}
        sums = {
            "antiphon_upstream_attempts_total": 0.0,
            "antiphon_upstream_failures_total": 0.0,
            "antiphon_reloads_total": 0.0,
        }
        for name, labels, value in _METRIC.findall(got.text):
            label = dict(_LABEL.findall(labels))
            if name == "antiphon_requests_total":
                place = (label["status"], label["key"])
                requests[place] = requests.get(place, 0) + float(value)
            elif name == "antiphon_tokens_total" and label["kind"] in ("prompt", "completion"):
                tokens[label["key"]] = tokens.get(label["key"], 0) + float(value)
            elif name in sums:
                sums[name] += float(value)
        return Counters(requests, tokens, *sums.values())

    def log_lines(self, request_id: str) -> list[dict[str, Any]]:
        """The log lines of a request."""
        self._log += self._process.new_log()
        lines = [line for line in self._log.splitlines() if f'"{request_id}"' in line]
        return [msgspec.json.decode(line) for line in lines]

    def written_down(
        self,
        record: dict[str, Any] | None,
        statuses: frozenset[int],
        name: str,
        charge: tuple[int, int],
        *,
        attempts: list[Attempt] | None = None,
    ) -> Iterator[str]:
        """The record of `/status` and the log say what happened."""
        if record is None:
            yield "record: the request is not in /status"
        else:
            if record["status"] not in statuses:
                yield f"record: {record['status']} in /status instead of {sorted(statuses)}"
            if record["key"] != name:
                yield f"record: the key is {record['key']!r} instead of {name!r}"
            tokens = record["prompt_tokens"] + record["completion_tokens"]
            if not charge[0] <= tokens <= charge[1]:
                yield f"charged: {tokens} tokens in /status instead of {_range(charge)}"
            if attempts is not None and len(record["attempts"]) != len(attempts):
                yield f"record: {len(record['attempts'])} attempts in /status, the upstreams saw {len(attempts)}"
            lines = [line for line in self.log_lines(record["id"]) if _LINE_OF_A_REQUEST.search(line["message"])]
            logged_statuses = [int(_LINE_OF_A_REQUEST.findall(line["message"])[0]) for line in lines]
            if len(logged_statuses) != 1 or logged_statuses[0] not in statuses:
                yield f"log: {logged_statuses} in the log instead of one line with {sorted(statuses)}"

    def counted(
        self, status: int, name: str, charge: tuple[int, int], attempts: int, failed: int, *, is_asked: bool = True
    ) -> Iterator[str]:
        """The metrics grew by this request and nothing else."""
        before, now = self.before, self.counters()
        grown = {place: count - before.requests.get(place, 0) for place, count in now.requests.items()}
        grown = {place: count for place, count in grown.items() if count}
        if is_asked and grown != {(str(status), name): 1}:
            yield f"metrics: {grown} instead of one request with {status} of {name!r}"
        tokens = now.tokens.get(name, 0) - before.tokens.get(name, 0)
        if not charge[0] <= tokens <= charge[1]:
            yield f"charged: {tokens:g} tokens in /metrics instead of {_range(charge)}"
        if now.attempts - before.attempts != attempts or now.failures - before.failures != failed:
            yield (
                f"metrics: {now.attempts - before.attempts:g} attempts and {now.failures - before.failures:g} failures "
                f"instead of {attempts} and {failed}"
            )

    def check_announced_waits(self, got: Answer, last: Attempt) -> Iterator[str]:
        """A client that comes back after Retry-After must not be turned away by our own cooldown."""
        retry_after = float(got.headers.get("retry-after", "0"))
        status = self.status()
        now = msgspec.convert(status["server"]["now"], str)
        waits = [
            _seconds(rest["until"]) - _seconds(now)
            for row in status["credentials"]
            for rest in row["resting"]
            if row["provider"] == last.provider and rest["model"] == last.model and rest["until"]
        ]
        rows = [row for row in status["credentials"] if row["provider"] == last.provider]
        if waits and len(waits) == len(rows) and min(waits) > retry_after + UNCERTAIN:
            yield f"retry-after: {retry_after:g} s announced, {min(waits):.0f} s needed"


def _range(charge: tuple[int, int]) -> str:
    return str(charge[0]) if charge[0] == charge[1] else f"at least {charge[0]}"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()

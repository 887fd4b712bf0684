"""`python -m bench failover`: what a client gets while the provider fails, in the sixteen scenarios of the public Failover Bench.

Scenarios, budgets and verdicts follow its methodology 0.1 (github.com/failoverbench/failoverbench); the code and the texts are
ours. Each scenario is one request (S15: a sequence) through a gateway whose route has a failing primary and a healthy fallback:

    pass      the complete answer (S13: a clean error), and no remark about how it came
    partial   the complete answer, with a remark
    safe      no answer, but a clean error within its time
    fail      it hung, a cut answer looked complete, or a rule was broken

The gateway is judged from outside: by what the client got, and by the requests that the provider saw.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, structs

from bench.failover.faulty_provider import ANSWER, HEALTHY, NO_PREFILL, FaultyProvider, LoggedRequest, Times

Verdict = Literal["pass", "partial", "safe", "fail"]
QUESTION = "Explain in sixty words why a gateway is trusted."


class ClientResult(Struct, kw_only=True):
    """What a client got for one request."""

    outcome: Literal["answer", "error", "hang"] = "answer"
    text: str = ""
    model: str = ""
    usage: dict[str, Any] | None = None
    error: str = ""
    seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        return self.outcome == "answer" and self.text.split() == ANSWER.split()


class Observation(Struct, kw_only=True):
    """One scenario as the client and the provider saw it."""

    times: Times
    got: ClientResult
    primary: list[LoggedRequest]
    fallback: list[LoggedRequest]
    is_alive: bool
    sequence: list[tuple[float, ClientResult]] = []
    """Of S15: when each request was sent, and what it got."""

    @property
    def gap(self) -> float:
        """Seconds between the first two attempts at the primary; 0 if there was one."""
        return self.primary[1].at - self.primary[0].at if len(self.primary) > 1 else 0.0

    def attempts_within(self, seconds: float) -> int:
        return sum(seen.at - self.primary[0].at < seconds for seen in self.primary)


Check = Callable[[Observation], bool]


class Scenario(Struct, frozen=True, kw_only=True):
    """One fault. `required` must hold; what of `advised` does not hold is a remark."""

    id: str
    title: str
    fault: str
    fallback: str = HEALTHY
    wants_error: bool = False
    required: dict[str, Check] = {}
    advised: dict[str, Check] = {}
    facts: dict[str, Callable[[Observation], str]] = {}
    """What is reported and not judged."""

    @property
    def model(self) -> str:
        """The primary's model, and the name of the route."""
        return f"{self.id.lower()}-{self.fault}"


def _at_most(attempts: int) -> Check:
    return lambda seen: len(seen.primary) <= attempts


def _recovered(seen: Observation) -> bool:
    healthy = [each.at for each in seen.primary if each.action == "answer"]
    return bool(healthy) and min(healthy) - seen.times.outage <= seen.times.recovery_budget


def _served_in_outage(seen: Observation) -> bool:
    during = [got for at, got in seen.sequence if at < seen.times.outage]
    return bool(during) and all(got.is_complete for got in during)


def _attempts_in_outage(seen: Observation) -> str:
    requests = sum(at < seen.times.outage for at, _ in seen.sequence)
    return f"{sum(each.at < seen.times.outage for each in seen.primary)} attempts for {requests} requests in the outage"


def _no_prefill_error(seen: Observation) -> bool:
    return seen.got.outcome != "error" or all(each.action != "prefill refused" for each in seen.fallback)


SCENARIOS = (
    Scenario(
        id="S01",
        title="429 with Retry-After",
        fault="limited-once",
        required={"does not hammer": lambda seen: seen.attempts_within(1.5) <= 2},
        advised={
            "retries": lambda seen: len(seen.primary) >= 2,
            "honours Retry-After": lambda seen: seen.gap >= seen.times.first_gap,
        },
    ),
    Scenario(
        id="S02",
        title="429 without end",
        fault="limited",
        required={"does not hammer": lambda seen: seen.attempts_within(3) <= 4, "few attempts": _at_most(6)},
    ),
    Scenario(
        id="S03",
        title="500 once",
        fault="broken-once",
        advised={"retries the same provider": lambda seen: len(seen.primary) >= 2},
    ),
    Scenario(id="S04", title="503 without end", fault="overloaded", required={"few attempts": _at_most(6)}),
    Scenario(id="S05", title="connection reset before the head", fault="reset-once"),
    Scenario(
        id="S06",
        title="no response at all",
        fault="silent",
        required={"within its budget": lambda seen: seen.got.seconds <= seen.times.silence_budget},
        advised={"does not retry a silent provider": _at_most(1)},
    ),
    Scenario(
        id="S07",
        title="slow first token",
        fault="slow",
        advised={"limits the first token": lambda seen: seen.got.seconds <= seen.times.first_token_budget},
    ),
    Scenario(id="S08", title="stream cut in the answer", fault="cut"),
    Scenario(
        id="S09",
        title="stream stalls",
        fault="stalled",
        required={
            "within its budget": lambda seen: seen.got.seconds <= seen.times.stall_budget,
            "alive afterwards": lambda seen: seen.is_alive,
        },
    ),
    Scenario(
        id="S10",
        title="malformed chunk",
        fault="malformed",
        required={"alive afterwards": lambda seen: seen.is_alive},
        advised={"recovers": lambda seen: seen.got.is_complete},
    ),
    Scenario(
        id="S11",
        title="no [DONE]",
        fault="no-done",
        required={"ends at once": lambda seen: seen.got.seconds <= seen.times.end_budget},
        advised={"reports usage": lambda seen: bool(seen.got.usage)},
    ),
    Scenario(
        id="S12",
        title="context length exceeded",
        fault="too-long",
        required={"asks the model once": lambda seen: len(seen.primary) == 1},
    ),
    Scenario(
        id="S13",
        title="content filter",
        fault="filtered",
        wants_error=True,
        required={"asks the model once": lambda seen: len(seen.primary) == 1},
    ),
    Scenario(
        id="S14",
        title="fallback refuses prefill",
        fault="cut",
        fallback=NO_PREFILL,
        required={"no error about prefill": _no_prefill_error},
    ),
    Scenario(
        id="S15",
        title="outage and recovery",
        fault="down",
        required={"serves during the outage": _served_in_outage, "returns to the primary": _recovered},
        facts={"probes": _attempts_in_outage},
    ),
    Scenario(
        id="S16",
        title="accounting of a fallback",
        fault="overloaded",
        required={
            "names the model that answered": lambda seen: HEALTHY in seen.got.model,
            "few attempts": _at_most(6),
        },
        advised={"reports usage": lambda seen: bool(seen.got.usage)},
    ),
)


class Result(Struct, frozen=True, kw_only=True):
    """The verdict of one scenario, with its reasons and numbers."""

    id: str
    verdict: Verdict
    remarks: tuple[str, ...]
    seconds: float
    attempts: tuple[int, int]
    """At the primary and at the fallback."""


def judge(scenario: Scenario, seen: Observation) -> Result:
    """The verdict, by the rules of the public bench."""
    broken = tuple(name for name, check in scenario.required.items() if not check(seen))
    missed = tuple(name for name, check in scenario.advised.items() if not check(seen))
    gots = [got for _, got in seen.sequence] or [seen.got]
    is_rescued = all(got.is_complete for got in gots)
    remarks = missed
    verdict: Verdict
    if any(got.outcome == "hang" for got in gots):
        verdict, remarks = "fail", ("hangs",)
    elif not scenario.wants_error and any(got.outcome == "answer" and not got.is_complete for got in gots):
        verdict, remarks = "fail", ("a cut answer looks complete",)
    elif broken:
        verdict, remarks = "fail", broken
    elif scenario.wants_error:
        verdict = "pass" if seen.got.outcome == "error" else "partial"
        remarks = () if verdict == "pass" else ("another model answered",)
    elif is_rescued:
        verdict = "partial" if missed else "pass"
    else:
        verdict, remarks = "safe", (seen.got.error[:80],)
    remarks += tuple(f"{name}: {fact(seen)}" for name, fact in scenario.facts.items())
    return Result(
        id=scenario.id,
        verdict=verdict,
        remarks=remarks,
        seconds=round(seen.got.seconds, 1),
        attempts=(len(seen.primary), len(seen.fallback)),
    )


HeadersFor: TypeAlias = Callable[[str, str], Mapping[str, str]]
"""The headers of a request for a model, with its fallback, where a gateway is configured by them."""


def run_scenario(
    scenario: Scenario,
    provider: FaultyProvider,
    url: str,
    times: Times,
    key: str = "bench",
    headers_for: HeadersFor | None = None,
) -> Result:
    """Run one scenario through the gateway at `url`."""
    provider.restart()
    headers = headers_for(scenario.model, scenario.fallback) if headers_for else None
    began = time.monotonic()
    sequence: list[tuple[float, ClientResult]] = []
    if scenario.fault == "down":
        for number in range(times.requests):
            time.sleep(max(0.0, began + number * times.interval - time.monotonic()))
            at = time.monotonic() - began
            sequence.append((at, ask(url, scenario.model, times.longest, key=key, headers=headers)))
        bad = [got for _, got in sequence if not got.is_complete]
        got = structs.replace((bad or [sequence[-1][1]])[0], seconds=time.monotonic() - began)
    else:
        got = ask(url, scenario.model, times.longest, key=key, headers=headers)
    primary, fallback = provider.seen(scenario.model), provider.seen(scenario.fallback)
    headers = headers_for(HEALTHY, HEALTHY) if headers_for else None
    is_alive = ask(url, HEALTHY, 10.0, streams=False, key=key, headers=headers).is_complete
    seen = Observation(times=times, got=got, primary=primary, fallback=fallback, is_alive=is_alive, sequence=sequence)
    return judge(scenario, seen)


def ask(
    url: str,
    model: str,
    seconds: float,
    *,
    streams: bool = True,
    key: str = "bench",
    headers: Mapping[str, str] | None = None,
) -> ClientResult:
    """One request, read as a careful client reads it: an error event is an error, a broken line is passed over."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=seconds)
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": QUESTION}]}
    if streams:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}", **(headers or {})}
    began = time.monotonic()
    got = ClientResult()
    try:
        connection.request("POST", f"{address.path}/chat/completions", msgspec.json.encode(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            got = ClientResult(outcome="error", error=f"HTTP {response.status}: {response.read(300)!r}")
        elif not streams:
            answer = msgspec.json.decode(response.read())
            got = ClientResult(
                text=answer["choices"][0]["message"]["content"], model=answer["model"], usage=answer.get("usage")
            )
        else:
            _read_stream(response, got, began + seconds)
    except TimeoutError:
        got = ClientResult(outcome="hang", error="no result in time")
    except (http.client.HTTPException, ConnectionError) as error:
        got = structs.replace(got, outcome="error", error=f"{type(error).__name__}: {error}")
    finally:
        connection.close()
    got.seconds = time.monotonic() - began
    return got


def _lines(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    """The lines of a stream. Not by `readline`, which takes a cut stream for a whole one."""
    rest = b""
    while piece := response.read1(65536):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if time.monotonic() > deadline:
            raise TimeoutError
    yield rest


def _read_stream(response: http.client.HTTPResponse, got: ClientResult, deadline: float) -> None:
    for line in _lines(response, deadline):
        data = line.strip().removeprefix(b"data:").strip()
        if not line.startswith(b"data:") or data == b"[DONE]":
            continue
        try:
            chunk = msgspec.json.decode(data)
        except msgspec.DecodeError:
            continue
        if chunk.get("error"):
            got.outcome, got.error = "error", f"error event: {chunk['error']}"
            return
        got.model = chunk.get("model") or got.model
        got.usage = chunk.get("usage") or got.usage
        for choice in chunk.get("choices") or ():
            got.text += (choice.get("delta") or {}).get("content") or ""

"""The order of a run: every case, through every pair of a client format and a provider format.

A pair is probed first with one short message. Where the gateway has no such endpoint or route, its cases are "not applicable",
with its answer as the reason. Cases run one after the other, so that each request at a provider belongs to a known case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import Struct

from antiphon_devtools.conform.case import CLIENT_GROUPS, Case
from antiphon_devtools.conform.client import Client
from antiphon_devtools.conform.client_judge import judge_client_side
from antiphon_devtools.conform.conversation import Answer, Reply, Turn, Violation
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.gateways import Gateway
from antiphon_devtools.conform.http_server import wait_until
from antiphon_devtools.conform.judge import Finding, Run, Verdict, judge
from antiphon_devtools.conform.rules import violations
from antiphon_devtools.conform.upstream import Cut, MockProviders, Script

PROBE = Case(id="probe", title="one message", group="probe", turns=(Turn(user="Is it raining in Oslo?"),), mode="whole")
NO_SUCH_MODEL = "conform-no-such-model"
_RECOVERED_WITHIN = 20.0
_SERVED_IN_A_ROW = 4
_BETWEEN_PROBES = 0.2
_ARRIVED_WITHIN = 10.0
_MOST_CUTS = 12
"""Cut places per case; longer streams are cut at so many places, spread evenly."""


class Result(Struct, frozen=True):
    """The verdict of a case for one pair."""

    case: str
    group: str
    title: str
    client: str
    upstream: str
    verdict: Verdict
    reason: str = ""
    """Why a case does not apply."""
    findings: list[Finding] = []
    streamed: bool = False
    """Whether the findings are of the streamed run."""
    seconds: float = 0.0


class Plan(Struct, frozen=True, kw_only=True):
    """What to run, and within which bounds."""

    cases: Sequence[Case]
    clients: Sequence[str]
    upstreams: Sequence[str]
    cancel_seconds: float = 5.0
    total_seconds: float = 900.0


class OutOfTime(Exception):
    """The bound of the whole run was reached."""


class Runner:
    """Runs a plan against one gateway."""

    def __init__(self, client: Client, providers: MockProviders | None, gateway: Gateway, plan: Plan) -> None:
        self._client = client
        self._providers = providers
        self._gateway = gateway
        self._plan = plan
        self._deadline = time.monotonic() + plan.total_seconds

    def results(self) -> Iterator[Result]:
        """The result of each case as soon as it is known. Raises `OutOfTime`."""
        for client in self._plan.clients:
            for upstream in self._plan.upstreams if self._providers is not None else ("",):
                yield from self._pair(client, upstream)

    def _pair(self, client: str, upstream: str) -> Iterator[Result]:
        reason = self._gateway.missing(client, upstream) or self._probe(client, upstream)
        for case in self._plan.cases:
            if time.monotonic() > self._deadline:
                raise OutOfTime(f"not finished within {self._plan.total_seconds:g} s")
            why = reason or self._not_expressible(case, client, upstream)
            began = time.monotonic()
            if why:
                verdict, findings, streamed = "not applicable", list[Finding](), False
            else:
                verdict, findings, streamed = self._case(case, client, upstream)
            yield Result(
                case.id,
                case.group,
                case.title,
                client,
                upstream,
                verdict,  # type: ignore[arg-type]
                why,
                findings,
                streamed,
                round(time.monotonic() - began, 3),
            )

    def _not_expressible(self, case: Case, client: str, upstream: str) -> str:
        if case.clients and client not in case.clients:
            return f"cannot be written as {client}"
        if self._providers is None:
            if case.mistake == "key" and not self._client.has_key:
                return "no key was given"
            return "" if case.client_only else "needs a mock provider"
        if case.group in CLIENT_GROUPS:
            return "is judged with --client-only"
        if case.upstreams and upstream not in case.upstreams:
            return f"does not concern {upstream}"
        if case.model and not self._gateway.has_newer:
            return "the gateway passes any model name on"
        return ""

    def _probe(self, client: str, upstream: str) -> str:
        """Why the gateway cannot connect these formats; empty if it can."""
        reply = self._send(PROBE, client, upstream, Script(), streams=False)
        if reply.status == 200:
            return ""
        arrived = self._providers.arrived() if self._providers is not None else []
        if any(each.violations for each in arrived):
            return ""  # it connects them, and sends what the API refuses: the cases show it
        others = self._providers.other_paths() if self._providers is not None else []
        asked = f"; it asked for {others[0]}" if others else ""
        return f"no route from {client} to {upstream or 'the API'}: {reply.status}: {reply.error[:120]}{asked}"

    def _case(self, case: Case, client: str, upstream: str) -> tuple[Verdict, list[Finding], bool]:
        if case.leave and self._providers is None:
            found = self._leave_hosted(case, client)
            return ("failed" if found else "passed"), found, True
        if case.leave:
            found = self._leave(case, client, upstream) + self._recover(case, client, upstream)
            return ("failed" if found else "passed"), found, case.leave == "stream"
        if case.cut:
            found = self._cuts(case, client, upstream) + self._recover(case, client, upstream)
            return ("failed" if found else "passed"), found, True
        verdict: Verdict = "passed"
        for streams in case.modes:
            verdict, findings = self._once(case, client, upstream, Script(case.answer, case.fault), streams=streams)
            findings += self._recover(case, client, upstream)
            if findings:
                return "failed", findings, streams
        return verdict, [], False

    def _once(
        self, case: Case, client: str, upstream: str, script: Script, *, streams: bool
    ) -> tuple[Verdict, list[Finding]]:
        reply = self._send(case, client, upstream, script, streams=streams)
        providers = self._providers
        run = Run(
            case,
            client,
            upstream,
            reply,
            providers.arrived() if providers is not None else [],
            self._own_violations(case, client, upstream),
            script.cut is not None,
            providers.other_paths() if providers is not None else [],
        )
        return judge(run) if providers is not None else judge_client_side(run)

    def _own_violations(self, case: Case, client: str, upstream: str) -> list[Violation]:
        """Rules of its own API that the client's request breaks; where both ends speak one format, also those of the model."""
        model = self._gateway.upstream_model(upstream, case) if client == upstream else "conform"
        body = self._body(case, client, model, streams=False)
        return violations(client, body, FORMATS[client].endpoint.path_of(model, False))

    def _body(self, case: Case, client: str, model: str, *, streams: bool) -> object:
        if self._providers is None:  # newer models of OpenAI refuse max_tokens: only the case about it sends it
            case = msgspec.structs.replace(case, has_limit=False)
        body = FORMATS[client].write_request(case.dialogue, model, streams) | case.bodies.get(client, {})
        body.pop(case.omitted.get(client, ""), None)
        return body

    def _send(
        self,
        case: Case,
        client: str,
        upstream: str,
        script: Script,
        *,
        streams: bool,
        leave: Callable[[], bool] | None = None,
    ) -> Reply:
        if self._providers is not None:
            self._providers.begin(script)
        model = NO_SUCH_MODEL if case.mistake == "model" else self._gateway.client_model(upstream, case)
        return self._client.send(
            FORMATS[client],
            self._body(case, client, model, streams=streams),
            model,
            streams=streams,
            headers=self._gateway.headers(upstream, self._providers.ports if self._providers else {}),
            prefix=self._gateway.prefix,
            mistake=case.mistake,
            leave=leave,
        )

    def _recover(self, case: Case, client: str, upstream: str) -> list[Finding]:
        """Wait until the gateway serves again: it may rest a key or a route, or still hold connections that were closed."""
        is_harmless = not (case.fault.status or case.fault.reset or case.cut or case.leave)
        if is_harmless:
            return []
        deadline, served = time.monotonic() + _RECOVERED_WITHIN, 0
        while served < _SERVED_IN_A_ROW and time.monotonic() < deadline:
            reply = self._send(PROBE, client, upstream, Script(), streams=bool(served % 2))
            if reply.status == 200 and not reply.error:
                served += 1
            else:
                served = 0
                time.sleep(_BETWEEN_PROBES)
        if served == _SERVED_IN_A_ROW:
            return []
        return [Finding("recovery", f"requests are served again within {_RECOVERED_WITHIN:g} s", "they still fail")]

    def _cuts(self, case: Case, client: str, upstream: str) -> list[Finding]:
        known = FORMATS[upstream]
        events = known.write_events(case.answer, "conform")
        last = known.cut_places(events)
        places = list(range(1, last + 1)) if case.cut != "inside" else list(range(last))
        if len(places) > _MOST_CUTS:
            step = len(places) / _MOST_CUTS
            places = [places[int(number * step)] for number in range(_MOST_CUTS - 1)] + [places[-1]]
        found = []
        for place in places:
            cut = Cut(place, inside=case.cut == "inside", torn=case.cut != "ended")
            _, findings = self._once(case, client, upstream, Script(case.answer, cut=cut), streams=True)
            found += [
                msgspec.structs.replace(each, got=f"cut after {place} of {len(events)} events: {each.got}")
                for each in findings
            ]
        return found

    def _leave(self, case: Case, client: str, upstream: str) -> list[Finding]:
        providers = self._providers
        assert providers is not None

        def has_arrived() -> bool:
            return wait_until(lambda: bool(providers.arrived()), _ARRIVED_WITHIN)

        hold: Script = Script(_LONG_ANSWER, hold=case.leave)
        reply = self._send(case, client, upstream, hold, streams=case.leave == "stream", leave=has_arrived)
        if reply.problems or not providers.arrived():
            return [Finding("cancel", "a request at the provider", reply.error or "none arrived")]
        bound = self._plan.cancel_seconds
        if wait_until(lambda: any(each.held_seconds is not None for each in providers.arrived()), bound):
            return []
        return [Finding("cancel", f"the provider's connection closed within {bound:g} s of the client's", "still open")]

    def _leave_hosted(self, case: Case, client: str) -> list[Finding]:
        """Leave a stream; the server must still serve others. What its provider does cannot be seen."""
        reply = self._send(case, client, "", Script(), streams=True, leave=lambda: True)
        if reply.status != 200:
            return [Finding("cancel", "a stream", f"{reply.status or 'no answer'}: {reply.error[:200]}")]
        return self._recover(case, client, "")


_LONG_ANSWER = Answer(text=" ".join(["word"] * 60))

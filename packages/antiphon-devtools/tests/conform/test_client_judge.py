"""`--client-only`: a right API passes in every format, and each defect of a wrong one makes its case fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from antiphon_devtools.conform.case import load_cases
from antiphon_devtools.conform.client import NO_KEY, Client
from antiphon_devtools.conform.conversation import Call, Usage
from antiphon_devtools.conform.formats import FORMATS
from antiphon_devtools.conform.gateways import Gateway
from antiphon_devtools.conform.run import Plan, Result, Runner
from conform.hosted_api import KEY, MODEL, HostedApi, with_arguments, without_calls

CASES = {case.id: case for case in load_cases() if case.client_only}


@pytest.fixture(scope="module")
def running() -> Iterator[HostedApi]:
    with HostedApi() as api:
        yield api


@pytest.fixture
def api(running: HostedApi) -> HostedApi:
    running.make_right()
    return running


def conform(api: HostedApi, name: str, *cases: str, key: str = KEY) -> list[Result]:
    plan = Plan(cases=[CASES[each] for each in cases or CASES], clients=[name], upstreams=())
    client = Client(f"http://127.0.0.1:{api.ports[name]}", key, 10)
    return list(Runner(client, None, Gateway(models={"": MODEL}), plan).results())


@pytest.mark.parametrize("name", FORMATS)
def test_a_right_api_passes_every_case(api: HostedApi, name: str) -> None:
    results = conform(api, name)
    assert [each for each in results if each.verdict == "failed"] == []
    verdicts = [each.verdict for each in results]
    assert verdicts.count("passed") > 20
    assert verdicts.count("refused") > 0  # it repairs nothing
    unknown = {each.reason for each in results if each.verdict == "not applicable"}
    assert unknown <= {f"cannot be written as {name}"}


def change(old: bytes, new: bytes) -> Callable[[HostedApi], None]:
    return lambda api: setattr(api, "on_bytes", lambda data: data.replace(old, new))


def set_answer(**fields: object) -> Callable[[HostedApi], None]:
    return lambda api: setattr(api, "on_answer", lambda answer, asked: replace(answer, **fields))


def set_error(status: int | None = None, body: bytes | None = None) -> Callable[[HostedApi], None]:
    return lambda api: setattr(api, "on_error", lambda given, data: (status or given, data if body is None else body))


def accept_everything(api: HostedApi) -> None:
    api.accepts_everything = True


HTML = b"<html>404</html>"
DETAIL = b'{"detail": "no"}'
DEFECTS: dict[str, tuple[str, Callable[[HostedApi], None], str, str]] = {
    "empty answers": ("answer-text", set_answer(text=""), "answer", "some text"),
    "object renamed": ("answer-text", change(b"chat.completion", b"completion"), "shape", "object is"),
    "system prompt refused": ("system", set_error(400), "answer", "400"),
    "streams without end": ("turns", change(b"data: [DONE]\n\n", b""), "answer", "no proper end"),
    "no usage": ("usage", change(b'"usage"', b'"used"'), "usage", "none"),
    "usage of zero": ("usage", set_answer(usage=Usage(0, 0, 0, 0)), "usage", "more than 0 input tokens"),
    "more cached than input": ("usage", set_answer(usage=Usage(10, 20, 5, 0)), "usage", "at most 10 cached"),
    "forced call not made": (
        "choice-required",
        lambda api: setattr(api, "on_answer", without_calls),
        "call",
        "I would rather not",
    ),
    "another tool than the named one": (
        "choice-named",
        set_answer(calls=(Call("call_1", "weather", {"city": "Oslo"}),)),
        "call",
        "a call of weather",
    ),
    "required argument missing": (
        "choice-required",
        lambda api: setattr(api, "on_answer", with_arguments(town="Oslo")),
        "call",
        'arguments: "city" is a required property',
    ),
    "argument of another type": (
        "choice-required",
        lambda api: setattr(api, "on_answer", with_arguments(city=7)),
        "call",
        'arguments.city: 7 is not of type "string"',
    ),
    "fragments without index": ("choice-named", change(b'"index":0,"id"', b'"id"'), "shape", "needs an index"),
    "call although none is allowed": (
        "choice-none",
        set_answer(calls=(Call("call_1", "weather", {"city": "Oslo"}),)),
        "answer",
        "tool_choice is none",
    ),
    "limit not reported": ("answer-length", set_answer(finish="stop"), "answer", "finish reason length"),
    "unknown finish reason": ("stop", change(b'"finish_reason":"stop"', b'"finish_reason":"eos"'), "shape", "eos"),
    "schema ignored": ("structured-output", set_answer(text="Seven degrees."), "answer", "a text that is JSON"),
    "schema not kept": (
        "structured-output",
        set_answer(text='{"city":"Oslo","degrees":"7"}'),
        "answer",
        'answer.degrees: "7" is not of type "integer"',
    ),
    "more than the schema": (
        "structured-output",
        set_answer(text='{"city":"Oslo","degrees":7,"sky":"grey"}'),
        "answer",
        "answer: Additional properties are not allowed ('sky' was unexpected)",
    ),
    "image refused in another shape": ("image", set_error(400, DETAIL), "shape", "the body must be"),
    "broken conversation refused with 500": ("missing-result", set_error(500), "answer", "500"),
    "broken conversation refused in another shape": (
        "orphan-result",
        set_error(body=DETAIL),
        "shape",
        "the body must be",
    ),
    "unknown model answered": ("unknown-model", accept_everything, "error", "400 or 403 or 404"),
    "missing messages answered": ("missing-messages", accept_everything, "error", "400 or 422"),
    "bad JSON is an internal error": ("bad-json", set_error(500), "error", "500"),
    "wrong key answered": ("wrong-key", accept_everything, "error", "400 or 401 or 403"),
    "unknown path as a page": ("unknown-path", set_error(404, HTML), "shape", "not JSON"),
}
REFUSES_ALL = {"system prompt refused", "image refused in another shape"}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_makes_its_case_fail(api: HostedApi, defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, spoil, check, words = DEFECTS[defect]
    [before] = conform(api, "openai-chat", case)
    assert before.verdict in ("passed", "refused")
    spoil(api)
    if defect in REFUSES_ALL:  # of the case, not of the first request that looks for a route
        right = api._problem
        refused = (400, "this is refused")
        monkeypatch.setattr(api, "_problem", lambda request: refused if MARKS[case] in request.body else right(request))
    [result] = conform(api, "openai-chat", case)
    assert result.verdict == "failed"
    assert check in [finding.check for finding in result.findings]
    assert words in " ".join(f"{finding.expected} {finding.got}" for finding in result.findings)


MARKS = {"system": b'"system"', "image": b"image_url"}


def test_a_server_that_hangs_after_a_client_left_fails(api: HostedApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("antiphon_devtools.conform.run._RECOVERED_WITHIN", 0.5)
    [result] = conform(api, "anthropic", "leave-in-stream")
    assert result.verdict == "passed"
    api.is_stuck_after_a_leave = True
    [result] = conform(api, "anthropic", "leave-in-stream")
    assert [finding.check for finding in result.findings] == ["recovery"]


def test_the_wrong_key_is_not_tried_without_a_key(api: HostedApi) -> None:
    api.accepts_everything = True
    [result] = conform(api, "openai-chat", "wrong-key", key=NO_KEY)
    assert (result.verdict, result.reason) == ("not applicable", "no key was given")


def test_every_kind_of_expectation_is_used() -> None:
    used = {case.client_only.expects for case in CASES.values() if case.client_only}
    assert used == {"answer", "usage", "call", "json", "length", "error", "served"}

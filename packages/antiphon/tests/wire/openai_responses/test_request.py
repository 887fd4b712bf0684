"""Requests of Responses: what becomes of items, tools, parameters and ids, and what is lost."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from msgspec import structs

from antiphon.errors import WireError
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest, OutputFormat, Reasoning, ToolChoice, ToolDefinition
from support.corpus import in_collection
from support.wire_formats import RESPONSES
from wire.openai_responses.bodies import (
    FORMAT,
    OBJECT,
    Body,
    normalised,
    request_bodies,
    written,
)

read_request = RESPONSES.read_request
write_request = RESPONSES.write_request
check_request = RESPONSES.check_request

USER = Message("user", (Text("hi"),))


def written_items(*messages: Message, **fields: Any) -> list[Any]:
    body, losses = written(ModelRequest(messages=messages, **fields))
    assert losses == []
    given_items: list[Any] = body["input"]
    return given_items


def own(**fields: Any) -> dict[str, dict[str, Any]]:
    return {FORMAT: fields}


def test_every_recorded_request_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    bodies = adjusted = 0
    for body in request_bodies():
        before = copy.deepcopy(body)
        again, losses = written(read_request(body))
        assert body == before
        bodies += 1
        if check_request(body):
            # Hosts that are not OpenAI take ids of their own, and some records are of refused requests: made legal.
            assert losses
            assert not [found for found in check_request(again) if found.rule in ("OR-05", "OR-09", "OR-14")]
            adjusted += 1
        elif losses:
            # Codex after a cut stream: reasoning that nothing of its turn follows is dropped.
            assert all("(OR-21)" in loss.why for loss in losses)
            dropped = len(normalised(body)["input"]) - len(normalised(again)["input"])
            assert dropped == len(losses) == 1
            adjusted += 1
        else:
            assert normalised(again) == normalised(body)
    assert bodies > in_collection(800)
    assert adjusted <= 12
    with capsys.disabled():
        print(f"\n{bodies} request bodies round trip, {adjusted} of them break a rule and are made legal")


CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"a": 1}'}
CUSTOM = {"type": "custom_tool_call", "call_id": "call_1", "name": "patch", "input": "*** Begin"}
ANSWER = {"type": "function_call_output", "call_id": "call_1", "output": "seen"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}
SCREEN = {"type": "computer_call_output", "call_id": "call_9", "output": {"type": "computer_screenshot"}}
MORE_TOOLS = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
LOOK = ToolCallRequest("look", "call_1", '{"a": 1}')


def message_item(text: str, **fields: Any) -> Body:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "annotations": [], "text": text}],
        **fields,
    }


# fmt: off
CASES: list[tuple[str, list[Any], list[Message]]] = [
    ("text", [{"role": "user", "content": "hi"}], [USER]),
    ("developer", [{"role": "developer", "content": "be kind"}], [Message("developer", (Text("be kind"),))]),
    ("a system item stays an item", [{"role": "system", "content": "be kind"}],
     [Message("system", (Text("be kind"),), source=Source(FORMAT))]),
    ("ids of users", [{"type": "message", "role": "user", "content": "hi", "id": "msg_7", "status": "completed"}],
     [Message("user", (Text("hi"),), None, own(id="msg_7", status="completed"))]),
    ("images", [{"role": "user", "content": [
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"},
        {"type": "input_image", "image_url": "https://a.example/b.png"},
        {"type": "input_image", "file_id": "file-1"},
    ]}], [Message("user", (
        Image("image/png", "AAAA", native={"openai": {"detail": "low"}}),
        Image(url="https://a.example/b.png"),
        Image(file_id="file-1"),
    ))]),
    ("files", [{"role": "user", "content": [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="},
        {"type": "input_file", "file_url": "https://a.example/b.pdf"},
        {"type": "input_file", "file_id": "file-1"},
    ]}], [Message("user", (
        Document("application/pdf", "JVBERi0=", name="a.pdf"),
        Document("text/plain", text="hi", name="a.txt"),
        Document(url="https://a.example/b.pdf"),
        Document(file_id="file-1"),
    ))]),
    ("sound", [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}]}],
     [Message("user", (Audio("audio/mpeg", "AA==", source=Source(FORMAT)),))]),
    ("content not known yet", [{"role": "user", "content": [{"type": "input_smell", "x": 1}]}],
     [Message("user", (Native(FORMAT, {"type": "input_smell", "x": 1}),))]),
    ("cache mark", [{"role": "user", "content": [{"type": "input_text", "text": "a", "prompt_cache_breakpoint": {}}]}],
     [Message("user", (Text("a", native={"openai": {"prompt_cache_breakpoint": {}}}),))]),
    ("a turn is one message", [message_item("So.", id="msg_1"), CALL, ANSWER, {"role": "user", "content": "hi"}], [
        Message("assistant", (Text("So.", native=own(item={"id": "msg_1"})), LOOK)),
        Message("tool", (ToolCallResult("", "call_1", content=(Text("seen"),)),)),
        USER,
    ]),
    ("reasoning", [REASONING, {**CALL, "id": "fc_1", "status": "completed"}, ANSWER], [
        Message("assistant", (
            Thinking("hm", native=own(id="rs_1", summary=REASONING["summary"])),
            structs.replace(LOOK, native=own(id="fc_1", status="completed")),
        )),
        Message("tool", (ToolCallResult("", "call_1", content=(Text("seen"),)),)),
    ]),
    ("two messages in a row", [{"role": "assistant", "content": "a"}, {"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "annotations": [], "text": "b"}]}],
     [Message("assistant", (Text("a"), Text("b", native=own(item={}))))]),
    ("one message of two parts", [{"type": "message", "role": "assistant", "content": [
        {"type": "refusal", "refusal": "no"}, {"type": "output_text", "text": "b"}]}],
     [Message("assistant", (Refusal("no"), Text("b")))]),
    ("citations", [{"type": "message", "role": "assistant", "content": [
        {"type": "output_text", "text": "b", "annotations": [{"type": "url_citation"}]}]}],
     [Message("assistant", (Text("b", native=own(annotations=[{"type": "url_citation"}])),))]),
    ("freeform", [CUSTOM, {**ANSWER, "type": "custom_tool_call_output"}], [
        Message("assistant", (ToolCallRequest("patch", "call_1", "*** Begin", freeform=True),)),
        Message("tool", (ToolCallResult("", "call_1", content=(Text("seen"),)),)),
    ]),
    ("an answer whose call is elsewhere", [{**ANSWER, "type": "custom_tool_call_output"}],
     [Message("tool", (ToolCallResult("", "call_1", content=(Text("seen"),), native=own(type="custom_tool_call_output")),))]),
    ("an answer with a picture", [CALL, {**ANSWER, "output": [
        {"type": "input_text", "text": "so"}, {"type": "input_image", "image_url": "https://a.example/b.png"}]}], [
        Message("assistant", (LOOK,)),
        Message("tool", (ToolCallResult("", "call_1", content=(Text("so"), Image(url="https://a.example/b.png"))),)),
    ]),
    ("hosted tools", [SEARCH, {"role": "assistant", "content": "b"}],
     [Message("assistant", (Native(FORMAT, SEARCH), Text("b")))]),
    ("what a client's tool gave", [SCREEN], [Message("user", (Native(FORMAT, SCREEN),), source=Source(FORMAT))]),
    ("more tools", [MORE_TOOLS, {"role": "developer", "content": "b"}], [
        Message("developer", (Native(FORMAT, MORE_TOOLS),), source=Source(FORMAT)),
        Message("developer", (Text("b"),)),
    ]),
    ("a reference", [{"id": "msg_1"}], [Message("assistant", (Native(FORMAT, {"id": "msg_1"}),))]),
    ("no message at all", [7, {"role": "critic", "content": "x"}], [
        Message("unknown", (Native(FORMAT, 7),)),
        Message("unknown", (Native(FORMAT, {"role": "critic", "content": "x"}),)),
    ]),
]
# fmt: on


@pytest.mark.parametrize(("given_items", "messages"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_items_are_messages_and_messages_items(given_items: list[Any], messages: list[Message]) -> None:
    assert list(read_request({"input": given_items}).messages) == messages
    assert normalised({"input": written_items(*messages)}) == normalised({"input": given_items})


def test_instructions_are_the_leading_system_message() -> None:
    body = {"instructions": "be kind", "input": "hi"}
    request = read_request(body)
    assert request.messages == (Message("system", (Text("be kind"),)), USER)
    assert written(request) == ({"instructions": "be kind", "input": [{"role": "user", "content": "hi"}]}, [])


def test_other_system_messages_are_items() -> None:
    system, later = Message("system", (Text("a"),)), Message("system", (Text("b"),))
    body, losses = written(ModelRequest(messages=(system, later, Message("developer", (Text("c"),)), USER, later)))
    assert losses == []
    assert body["instructions"] == "a"
    assert [item["role"] for item in body["input"]] == ["system", "developer", "user", "system"]
    blocks = Message("system", (Text("a"), Text("b")))
    body, losses = written(ModelRequest(messages=(blocks, USER)))
    assert losses == []
    assert [part["text"] for part in body["input"][0]["content"]] == ["a", "b"]


def test_instructions_alone_are_an_item() -> None:
    assert written_items(Message("system", (Text("a"),))) == [{"role": "system", "content": "a"}]
    body, _ = written(
        ModelRequest(messages=(Message("system", (Text("a"),)),), native=own(previous_response_id="resp_1"))
    )
    assert body == {"previous_response_id": "resp_1", "instructions": "a"}


def test_state_and_settings_survive() -> None:
    body = {
        "model": "some-model",
        "previous_response_id": "resp_1",
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "truncation": "auto",
        "background": True,
        "context_management": [{"type": "compaction"}],
        "max_tool_calls": 3,
        "stream_options": {"include_obfuscation": False},
        "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "a", "schema": OBJECT}, "tone": "dry"},
        "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"},
        "safety_identifier": "u1",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "service_tier": "flex",
        "temperature": 0,
        "metadata": {"a": "b"},
    }
    request = read_request(body)
    assert (request.user, request.cache_key, request.verbosity, request.logprobs) == ("u1", "k", "low", True)
    assert request.reasoning == Reasoning("low", shown="auto", native=own(context="all_turns"))
    assert written(request) == (body, [])


def test_strict_has_four_values() -> None:
    tools = [{"type": "function", "name": "f", "parameters": OBJECT, **more} for more in STRICT]
    request = read_request({"input": "hi", "tools": tools})
    assert [tool.strict for tool in request.tools if isinstance(tool, ToolDefinition)] == [None, None, False, True]
    assert written(request)[0]["tools"] == [*tools[:3], {**tools[3], "strict": False}]
    closed = {"type": "object", "properties": {}, "additionalProperties": False}
    assert written(read_request({"input": "hi", "tools": [{**tools[3], "parameters": closed}]}))[1] == []


STRICT: list[Body] = [{}, {"strict": None}, {"strict": False}, {"strict": True}]


def test_tools_of_every_kind_survive() -> None:
    tools = [
        {"type": "function", "name": "f", "description": "d", "parameters": OBJECT, "defer_loading": True},
        {"type": "function", "name": "g"},
        {"type": "function", "name": "h", "strict": None, "defer_loading": True},
        {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "web_search", "search_context_size": "low"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "inner"}]},
    ]
    for choice in (
        "auto",
        "none",
        "required",
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "c"},
        {"type": "web_search"},
        {"type": "function", "name": "inner"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}, {"type": "custom", "name": "c"}]},
    ):
        body = {"input": [{"role": "user", "content": "hi"}], "tools": tools, "tool_choice": choice}
        assert written(read_request(body)) == (body, [])


def test_a_choice_without_its_tool_is_lost() -> None:
    for choice in (ToolChoice("tool", ("f",)), ToolChoice("allowed", ("f",)), ToolChoice("required")):
        body, losses = written(ModelRequest(messages=(USER,), tool_choice=choice))
        assert "tool_choice" not in body
        assert [loss.path for loss in losses] == ["tool_choice"]
    tools = (ToolDefinition("f"),)
    body, losses = written(ModelRequest(messages=(USER,), tools=tools, tool_choice=ToolChoice("allowed", ("f", "g"))))
    assert body["tool_choice"]["tools"] == [{"type": "function", "name": "f"}]
    assert [loss.what for loss in losses] == ["g"]


def test_names_are_made_legal_consistently() -> None:
    name = "files.read/write"
    call = Message("assistant", (ToolCallRequest(name, "call_1"),))
    answer = Message("tool", (ToolCallResult(name, "call_1"),))
    choice = ToolChoice("tool", (name,))
    body, losses = written(ModelRequest(messages=(call, answer), tools=(ToolDefinition(name),), tool_choice=choice))
    assert [loss.path for loss in losses] == ["tools[0].name"]
    assert len({body["tools"][0]["name"], body["tool_choice"]["name"], body["input"][0]["name"]}) == 1
    assert check_request(body) == []


def test_a_failed_result_is_written_as_text() -> None:
    call = ToolCallRequest("f", "call_1")
    outputs = []
    for content in ((Text("no file"),), (Text("Error: no file"),), (), (Image(url="https://a.example/b.png"),)):
        answer = ToolCallResult("f", "call_1", ToolExecutionStatus.FAILED, content)
        body, losses = written(ModelRequest(messages=(Message("assistant", (call,)), Message("tool", (answer,)))))
        assert [loss.path for loss in losses] == ["messages[1].parts[0].status"]
        outputs.append(body["input"][1]["output"])
    assert outputs[:3] == ["Error: no file", "Error: no file", "Error: the tool failed."]
    assert [part["type"] for part in outputs[3]] == ["input_text", "input_image"]


def test_results_among_user_text_keep_their_place() -> None:
    call = Message("assistant", (ToolCallRequest("f", "a"), ToolCallRequest("f", "b")))
    mixed = Message(
        "user",
        (
            ToolCallResult("f", "a", content=(Text("1"),)),
            ToolCallResult("f", "b", content=(Text("2"),)),
            Text("and now?"),
            Image(url="https://a.example/b.png"),
        ),
    )
    _, _, first, second, third = written_items(call, mixed)
    assert (first["output"], second["output"]) == ("1", "2")
    assert third["role"] == "user"
    assert [part["type"] for part in third["content"]] == ["input_text", "input_image"]


THOUGHT = Thinking("hm", native=own(id="rs_1", summary=[], encrypted_content="gAAA"))


def turn(*parts: Part) -> tuple[Body, list[Loss]]:
    answers = [Message("tool", (ToolCallResult.of(part, "x"),)) for part in parts if isinstance(part, ToolCallRequest)]
    return written(ModelRequest(messages=(USER, Message("assistant", parts), *answers)))


def test_ids_of_a_turn_are_sent_all_or_none() -> None:
    named = structs.replace(LOOK, native=own(id="fc_1", status="completed"))
    body, losses = turn(THOUGHT, named)
    assert [item.get("id") for item in body["input"][1:3]] == ["rs_1", "fc_1"]
    assert losses == []
    body, losses = turn(THOUGHT, Text("by hand"), named)
    assert [item.get("id") for item in body["input"][1:4]] == [None, None, None]
    assert body["input"][1]["encrypted_content"] == "gAAA"
    assert [loss.path for loss in losses] == ["messages[1].parts[0].id", "messages[1].parts[2].id"]
    empty = Thinking("hm", native=own(id="rs_1", summary=[]))
    body, losses = turn(empty, LOOK)
    assert [item.get("type") for item in body["input"][1:]] == ["function_call", "function_call_output"]
    assert [loss.what for loss in losses] == ["id", "thinking"]
    unnamed = read_request({"input": [REASONING, CALL, ANSWER]})
    assert written(unnamed)[1] == []


def test_ids_are_sent_once_and_only_if_they_are_openais() -> None:
    def named(item_id: Any) -> Text:
        return Text("a", native=own(item={"id": item_id}))

    body, losses = turn(named("msg_1"), named("msg_1"), named("item_1"), named(7), named("msg_antiphon_1"))
    assert [item.get("id") for item in body["input"][1:]] == ["msg_1", None, None, None, None]
    assert [loss.what for loss in losses] == ["id", "id", "id"]
    body, losses = turn(Native(FORMAT, SEARCH), Native(FORMAT, SEARCH))
    assert body["input"][1:] == [SEARCH]
    assert len(losses) == 1
    assert check_request(body) == []


def test_foreign_reasoning_is_not_sent() -> None:
    for thought in (Thinking("hm"), Thinking("hm", native={"anthropic": {"signature": "x"}})):
        body, losses = turn(thought, Text("a"))
        assert body["input"][1:] == [{"role": "assistant", "content": "a"}]
        assert [loss.path for loss in losses] == ["messages[1].parts[0]"]


def test_json_must_be_asked_for_in_the_input() -> None:
    wanted = OutputFormat("json_object")
    system = Message("system", (Text("Answer in JSON."),))
    body, losses = written(ModelRequest(messages=(system, USER), output_format=wanted))
    assert [item["role"] for item in body["input"]] == ["system", "user"]
    assert (losses, check_request(body)) == ([], [])
    body, losses = written(ModelRequest(messages=(USER,), output_format=wanted))
    assert [item["role"] for item in body["input"]] == ["developer", "user"]
    assert (losses, check_request(body)) == ([], [])


@pytest.mark.parametrize(
    ("reasoning", "effort", "lost"),
    [
        (Reasoning(budget_tokens=0), "none", 0),
        (Reasoning(budget_tokens=2000), "low", 0),
        (Reasoning(budget_tokens=99_999), "high", 0),
        (Reasoning(budget_tokens=-1), "medium", 0),
        (Reasoning(enabled=False), "none", 0),
        (Reasoning(enabled=True), "medium", 0),
        (Reasoning("low", budget_tokens=1), "low", 1),
        (Reasoning("low", shown="omitted"), "low", 0),
        (Reasoning("low", shown="raw"), "low", 1),
    ],
)
def test_budgets_are_efforts(reasoning: Reasoning, effort: str, lost: int) -> None:
    body, losses = written(ModelRequest(messages=(USER,), reasoning=reasoning))
    assert body["reasoning"]["effort"] == effort
    assert len(losses) == lost


def test_o_series_takes_three_efforts() -> None:
    for effort, legal in (("minimal", "low"), ("xhigh", "high"), ("medium", "medium")):
        request = ModelRequest(messages=(USER,), model="o4-mini", reasoning=Reasoning(effort))
        body, losses = written(request)
        assert body["reasoning"]["effort"] == legal
        assert bool(losses) is (effort != legal)
        assert check_request(body) == []


def test_too_few_tokens_are_sixteen() -> None:
    body, losses = written(ModelRequest(messages=(USER,), max_output_tokens=1))
    assert body["max_output_tokens"] == 16
    assert [loss.path for loss in losses] == ["max_output_tokens"]


NATIVE = {"anthropic": {"mark": 1}}
FULL: list[Any] = [
    Message("user", (Text("a"),), name="Ann"),
    Message("user", (Text("a"),), native=NATIVE),
    Message("critic", (Text("a"),)),
    Message("user", (Text("a", native=NATIVE),)),
    Message("user", (Image(data="AAAA", native=NATIVE),)),
    Message("user", (Audio("audio/wav", "AAAA"),)),
    Message("user", (Document("audio/mpeg", "AAAA"),)),
    Message("user", (Document(url="https://a.example/b.mp3"),)),
    Message("user", (Image(),)),
    Message("user", (Refusal("a"),)),
    Message("user", (Native("gemini", {"executableCode": {}}),)),
    Message("assistant", (Text("a", native=NATIVE),)),
    Message("assistant", (Image(data="AAAA"),)),
    Message("assistant", (Native("anthropic", {"type": "server_tool_use"}),)),
    Message("assistant", (Thinking("a"),)),
    Message("assistant", (ToolCallRequest("f", "a", native=NATIVE),)),
    Message("assistant", (Text("a"),), native=own(mark=1)),
    Message("tool", (ToolCallResult("f", "a", native=NATIVE),)),
    Message("tool", (ToolCallResult("f", "a", content=(Audio("audio/wav", "AAAA"),)),)),
    Message("tool", (ToolCallResult("f", "a", content=(Native("gemini", 1),)),)),
    ToolDefinition("f", native=NATIVE),
    ToolDefinition("f", parameters=OBJECT, freeform=True),
    ToolDefinition("f", parameters={"type": "string"}),
    Native("gemini", {"googleSearch": {}}),
]


@pytest.mark.parametrize("thing", FULL, ids=repr)
def test_inexpressible_fields_are_losses(thing: Any) -> None:
    if isinstance(thing, Message):
        _, losses = written(ModelRequest(messages=(USER, thing)))
    else:
        _, losses = written(ModelRequest(messages=(USER,), tools=(thing,)))
    assert len(losses) == 1
    assert losses[0].path.startswith(("messages[1]", "tools[0]"))


@pytest.mark.parametrize("given_input", [7, {}, True, 1.5])
def test_an_unreadable_body_is_refused(given_input: Any) -> None:
    with pytest.raises(WireError, match="input: expected a string or an array"):
        read_request({"input": given_input})


def test_office_documents_are_sent_as_files() -> None:
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    request = ModelRequest(model="gpt-5", messages=(Message("user", (Document(kind, "AAAA"),)),))
    losses: list[Loss] = []
    body = write_request(request, losses)
    file = {"type": "input_file", "filename": "document.docx", "file_data": f"data:{kind};base64,AAAA"}
    assert (body["input"], losses) == ([{"role": "user", "content": [file]}], [])

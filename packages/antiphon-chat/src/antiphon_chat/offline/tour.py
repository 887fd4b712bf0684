"""The guided tour: what it offers, and what each of the four things does.

Each runs the real machinery: the search and the plan are tool calls of the loop; `pause` is a tool that gives a person the time
to kill the process; the request bodies are rendered from the context of the call; rollback and fork are done on a copy of the
history. A step looks at the calls of the turn that have results, and decides the next call or the answer.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from datetime import date
from functools import partial
from itertools import starmap
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from antiphon.history import AgentHistory, ContextEntry, ContextEntryRole, ModelInputEntry, ModelOutputEntry, Origin
from antiphon.parts import Text, ToolCallResult, ToolExecutionStatus, text_of
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.rendering import ContextRenderer
from antiphon.tools.builtin import Plan, plans_of
from antiphon.tools.builtin.plan_tools import text_without_data
from antiphon.tools.call_runner import UNKNOWN_OUTCOME
from antiphon.tools.context import ToolContext
from antiphon.tools.tool import Tool, tool
from antiphon.wire import formats
from antiphon_chat.language import Language, say
from antiphon_chat.offline.plan_request import (
    GoalChange,
    PlanRequest,
    documents_in,
    documents_of,
    plan_arguments,
    read_request,
)

PAUSE_SECONDS = 60
_MODELS = {
    "openai-chat": "gpt-4o",
    "openai-responses": "gpt-4o",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
}
_MAX_SHOWN_CHARS = 500
_CALL = re.compile(rb'"(?:tool_use|tool_calls|function_call|functionCall)"')
_SMALL_TALK: tuple[tuple[str, str], ...] = (
    (
        "hello",
        r"(?:hi|hello|hey|hiya|good\s+(?:morning|afternoon|evening)|greetings|你好|您好|嗨|哈喽|早上好|下午好|晚上好|在吗)",
    ),
    (
        "who",
        r"(?:who|what)\s+are\s+you.*|what\s+is\s+(?:this|antiphon)\??|你是谁.*|你是什么.*|这是什么.*|antiphon\s*是什么.*",
    ),
    (
        "help",
        r"help(?:\s+me)?|\?|what\s+can\s+(?:you|i)\s+do.*|what\s+do\s+you\s+do|how\s+does\s+this\s+work|start|tour|menu|"
        r"(?:请)?帮助|(?:你|我)(?:能|会|可以)(?:做|干)?(?:什么|啥).*|怎么用.*|导览|菜单|开始",
    ),
)
_TOPICS: tuple[tuple[str, str], ...] = (
    ("1", r"search,?\s+then\s+plan|先搜索，?再(?:制定)?计划"),
    ("2", r"\bkill\b|\bcrash\b|\bstop\s+me\b|杀掉|杀死|停掉|崩溃"),
    ("3", r"\bproviders?\b.*\breceive|as\s+(?:four\s+providers|each\s+provider)|服务商.*收到|四家服务商"),
    ("4", r"\broll\s*back\b|\bfork\b|回滚|分叉"),
)
_EXAMPLES: dict[Language, str] = {
    "en": "find IELTS tips, then make me a 4 week plan",
    "zh": "搜索雅思备考方法，然后制定一个4周的计划",
}


@tool(effect="once", timeout=None)
async def pause(
    context: ToolContext, seconds: Annotated[float, Meta(description="How long to wait", ge=0, le=600)] = PAUSE_SECONDS
) -> str:
    """Wait. The guided tour uses it to show what happens if the process is killed while a tool runs."""
    await asyncio.sleep(seconds)
    return f"等了 {seconds:g} 秒。" if context.language() == "zh" else f"Waited {seconds:g} seconds."


TOUR_TOOLS: tuple[Tool, ...] = (pause,)
_TOUR_CALLS = frozenset({"search_web", "create_plan", "pause"})
_LIST_CALLS = frozenset({"list_plans", "update_plan"})


class Step(Struct, frozen=True):
    """The next action: text, and the tool call with its arguments, if any."""

    text: str
    tool: str = ""
    arguments: dict[str, Any] = {}
    introduces: bool = False
    """Whether the text says that this is not a language model."""


class TourTurn(Struct, frozen=True):
    """The turn to answer: the message, its language, and the results so far."""

    message: str
    language: Language
    results: tuple[ToolCallResult, ...]
    attachments: int
    context: Sequence[ContextEntry]
    options: ProviderCallOptions
    tools: frozenset[str]
    today: date

    def result_of(self, name: str) -> ToolCallResult | None:
        return next((result for result in self.results if result.tool_name == name), None)

    def results_of(self, name: str) -> list[ToolCallResult]:
        return [result for result in self.results if result.tool_name == name]

    def say(self, sentence: str, **values: object) -> str:
        return say(self.language, sentence, **values)


def next_step(turn: TourTurn) -> Step:
    """The next call of a turn, or its answer."""
    message = turn.message.strip().strip("!！。.~ ").strip()
    for sentence, pattern in _SMALL_TALK:
        if re.fullmatch(pattern, message, re.IGNORECASE | re.DOTALL):
            return Step(turn.say(sentence), introduces=sentence != "help")
    match _topic(message):
        case "1":
            return _plan_step(turn, read_request(_EXAMPLES[turn.language], turn.language))
        case "2":
            return _pause_step(turn)
        case "3":
            return Step(_rendered(turn))
        case "4":
            return Step(_rolled_back(turn))
    if (request := read_request(turn.message, turn.language)) is not None:
        return _plan_step(turn, request)
    attached = turn.say("attached", count=turn.attachments) + " " if turn.attachments else ""
    return Step(attached + turn.say("other"), introduces=True)


def calls_of(turn: TourTurn) -> frozenset[str]:
    """The tools that the tour calls by itself in this turn."""
    request = read_request(turn.message, turn.language)
    lists = request is not None and (request.lists_plans or request.change is not None)
    return _TOUR_CALLS | _LIST_CALLS if lists else _TOUR_CALLS


def title_of(message: str, language: Language) -> str:
    """What a message that is a number of the menu chose, in the menu's words; empty for other messages."""
    chosen = re.search(rf"^{re.escape(message.strip())}\. \*\*(.+?)\*\*", say(language, "menu"), re.MULTILINE)
    return chosen[1] if chosen else ""


def _topic(message: str) -> str:
    if message in ("1", "2", "3", "4"):
        return message
    found = (
        number for number, pattern in _TOPICS if len(message) <= 120 and re.search(pattern, message, re.IGNORECASE)
    )
    return next(found, "")


def report(turn: TourTurn, result: ToolCallResult) -> str:
    """The result of a call, as it is."""
    text = text_without_data(result)
    if result.status is ToolExecutionStatus.SUCCESS:
        return turn.say("returned" if text else "returned_nothing", tool=result.tool_name, result=text)
    return turn.say(
        "failed" if result.status is ToolExecutionStatus.FAILED else "not_run", tool=result.tool_name, result=text
    )


def _plan_step(turn: TourTurn, request: PlanRequest | None) -> Step:
    assert request is not None
    if request.lists_plans or request.change is not None:
        return _list_step(turn, request.change)
    searched = turn.results_of("search_web")
    for result in searched:
        if result.status is not ToolExecutionStatus.SUCCESS:
            return Step(report(turn, result))
    if len(searched) < len(request.queries):
        query = request.queries[len(searched)]
        return _call(turn, "search_web", {"query": query}, query)
    documents = documents_of(request, [result.result_markdown for result in searched])
    if request.queries and not documents:
        nothing = turn.say("found_nothing", query=turn.say("and").join(request.queries))
        return Step(f"{nothing} {turn.say('no_plan')}" if request.wants_plan else nothing)
    if not request.wants_plan:
        return Step("\n\n".join(starmap(partial(_found, turn), zip(request.queries, searched, strict=False))))
    created = turn.result_of("create_plan")
    arguments = plan_arguments(request, documents, turn.language, turn.today)
    if created is None:
        return _call(turn, "create_plan", arguments, arguments["title"])
    if created.status is not ToolExecutionStatus.SUCCESS:
        return Step(report(turn, created))
    tasks = [
        turn.say("task_line", place=place, title=task["title"], due=task["due"])
        for place, task in enumerate(arguments["tasks"], 1)
    ]
    return Step(
        turn.say(
            "planned" if request.queries else "planned_alone",
            title=arguments["title"],
            count=len(tasks),
            goal=arguments["goal"],
            tasks="\n".join(tasks),
            sources=turn.say("comma").join(f"“{text.title}”" for text in documents),
        )
    )


def _found(turn: TourTurn, query: str, result: ToolCallResult) -> str:
    documents = documents_in(result.result_markdown, query)
    if not documents:
        return turn.say("found_nothing", query=query)
    return turn.say("found", query=query, list="\n".join(f"- {text.title}" for text in documents))


def _list_step(turn: TourTurn, change: GoalChange | None) -> Step:
    listed = turn.result_of("list_plans")
    if listed is None:
        return _call(turn, "list_plans", {}, "")
    if listed.status is not ToolExecutionStatus.SUCCESS:
        return Step(report(turn, listed))
    plans = plans_of(listed)
    if not plans:
        return Step(turn.say("no_plans") + (f" {turn.say('not_changed')}" if change else ""))
    lines = "\n".join(_plan_line(turn, place, plan) for place, plan in enumerate(plans, 1))
    if change is None:
        return Step(turn.say("plans", count=len(plans), list=lines))
    plan = change.plan_in(plans)
    if plan is None:
        return Step(turn.say("no_such_plan", list=lines))
    updated = turn.result_of("update_plan")
    if updated is None:
        return _call(turn, "update_plan", {"plan_id": plan.id, "goal": change.goal}, f"{plan.id}: {change.goal}")
    if updated.status is not ToolExecutionStatus.SUCCESS:
        return Step(report(turn, updated))
    return Step(turn.say("changed", title=plan.title, id=plan.id, goal=change.goal))


def _plan_line(turn: TourTurn, number: int, plan: Plan) -> str:
    goal = turn.say("plan_goal", goal=plan.goal) if plan.goal else ""
    return turn.say(
        "plan_line",
        number=number,
        title=plan.title,
        id=plan.id,
        done=plan.tasks_done,
        count=len(plan.tasks),
        goal=goal,
    )


def _call(turn: TourTurn, name: str, arguments: dict[str, Any], what: str) -> Step:
    if name not in turn.tools:
        return Step(turn.say("no_tool", tool=name))
    sentence = turn.say("calling", tool=name, what=what) if what else turn.say("calling_plain", tool=name)
    return Step(sentence, name, arguments)


def _pause_step(turn: TourTurn) -> Step:
    result = turn.result_of("pause")
    if result is None and "pause" not in turn.tools:
        return Step(turn.say("no_pause"))
    if result is None:
        text = turn.say("kill", seconds=PAUSE_SECONDS, pid=os.getpid())
        return Step(text, "pause", {"seconds": PAUSE_SECONDS})
    if UNKNOWN_OUTCOME in result.result_markdown:
        return Step(turn.say("killed"))
    if result.status is ToolExecutionStatus.SUCCESS:
        return Step(turn.say("not_killed", seconds=PAUSE_SECONDS))
    return Step(report(turn, result))


def _rendered(turn: TourTurn) -> str:
    bodies = []
    for name, model in _MODELS.items():
        rendered = ContextRenderer(Origin("", name, model)).write(turn.context, turn.options)
        body = b"".join(rendered.chunks)
        facts = {"size": len(body), "broken": len(formats[name].check_request(body)), "losses": len(rendered.losses)}
        bodies.append(turn.say("body", name=name, model=model, **facts) + f"\n\n```json\n{_excerpt(body)}\n```")
    return turn.say("rendered", bodies="\n\n".join(bodies))


def _excerpt(body: bytes) -> str:
    """The last message that calls a tool and the one after it; without a call, the last message."""
    decoded = msgspec.json.decode(body)
    messages = next(decoded[key] for key in ("messages", "input", "contents") if key in decoded)
    calls = [place for place, message in enumerate(messages) if _CALL.search(msgspec.json.encode(message))]
    shown = messages[calls[-1] : calls[-1] + 2] if calls else messages[-1:]
    texts = (msgspec.json.format(msgspec.json.encode(message), indent=2).decode() for message in shown)
    return "\n".join(text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}…" for text in texts)


def _rolled_back(turn: TourTurn) -> str:
    copy = AgentHistory()
    for entry in turn.context:
        text = Text(text_of(entry.content))
        if entry.role is ContextEntryRole.MODEL_INPUT:
            copy.append(ModelInputEntry((text,)))
        elif entry.role is ContextEntryRole.MODEL_OUTPUT:
            copy.append(ModelOutputEntry((text,)))
    to = copy.version - 1
    steps = [_counted(turn, "copied", copy, to)]
    fork = copy.fork(to)
    copy.rollback(to, "the guided tour")
    steps += [_counted(turn, "undone", copy, to), _counted(turn, "forked", fork, to)]
    return turn.say("rolled_back", steps="\n".join(steps))


def _counted(turn: TourTurn, sentence: str, history: AgentHistory, to: int) -> str:
    return turn.say(
        sentence, version=history.version, entries=len(history.entries), visible=len(history.effective), to=to
    )

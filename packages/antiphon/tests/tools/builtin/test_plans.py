"""The plan tools: what a model may do with them, the errors it gets, and that nothing is ever lost."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import PlanChanged, PlanError, StoreDamaged, ToolError, UnknownPlan
from antiphon.parts import ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.tools.builtin import Plan, PlanChange, PlanStore, TaskDraft, TaskUpdate, plan_of, plan_tools, plans_of
from antiphon.tools.builtin.plan_tools import one_plan, several_plans
from antiphon.tools.builtin.plans import TASKS, apply_change, new_plan
from antiphon.tools.context import ToolContext
from antiphon.tools.executor import ToolExecutor
from antiphon.tools.registry import ToolRegistry
from antiphon.tools.tool import Tool

NOW = datetime(2026, 2, 1, 12, 0, tzinfo=UTC)


class Model:
    """Calls the plan tools as a model would: arguments as JSON, one call after the other, results as they come back."""

    def __init__(self, store: PlanStore, conversation_id: str = "talk") -> None:
        self.executor = ToolExecutor(ToolRegistry(plan_tools(store)))
        self.conversation_id = conversation_id
        self.calls = 0

    def call(self, tool_name: str, *, call_id: str = "", **arguments: Any) -> ToolCallResult:
        self.calls += 1
        call = ToolCallRequest(tool_name, call_id or f"call_{self.calls}", msgspec.json.encode(arguments).decode())
        (result,) = asyncio.run(self.executor.execute([call], conversation_id=self.conversation_id))
        return result

    def plan(self, tool_name: str, **arguments: Any) -> Plan:
        result = self.call(tool_name, **arguments)
        plan = plan_of(result)
        assert plan is not None, result.result_markdown
        return plan


@pytest.fixture
def model() -> Model:
    return Model(PlanStore())


SCENARIOS = [
    ("IELTS band 7", "Reach band 7 by June", ["Take a practice test", "Read every day"], "Reach band 8"),
    ("雅思备考", "六月前达到 7 分", ["做一套真题", "每天阅读“经济学人”"], "达到 8 分"),
]


@pytest.mark.parametrize(("title", "goal", "tasks", "better"), SCENARIOS)
def test_create_list_get_update(model: Model, title: str, goal: str, tasks: list[str], better: str) -> None:
    made = model.plan("create_plan", title=title, goal=goal, tasks=[{"title": task} for task in tasks])
    assert (made.title, made.goal, made.status, made.version) == (title, goal, "active", 1)
    assert [(task.id, task.title, task.done) for task in made.tasks] == [
        ("t1", tasks[0], False),
        ("t2", tasks[1], False),
    ]

    listed = model.call("list_plans")
    assert plans_of(listed) == (made,)
    assert plan_of(listed) is None
    progress = "0 of 2 tasks done" if title.isascii() else "2 个任务完成了 0 个"
    for words in (title, goal, *tasks, progress, "- [ ] t1: "):
        assert words in listed.result_markdown

    assert model.plan("get_plan", plan_id=made.id) == made
    after = model.plan("update_plan", plan_id=made.id, goal=better, task_updates=[{"id": "t1", "done": True}])
    assert (after.goal, after.tasks[0].done, after.tasks[1].done, after.version) == (better, True, False, 2)
    assert model.plan("get_plan", plan_id=made.id) == after


def test_list_then_update_the_first(model: Model) -> None:
    for title in ("第一个", "second", "third"):
        model.call("create_plan", title=title)
    first = plans_of(model.call("list_plans"))[0]
    model.call("update_plan", plan_id=first.id, goal="达到8分")
    assert [(plan.title, plan.goal) for plan in plans_of(model.call("list_plans"))] == [
        ("第一个", "达到8分"),
        ("second", ""),
        ("third", ""),
    ]


def test_plans_are_listed_by_status_and_deleted_for_good(model: Model) -> None:
    kept, gone = model.plan("create_plan", title="kept"), model.plan("create_plan", title="gone")
    model.call("update_plan", plan_id=kept.id, status="archived")
    assert [plan.id for plan in plans_of(model.call("list_plans", status="active"))] == [gone.id]
    assert "Deleted plan-2 (gone)" in model.call("delete_plan", plan_id=gone.id).result_markdown
    assert [plan.id for plan in plans_of(model.call("list_plans"))] == [kept.id]
    assert model.plan("create_plan", title="next").id == "plan-3"  # an id is not used again
    assert "There are no such plans" in model.call("list_plans", status="done").result_markdown


def test_tasks_are_ticked_renamed_added_and_removed(model: Model) -> None:
    model.call("create_plan", title="p", tasks=["a", {"title": "b", "notes": "long\nnotes", "due": "2026-03-01"}, "c"])
    after = model.plan(
        "update_plan",
        plan_id="plan-1",
        remove_tasks=["t3"],
        task_updates=[{"id": "t2", "done": True, "due": ""}, {"id": "t1", "title": "A", "notes": "n"}],
        add_tasks=["d", {"title": "e", "done": True}],
    )
    assert [msgspec.to_builtins(task) for task in after.tasks] == [
        {"id": "t1", "title": "A", "notes": "n"},
        {"id": "t2", "title": "b", "notes": "long\nnotes", "done": True},
        {"id": "t4", "title": "d"},
        {"id": "t5", "title": "e", "done": True},
    ]


def test_a_new_list_of_tasks_keeps_what_stayed(model: Model) -> None:
    model.call("create_plan", title="p", tasks=["a", {"title": "b", "notes": "n", "done": True}, "c"])
    after = model.plan("update_plan", plan_id="plan-1", tasks=["c", "b", {"id": "t1", "title": "A"}, "new"])
    assert [(task.id, task.title, task.done, task.notes) for task in after.tasks] == [
        ("t3", "c", False, ""),
        ("t2", "b", True, "n"),
        ("t1", "A", False, ""),
        ("t4", "new", False, ""),
    ]


@pytest.mark.parametrize(
    "given_text", ["2026-03-01", "2026/3/1", "2026.03.01", "2026年3月1日", "２０２６-03-01", " 2026-3-1 "]
)
def test_dates_that_can_be_understood_are(given_text: str) -> None:
    assert new_plan("plan-1", "p", "", [TaskDraft("t", due=given_text)], NOW).tasks[0].due == "2026-03-01"


def test_a_due_date_may_have_a_time() -> None:
    plan = new_plan("plan-1", "p", "", [TaskDraft("t", due="2026-03-01T09:30:00+08:00")], NOW)
    assert plan.tasks[0].due == "2026-03-01T09:30+08:00"


@pytest.mark.parametrize("given_text", ["plan-1", "1", "Plan 1", "PLAN_1", " plan-01 ", "plan#1"])
def test_ids_that_can_be_understood_are(model: Model, given_text: str) -> None:
    model.call("create_plan", title="p", tasks=["a"])
    assert model.plan("update_plan", plan_id=given_text, task_updates=[{"id": "Task 1", "done": True}]).tasks[0].done


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("create_plan", {"title": "  \n "}, ["title is empty"]),
    ("create_plan", {"title": "x" * 201}, ["title has 201 characters, and at most 200"]),
    ("create_plan", {"title": "p", "goal": "x" * 2001}, ["goal has 2001 characters"]),
    ("create_plan", {"title": "p", "tasks": ["ok", " "]}, ["tasks[1].title is empty"]),
    ("create_plan", {"title": "p", "tasks": ["x"] * (TASKS + 1)}, ["101 tasks, and a plan has at most 100"]),
    ("create_plan", {"title": "p", "tasks": [{"title": "x", "notes": "n" * 900}] * 40}, ["at most 30000", "shorten"]),
    (
        "create_plan",
        {"title": "p", "tasks": [{"title": "t", "due": "next Monday"}]},
        ["tasks[0].due", "'next Monday' is"],
    ),
    (
        "create_plan",
        {"title": "p", "tasks": [{"title": "t", "due": "2026-02-30"}]},
        ["is not a date; write it like 2026"],
    ),
    ("create_plan", {"title": "p", "tasks": [{"titel": "t"}]}, ["tasks[0].titel", "did you mean 'title'"]),
    ("create_plan", {"tasks": []}, ["title", "missing"]),
    ("update_plan", {"plan_id": "plan-1"}, ["nothing to change in", "task_updates"]),
    ("update_plan", {"plan_id": "plan-9", "goal": "g"}, ["no plan 'plan-9'; the plans are plan-1 (first)"]),
    ("update_plan", {"plan_id": "first", "goal": "g"}, ["no plan 'first'; the plans are plan-1 (first)"]),
    ("update_plan", {"plan_id": "plan-1", "status": "finished"}, ["status", "active", "done", "archived"]),
    ("update_plan", {"plan_id": "plan-1", "remove_tasks": ["t7"]}, ["no task 't7'; the tasks are t1, t2"]),
    ("update_plan", {"plan_id": "plan-1", "task_updates": [{"id": "t1"}]}, ["changes nothing of t1"]),
    ("update_plan", {"plan_id": "plan-1", "task_updates": [{"id": "t1", "completed": True}]}, ["completed"]),
    ("update_plan", {"plan_id": "plan-1", "tasks": []}, ["an empty list", "leave it out to keep them"]),
    ("update_plan", {"plan_id": "plan-1", "tasks": ["a", "new", " "]}, ["tasks[2].title is empty"]),
    ("update_plan", {"plan_id": "plan-1", "tasks": [{"id": "t8", "title": "x"}]}, ["tasks[0]: there is no task 't8'"]),
    (
        "update_plan",
        {"plan_id": "plan-1", "tasks": [{"id": "t1", "title": "x"}, {"id": "1", "title": "y"}]},
        ["tasks[1]: t1 is in the list twice"],
    ),
    ("update_plan", {"plan_id": "plan-1", "title": "", "remove_tasks": ["t7"]}, ["title is empty", "no task 't7'"]),
    ("update_plan", {"plan_id": "plan-1", "goal": "g", "version": 7}, ["version 1 by now, not 7", "get_plan"]),
    ("get_plan", {"plan_id": "plan-99999999999999999999"}, ["there is no plan"]),
    ("delete_plan", {"plan_id": "plan-2"}, ["there is no plan 'plan-2'"]),
]


@pytest.mark.parametrize(("tool_name", "arguments", "given_text"), REFUSED)
def test_invalid_calls_are_explained_to_the_model_and_change_nothing(
    model: Model, tool_name: str, arguments: dict[str, Any], given_text: list[str]
) -> None:
    model.call("create_plan", title="first", goal="g", tasks=["a", "b"])
    before = plans_of(model.call("list_plans"))
    result = model.call(tool_name, **arguments)
    assert result.status is ToolExecutionStatus.FAILED
    for words in given_text:
        assert words in result.result_markdown
    assert "Traceback" not in result.result_markdown
    assert plan_of(result) is None
    assert plans_of(model.call("list_plans")) == before


def test_without_plans_the_model_gets_a_hint_to_create_one(model: Model) -> None:
    assert "there are no plans yet; create_plan makes one" in model.call("get_plan", plan_id="plan-1").result_markdown


def test_effects_declare_what_may_be_repeated() -> None:
    effects = {tool.name: tool.effect for tool in plan_tools(PlanStore())}
    assert effects == {
        "create_plan": "idempotent",
        "list_plans": "read",
        "get_plan": "read",
        "update_plan": "idempotent",
        "delete_plan": "idempotent",
    }


def test_the_same_call_again_happens_once(tmp_path: Path) -> None:
    def again() -> Model:
        return Model(PlanStore(tmp_path / "plans.db"))  # as another process would, after a crash

    made = [again().plan("create_plan", call_id="call_1", title="p", tasks=["a"]) for _ in range(3)]
    assert made[0] == made[1] == made[2]
    for _ in range(3):
        after = again().plan("update_plan", call_id="call_2", plan_id="plan-1", add_tasks=["b"])
        assert [task.title for task in after.tasks] == ["a", "b"]
    for _ in range(2):
        assert "Deleted plan-1 (p)" in again().call("delete_plan", call_id="call_3", plan_id="plan-1").result_markdown
    assert again().plan("create_plan", call_id="call_1", title="another").id == "plan-2"  # other words are another call
    assert [plan.title for plan in PlanStore(tmp_path / "plans.db").list()] == ["another"]


def test_calls_of_conversations_without_ids_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"
    first = Model(PlanStore(path), conversation_id="")
    assert first.plan("create_plan", call_id="call_1", title="p") == first.plan(
        "create_plan", call_id="call_1", title="p"
    )
    second = Model(PlanStore(path), conversation_id="")
    assert second.plan("create_plan", call_id="call_1", title="p").id == "plan-2"


def test_a_refused_call_may_be_made_again() -> None:
    store = PlanStore()
    store.create("p")
    with pytest.raises(PlanError):
        store.update("plan-1", PlanChange(remove_tasks=["t1"]), key="k")
    store.update("plan-1", PlanChange(add_tasks=["a"]))
    assert store.update("plan-1", PlanChange(remove_tasks=["t1"]), key="k").tasks == ()


def test_an_update_based_on_an_old_version_is_refused() -> None:
    store = PlanStore()
    read = store.create("p", tasks=["a"])
    store.update("plan-1", PlanChange(task_updates=[TaskUpdate("t1", done=True)]))
    with pytest.raises(PlanChanged, match="has version 2 by now, not 1"):
        store.update("plan-1", PlanChange(tasks=["z"]), expected_version=read.version)
    assert store.get("plan-1").tasks[0].done
    assert store.update("plan-1", PlanChange(goal="g"), expected_version=2).version == 3
    assert store.update("plan-1", PlanChange(goal="g")).version == 3  # nothing is different, and nothing was changed


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LINES = TEXTS.filter(lambda text: bool(text.strip()))


@given(LINES, TEXTS, st.lists(st.builds(TaskDraft, LINES, notes=TEXTS, done=st.booleans()), max_size=5))
def test_any_plan_is_read_back_from_its_result(title: str, goal: str, tasks: list[TaskDraft]) -> None:
    plan = new_plan("plan-1", title, goal, tasks, NOW)
    call = ToolCallRequest("get_plan", "call_1")
    assert plan_of(ToolCallResult.of(call, one_plan("This is it.", plan))) == plan
    assert plans_of(ToolCallResult.of(call, several_plans([plan, plan]))) == (plan, plan)


CHANGES = st.builds(
    PlanChange,
    goal=st.none() | st.just("g"),
    tasks=st.none() | st.lists(st.sampled_from(["a", "b", "c", TaskDraft("d", id="t1")]), max_size=4),
    remove_tasks=st.lists(st.sampled_from(["t1", "t2", "t3"]), max_size=2),
    task_updates=st.lists(st.builds(TaskUpdate, st.sampled_from(["t1", "t2"]), st.booleans()), max_size=2),
    add_tasks=st.lists(st.sampled_from(["a", "x", "y"]), max_size=3),
)


@given(st.lists(CHANGES, max_size=12))
def test_a_task_number_is_given_once(changes: list[PlanChange]) -> None:
    plan = new_plan("plan-1", "p", "", ["a", "b"], NOW)
    gone: set[str] = set()
    for change in changes:
        try:
            after = apply_change(plan, change, NOW)
        except PlanError:
            continue
        before, now = ({task.id for task in it.tasks} for it in (plan, after))
        assert len(now) == len(after.tasks)
        assert not now & gone
        assert after.version == plan.version + (after != plan)
        gone |= before - now
        plan = after


@pytest.mark.parametrize(
    ("tool_name", "status", "text"),
    [
        ("search_web", ToolExecutionStatus.SUCCESS, "{whole}"),  # a page may show what looks like a plan
        ("get_plan", ToolExecutionStatus.FAILED, "{whole}"),
        ("get_plan", ToolExecutionStatus.SUCCESS, "{cut}"),
        ("get_plan", ToolExecutionStatus.SUCCESS, "```json\n{}\n```"),
        ("get_plan", ToolExecutionStatus.SUCCESS, '```json\n{"plan": {"id": 5}}\n```'),
        ("get_plan", ToolExecutionStatus.SUCCESS, ""),
    ],
)
def test_other_json_is_not_read_as_a_plan(tool_name: str, status: ToolExecutionStatus, text: str) -> None:
    whole = one_plan("It is.", new_plan("plan-1", "p", "", ["a"], NOW))
    given_text = text.replace("{whole}", whole).replace("{cut}", whole[:-30])
    assert plan_of(ToolCallResult.of(ToolCallRequest(tool_name, "c"), given_text, status=status)) is None
    assert plans_of(ToolCallResult.of(ToolCallRequest(tool_name, "c"), given_text, status=status)) == ()


def test_a_long_list_shows_as_many_plans_as_can_be_read_and_names_the_others() -> None:
    store = PlanStore()
    for number in range(60):
        store.create(f"plan number {number}", tasks=[TaskDraft("t", notes="n" * 900)] * 2)
    result = Model(store).call("list_plans")
    shown = plans_of(result)
    assert 10 < len(shown) < 30
    assert "60 plans:" in result.result_markdown
    assert "plan-60 plan number 59" in result.result_markdown
    assert len(result.result_markdown) < 80_000


def in_a_process(work: Callable[[], None]) -> int:
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(0)
    return process


def test_twenty_processes_and_twenty_threads_lose_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"
    with PlanStore(path) as store:
        for title in ("processes", "threads"):
            store.create(title)

    def add_five(store: PlanStore, plan_id: str, who: int) -> None:
        for number in range(5):
            store.update(plan_id, PlanChange(add_tasks=[f"{who}.{number}"]))

    def add_five_from_a_process(who: int) -> None:
        add_five(PlanStore(path, timeout=60), "plan-1", who)

    processes = [in_a_process(partial(add_five_from_a_process, who)) for who in range(20)]
    for process in processes:
        os.waitpid(process, 0)
    with PlanStore(path, timeout=60) as store:
        threads = [threading.Thread(target=add_five, args=(store, "plan-2", who)) for who in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        everything = sorted(f"{who}.{number}" for who in range(20) for number in range(5))
        for plan in store.list():
            assert sorted(task.title for task in plan.tasks) == everything
            assert plan.version == 101


def test_kill_nine_in_a_write_leaves_a_whole_store(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"
    with PlanStore(path) as store:
        store.create("p", tasks=["a"])
    chance = random.Random(3)
    for _ in range(25):
        read_end, write_end = os.pipe()

        def write_on(pipe: int = write_end) -> None:
            store = PlanStore(path)
            while True:
                version = store.get("plan-1").version
                done = store.update("plan-1", PlanChange(goal=f"{version}" * 300, tasks=[f"task {version}"]))
                os.write(pipe, done.version.to_bytes(4, "little"))

        process = in_a_process(write_on)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as pipe:
            last = int.from_bytes(pipe.read(4), "little")  # it surely writes by now
            time.sleep(chance.uniform(0, 0.01))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            rest = pipe.read()
        if rest:
            last = int.from_bytes(rest[len(rest) // 4 * 4 - 4 :][:4], "little")
        with PlanStore(path) as store:
            plan = store.get("plan-1")
            assert last <= plan.version <= last + 1
            assert plan.goal == f"{plan.version - 1}" * 300
            assert [task.title for task in plan.tasks] == [f"task {plan.version - 1}"]
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def tools_by_name(store: PlanStore) -> dict[str, Tool]:
    return {tool.name: tool for tool in plan_tools(store)}


def test_a_store_that_is_locked_is_worth_another_try(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"
    with PlanStore(path, timeout=0.05) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(ToolError, match="is locked by another process") as raised:
            asyncio.run(tools_by_name(store)["create_plan"].run({"title": "p"}, ToolContext()))
        assert raised.value.retry
        other.close()
        with pytest.raises(ToolError, match="there is no plan") as raised:
            asyncio.run(tools_by_name(store)["get_plan"].run({"plan_id": "plan-1"}, ToolContext()))
        assert not raised.value.retry


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    from antiphon.history import SqliteStore

    SqliteStore(tmp_path / "chats.db").close()
    with pytest.raises(StoreDamaged, match="of another program"):
        PlanStore(tmp_path / "chats.db")
    (tmp_path / "notes.db").write_text("Dear diary, this is not a database at all, and it is long enough to tell." * 20)
    with pytest.raises(StoreDamaged, match="is not an SQLite database"):
        PlanStore(tmp_path / "notes.db")


def test_a_damaged_plan_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "plans.db"
    with PlanStore(path) as store:
        store.create("p")
        db = sqlite3.connect(path)
        db.execute("UPDATE plans SET body = ?", (b'{"id": ',))
        db.commit()
        db.close()
        with pytest.raises(StoreDamaged, match="cannot be read"):
            store.get("plan-1")
        with pytest.raises(UnknownPlan):
            PlanStore().get("plan-1")

"""Seed 002 without a key: the tour does the three examples of the document, in both languages and through every door."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import expect

from antiphon.tools.builtin import Plan, PlanStore
from page.rig import served
from page.window import window
from support.terminal import Terminal
from terminal.test_one_shot import antiphon


class Story(Struct, frozen=True):
    """What a person types, and what they read."""

    language: str
    search_then_plan: str
    list_then_update: str
    goal: str
    two_searches: str
    list_plans: str
    changed: str
    notice: str
    topics: tuple[str, str]
    """Words of a task from each of the two searches."""


STORIES = [
    Story(
        language="zh",
        search_then_plan="搜索 IELTS 备考方法，然后帮我制定一个3个月的学习计划",
        list_then_update="先列出我所有的计划，然后帮我更新第一个计划的目标为达到8分",
        goal="达到8分",
        two_searches="搜索雅思阅读技巧，再搜索写作提升方法，然后综合制定学习计划",
        list_plans="列出我的计划",
        changed="的目标现在是：达到8分",
        notice="导览：这不是语言模型",
        topics=("先看标题和每段第一句", "动笔前用五分钟列提纲"),
    ),
    Story(
        language="en",
        search_then_plan="Search for IELTS preparation methods, then make me a 3-month study plan",
        list_then_update="First list all my plans, then update the goal of the first plan to reaching band 8",
        goal="reaching band 8",
        two_searches="Search for IELTS reading techniques, then search for ways to improve writing, then make one study plan",
        list_plans="list my plans",
        changed="is now: reaching band 8",
        notice="Guided tour: not a language model",
        topics=("Read the title", "Plan five minutes before an essay"),
    ),
]
EACH = pytest.mark.parametrize("story", STORIES, ids=[story.language for story in STORIES])


def check_plans(plans: tuple[Plan, ...], story: Story) -> None:
    """Two plans with goals, dates and tasks that say what to do; none is about Antiphon."""
    first, second = plans
    assert first.goal == story.goal
    assert second.goal
    for plan in plans:
        assert len(plan.tasks) >= 5
        assert all(task.due for task in plan.tasks)
        assert not any("antiphon" in f"{task.title} {task.notes}".lower() for task in plan.tasks)
    titles = [task.title for task in second.tasks]
    assert all(any(title.startswith(topic) for title in titles) for topic in story.topics)


def plans_in(place: Path) -> tuple[Plan, ...]:
    with PlanStore(next(place.rglob("plans.db"))) as store:
        return tuple(store.list())


@EACH
def test_three_examples_from_the_command_line(tmp_path: Path, story: Story) -> None:
    def ask(message: str) -> str:
        code, out, err = antiphon(tmp_path, "-p", message, environment={"ANTIPHON_LANGUAGE": story.language})
        assert code == 0, err
        assert story.notice in out
        return out

    planned = ask(story.search_then_plan)
    assert [planned.count(f"`{name}`") for name in ("search_web", "create_plan")] == [1, 1]
    assert story.changed in ask(story.list_then_update)
    assert ask(story.two_searches).count("`search_web`") == 2
    check_plans(plans_in(tmp_path), story)
    listed = ask(story.list_plans)
    assert all(plan.title in listed for plan in plans_in(tmp_path))


@EACH
def test_three_examples_in_a_terminal(tmp_path: Path, story: Story) -> None:
    rounds = "{} 回合 ·" if story.language == "zh" else "{} rounds ·"
    environment = {"ANTIPHON_LANGUAGE": story.language}
    with Terminal(tmp_path, "chat", environment=environment, columns=120, rows=60) as terminal:
        terminal.sees("Ctrl-D")
        terminal.send(story.list_plans)
        terminal.sees("还没有计划" if story.language == "zh" else "There are no plans yet")
        terminal.send(story.search_then_plan)
        searched, created = (
            ("搜索了“", "✓ 创建了计划 ") if story.language == "zh" else ("Searched “", "✓ Created the plan ")
        )
        terminal.sees(searched, created, rounds.format(3))
        terminal.send(story.list_then_update)
        listed, changed = (
            ("✓ 列出了计划", "✓ 修改了计划") if story.language == "zh" else ("✓ Listed the plans", "✓ Changed the plan")
        )
        terminal.sees(listed, changed, story.changed)
        terminal.send(story.two_searches)
        terminal.sees(rounds.format(4))
    check_plans(plans_in(tmp_path), story)


@EACH
def test_three_examples_on_the_page(chromium: Chromium, tmp_path: Path, story: Story) -> None:
    locale: dict[str, Any] = {"locale": "zh-CN" if story.language == "zh" else "en-US"}
    with (
        served(tmp_path / "chats.db", with_builtin=True) as browser,
        window(chromium, browser.port, **locale) as shown,
    ):
        shown.open().ask(story.search_then_plan)
        chips = shown.thread.locator(".chip")
        expect(chips).to_have_count(2)
        expect(shown.thread.locator(".plan")).to_have_count(1)
        created, source = ("已创建 plan-1。", "来源：") if story.language == "zh" else ("Created plan-1.", "Source: ")
        chips.nth(0).locator("> summary").click()
        expect(chips.nth(0)).to_contain_text(source)
        chips.nth(1).locator("> summary").click()
        expect(chips.nth(1)).to_contain_text(created)
        shown.ask(story.list_then_update)
        shown.sees(story.changed)
        shown.ask(story.two_searches)
        expect(shown.thread.locator(".chip")).to_have_count(7)
        expect(shown.thread.locator(".plan").last).to_contain_text(story.topics[1])
    check_plans(plans_in(tmp_path), story)

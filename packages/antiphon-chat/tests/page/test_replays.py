"""Replays over the API of the page: a branch that another model answers, and the comparison of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import antiphon as ap
from antiphon.history import ContextEntry
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.scripted import FunctionModel, call
from antiphon_gateway.config.settings import ClientKeySettings
from page.rig import Browser, models, served


def forecaster(name: str, city_for: Callable[[str], str] = lambda city: city) -> FunctionModel:
    """A model that looks every city up and then reports it."""

    def answer(context: Sequence[ContextEntry], options: ProviderCallOptions) -> Any:
        last = context[-1]
        if isinstance(last, ap.ToolCallResultsEntry):
            return f"{name}: {last.results[0].result_markdown}"
        text = ap.Text("") if not isinstance(last, ap.ModelInputEntry) else last.content[0]
        assert isinstance(text, ap.Text)
        return call("weather", city=city_for(text.text))

    return FunctionModel(answer, name=name)


class Weather:
    def __init__(self) -> None:
        self.cities: list[str] = []

        @ap.tool
        async def weather(city: str) -> str:
            "The weather in a city."
            self.cities.append(city)
            return f"rain in {city}"

        self.tool = weather


def finished(browser: Browser, conversation: str, turns: int) -> Any:
    """The conversation once it has so many turns and nothing runs, or waits for a person."""
    deadline = time.monotonic() + 30
    while True:
        state = browser.show(conversation)
        if not state["running"] and (state["turn"] >= turns or state["pending"]):
            return state
        assert time.monotonic() < deadline, state
        time.sleep(0.01)


def comparison_of(browser: Browser, one: str, other: str) -> Any:
    return browser.api("GET", f"/conversations/{one}/comparison?with={other}")


def test_a_replay_runs_all_turns_in_a_branch_and_no_tool_again(tmp_path: Path) -> None:
    weather = Weather()
    offered = models(forecaster("owl"), forecaster("fox"))
    with served(tmp_path / "chats.db", offered, tools=[weather.tool]) as browser:
        conversation = browser.create()
        for city in ("Oslo", "Rome", "Bern"):
            browser.ask(conversation, city)
        made = browser.api("POST", f"/conversations/{conversation}/replays", {"from": "2", "model": "fox"}, status=201)
        state = finished(browser, made["id"], 3)
        assert state["model"] == "fox"
        assert weather.cities == ["Oslo", "Rome", "Bern"]
        comparison = comparison_of(browser, conversation, made["id"])
        assert [(row["turn"], row["round"], row["question"]) for row in comparison["steps"]] == [
            (2, 1, "Rome"),
            (2, 2, "Rome"),
            (3, 1, "Bern"),
            (3, 2, "Bern"),
        ]
        assert [step["answer"] for step in comparison["steps"][1]["steps"]] == [
            "owl: rain in Rome",
            "fox: rain in Rome",
        ]
        assert comparison["steps"][0]["steps"][1]["calls"][0]["source"] == "log"
        points = browser.api("GET", f"/conversations/{conversation}/branches")["points"]
        assert [made["id"] in point["conversations"] for point in points] == [True], "the replay is a branch"


def test_a_call_that_the_log_does_not_have_waits_and_the_replay_continues_after_a_decision(tmp_path: Path) -> None:
    weather = Weather()
    offered = models(forecaster("owl"), forecaster("fox", lambda city: "Paris" if city == "Rome" else city))
    with served(tmp_path / "chats.db", offered, tools=[weather.tool]) as browser:
        conversation = browser.create()
        for city in ("Rome", "Bern"):
            browser.ask(conversation, city)
        made = browser.api("POST", f"/conversations/{conversation}/replays", {"model": "fox"}, status=201)["id"]
        state = finished(browser, made, 2)
        assert [one["tool_name"] for one in state["pending"]] == ["weather"]
        assert weather.cities == ["Rome", "Bern"]
        stopped = comparison_of(browser, conversation, made)["branches"][1]
        assert (stopped["stopped"], stopped["detail"]) == ("waiting", "weather")
        decision = {"tool_call_id": state["pending"][0]["tool_call_id"], "decision": "approve"}
        browser.api("POST", f"/conversations/{made}/decisions", decision)
        finished(browser, made, 2)
        assert weather.cities == ["Rome", "Bern", "Paris"]
        comparison = comparison_of(browser, conversation, made)
        assert comparison["branches"][1]["stopped"] == ""
        assert comparison["steps"][-1]["steps"][1]["answer"] == "fox: rain in Bern"


def test_a_message_of_the_user_ends_the_replay(tmp_path: Path) -> None:
    weather = Weather()
    offered = models(forecaster("owl"), forecaster("fox", lambda city: "Paris" if city == "Rome" else city))
    with served(tmp_path / "chats.db", offered, tools=[weather.tool]) as browser:
        conversation = browser.create()
        for city in ("Rome", "Bern"):
            browser.ask(conversation, city)
        made = browser.api("POST", f"/conversations/{conversation}/replays", {"model": "fox"}, status=201)["id"]
        finished(browser, made, 1)
        browser.ask(made, "Bern")
        finished(browser, made, 2)
        asked = [e["content"][0]["text"] for e in browser.show(made)["entries"] if e["kind"] == "model_input"]
        assert asked == ["Rome", "Bern"], "the second message of the original was not sent"
        assert weather.cities == ["Rome", "Bern", "Bern"], "tools run again in a conversation that a person continues"


def test_mistakes_are_refused_and_nothing_is_forked(tmp_path: Path) -> None:
    with served(tmp_path / "chats.db", models(forecaster("owl")), tools=[Weather().tool]) as browser:
        conversation = browser.create()
        browser.ask(conversation, "Oslo")
        path = f"/conversations/{conversation}/replays"
        for body, reason in (
            ({"from": "5", "model": "owl"}, "no turn 5"),
            ({"from": "x", "model": "owl"}, "invalid step"),
            ({"model": "nothing/none"}, "nothing"),
            ({"model": "owl", "calls": "always"}, "always"),
            ({"model": "owl", "turns": 0}, "max_turns=0"),
            ({}, "model"),
        ):
            assert reason in browser.api("POST", path, body, status=400)["error"]["message"]
        assert (
            "?with=ID"
            in browser.api("GET", f"/conversations/{conversation}/comparison", status=400)["error"]["message"]
        )
        other = browser.create()
        found = browser.api("GET", f"/conversations/{conversation}/comparison?with={other}", status=400)
        assert "nothing in common" in found["error"]["message"]
        assert browser.api("GET", "/conversations")["total"] == 2


def test_conversations_of_other_keys_cannot_be_replayed_or_compared(tmp_path: Path) -> None:
    keys = [ClientKeySettings(name=name, key=f"env:{name.upper()}") for name in ("ada", "bob")]
    secrets = {"ADA": "sk-ada-0123456789abcdef", "BOB": "sk-bob-0123456789abcdef"}
    with served(
        tmp_path / "chats.db", models(forecaster("owl")), tools=[Weather().tool], keys=keys, environ=secrets
    ) as one:
        ada, bob = (Browser(one.port, secrets[name]) for name in ("ADA", "BOB"))
        conversation, own = ada.create(), bob.create()
        ada.ask(conversation, "Oslo")
        bob.api("POST", f"/conversations/{conversation}/replays", {"model": "owl"}, status=404)
        bob.api("GET", f"/conversations/{own}/comparison?with={conversation}", status=404)

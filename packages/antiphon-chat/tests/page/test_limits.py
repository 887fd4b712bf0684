"""What a client's key may use on the page: its requests, its tokens and its models, in turns and in summaries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import antiphon as ap
from antiphon.history import ContextEntry, ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.http.client.client import HttpClient
from antiphon.providers import ProviderCallOptions
from antiphon.providers.call import ProviderClient
from antiphon.providers.scripted import call
from antiphon.wire.delta import Failed, ModelOutputDelta, UsageReported
from antiphon.wire.output import ProviderError
from antiphon_chat.page.mounted.metered_calls import ChatMeter
from antiphon_gateway.access.accounts import ClientAccounts
from antiphon_gateway.access.client_keys import ClientKey, hash_key
from antiphon_gateway.config.settings import ClientKeySettings, Config, ModelSettings, ProviderSettings
from antiphon_gateway.observe.metrics import Metrics
from antiphon_gateway.observe.recent import RecentRequests
from antiphon_gateway.observe.recorder import Recorder
from antiphon_gateway.runtime.loaded import LoadedConfig
from antiphon_gateway.share.counts import Buckets
from page.rig import Browser, Gate, models, served

SECRET = "sk-antiphon-of-the-test"


class Charges(ClientAccounts):
    """Accounts whose clock stands still, and which remember what was charged."""

    def __init__(self) -> None:
        super().__init__(Buckets(clock=lambda: 0.0))
        self.spent: list[tuple[str, int]] = []

    def charge(self, key: ClientKey, tokens: int, nanodollars: int = 0) -> None:
        self.spent.append((key.name, tokens))
        super().charge(key, tokens, nanodollars)


def meter(keys: Sequence[ClientKeySettings], accounts: ClientAccounts) -> ChatMeter:
    """The meter of a gateway with these keys, and with a route for each model of the tests."""
    metrics = Metrics()
    recorder = Recorder((metrics.add, RecentRequests().add), accounts)
    providers = [
        ProviderSettings(name=name, format="openai-chat", base_url="http://127.0.0.1:9/v1")
        for name in ("talker", "payer")
    ]
    config = Config(
        keys=tuple(keys),
        providers=(ProviderSettings(name="offline", preset="offline"), *providers),
        models=(
            ModelSettings(name="offline/plain", targets=("offline/plain",)),
            *(ModelSettings(name=each.name, targets=(f"{each.name}/any",)) for each in providers),
        ),
    )
    loaded = LoadedConfig(config, HttpClient({}), environ={})
    return ChatMeter(accounts, recorder, metrics, lambda: loaded)


def test_a_key_that_used_up_its_requests_waits(tmp_path: Path) -> None:
    keys = [ClientKeySettings(name="ben", key=hash_key(SECRET), requests_per_minute=2)]
    with served(tmp_path / "chats.db", keys=keys, meter=meter(keys, Charges())) as browser:
        ben = Browser(browser.port, SECRET)
        conversation = ben.create()
        ben.ask(conversation, "hi")
        ben.ask(conversation, "hi")
        body = {"content": [{"type": "text", "text": "hi"}]}
        for path, sent in (("turns", body), ("resume", {}), ("compact", {})):
            got = ben.request("POST", f"/chat/api/conversations/{conversation}/{path}", sent)
            assert (got.status, got.headers.get("retry-after")) == (429, "30"), path


class WithoutUsage(ProviderClient):
    """A model whose provider reports no usage."""

    name = "talker"

    def __init__(self, model: ProviderClient) -> None:
        self._model = model

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        async for delta in self._model.call_model(context, options):
            if not isinstance(delta, UsageReported):
                yield delta


@pytest.mark.parametrize("reports", [True, False])
def test_every_call_of_a_model_is_charged(tmp_path: Path, reports: bool) -> None:
    """Rounds, summaries, streams that are stopped, and answers without reported usage."""
    gate = Gate()

    async def answer(context: Sequence[Any], options: ProviderCallOptions) -> AsyncIterator[Any]:
        words = getattr(context[-1].content[-1], "text", "")
        if words == "stop me":
            yield "x" * 250
            await gate.passed()
        elif words == "look":
            yield call("look")
        elif words == "fail":
            yield Failed(ProviderError("no connection", "server"))
        else:
            yield "Done."

    @ap.tool(effect="read")
    def look() -> str:
        "Look."
        return "Seen."

    limits = Charges()
    keys = [ClientKeySettings(name="ben", key=hash_key(SECRET), tokens_per_minute=10_000)]
    model: ProviderClient = ap.FunctionModel(answer, name="talker")
    talking = models(model if reports else WithoutUsage(model))
    with served(tmp_path / "chats.db", talking, tools=[look], keys=keys, meter=meter(keys, limits)) as browser:
        ben = Browser(browser.port, SECRET)
        conversation = ben.create()
        ben.ask(conversation, "hi")
        ben.ask(conversation, "look")
        assert len(limits.spent) == 3
        assert all(name == "ben" and tokens > 0 for name, tokens in limits.spent)
        if reports:
            used = ben.show(conversation)["usage"]
            assert sum(tokens for _, tokens in limits.spent) == used["prompt_tokens"] + used["completion_tokens"]
        ben.say(conversation, "stop me")
        gate.wait_for_caller()
        ben.api("POST", f"/conversations/{conversation}/interrupt")
        assert len(limits.spent) == 4
        assert limits.spent[3][1] > 63  # the prompt, and a token for every four bytes written before the stop
        ben.api("POST", f"/conversations/{conversation}/compact")
        assert len(limits.spent) == 5
        assert limits.spent[4][1] > 0
        ben.ask(conversation, "fail")
        assert [tokens for _, tokens in limits.spent[5:]] == [0]  # nothing came


def test_a_decision_after_which_the_turn_continues_is_a_request(tmp_path: Path) -> None:
    @ap.tool(needs_approval=True)
    def pay() -> str:
        "Pay."
        return "Paid."

    def answer(context: Sequence[Any], options: ProviderCallOptions) -> Any:
        return [call("pay"), call("pay")] if context[-1].role == "model_input" else "Done."

    keys = [ClientKeySettings(name="ben", key=hash_key(SECRET), requests_per_minute=1)]
    model = ap.FunctionModel(answer, name="payer")
    with served(tmp_path / "chats.db", model, tools=[pay], keys=keys, meter=meter(keys, Charges())) as browser:
        ben = Browser(browser.port, SECRET)
        conversation = ben.create()
        ben.ask(conversation, "pay twice")
        first, second = ben.show(conversation)["pending"]
        path = f"/conversations/{conversation}/decisions"
        ben.api("POST", path, {"tool_call_id": first["tool_call_id"], "decision": "approve"})
        last = {"tool_call_id": second["tool_call_id"], "decision": "approve"}
        assert ben.api("POST", path, last, status=429)
        assert ben.show(conversation)["pending"] == [second], "nothing was recorded"


def test_a_key_in_debt_of_tokens_waits(tmp_path: Path) -> None:
    keys = [ClientKeySettings(name="ben", key=hash_key(SECRET), tokens_per_minute=10)]
    with served(tmp_path / "chats.db", keys=keys, meter=meter(keys, Charges())) as browser:
        ben = Browser(browser.port, SECRET)
        conversation = ben.create()
        ben.ask(conversation, "hi")
        for path, body in (("turns", {"content": [{"type": "text", "text": "hi"}]}), ("resume", {})):
            assert ben.api("POST", f"/conversations/{conversation}/{path}", body, status=429)


def test_a_summary_is_asked_only_of_a_model_the_key_may_use(tmp_path: Path) -> None:
    with SqliteStore(tmp_path / "chats.db") as store:
        history = store.create(tags=["owner:ben"])
        for words in ("One", "Two"):
            history.append(ModelInputEntry.of(words))
            history.append(ModelOutputEntry.of("Yes."))
    keys = [ClientKeySettings(name="ben", key=hash_key(SECRET), models=("gpt-*",))]
    with served(tmp_path / "chats.db", keys=keys) as browser:
        ben = Browser(browser.port, SECRET)
        assert ben.api("POST", f"/conversations/{history.id}/compact", status=403)
        assert len(ben.show(history.id)["entries"]) == 4

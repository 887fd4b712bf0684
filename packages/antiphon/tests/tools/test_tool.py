"""`@tool` and what it refuses; `ToolRegistry` and its sources."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from antiphon.errors import InvalidArguments, InvalidTool
from antiphon.tools import Tool, ToolContext, ToolRegistry, ToolSettings, tool


def test_a_tool_stays_the_function_it_was() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add."""
        return a + b

    assert add(1) == add(1, b=2) == 3
    assert add.__name__ == "add"
    assert add.__doc__ == "Add."
    assert repr(add) == "<FunctionTool add effect=once>"

    @tool(name="again", description="Another.")
    async def other(a: int) -> int:
        """Add."""
        return a

    assert asyncio.run(other(1)) == 1
    assert (other.name, other.description) == ("again", "Another.")


def test_defaults_of_the_settings() -> None:
    @tool
    def plain() -> None: ...

    assert (plain.effect, plain.timeout, plain.retries, plain.needs_approval) == ("once", 60.0, 0, False)
    assert (plain.cache_seconds, plain.concurrency, plain.max_result_chars) == (None, None, None)
    assert plain.definition.description is None


def test_idempotent_is_short_for_the_effect() -> None:
    def plain() -> None: ...

    assert tool(idempotent=True)(plain).effect == "idempotent"
    assert tool(idempotent=True, effect="read")(plain).effect == "read"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"effect": "twice"}, "effect is one of read, idempotent, once"),
        ({"retries": 2}, "effect 'once' is not tried again"),
        ({"retries": -1}, "must not be negative"),
        ({"cache_seconds": 5}, "effect 'once' must run each time"),
        ({"effect": "read", "cache_seconds": 0}, "cache_seconds=0: must be above 0"),
        ({"timeout": 0}, "timeout=0: must be above 0"),
        ({"timeout": "5"}, "timeout='5': must be a number"),
        ({"effect": "read", "retries": None}, "retries=None: must be a number"),
        ({"concurrency": 0}, "concurrency=0: must be above 0"),
        ({"max_result_chars": -5}, "max_result_chars=-5: must be above 0"),
        ({"timeot": 5}, "has no setting timeot"),
        ({"name": "two words"}, "without spaces"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, words: str) -> None:
    def plain() -> None: ...

    with pytest.raises(InvalidTool, match=words):
        tool(**settings)(plain)


def test_run_validates_and_works_in_a_thread_or_on_the_loop() -> None:
    seen: list[bool] = []

    @tool
    def plain(a: int, context: ToolContext) -> tuple[int, Any]:
        seen.append(threading.current_thread() is threading.main_thread())
        return a, context.state

    @tool
    async def asynchronous(a: int) -> int:
        seen.append(threading.current_thread() is threading.main_thread())
        return a

    @tool
    def hidden(a: int) -> Any:
        return asynchronous(a)

    async def main() -> None:
        context = ToolContext(state="s")
        assert await plain.run({"a": 1}, context) == (1, "s")
        assert await asynchronous.run({"a": 1}, context) == 1
        assert await hidden.run({"a": 1}, context) == 1
        with pytest.raises(InvalidArguments):
            await plain.run({"a": "1"}, context)

    asyncio.run(main())
    assert seen == [False, True, True]


def test_tools_of_a_raw_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

    async def handler(arguments: dict[str, Any], context: ToolContext) -> Any:
        return arguments["a"], context.tool_call_id

    made = Tool.from_schema("server__add", "Add.", schema, handler, effect="read", timeout=5)
    assert made.definition.parameters is schema
    assert (made.effect, made.timeout) == ("read", 5)
    assert asyncio.run(made.run({"a": 1}, ToolContext(tool_call_id="c"))) == (1, "c")
    plain = Tool.from_schema("p", "", schema, lambda arguments, context: arguments["a"])
    assert plain.runs_in_thread
    assert asyncio.run(plain.run({"a": 2}, ToolContext())) == 2


def test_approval() -> None:
    def delete(path: str) -> None: ...

    def fails(arguments: dict[str, Any]) -> bool:
        raise OSError

    assert tool(needs_approval=True)(delete).asks_approval({})
    assert not tool(delete).asks_approval({})
    careful = tool(needs_approval=lambda arguments: arguments["path"].startswith("/etc"))(delete)
    assert careful.asks_approval({"path": "/etc/passwd"})
    assert not careful.asks_approval({"path": "/tmp/a"})
    assert tool(needs_approval=fails)(delete).asks_approval({"path": "a"})


def test_a_context_can_be_made_by_hand_and_shows_no_state() -> None:
    context = ToolContext(state={"password": "hunter2"})
    context.progress("unobserved", 0.5)
    assert "hunter2" not in repr(context)


def named(name: str, **settings: Any) -> Tool:
    options: ToolSettings = settings  # type: ignore[assignment]
    return Tool.from_schema(name, "", None, lambda arguments, context: name, **options)


class Source:
    """A source whose tools can change, and that can fail."""

    def __init__(self, *names: str) -> None:
        self.offered = list(names)
        self.asked = 0
        self.is_closed = False
        self.fails = False

    async def tools(self) -> Sequence[Tool]:
        self.asked += 1
        return [named(name) for name in self.offered]

    async def aclose(self) -> None:
        self.is_closed = True
        if self.fails:
            raise OSError("gone")


def test_a_registry_keeps_order_and_definitions() -> None:
    def plain(a: int) -> None:
        """Plain."""

    registry = ToolRegistry([named("one"), plain, named("two")])
    assert registry.names == ("one", "plain", "two")
    assert [definition.name for definition in registry.definitions] == ["one", "plain", "two"]
    assert registry.definitions is registry.definitions
    found = registry.get("plain")
    assert found is not None
    assert found.description == "Plain."
    assert registry.get("none") is None
    assert "one" in registry
    assert [tool.name for tool in registry] == ["one", "plain", "two"]
    registry.remove("plain")
    registry.add(named("three"))
    assert [definition.name for definition in registry.definitions] == ["one", "two", "three"]
    assert registry.near_misses("tree") == ["three"]
    assert len(registry) == 3


def test_a_registry_refuses_duplicates_and_values_that_are_no_tools() -> None:
    registry = ToolRegistry([named("one")])
    with pytest.raises(InvalidTool, match="two tools called 'one'"):
        registry.add(named("one"))
    with pytest.raises(InvalidTool, match="unknown tool 'two': cannot remove it; the tools are one"):
        registry.remove("two")
    with pytest.raises(
        InvalidTool, match="not a tool: expected a Tool, a function, a ToolSource or a LangChain tool, got int"
    ):
        registry.add(5)  # type: ignore[arg-type]


def test_sources_are_asked_when_opened_and_closed_at_the_end() -> None:
    source, other = Source("a", "b"), Source("c")

    async def main() -> None:
        registry = ToolRegistry([named("one"), source, other])
        assert list(registry.names) == ["one"]
        async with registry:
            assert list(registry.names) == ["one", "a", "b", "c"]
            await registry.open()
            assert source.asked == 1
            source.offered = ["b", "d"]
            before = registry.definitions
            await registry.refresh()
            assert list(registry.names) == ["one", "b", "c", "d"]
            assert registry.definitions is not before
        assert list(registry.names) == ["one"]
        assert source.is_closed
        assert other.is_closed

    asyncio.run(main())


def test_a_source_with_a_name_that_is_taken_is_refused_and_all_are_closed() -> None:
    source, twice = Source("a"), Source("b", "one")

    async def main() -> None:
        with pytest.raises(InvalidTool, match="Source offers tools whose names are taken: one"):
            async with ToolRegistry([named("one"), source, twice]):
                pytest.fail("it must not open")

    asyncio.run(main())
    assert source.is_closed
    assert twice.is_closed


def test_all_sources_are_closed_even_if_one_fails() -> None:
    first, second = Source("a"), Source("b")
    second.fails = True

    async def main() -> None:
        registry = ToolRegistry([first, second])
        await registry.open()
        with pytest.raises(OSError, match="gone"):
            await registry.aclose()

    asyncio.run(main())
    assert first.is_closed

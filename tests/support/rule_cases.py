"""What the tests of every format's rules share: a case, what is asserted of it, and bodies that no check may fail on.

A case is a body that breaks one rule and the nearest body that does not. `mutated_bodies` spoils valid bodies in a few
places; words of the format in any place reach further into the checks than arbitrary ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from hypothesis import strategies as st

from antiphon.wire.format import DEFAULT_OPTIONS, WriteOptions
from antiphon.wire.rules import Violation

CheckRequest = Callable[..., list[Violation]]

AWKWARD_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1.5,
    "",
    "tool",
    [],
    [[]],
    [None],
    {},
    {"type": []},
    [{"id": {}, "type": {}}],
)


class Case(NamedTuple):
    """A rule, the path of its violation, the body that breaks it, and the nearest legal one."""

    rule: str
    path: str
    broken: Any
    legal: Any
    options: WriteOptions = DEFAULT_OPTIONS


def label(value: Any) -> str | None:
    """The id of a case among the parameters of a test."""
    return f"{value.rule} {value.path or 'body'}" if isinstance(value, Case) else None


def assert_only_this_rule_is_broken(check_request: CheckRequest, case: Case) -> None:
    found = check_request(case.broken, case.options)
    assert [(each.rule, each.path, each.advisory) for each in found] == [(case.rule, case.path, False)]
    assert found[0].message
    assert check_request(case.legal, case.options) == []


def assert_advised_on_demand(check_request: CheckRequest, case: Case) -> None:
    """The advisory is what the broken body has and the legal one has not: a host's own rules may concern both."""
    in_both = check_request(case.legal, case.options, advisories=True)
    assert case.rule not in {each.rule for each in in_both if each.advisory}
    in_broken = check_request(case.broken, case.options, advisories=True)
    [found] = [each for each in in_broken if each.advisory and each not in in_both]
    assert (found.rule, found.path) == (case.rule, case.path)
    assert not any(each.advisory for each in check_request(case.broken, case.options))


def assert_check_only_reports(check_request: CheckRequest, body: Any, options: WriteOptions = DEFAULT_OPTIONS) -> None:
    """A check neither raises nor changes the body, and advisories are all it adds on demand."""
    before = repr(body)
    found = check_request(body, options, advisories=True)
    assert all(each.rule and each.message for each in found)
    assert [each for each in found if not each.advisory] == check_request(body, options)
    assert repr(body) == before


def assert_awkward_value_is_reported(check_request: CheckRequest, bodies: Sequence[Any], value: Any) -> None:
    """The value in any place of any body gives a list of violations."""
    for body in copy.deepcopy(list(bodies)):
        for container, key in list(places(body)):
            kept, container[key] = container[key], value
            assert isinstance(check_request(body, advisories=True), list)
            container[key] = kept


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key in a JSON value."""
    keys: Any = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def json_values(words: str) -> st.SearchStrategy[Any]:
    """JSON with the words of a format among its strings and keys."""
    known = st.sampled_from(words.split())
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | known,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(known | st.text(max_size=8), inner, max_size=5),
        max_leaves=12,
    )


@st.composite
def mutated_bodies(draw: st.DrawFn, bodies: Sequence[Any], values: st.SearchStrategy[Any]) -> Any:
    """A body with up to three of its values replaced, dropped or doubled."""
    body = copy.deepcopy(draw(st.sampled_from(bodies)))
    for _ in range(draw(st.integers(1, 3))):
        spots = list(places(body))
        if not spots:
            break
        container, key = draw(st.sampled_from(spots))
        change = draw(st.sampled_from(["replace", "drop", "double"]))
        if change == "drop":
            del container[key]
        elif change == "double" and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        else:
            container[key] = draw(values)
    return body


def any_bodies(bodies: Sequence[Any], words: str, list_key: str) -> st.SearchStrategy[Any]:
    """Any JSON, spoiled bodies, and bodies whose list of messages (under `list_key`) is any JSON."""
    values = json_values(words)
    lists = st.lists(values).map(lambda entries: {**bodies[0], list_key: entries})
    return values | mutated_bodies(bodies, values) | lists

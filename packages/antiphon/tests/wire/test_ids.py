"""Ids and names: legal, stable, and never two for one or one for two."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from antiphon.wire.tools.call_ids import IdMapper
from antiphon.wire.tools.names import NameMapper, safe_name

RULE = IdMapper(r"[a-zA-Z0-9_-]{1,40}")
NAMES = NameMapper(r"[a-zA-Z0-9_-]{1,64}")
names = st.text(max_size=90) | st.sampled_from(
    ["foo/bar", "foo_bar", "foo.bar", "功能", "9lives", "", "x" * 65, "x" * 66]
)


@given(st.lists(names, unique=True, max_size=20))
def test_different_ids_stay_different_and_legal_ones_stay_as_they_are(ids: list[str]) -> None:
    mapped = [RULE.to_wire(name) for name in ids]
    assert len(set(mapped)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", name) for name in mapped)
    assert [RULE.to_wire(name) for name in ids] == mapped
    assert all(RULE.to_wire(name) == name for name in ids if re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", name))


@given(st.lists(names, unique=True, max_size=20))
def test_different_names_stay_different_and_legal_ones_stay_as_they_are(given_names: list[str]) -> None:
    mapped = [NAMES.to_wire(name) for name in given_names]
    assert len(set(mapped)) == len(given_names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in mapped)
    assert all(NAMES.to_wire(name) == name for name in mapped)


def test_replacement_names_are_readable() -> None:
    assert safe_name("files/read me", 64).startswith("files_read_me_")
    assert re.fullmatch(r"[a-z]\w{1,63}", safe_name("9/" + "x" * 99, 64))
    assert safe_name("功能", 64).startswith("tool_")

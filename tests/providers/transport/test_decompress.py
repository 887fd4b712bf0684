"""Compressed bodies: several members, cuts anywhere, limits."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.providers.transport.decompress import Decompressor, MalformedBody
from providers.transport.raw_host import CONTENT


@given(st.lists(st.binary(max_size=300), max_size=4), st.lists(st.integers(0, 2000), max_size=6))
def test_members_may_be_cut_anywhere(members: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(gzip.compress, members))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decompressor = Decompressor("gzip")
    content = b"".join(decompressor.feed(data[start:end]) for start, end in pairwise(places))
    decompressor.close()
    assert content == b"".join(members)


def test_the_total_is_limited_and_deflate_has_one_member() -> None:
    limited = Decompressor("gzip", max_total=1000)
    assert len(limited.feed(gzip.compress(bytes(600)))) == 600
    with pytest.raises(MalformedBody, match="too large"):
        limited.feed(gzip.compress(bytes(600)))
    deflate = Decompressor("deflate")
    assert deflate.feed(zlib.compress(CONTENT)) == CONTENT
    with pytest.raises(MalformedBody, match="after the compressed body"):
        deflate.feed(zlib.compress(CONTENT))
    with pytest.raises(MalformedBody, match="not supported"):
        Decompressor("br")

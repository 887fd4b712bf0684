"""Compressed bodies: several members, cuts anywhere, limits."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from antiphon.http.decompress import BodyTooLarge, Decompressor, Malformed, _load_zstd
from http_ends.client.raw_host import CONTENT


@pytest.mark.parametrize(("coding", "compress"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
@given(st.lists(st.binary(max_size=300), max_size=4), st.lists(st.integers(0, 2000), max_size=6))
def test_members_may_be_cut_anywhere(
    coding: str, compress: Callable[[bytes], bytes], members: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(map(compress, members))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decompressor = Decompressor(coding)
    content = b"".join(decompressor.feed(data[start:end]) for start, end in pairwise(places))
    decompressor.close()
    assert content == b"".join(members)


def test_the_total_is_limited_and_deflate_has_one_member() -> None:
    limited = Decompressor("gzip", max_total=1000)
    assert len(limited.feed(gzip.compress(bytes(600)))) == 600
    with pytest.raises(Malformed, match="too large"):
        limited.feed(gzip.compress(bytes(600)))
    deflate = Decompressor("deflate")
    assert deflate.feed(zlib.compress(CONTENT)) == CONTENT
    with pytest.raises(Malformed, match="after the compressed body"):
        deflate.feed(zlib.compress(CONTENT))
    with pytest.raises(Malformed, match="not supported"):
        Decompressor("br")


def test_zstd_is_limited_truncated_and_damaged_bodies_are_malformed() -> None:
    bomb = zstd.compress(bytes(100 * 1024 * 1024))
    assert len(bomb) < 10_000
    with pytest.raises(BodyTooLarge, match="too large"):
        Decompressor("zstd", max_total=1000).feed(bomb)
    whole = zstd.compress(CONTENT)
    truncated = Decompressor("zstd")
    truncated.feed(whole[:-1])
    with pytest.raises(Malformed, match="truncated"):
        truncated.close()
    with pytest.raises(Malformed, match="damaged"):
        Decompressor("zstd").feed(b"plain text")
    wide: dict[int, int] = {zstd.CompressionParameter.window_log: 27, zstd.CompressionParameter.content_size_flag: 0}
    with pytest.raises(Malformed, match="damaged"):  # a window that makes every decoder reserve 128 MiB
        Decompressor("zstd").feed(zstd.ZstdCompressor(options=wide).compress(CONTENT, zstd.ZstdCompressor.FLUSH_BLOCK))


def test_zstd_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _load_zstd.cache_clear()
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(Malformed, match=r"antiphon\[zstd\]"):
        Decompressor("zstd")

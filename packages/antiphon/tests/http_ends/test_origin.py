"""Which addresses are those of this machine. What the rules refuse is tested with a gateway (`gateway/access/test_origin.py`)."""

from __future__ import annotations

import pytest

from antiphon.http.origin import is_loopback


@pytest.mark.parametrize(
    ("peer", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::1%lo", True),
        ("::ffff:127.0.0.1", True),
        ("::ffff:192.0.2.1", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("", False),
        ("localhost", False),
        ("127.0.0.1.example", False),
    ],
)
def test_loopback(peer: str, is_here: bool) -> None:
    assert is_loopback(peer) == is_here

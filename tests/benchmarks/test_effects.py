"""The Effect Bench for ours: nothing is paid twice, and with a key or `reconcile` everything is paid once."""

from __future__ import annotations

import pytest
from bench.effects.run import main


@pytest.mark.slow
def test_no_payment_is_booked_twice() -> None:
    assert main(["antiphon"]) == 0

"""The places where runs are kept, for the tests that hold for all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from runs.workers import EVERYDAY, Place, place_asked_for


@pytest.fixture(params=EVERYDAY)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_asked_for(request, tmp_path)

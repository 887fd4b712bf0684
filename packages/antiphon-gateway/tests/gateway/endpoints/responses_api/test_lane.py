"""`Lane`: what a finished request leaves in memory."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from antiphon.http.body import Governor
from antiphon_gateway.endpoints.responses_api.lane import Lane, LaneAnswer


def test_a_lane_and_its_answer_are_freed_without_garbage_collection() -> None:
    """Each keeps the body of a request, which nothing counts any more once it is answered."""
    socket: Any = None  # nothing is sent
    gc.disable()
    try:
        lane = Lane(socket, "one", Governor().hold("client"))
        lane.answer = LaneAnswer(lane, b'{"model": "m"}', {}, ())
        answer, place = weakref.ref(lane.answer), weakref.ref(lane)
        del lane
        assert place() is None
        assert answer() is None
    finally:
        gc.enable()

"""`State`: what a client connection is doing; `ServerConnection` changes it."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """What a connection is doing."""

    IDLE = "waiting for a request"
    HEAD = "reading a head"
    BODY = "reading a body"
    RESPONDING = "answering"
    FLUSHING = "waiting until the response has left the write buffer"
    LINGERING = "discarding what is left of a refused request"
    CLOSED = "closed"

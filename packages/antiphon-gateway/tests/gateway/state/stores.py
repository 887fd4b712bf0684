"""Stores of answers for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from antiphon.parts import Text
from antiphon.wire import formats
from antiphon.wire.output import ModelOutput
from antiphon.wire.request import ModelRequest
from antiphon_gateway.state.answers import AnswerStore
from antiphon_gateway.state.continuing import previous_response_id
from antiphon_gateway.state.file import StateFile


class WritingStore(AnswerStore):
    """A store that writes the object of an answer itself, as the format's encoder does, if a test has none."""

    def __init__(self, file: StateFile) -> None:
        super().__init__(file)
        self.file = file

    def __len__(self) -> int:
        """The number of rows, including deleted ones that others build on."""
        with self.file.reading() as db:
            return int(db.execute("SELECT count(*) FROM answers").fetchone()[0])

    def store(
        self, answer_id: str, request: ModelRequest, output: ModelOutput, body: bytes = b"", **options: Any
    ) -> None:
        super().store(answer_id, request, output, body or object_of(answer_id, request, output), **options)


def object_of(response_id: str, request: ModelRequest, output: ModelOutput) -> bytes:
    first = request.messages[0].parts if request.messages and request.messages[0].role == "system" else ()
    fields = {
        "id": response_id,
        "previous_response_id": previous_response_id(request) or None,
        "instructions": "".join(part.text for part in first if isinstance(part, Text)) or None,
        "metadata": request.metadata or {},
    }
    return msgspec.json.encode({**formats["openai-responses"].write_response(output).body, **fields})


@contextmanager
def answer_store(path: str | Path = "", **options: Any) -> Iterator[WritingStore]:
    """A store in a file, or in memory; `options` are those of the file."""
    with closing(StateFile(path, **options)) as file:
        yield WritingStore(file)

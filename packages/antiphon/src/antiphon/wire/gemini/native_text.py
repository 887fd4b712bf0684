"""Code that Gemini ran as text, and what it printed."""

from __future__ import annotations

from collections.abc import Iterator

from antiphon.wire.native_as_text import Block, Readers, text_of


def _executable_code(part: Block) -> Iterator[str]:
    yield f"[code run]\n{text_of(part['executableCode'].get('code'))}"


def _code_execution_result(part: Block) -> Iterator[str]:
    yield f"[output]\n{text_of(part['codeExecutionResult'].get('output'))}"


READERS: Readers = {"executableCode": _executable_code, "codeExecutionResult": _code_execution_result}

"""Calls that models write into their text: `EmbeddedCalls` for streams, `find_calls` for whole texts.

dialect       how models mark a call, as a table
source        text that arrives in pieces, read as if it were whole
surroundings  where in a Markdown text a call may begin, and where it is only quoted
written_call  a call as it is written: name and arguments out of JSON and tags
grammar       the dialects, read
scanner       text in, text and calls out
reader        deltas in, deltas out
"""

from antiphon.tools.embedded.parsed_call import DIALECTS, Dialect
from antiphon.tools.embedded.stream import EmbeddedCalls, find_calls

__all__ = ["DIALECTS", "Dialect", "EmbeddedCalls", "find_calls"]

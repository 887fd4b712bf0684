"""Calls that models write into their text: `EmbeddedCalls` for streams, `find_calls` for whole texts.

markdown_context  where in a Markdown text a call may begin, and where it is only quoted
parsed_call       name and arguments of a call, from JSON or tags
parser            the table of dialects, and the grammar of each
stream            text to text and calls; deltas to deltas with calls
text_tools        tools described in the prompt, for models without tool support
"""

from antiphon.tools.embedded.parser import DIALECTS, Dialect
from antiphon.tools.embedded.stream import EmbeddedCalls, find_calls, with_calls_read
from antiphon.tools.embedded.text_tools import EmbeddedSetting, mode_for, parse_setting, with_text_tools

__all__ = [
    "DIALECTS",
    "Dialect",
    "EmbeddedCalls",
    "EmbeddedSetting",
    "find_calls",
    "mode_for",
    "parse_setting",
    "with_calls_read",
    "with_text_tools",
]

"""Texts with tool calls in every dialect that models write, and texts that stay text."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.wire.request import ToolDefinition

WRITE = ToolDefinition(
    "write_file",
    parameters={
        "type": "object",
        "properties": {"path": {"type": "string"}, "count": {"type": "integer"}, "text": {"type": "string"}},
    },
)
TOOLS: Sequence[str | ToolDefinition] = ("weather", "search_web", "list_plans", WRITE)
OSLO = '{"city": "Oslo"}'
CALL = f'<tool_call>{{"name": "weather", "arguments": {OSLO}}}</tool_call>'

# Each is a text and what it says: strings are text, pairs are calls.
PartSummary = str | tuple[str, str]
WEATHER: PartSummary = ("weather", OSLO)

CALLS: list[tuple[str, list[PartSummary]]] = [
    # <tool_call>, as seed 002, Hermes and Qwen write it
    (CALL, [WEATHER]),
    ('<tool_call>\n{"tool": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>', [WEATHER]),
    ('<tool_call>{"tool": "weather", "parameters": {"city": "Oslo"}}</tool_call>', [WEATHER]),
    ('<tool_call>{"name": "weather", "args": {"city": "Oslo"}}</tool_call>', [WEATHER]),
    ('<tool_call>{"arguments": {"city": "Oslo"}, "name": "weather"}</tool_call>', [WEATHER]),
    (
        '<tool_call>{"tool": "weather", "city": "Oslo", "days": 2}</tool_call>',
        [("weather", '{"city":"Oslo","days":2}')],
    ),
    ('<tool_call>{"name": "list_plans"}</tool_call>', [("list_plans", "{}")]),
    ('<tool_call>{"name": "list_plans", "arguments": null}</tool_call>', [("list_plans", "{}")]),
    ('<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Oslo\\"}"}</tool_call>', [WEATHER]),
    (
        '<tool_call>{"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}</tool_call>',
        [WEATHER],
    ),
    (f"<function_call>{CALL[11:-12]}</function_call>", [WEATHER]),
    (f"<tool_call>[{CALL[11:-12]}, {CALL[11:-12]}]</tool_call>", [WEATHER, WEATHER]),
    (f"<tool_call>\n{CALL[11:-12]}\n{CALL[11:-12]}\n</tool_call>", [WEATHER, WEATHER]),
    (f"{CALL}\n{CALL}", [WEATHER, WEATHER]),
    (f"{CALL}{CALL}", [WEATHER, WEATHER]),
    (
        '<tool_call>{"name": "search_web", "arguments": {"q": "</tool_call> <tool_call>"}}</tool_call>',
        [("search_web", '{"q": "</tool_call> <tool_call>"}')],
    ),
    # around it
    (f"Let me look.\n\n{CALL}\n\nOne moment.", ["Let me look.", WEATHER, "One moment."]),
    (f"Let me look. {CALL}", ["Let me look.", WEATHER]),
    (f"让我查一下。{CALL}", ["让我查一下。", WEATHER]),
    (f"Sure! 😊 {CALL}", ["Sure! 😊", WEATHER]),
    (f"<think>Hm: weather.</think>{CALL}", ["<think>Hm: weather.</think>", WEATHER]),
    (f"{CALL} Done.", [WEATHER, "Done."]),
    (f"It's `fine` now.\n{CALL}", ["It's `fine` now.", WEATHER]),
    (f"A stray ` mark.\n\n{CALL}", ["A stray ` mark.", WEATHER]),
    (f"```python\nprint(1)\n```\n{CALL}", ["```python\nprint(1)\n```", WEATHER]),
    (f"> quoted\n\n{CALL}", ["> quoted", WEATHER]),
    (f"<tool_call>hm\n{CALL}", ["<tool_call>hm", WEATHER]),
    (f'<tool_call>{{"name": "oops\n{CALL}', ['<tool_call>{"name": "oops', WEATHER]),
    (f"a < b [1] {{x}}\n{CALL}", ["a < b [1] {x}", WEATHER]),
    # in the middle of a sentence, outside code and quotations
    (f"我来帮你搜索{CALL}", ["我来帮你搜索", WEATHER]),
    (f"我来帮你搜索：{CALL}请稍等", ["我来帮你搜索：", WEATHER, "请稍等"]),
    (f"我先搜索，{CALL}\n\n然后制定计划。", ["我先搜索，", WEATHER, "然后制定计划。"]),
    (f"You would write {CALL} to call it.", ["You would write", WEATHER, "to call it."]),
    (f"{CALL} is how it is written.", [WEATHER, "is how it is written."]),
    (f"- {CALL}", ["-", WEATHER]),
    (f"1. {CALL}", ["1.", WEATHER]),
    (f'搜索“雅思”和 "7分" {CALL}', ['搜索“雅思”和 "7分"', WEATHER]),
    (f"First {CALL}, then {CALL}.", ["First", WEATHER, ", then", WEATHER, "."]),
    ('好的 {"tool": "weather", "city": "Oslo"} 请稍等', ["好的", ("weather", '{"city":"Oslo"}'), "请稍等"]),
    ('{"city": "Oslo", "tool": "weather"}', [("weather", '{"city":"Oslo"}')]),
    ('For example {"tool": "weather", "city": "Oslo"}', ["For example", ("weather", '{"city":"Oslo"}')]),
    (f'{{"name": "weather", "arguments": {OSLO}}}; {{"name": "weather", "arguments": {OSLO}}}', [WEATHER, WEATHER]),
    ('```\n{"tool": "weather", "city": "Oslo"}\n```', [("weather", '{"city":"Oslo"}')]),
    # closed, and not on offer: the model hears that there is no such tool
    (CALL.replace("weather", "delete_everything"), [("delete_everything", OSLO)]),
    (
        f"<tool_call>[{CALL[11:-12]}, {CALL[11:-12].replace('weather', 'unknown')}]</tool_call>",
        [WEATHER, ("unknown", OSLO)],
    ),
    # unclosed, and what is left of the JSON is whole
    (CALL.removesuffix("</tool_call>"), [WEATHER]),
    (f"{CALL.removesuffix('</tool_call>')}\n{CALL}", [WEATHER, WEATHER]),
    # closed, and not JSON: the model gets an error when its arguments are parsed
    (
        '<tool_call>{"name": "weather", "arguments": {"city": Oslo}}</tool_call>',
        [("weather", '{"city": Oslo}}')],
    ),
    ('<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}</tool_call>', [WEATHER]),
    (
        "<tool_call>{'tool': 'weather', 'city': 'Oslo'}</tool_call>",
        [("weather", "{'tool': 'weather', 'city': 'Oslo'}")],
    ),
    (
        '<tool_call>{ // look\n"tool": "weather"}</tool_call>',
        [("weather", '{ // look\n"tool": "weather"}')],
    ),
    (f"{CALL[:-12]} thanks</tool_call>", [("weather", f"{OSLO}}} thanks")]),
    ("<tool_call>weather(Oslo)</tool_call> Wait.", [("weather", "weather(Oslo)"), "Wait."]),
    (
        "<tool_call><function=delete_everything></function></tool_call>",
        [("delete_everything", "<function=delete_everything></function>")],
    ),
    ("<tool_call>[]</tool_call>", [("unreadable_call", "[]")]),
    ('<tool_call>{"arguments": {}}</tool_call>', [("unreadable_call", '{"arguments": {}}')]),
    ('<tool_call>{"name": 5}</tool_call>', [("unreadable_call", '{"name": 5}')]),
    (
        '<tool_call>{"arguments": {"name": "list_plans"}}</tool_call>',
        [("unreadable_call", '{"arguments": {"name": "list_plans"}}')],
    ),
    (CALL.replace("weather", "not a name"), [("unreadable_call", CALL[11:-12].replace("weather", "not a name"))]),
    ('<tool_call>{"name": "we\udc80ather"}</tool_call>', [("unreadable_call", '{"name": "we?ather"}')]),
    # a fenced block in the tag
    (f"<tool_call>\n```json\n{CALL[11:-12]}\n```\n</tool_call>", [WEATHER]),
    (f"<tool_call>```json{CALL[11:-12]}```</tool_call>Done.", [WEATHER, "Done."]),
    (f"<tool_call>\n```\n{CALL[11:-12]}\n{CALL[11:-12]}\n```</tool_call>", [WEATHER, WEATHER]),
    ("<tool_call>```json\n{'tool': 'weather'}\n```</tool_call>", [("weather", "```json\n{'tool': 'weather'}\n```")]),
    # Qwen3-Coder
    (
        "<tool_call>\n<function=write_file>\n<parameter=path>\na.txt\n</parameter>\n<parameter=count>\n5\n</parameter>\n"
        "<parameter=text>\n1\n</parameter>\n</function>\n</tool_call>",
        [("write_file", '{"path":"a.txt","count":5,"text":"1"}')],
    ),
    (
        '<function=weather>\n<parameter=city>\nOslo "west"\n</parameter>\n</function>\n</tool_call>',
        [("weather", '{"city":"Oslo \\"west\\""}')],
    ),
    (
        "<tool_call><function=weather><parameter=days>[1, 2]</parameter></function></tool_call>",
        [("weather", '{"days":[1, 2]}')],
    ),
    ("<tool_call><function=list_plans></function></tool_call>", [("list_plans", "{}")]),
    # Llama
    (f'<|python_tag|>{{"name": "weather", "parameters": {OSLO}}}', [WEATHER]),
    (
        f'<|python_tag|>{{"name": "weather", "parameters": {OSLO}}}; {{"name": "weather", "parameters": {OSLO}}}',
        [WEATHER, WEATHER],
    ),
    (f'{{"name": "weather", "parameters": {OSLO}}}', [WEATHER]),
    (f'{{"type": "function", "name": "weather", "parameters": {OSLO}}}', [WEATHER]),
    (f"<function=weather>{OSLO}</function>", [WEATHER]),
    (f"<function=weather>{OSLO}", [WEATHER]),
    # Mistral
    (f'[TOOL_CALLS] [{{"name": "weather", "arguments": {OSLO}}}]', [WEATHER]),
    (f"[TOOL_CALLS]weather[ARGS]{OSLO}", [WEATHER]),
    (f"[TOOL_CALLS]weather{OSLO}", [WEATHER]),
    (f"[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]{OSLO}", [WEATHER]),
    (f"Looking[TOOL_CALLS]weather[ARGS]{OSLO}[TOOL_CALLS]weather[ARGS]{OSLO}", ["Looking", WEATHER, WEATHER]),
    # Granite
    (f'<|tool_call|>[{{"name": "weather", "arguments": {OSLO}}}]', [WEATHER]),
    # DeepSeek V3.1 and V3
    (
        f"Hm<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{OSLO}<｜tool▁call▁end｜>"
        f"<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{OSLO}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ["Hm", WEATHER, WEATHER],
    ),
    (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{OSLO}\n```<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        [WEATHER],
    ),
    # a line of its own
    ('{"tool": "weather", "city": "Oslo"}', [("weather", '{"city":"Oslo"}')]),
    ('Hm.\n{"tool": "weather", "arguments": {"city": "Oslo"}}\nWait.', ["Hm.", WEATHER, "Wait."]),
    ('{\n  "tool": "weather",\n  "arguments": {"city": "Oslo"}\n}', [WEATHER]),
    ('{"tool": "list_plans"}\r\n', [("list_plans", "{}")]),
    # a fenced block
    ('```json\n{"tool": "weather", "arguments": {"city": "Oslo"}}\n```', [WEATHER]),
    ('Hm:\n```tool_call\n{"name": "weather", "arguments": {"city": "Oslo"}}\n```\nOk.', ["Hm:", WEATHER, "Ok."]),
    ('~~~~json\n{"tool": "list_plans"}\n{"tool": "list_plans"}\n~~~~', [("list_plans", "{}"), ("list_plans", "{}")]),
    ('```json\n{"tool": "list_plans"}', [("list_plans", "{}")]),
]

STAYS_TEXT = [
    "",
    " ",
    "\n\n",
    "Just words.\n\nAnd more, with `code` and\n```\na block\n```\n",
    # inline code
    f"Write `{CALL}` to call it.",
    f"`{CALL}`",
    f"``{CALL}``",
    f"A span `of two\n{CALL}\nlines` is code.",
    f"Like so. `{CALL}`",
    f"`Like so. {CALL} Done.`",
    # code blocks of another language, or of none
    f"```\n{CALL}\n```",
    f"```xml\n{CALL}\n```",
    f"```python\n{CALL}\n```\n",
    f"~~~\n```\n{CALL}\n```\n~~~",
    f"````md\n```json\n{CALL}\n```\n````",
    f"````md\n```\n{CALL}\n```\n````",
    f"    {CALL}",
    f"\t{CALL}",
    '```python\n{"tool": "weather", "city": "Oslo"}\n```',
    f"```json\n{CALL}\n```",
    # more than the call in the block
    '```json\n{"tool": "weather", "city": "Oslo"}\nand so on\n```',
    '```json\n// call it\n{"tool": "weather", "city": "Oslo"}\n```',
    '```json\n{"a": 1}\n```\n',
    # in quotation marks
    f"Like “{CALL}”.",
    f'He wrote "use {CALL} here".',
    f"例如「{CALL}」",
    'For example "{"tool": "weather"}"',
    # unclosed, with words after it
    f"{CALL.removesuffix('</tool_call>')} and so on",
    '    {"tool": "weather", "city": "Oslo"}',
    f"The mark [TOOL_CALLS]weather[ARGS]{OSLO} announces a call.",
    "The mark <|python_tag|> announces a call.",
    # a quoted line
    f"> {CALL}",
    f"> Then it said. {CALL}",
    f"  > Then it said.\n> {CALL}\n",
    '> {"tool": "weather", "city": "Oslo"}',
    # not on offer, or no call
    CALL.replace("weather", "delete_everything").removesuffix("</tool_call>"),
    '{"tool": "delete_everything"}',
    "<function=delete_everything></function>",
    f"[TOOL_CALLS]delete_everything[ARGS]{OSLO}",
    '{"name": "weather"}',
    '{"name": "weather", "city": "Oslo"}',
    '{"city": "Oslo", "tool": "unknown"}',
    '{"answer": {"tool": "weather"}}',
    '{"answer": 42}',
    "<tool_call></tool_call>",
    "The tag <tool_call> begins a call, and </tool_call> ends it.",
    "<tool_call> … </tool_call>",
    # cut short
    "<tool_call>{'tool': 'weather'}",
    "<tool_call>",
    "<tool_",
    "<",
    CALL[:40],
    CALL[:-4],
    '{"tool": "weather", "city": "Os',
    '```json\n{"tool": "weather", "city"',
    "<function=weather><parameter=city>Oslo</parameter>",
    "[TOOL_CALLS]weather[ARGS]{",
    "[TOOL_",
    # what no JSON reader takes
    "<tool_call>" + "[" * 3000,
]


ONLY_UNDER_ON = [
    '{"tool": "weather", "city": "Oslo"}',
    '```json\n{"tool": "weather", "arguments": {"city": "Oslo"}}\n```',
    f"<function=weather>{OSLO}</function>",
    f"[TOOL_CALLS]weather[ARGS]{OSLO}",
    CALL.removesuffix("</tool_call>"),
]
"""Calls that are not closed tags: they stay text for a model that has tools of its own."""

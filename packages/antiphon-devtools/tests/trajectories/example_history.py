"""A conversation with everything a trajectory meets: calls, results, reasoning, an image, a decision, a rollback."""

from __future__ import annotations

from base64 import b64encode

from antiphon.history import (
    AgentHistory,
    ApprovalRequestedEntry,
    EntryMetadata,
    HumanDecisionEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    ToolCallResultsEntry,
)
from antiphon.parts import Image, Text, Thinking, TokenUsage, ToolCallRequest, ToolCallResult, ToolExecutionStatus

CLAUDE = Origin("anthropic", "anthropic", "claude-sonnet-4-5")
GPT = Origin("openai", "openai-chat", "gpt-5.5")
PNG = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()

OSLO = ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')
BERGEN = ToolCallRequest("weather", "call_2", '{"city": "Bergen", "days": 2}')
DELETE = ToolCallRequest("delete_file", "call_3", '{"path": "notes.txt"}')


def example_history() -> AgentHistory:
    """Four turns: tools (Claude), a rolled back answer and its replacement (GPT), an approved call, an interrupted answer."""
    history = AgentHistory()
    history.set_system_instruction("Be brief.")
    history.append(ModelInputEntry.of("今天奥斯陆下雨吗？ And Bergen?", Image("image/png", PNG)))
    usage = TokenUsage(prompt_tokens=100, completion_tokens=20, cached_tokens=40, reasoning_tokens=5)
    history.append(
        ModelOutputEntry(
            (
                Thinking("Two cities.", native={"anthropic": {"signature": "c2ln"}}),
                Text("Let me look."),
                OSLO,
                BERGEN,
            ),
            "tool_calls",
            CLAUDE,
            metadata=EntryMetadata(usage=usage),
        )
    )
    history.append(
        ToolCallResultsEntry(
            (
                ToolCallResult.of(OSLO, "Rain, 7 °C"),
                ToolCallResult.of(BERGEN, "no such city", status=ToolExecutionStatus.FAILED),
            )
        )
    )
    history.append(ModelOutputEntry((Text("Rain in Oslo. 带伞。"),), "end", CLAUDE))
    before = history.version
    history.append(ModelInputEntry.of("And tomorrow?"))
    history.append(ModelOutputEntry((Text("I cannot know."),), "end", GPT))
    history.rollback(before, "asked again")
    history.append(ModelInputEntry.of("And tomorrow, by the forecast?"))
    history.append(ModelOutputEntry((Text("Sun."),), "end", GPT))
    history.append(ModelInputEntry.of("Delete my notes."))
    history.append(ApprovalRequestedEntry(("call_3",)))
    history.append(ModelOutputEntry((DELETE,), "tool_calls", CLAUDE))
    history.append(HumanDecisionEntry("call_3", "approve", "yes, please"))
    history.append(ToolCallResultsEntry((ToolCallResult.of(DELETE, "deleted"),)))
    history.append(ModelOutputEntry((Text("Done."),), "end", CLAUDE))
    history.append(ModelInputEntry.of("Tell me a story."))
    history.append(
        ModelOutputEntry(
            (Text("Once upon"),), "interrupted", CLAUDE, metadata=EntryMetadata(extra={"ended": "interrupted"})
        )
    )
    return history

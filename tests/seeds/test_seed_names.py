"""Every name of the five documents is in the two maps, the English and the Chinese one, beside its counterpart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NAMES = {
    "000": """processInputStreamWithTools ConversationManager addMessage PartsTracker getParts processSingleIteration response
    requiresFollowUp nextPrompt lastToolResult iterationId hasText toolCallsCount toolCallId contentLength JSON.stringify""",
    "001": "main.py format_proxy.py fix_tool_call_sequence request_id potential_interrupts 8000 8181 热重载 CODEBUDDY_API_KEY",
    "002": """chat.ts MultiToolCallManager workflowManager maxIterations processAIResponse continueLoop processSingleToolCall
    executeTool extractToolCall cleanedJson toolValidator.ts validateToolCall tavilySearch.ts search_web TAVILY_API_KEY
    planningTools.ts create_plan list_plans update_plan ToolCallRecord currentIteration WorkflowResult hasToolCall toolCall
    toolResult shouldContinue userId accumulatedText callVolcengineModel PlanCard testMultiToolWorkflow.ts
    testPlanningWorkflow.ts""",
    "003": """AgentHistory Append Entries Version HistoryVersion _conversationHistory LlmAgent HistoryEntry SequenceNumber
    Timestamp Kind Metadata ContextualHistoryEntry IContextEntry ContextEntryRole SetSystemInstructionEntry SetMemoryNotebookEntry
    DebugLogEntry ModelInputEntry Channel RawInput StructuredContent ModelOutputEntry Plan ResponseMarkdown ToolCalls
    ToolCallRequest ToolCallResult ToolExecutionStatus ToolCallResultsEntry OverallResult HistoryEntryKind PlannerDirective
    DecoratedContextEntry WithLiveScreen LiveScreen BuildLiveContext RenderLiveContext SystemInstruction SetSystemInstruction
    MemoryNotebookContent SetMemoryNotebookContent CreateSnapshot AgentHistorySnapshot IProviderClient CallModelAsync
    StreamChatCompletionAsync CancellationToken ProviderCallOptions ModelOutputDelta ChatResponseDelta ProviderRouter Rollback
    /history LiveContextInjectedEntry DebugUtil Semantic Kernel""",
    "004": "messages llmWrapper generate toolExecutor tokenLimit tokenUsage promptTokens completionTokens totalTokens 2.5",
}


def rows(page: str) -> dict[str, list[str]]:
    """The rows of the tables under each document's heading, without the code and the tests."""
    sections = re.split(r"^## (\d{3})\b.*$", (DOCS / page).read_text(), flags=re.MULTILINE)
    return {
        number: [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")]
        for number, text in zip(sections[1::2], sections[2::2], strict=True)
    }


@pytest.mark.parametrize("page", ["design-documents.md", "zh/design-documents.md"])
def test_every_name_has_a_row(page: str) -> None:
    found = rows(page)
    missing = [
        f"{document}: {name}"
        for document, names in NAMES.items()
        for name in names.split()
        if not any(re.search(rf"(?<![A-Za-z_]){re.escape(name)}(?![A-Za-z_])", row) for row in found[document])
    ]
    assert missing == []


def test_every_row_of_the_chinese_map_leads_to_a_page() -> None:
    for names in rows("zh/design-documents.md").values():
        for row in names[2:]:
            assert re.search(r"\]\([^)]+\.md[^)]*\) \|$|下面的代码 \|$", row), row


def test_hot_reload_is_found_under_its_chinese_name() -> None:
    assert "热重载" in (DOCS / "zh" / "gateway.md").read_text()

"""Makes any sequence of messages legal for a format, and reports each change."""

from antiphon.repair.action import Action
from antiphon.repair.chat_messages import fix_tool_call_sequence
from antiphon.repair.messages import repair_messages
from antiphon.repair.repairer import Repaired, add_system_message, declare_called_tools, repair

__all__ = [
    "Action",
    "Repaired",
    "add_system_message",
    "declare_called_tools",
    "fix_tool_call_sequence",
    "repair",
    "repair_messages",
]

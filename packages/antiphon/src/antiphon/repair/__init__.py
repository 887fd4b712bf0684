"""Makes any sequence of messages legal for a format, and reports each change."""

from antiphon.repair.action import Action
from antiphon.repair.messages import repair_messages
from antiphon.repair.repairer import Repaired, add_system_message, declare_called_tools, fix_tool_call_sequence, repair

__all__ = [
    "Action",
    "Repaired",
    "add_system_message",
    "declare_called_tools",
    "fix_tool_call_sequence",
    "repair",
    "repair_messages",
]

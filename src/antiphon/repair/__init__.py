"""Makes any sequence of messages legal for a format, and reports each change."""

from antiphon.repair.action import Action
from antiphon.repair.repairer import Repaired, fix_tool_call_sequence, repair

__all__ = ["Action", "Repaired", "fix_tool_call_sequence", "repair"]

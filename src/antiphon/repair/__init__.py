"""Any sequence of messages in, a legal one out, with a report of what was done."""

from antiphon.repair.action import Action
from antiphon.repair.request import Repaired, fix_tool_call_sequence, repair

__all__ = ["Action", "Repaired", "fix_tool_call_sequence", "repair"]

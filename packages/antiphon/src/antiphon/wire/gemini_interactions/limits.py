"""What the Interactions API accepts, as data for the writer and the checks (the ids are those of `rules`).

Ranges of numbers are in the table of `parameters`, names of tools and types of media in `capabilities.json`.
"""

from __future__ import annotations

from functools import cache

from antiphon.wire.capabilities import format_capabilities
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.rules import name_set

PARAMETERS = name_set(
    "input model agent agent_config background environment generation_config labels previous_interaction_id"
    " response_format response_mime_type response_modalities safety_settings service_tier store stream"
    " system_instruction tools webhook_config continuation_token id created updated status environment_id"
)
"""GI-02."""
MEDIA_KINDS = ("image", "audio", "document", "video")
"""The contents that are not text (GI-05)."""
RESULT_CONTENT = ("text", "image")
"""What a result holds (GI-14)."""
MODES = ("auto", "any", "none", "validated")
"""Of the choice among tools (GI-09)."""
SERVICE_TIERS = ("flex", "standard", "priority", "deferred")
"""GI-12."""
OUTPUT_TYPES = ("application/json", "text/plain")
"""The MIME types of text answers (GI-11)."""


@cache
def media_types(kind: str) -> frozenset[str]:
    """The MIME types of a kind of medium (GI-06)."""
    return frozenset(getattr(format_capabilities(FORMAT), f"{kind}_types"))

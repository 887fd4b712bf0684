"""What the Interactions API accepts, as data for the writer and the checks (the ids are those of `rules`).

Names of tools and types of media are in `capabilities.json`.
"""

from __future__ import annotations

from functools import cache

from antiphon.wire.capabilities import format_capabilities
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.parameters import NUMBER, Parameter, ParameterTable
from antiphon.wire.rules import name_set
from antiphon.wire.shared_google import Seed, google_range, output_tokens, service_tiers, stop_sequences

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
NAME = "the Interactions API"
CONFIG = "generation_config"
PARAMETER_TABLE = ParameterTable(
    NAME,
    (
        Parameter("temperature", "temperature", NUMBER, google_range("GI-07", 2), CONFIG),
        Parameter("top_p", "top_p", NUMBER, google_range("GI-07", 1, unset="drop"), CONFIG),
        Parameter("max_output_tokens", "max_output_tokens", (int,), output_tokens("GI-07"), CONFIG),
        Parameter("seed", "seed", (int,), Seed(), CONFIG),
        Parameter("stop", "stop_sequences", (), stop_sequences("GI-07"), CONFIG),
        Parameter("service_tier", "service_tier", (str,), service_tiers("GI-12", *SERVICE_TIERS)),
        Parameter("stream", "stream", (bool,)),
        Parameter("store", "store", (bool,)),
        Parameter("model", "model", (str,), is_written=False),
    ),
)


@cache
def media_types(kind: str) -> frozenset[str]:
    """The MIME types of a kind of medium (GI-06)."""
    return frozenset(getattr(format_capabilities(FORMAT), f"{kind}_types"))

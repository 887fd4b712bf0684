"""What the Interactions API accepts, as data for the writer and the checks (the ids are those of `rules`).

Ranges of numbers are in the table of `parameters`, names of tools in `capabilities.json`.
"""

from __future__ import annotations

from antiphon.wire.rules import name_set

PARAMETERS = name_set(
    "input model agent agent_config background environment generation_config labels previous_interaction_id"
    " response_format response_mime_type response_modalities safety_settings service_tier store stream"
    " system_instruction tools webhook_config continuation_token id created updated status environment_id"
)
"""GI-02."""
MEDIA_TYPES: dict[str, frozenset[str]] = {
    "image": name_set("image/png image/jpeg image/webp image/heic image/heif image/gif image/bmp image/tiff"),
    "audio": name_set(
        "audio/wav audio/mp3 audio/aiff audio/aac audio/ogg audio/flac audio/mpeg audio/m4a audio/l16 audio/opus"
        " audio/alaw audio/mulaw"
    ),
    "document": name_set("application/pdf text/csv"),
    "video": name_set("video/mp4 video/mpeg video/mpg video/mov video/avi video/x-flv video/webm video/wmv video/3gpp"),
}
"""The MIME types of each kind of medium (GI-06)."""
RESULT_CONTENT = ("text", "image")
"""What a result holds (GI-14)."""
MODES = ("auto", "any", "none", "validated")
"""Of the choice among tools (GI-09)."""
SERVICE_TIERS = ("flex", "standard", "priority", "deferred")
"""GI-12."""
OUTPUT_TYPES = ("application/json", "text/plain")
"""The MIME types of text answers (GI-11)."""

"""What generateContent accepts, as data for the writer and the checks (the ids are those of `rules`).

Ranges of numbers are in the table of `parameters`, names of tools and image types in `capabilities.json`.
"""

from __future__ import annotations

from antiphon.wire.gemini.native import field_spellings
from antiphon.wire.rules import name_list, name_set

PARAMETERS = name_set(
    "contents model systemInstruction tools toolConfig safetySettings generationConfig cachedContent labels serviceTier"
    " modelArmorConfig store"
)
"""GM-18."""
PARAMETER_SPELLINGS = field_spellings(PARAMETERS)

DATA_FIELDS = name_list(
    "text inlineData functionCall functionResponse fileData executableCode codeExecutionResult toolCall toolResponse"
)
"""A part has one of these (GM-04)."""
OTHER_PART_FIELDS = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
PART_SPELLINGS = field_spellings((*DATA_FIELDS, *OTHER_PART_FIELDS))

MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
"""Of function calling, each at its number (GM-13)."""
SERVICE_TIERS = ("flex", "standard", "priority")
NOT_WITH_CACHED_CONTENT = ("tools", "toolConfig", "systemInstruction")
"""GM-19."""

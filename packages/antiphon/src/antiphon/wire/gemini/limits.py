"""What generateContent accepts, as data for the writer and the checks (the ids are those of `rules`).

Names of tools and types of media are in `capabilities.json`, the fields of a part in `shapes`.
"""

from __future__ import annotations

from msgspec import structs

from antiphon.wire.parameters import NUMBER, WHOLE_NUMBER, Parameter, ParameterTable, Range
from antiphon.wire.rules import name_set
from antiphon.wire.shared_google import Seed, google_range, output_tokens, service_tiers, stop_sequences

PARAMETERS = name_set(
    "contents model systemInstruction tools toolConfig safetySettings generationConfig cachedContent labels serviceTier"
    " modelArmorConfig store"
)
"""GM-18."""
MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
"""Of function calling, each at its number (GM-13)."""
SERVICE_TIERS = ("flex", "standard", "priority")
NOT_WITH_CACHED_CONTENT = ("tools", "toolConfig", "systemInstruction")
"""GM-19."""
CONFIG = "generationConfig"
PARAMETER_TABLE = ParameterTable(
    "Gemini",
    (
        *(
            structs.replace(row, inside=CONFIG)
            for row in (
                Parameter("temperature", "temperature", NUMBER, google_range("GM-14", 2)),
                Parameter("top_p", "topP", NUMBER, google_range("GM-14", 1, unset="drop")),
                Parameter("presence_penalty", "presencePenalty", NUMBER),
                Parameter("frequency_penalty", "frequencyPenalty", NUMBER),
                Parameter("top_k", "topK", WHOLE_NUMBER),
                Parameter("max_output_tokens", "maxOutputTokens", WHOLE_NUMBER, output_tokens("GM-14")),
                Parameter(
                    "candidates",
                    "candidateCount",
                    WHOLE_NUMBER,
                    Range(rule="GM-14", minimum=1, is_whole=True, model_fact="candidates", reads_text=True),
                ),
                Parameter("seed", "seed", WHOLE_NUMBER, Seed()),
                Parameter("top_logprobs", "logprobs", WHOLE_NUMBER),
                Parameter("logprobs", "responseLogprobs", (bool,)),
                Parameter("stop", "stopSequences", limit=stop_sequences("GM-14")),
            )
        ),
        Parameter("model", "model", (str,), is_written=False),  # in the URL
        Parameter("service_tier", "serviceTier", (str,), service_tiers("GM-18", *SERVICE_TIERS)),
        Parameter("store", "store", (bool,)),
    ),
)

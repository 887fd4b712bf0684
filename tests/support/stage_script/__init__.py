"""A sixth format that only the tests have: a request is the script of a play, and nothing in the source knows it.

It differs from the others where they agree: the type of a block is its `kind`; the results of calls stand *before* the lines of
an entry, in the order of the calls, and no call has an id; streams are events of one letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.parts import Text
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.spec import FormatSignature, FormatSpec, MediaBlocks, SequenceRule

FORMAT = "stage-script"


def _read_pasted(block: Mapping[str, Any]) -> Text | None:
    words = block.get("words")
    return Text(words) if isinstance(words, str) else None


SPEC = FormatSpec(
    messages_key="script",
    sequence_rule=SequenceRule(merges_assistant_turns=True),
    required=frozenset({"script"}),
    tag="kind",
    facts=Capabilities(tool_name_pattern="[a-z]{1,16}", tool_name_length=16, media=()),
    server_state={"earlier_act": bool},
    is_local_detail=lambda name, _value: name == "light",
    has_native_text=True,
    media_blocks=MediaBlocks(tag="kind", kinds={"picture": "image"}, containers=("lines",)),
    pasted_types=frozenset({"spoken"}),
    read_pasted=_read_pasted,
    signature=FormatSignature(message_keys=frozenset({"voice"})),
)

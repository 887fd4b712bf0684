"""The grammar of deltas, for the tests of every format.

stream := Started? ( part events | UsageReported )* ( Finished+ | Failed )
"""

from __future__ import annotations

from antiphon.wire import ModelOutputDelta
from antiphon.wire.delta import Failed, Finished, PartDelta, PartEnded, PartExtended, PartStarted, Started


def check_grammar(deltas: list[ModelOutputDelta]) -> None:
    """Parts start once, in order, before they are spoken of; one terminal event, or one for each candidate, and it is last."""
    begun: set[int] = set()
    ended: set[int] = set()
    for place, delta in enumerate(deltas):
        if isinstance(delta, Started):
            assert place == 0
        elif isinstance(delta, PartStarted):
            assert delta.index not in begun
            begun.add(delta.index)
        elif isinstance(delta, PartDelta | PartExtended | PartEnded):
            assert delta.index in begun
            assert delta.index not in ended
            if isinstance(delta, PartEnded):
                ended.add(delta.index)
    terminal = [delta for delta in deltas if isinstance(delta, Finished | Failed)]
    assert terminal == deltas[-len(terminal) :] != []
    if isinstance(terminal[-1], Failed):
        assert len(terminal) == 1
    else:
        assert ended == begun == set(range(len(begun)))
        numbers = [delta.candidate for delta in terminal if isinstance(delta, Finished)]
        assert numbers == sorted(set(numbers))

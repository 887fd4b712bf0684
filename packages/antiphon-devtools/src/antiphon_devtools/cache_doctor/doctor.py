"""`CacheDoctor`: follows the requests of one or several conversations and predicts what each reads from the prompt cache.

It simulates the provider's cache: a request stores prefixes (at its breakpoints, or everywhere), a later one reads the longest
that it repeats and that has not expired. The request before it in the same conversation is the one that shares most of the
messages with it; the first place where the two differ is what broke the prefix.

Everything is bounded: `max_prompts` outlines per scope, `max_scopes` scopes, `max_prefixes` stored prefixes; the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple

from antiphon_devtools.cache_doctor.difference import Difference, common_segments, first_difference
from antiphon_devtools.cache_doctor.outline import PromptOutline
from antiphon_devtools.cache_doctor.report import CacheReport, Verdict
from antiphon_devtools.cache_doctor.rules import CacheRules, cache_rules


class _SeenRequest(NamedTuple):
    """An earlier request."""

    outline: PromptOutline
    messages: dict[int, int]
    """The size of each message block, by its digest."""
    at: float | None


class _StoredPrefix(NamedTuple):
    """A prefix in the simulated cache: when it expires, and for how long each read keeps it."""

    until: float | None
    seconds: float


class CacheDoctor:
    """Predicts the cache reads of requests. With `is_one_conversation` each request follows the one before it."""

    def __init__(
        self,
        *,
        is_one_conversation: bool = False,
        max_prompts: int = 16,
        max_scopes: int = 256,
        max_prefixes: int = 50_000,
    ) -> None:
        self._is_one_conversation = is_one_conversation
        self._max_prompts = max_prompts
        self._max_scopes = max_scopes
        self._max_prefixes = max_prefixes
        self._seen: OrderedDict[str, deque[_SeenRequest]] = OrderedDict()
        self._stored: OrderedDict[tuple[str, int], _StoredPrefix] = OrderedDict()

    def examine(
        self, outline: PromptOutline, *, scope: str = "", provider: str = "", at: float | None = None
    ) -> CacheReport:
        """The report of a request, which is remembered. `at` is its time in seconds; None: prefixes do not expire.

        `scope` separates clients: only requests of the same one belong to a conversation. What is stored at a `provider` is
        shared by all scopes, as requests with the same upstream account are.
        """
        rules = cache_rules(outline.format, outline.model)
        previous = self._previous(outline, scope)
        gap = None if previous is None or at is None or previous.at is None else max(0.0, at - previous.at)
        difference = first_difference(previous.outline, outline) if previous is not None else None
        if outline.elsewhere:
            predicted = expected = 0
        else:
            tokens = outline.tokens_before(self._read(outline, rules, provider, at))
            if previous is not None and difference is not None and not rules.uses_breakpoints:
                is_alive = self._is_alive((provider, previous.outline.chain[-1]), at)
                if is_alive and previous.outline.cache_key == outline.cache_key:
                    tokens = max(tokens, _tokens_up_to(outline, difference))
            predicted = _readable(tokens, rules)
            expected = _expected(previous.outline, outline, rules) if previous is not None else 0
        report = CacheReport(
            format=outline.format,
            model=outline.model,
            provider=provider,
            verdict=_verdict(outline, previous, rules, difference, predicted, expected, gap),
            prompt_tokens=outline.tokens,
            predicted_tokens=predicted,
            expected_tokens=expected,
            lost_tokens=max(0, expected - predicted),
            difference=difference,
            gap_seconds=gap,
            rules=rules,
            lifetime=_lifetime(outline, rules),
            elsewhere=outline.elsewhere,
        )
        self._store(outline, rules, provider, at)
        self._remember(outline, scope, at)
        return report

    def _previous(self, outline: PromptOutline, scope: str) -> _SeenRequest | None:
        seen = self._seen.get(scope)
        if not seen:
            return None
        if self._is_one_conversation:
            return seen[-1]
        messages = _message_sizes(outline)
        most, found = 0, None
        for one in seen:
            shared = sum(size for digest, size in one.messages.items() if digest in messages)
            smaller = min(sum(messages.values()), sum(one.messages.values()))
            if shared >= max(1, most) and shared * 2 > smaller:  # a short "yes" is in many conversations
                most, found = shared, one
        return found

    def _read(self, outline: PromptOutline, rules: CacheRules, provider: str, at: float | None) -> int:
        """How many segments can be read."""
        if not rules.uses_breakpoints:
            depths = range(len(outline.chain), 0, -1)
            return next((depth for depth in depths if self._is_alive((provider, outline.chain[depth - 1]), at)), 0)
        deepest = 0
        for index in _breakpoints(outline, rules):
            first = 0 if rules.lookback is None else max(0, index - rules.lookback + 1)
            for place in range(index, max(first, deepest) - 1, -1):
                if self._is_alive((provider, outline.chain[place]), at):
                    deepest = place + 1
                    break
        return deepest

    def _is_alive(self, key: tuple[str, int], at: float | None) -> bool:
        """Whether a prefix is stored; reading it extends its life."""
        stored = self._stored.get(key)
        if stored is None or (at is not None and stored.until is not None and at > stored.until):
            return False
        self._stored[key] = _StoredPrefix(None if at is None else at + stored.seconds, stored.seconds)
        return True

    def _store(self, outline: PromptOutline, rules: CacheRules, provider: str, at: float | None) -> None:
        places = _breakpoints(outline, rules) if rules.uses_breakpoints else range(len(outline.chain))
        tokens, sizes = 0, []
        for segment in outline.segments:
            tokens += segment.tokens
            sizes.append(tokens)
        for place in places:
            if sizes[place] < rules.minimum:
                continue
            seconds = outline.segments[place].breakpoint or outline.seconds or rules.seconds
            key = (provider, outline.chain[place])
            self._stored[key] = _StoredPrefix(None if at is None else at + seconds, seconds)
            self._stored.move_to_end(key)
        while len(self._stored) > self._max_prefixes:
            self._stored.popitem(last=False)

    def _remember(self, outline: PromptOutline, scope: str, at: float | None) -> None:
        seen = self._seen.get(scope)
        if seen is None:
            seen = self._seen[scope] = deque(maxlen=self._max_prompts)
        self._seen.move_to_end(scope)
        seen.append(_SeenRequest(outline, _message_sizes(outline), at))
        while len(self._seen) > self._max_scopes:
            self._seen.popitem(last=False)


def _expected(previous: PromptOutline, outline: PromptOutline, rules: CacheRules) -> int:
    """The tokens that the request before left in the cache, as far as this prompt is as long."""
    if not rules.uses_breakpoints:
        left = previous.tokens
    elif not _breakpoints(outline, rules):  # what a breakpoint would have saved
        left = previous.tokens_before(common_segments(previous, outline))
    else:
        left = max((previous.tokens_before(place + 1) for place in _breakpoints(previous, rules)), default=0)
    return _readable(min(left, outline.tokens), rules)


def _verdict(
    outline: PromptOutline,
    previous: _SeenRequest | None,
    rules: CacheRules,
    difference: Difference | None,
    predicted: int,
    expected: int,
    gap: float | None,
) -> Verdict:
    if outline.elsewhere:
        return "elsewhere"
    places = _breakpoints(outline, rules)
    if rules.uses_breakpoints and not places:
        return "no_breakpoints"
    longest = outline.tokens_before(places[-1] + 1) if places else outline.tokens
    if longest < rules.minimum:
        return "too_short"
    if previous is None:
        return "first"
    if predicted and predicted >= expected:
        return "hit"
    if difference is not None:
        return "model_changed" if difference.path == "model" else "changed"
    if previous.outline.cache_key != outline.cache_key:
        return "key_changed"
    if not expected:
        return "first"
    if gap is not None and gap > _lifetime(previous.outline, rules):
        return "expired"
    if rules.lookback is not None and len(outline.segments) - len(previous.outline.segments) >= rules.lookback:
        return "lookback"
    return "breakpoints"


def _breakpoints(outline: PromptOutline, rules: CacheRules) -> list[int]:
    """The indexes of the segments that end a stored prefix."""
    places = [index for index, segment in enumerate(outline.segments) if segment.breakpoint is not None]
    last = len(outline.segments) - 1
    if rules.sets_breakpoint and outline.segments and last not in places:
        places.append(last)
    return places


def _lifetime(outline: PromptOutline, rules: CacheRules) -> float:
    asked = [segment.breakpoint for segment in outline.segments if segment.breakpoint is not None]
    return max(asked, default=outline.seconds or rules.seconds)


def _readable(tokens: int, rules: CacheRules) -> int:
    return tokens // rules.step * rules.step if tokens >= rules.minimum else 0


def _tokens_up_to(outline: PromptOutline, difference: Difference) -> int:
    """The tokens before the first byte that differs."""
    left = difference.byte
    tokens = 0
    for segment in outline.segments:
        if segment.size > left:
            return tokens + (segment.tokens * left // segment.size if segment.size else 0)
        left -= segment.size
        tokens += segment.tokens
    return tokens


def _message_sizes(outline: PromptOutline) -> dict[int, int]:
    return {segment.digest: segment.size for segment in outline.segments if segment.section == "messages"}

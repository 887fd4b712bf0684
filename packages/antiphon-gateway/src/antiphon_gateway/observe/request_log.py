"""The log lines of a finished request: one with every fact as a field, and a warning for each problem upstream.

`LOG_FIELDS` is the list of fields; docs/gateway/monitoring.md has the same, compared by a test. A fact that does not apply
(the error of an answered request) is left out. On the console the text of the line has the main facts, and the fields only
the rest. The line of a request is a warning if the request failed; a client's own mistake is not. Two facts get a warning of
their own, once per request, because an operator has to act on them: an upstream key that was rejected, and a fallback. The
line of a request that a defect of ours ended is an error with the traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from antiphon.logs import is_for_people, log_request
from antiphon.providers.call import Attempt, Fallback
from antiphon_gateway.observe.record import Record

LOG_FIELDS: Mapping[str, str] = {
    "request_id": "the id of the request",
    "status": "the HTTP status that the client got",
    "outcome": "`answered`, `refused`, `failed` or `cancelled`; the truth where a stream failed after its 200",
    "operation": "`chat`, `embeddings`, the kind of a request that is passed on, or what else was asked for (`list_models`, …)",
    "client_format": "the format of the client",
    "key": "the name of the client key",
    "model": "the requested model",
    "provider": "the provider that was asked last",
    "target_model": "the model that was asked there",
    "streamed": "whether the client asked for a stream",
    "attempts": "how many requests were sent upstream",
    "seconds": "time to the last byte of the response",
    "overhead_ms": "the gateway's own part of that time, in milliseconds",
    "repairs": "what was repaired, as a list of texts",
    "losses": "what could not be translated, as a list of texts",
    "upstream_format": "the format of the provider",
    "credential": "the upstream key of the last attempt, by its source",
    "ttft_seconds": "time to the first content of the response",
    "input_tokens": "tokens of the prompt, with the cached ones",
    "output_tokens": "tokens of the completion, with reasoning",
    "cache_read_tokens": "tokens read from the provider's cache",
    "cache_write_tokens": "tokens written to the provider's cache",
    "reasoning_tokens": "tokens of reasoning",
    "attempt_outcomes": "each attempt (provider, model, credential, status, seconds, error), if one failed",
    "fallback_reason": "which target was left for which one, and the error that caused it",
    "began_early": "true if the client got the head of the stream before a provider answered (`hold_seconds`)",
    "cache_doctor": "what the [cache doctor](cache-doctor.md) found, if it is on: verdict, tokens, first differing field",
    "error_kind": "the kind of the error, such as `rate_limit`",
    "error": "the text of the error",
}
"""The fields of the line of a request, in their order, and what each means."""

_LONGEST_ERROR = 1000

logger = logging.getLogger("antiphon.gateway")


class RequestLog:
    """The lines of finished requests."""

    def add(self, records: Sequence[Record]) -> None:
        """Write the lines of these requests."""
        for record in records:
            attempts = record.attempts
            if record.fallbacks or len(attempts) > 1 or (attempts and attempts[0].error is not None):
                warn_about_upstreams(record.request_id, attempts, record.fallbacks)
            if record.defect is not None:
                _log_defect(record)
                continue
            is_answered = record.error is None and record.status < 400
            level = logging.INFO if is_answered or record.outcome != "failed" else logging.WARNING
            if logger.isEnabledFor(level):
                _log(record, level)

    def add_refused(self, records: Sequence[Record]) -> None:
        """Refusals of any number have lines of their own (`RefusalLog`)."""


def _log_defect(record: Record) -> None:
    defect, record.defect = record.defect, None  # its frames hold the request
    fields = request_fields(record)
    logger.error("internal error while handling a request", exc_info=defect, extra=fields)


def _log(record: Record, level: int) -> None:
    target = f"{record.provider}/{record.model}" if record.model else record.provider or "no provider"
    asked = f"{record.client_format} {record.requested_model or record.operation}".strip()
    message = f"{asked} -> {target} {record.status} in {record.seconds:.3f} s"
    if is_for_people():
        overhead = round(record.overhead_seconds * 1000, 3)
        fields = _further_fields(record, {"request_id": record.request_id, "overhead_ms": overhead})
    else:
        fields = request_fields(record)
    log_request(logger, level, message, fields)


def request_fields(record: Record) -> dict[str, Any]:
    """The facts of a finished request, by their name in the log."""
    fields: dict[str, Any] = {
        "request_id": record.request_id,
        "status": record.status,
        "outcome": record.outcome,
        "operation": record.operation,
        "client_format": record.client_format,
        "key": record.key,
        "model": record.requested_model,
        "provider": record.provider,
        "target_model": record.model,
        "streamed": record.streams,
        "attempts": len(record.attempts),
        "seconds": round(record.seconds, 4),
        "overhead_ms": round(record.overhead_seconds * 1000, 3),
        "repairs": [],
        "losses": [],
    }
    if record.upstream_format:
        fields["upstream_format"] = record.upstream_format
    if record.attempts and record.attempts[-1].credential:
        fields["credential"] = record.attempts[-1].credential
    if (usage := record.usage) is not None:
        fields["cache_read_tokens"] = usage.cached_tokens
        fields["cache_write_tokens"] = usage.cache_write_tokens
        fields["reasoning_tokens"] = usage.reasoning_tokens
    return _further_fields(record, fields)


def _further_fields(record: Record, fields: dict[str, Any]) -> dict[str, Any]:
    """`fields` with the facts that are in the line for people, too, where they apply."""
    attempts, usage, error = record.attempts, record.usage, record.error
    if record.key:
        fields["key"] = record.key
    if record.repairs:
        fields["repairs"] = [str(action) for action in record.repairs]
    if record.losses:
        fields["losses"] = [str(loss) for loss in record.losses]
    if record.first_token_seconds is not None:
        fields["ttft_seconds"] = round(record.first_token_seconds, 4)
    if usage is not None:
        fields["input_tokens"] = usage.prompt_tokens
        fields["output_tokens"] = usage.completion_tokens
    if len(attempts) > 1 or (attempts and attempts[0].error is not None):
        fields["attempt_outcomes"] = [_attempt_fields(attempt) for attempt in attempts]
    if record.fallbacks:
        fields["fallback_reason"] = "; ".join(map(str, record.fallbacks))
    if record.cache is not None and (found := record.cache_record) is not None:
        fields["cache_doctor"] = msgspec.to_builtins(found)
    if record.began_early:
        fields["began_early"] = True
    if error is not None:
        fields["error_kind"] = error.kind
        fields["error"] = error.message[:_LONGEST_ERROR]
    return fields


def warn_about_upstreams(request_id: str, attempts: Sequence[Attempt], fallbacks: Sequence[Fallback]) -> None:
    """A warning for each upstream key that was rejected, and one if a fallback was used."""
    rejected = {
        (attempt.provider, attempt.credential): attempt
        for attempt in attempts
        if attempt.error is not None and attempt.error.kind == "authentication" and attempt.credential
    }
    for attempt in rejected.values():
        status = f" ({attempt.status})" if attempt.status is not None else ""
        logger.warning(
            "provider %s rejected key %s%s; replace the key (it is read again), then run `antiphon doctor`",
            attempt.provider,
            attempt.credential,
            status,
            extra={
                "request_id": request_id,
                "event": "key_rejected",
                "provider": attempt.provider,
                "credential": attempt.credential,
                "upstream_status": attempt.status,
                "error": attempt.error.message[:_LONGEST_ERROR] if attempt.error is not None else "",
            },
        )
    if fallbacks:
        logger.warning(
            "fallback from %s to %s",
            fallbacks[0].failed,
            fallbacks[-1].target,
            extra={
                "request_id": request_id,
                "event": "fallback",
                "failed_target": fallbacks[0].failed,
                "target": fallbacks[-1].target,
                "fallback_reason": "; ".join(map(str, fallbacks)),
            },
        )


def _attempt_fields(attempt: Attempt) -> dict[str, Any]:
    error = attempt.error
    return {
        "provider": attempt.provider,
        "model": attempt.model,
        "credential": attempt.credential,
        "status": attempt.status,
        "seconds": round(attempt.seconds, 4),
        "error": "" if error is None else f"{error.kind}: {error.message[:_LONGEST_ERROR]}",
    }

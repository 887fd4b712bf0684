"""The log lines of a finished request: one with every fact as a field, and a warning for each problem upstream.

docs/gateway/monitoring.md says what each field means; a test compares it with what is written. A fact that does not apply (the
error of an answered request) is left out. On the console the text of the line has the main facts, and the fields only the rest.
The line of a request is a warning if the request failed; a client's own mistake is not. Two facts get a warning of their own,
once per request, because an operator has to act on them: an upstream key that was rejected, and a fallback. The line of a
request that a defect of ours ended is an error with the traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from antiphon.logs import is_for_people, log_request
from antiphon.providers.call import Attempt
from antiphon_gateway.observe.record import Record

_LONGEST_ERROR = 1000

logger = logging.getLogger("antiphon.gateway")


def log_requests(records: Sequence[Record]) -> None:
    """Write the lines of finished requests. Those that were not admitted have lines of their own (`RefusalLog`)."""
    for record in records:
        if not record.is_admitted:
            continue
        attempts = record.attempts
        if record.fallbacks or len(attempts) > 1 or (attempts and attempts[0].error is not None):
            _warn_about_upstreams(record)
        if record.defect is not None:
            _log_defect(record)
            continue
        is_answered = record.error is None and record.status < 400
        level = logging.INFO if is_answered or record.outcome != "failed" else logging.WARNING
        if logger.isEnabledFor(level):
            _log(record, level)


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


def _warn_about_upstreams(record: Record) -> None:
    """A warning for each upstream key that was rejected, and one if a fallback was used."""
    fallbacks = record.fallbacks
    rejected = {
        (attempt.provider, attempt.credential): attempt
        for attempt in record.attempts
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
                "request_id": record.request_id,
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
                "request_id": record.request_id,
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

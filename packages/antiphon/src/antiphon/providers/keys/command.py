"""A key that a command prints: `command:PROGRAM ARGUMENTS`, such as `command:vault kv get -field=key secret/openai`.

The program is started without a shell, with the gateway's environment and no input, and is stopped with all its children after
`timeout` seconds. It prints the key as text, or a JSON object with the key and its expiry, as `az account get-access-token`,
`gcloud`, `aws configure export-credentials` and Kubernetes plugins do. Options come before the program:
`command:ttl=600 timeout=10 PROGRAM …`. What it prints is never logged: an error repeats its name and exit code only.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.errors import CredentialError

PREFIX = "command:"
DEFAULT_TTL = 600.0
"""Seconds for which a key without an expiry is used."""
_DEFAULT_TIMEOUT = 30.0
_MAX_TIMEOUT = 300.0
_MAX_OUTPUT_BYTES = 256 * 1024
_SECRET_FIELDS = ("access_token", "accessToken", "token", "id_token", "key", "api_key", "secret", "password")
_LIFETIME_FIELDS = ("expires_in", "expiresIn", "ttl", "lease_duration")
_EXPIRY_FIELDS = (
    "expires_on",
    "expires_at",
    "expiry",
    "expiration",
    "Expiration",
    "expirationTimestamp",
    "token_expiry",
)
_FIRST_MILLISECONDS = 1e11
"""A larger moment is in milliseconds: in seconds it would be after the year 5000."""


class Command(Struct, frozen=True):
    """A parsed reference. `ttl` is None if it names none."""

    arguments: tuple[str, ...]
    ttl: float | None = None
    timeout: float = _DEFAULT_TIMEOUT

    @property
    def display_name(self) -> str:
        """The program without its arguments, which may name what should stay private."""
        return PREFIX + os.path.basename(self.arguments[0])


class CommandOutput(Struct, frozen=True):
    """What a command printed: a text, or the fields of an object; and for how many seconds it may be used."""

    fields: Mapping[str, Any]
    text: str
    lifetime: float | None

    def __repr__(self) -> str:
        return "<CommandOutput>"  # it is a secret


def parse_command(reference: str) -> Command:
    """The command of a reference. Raises `CredentialError`."""
    text = reference.removeprefix(PREFIX)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CredentialError(f"cannot parse the command of a key: {str(error).lower()}; check its quotes") from None
    options: dict[str, float] = {}
    while words and (name := words[0].partition("=")[0]) in ("ttl", "timeout"):
        options[name] = _seconds(name, words.pop(0).partition("=")[2])
    if not words:
        raise CredentialError(f'the key "{PREFIX}" names no program; use {PREFIX}PROGRAM ARGUMENTS')
    return Command(tuple(words), options.get("ttl"), options.get("timeout", _DEFAULT_TIMEOUT))


def find_program(command: Command, environ: Mapping[str, str]) -> str:
    """The path of the program. Raises `CredentialError` if there is none."""
    program = os.path.expanduser(command.arguments[0])
    found = shutil.which(program, path=environ.get("PATH"))
    if found is None:
        raise CredentialError(f"cannot find the program {program} of key {command.display_name}; give its full path")
    return found


def run_command(command: Command, environ: Mapping[str, str]) -> CommandOutput:
    """Run it and read what it prints; blocks. Raises `CredentialError`."""
    name = command.display_name
    arguments = [find_program(command, environ), *command.arguments[1:]]
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            start_new_session=True,  # its children can be stopped with it
        )
    except OSError as error:
        raise CredentialError(f"cannot start {name}: {error.strerror}") from None
    try:
        output, _ = process.communicate(timeout=command.timeout)
    except BaseException as error:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
        if isinstance(error, subprocess.TimeoutExpired):
            advice = "make it faster, or set timeout=SECONDS before the program"
            raise CredentialError(f"{name} did not finish within {command.timeout:g} s; {advice}") from None
        raise
    if process.returncode:
        raise CredentialError(f"{name} failed with exit code {process.returncode}; run it in a shell to see why")
    if len(output) > _MAX_OUTPUT_BYTES:
        raise CredentialError(f"{name} printed {len(output):,} bytes; a key has at most {_MAX_OUTPUT_BYTES:,}")
    return _read_output(name, output, command.ttl)


def secret_in(command: Command, output: CommandOutput) -> str:
    """The key in the output. Raises `CredentialError`."""
    secret = output.text
    if output.fields:
        known = next((output.fields[name] for name in _SECRET_FIELDS if name in output.fields), None)
        if not isinstance(known, str):
            raise CredentialError(
                f"{command.display_name} printed a JSON object without a key; expected one of {', '.join(_SECRET_FIELDS)}"
            )
        secret = known.strip()
    if not secret:
        raise CredentialError(f"{command.display_name} printed nothing; it must print the key")
    if not (secret.isascii() and secret.isprintable()):
        raise CredentialError(
            f"{command.display_name} printed characters that an HTTP header cannot carry; it must print only the key"
        )
    return secret


def _read_output(name: str, output: bytes, ttl: float | None) -> CommandOutput:
    try:
        text = output.decode().strip()
    except UnicodeDecodeError:
        raise CredentialError(f"{name} printed bytes that are not text; it must print the key") from None
    fields: dict[str, Any] = {}
    if text.startswith("{"):
        try:
            fields = msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            raise CredentialError(f"{name} printed invalid JSON; it must print the key") from None
        inner = fields.get("status")  # of a Kubernetes plugin
        fields = inner if isinstance(inner, dict) and "token" in inner else fields
    lifetime = _lifetime(fields)
    return CommandOutput(fields, "" if fields else text, lifetime if ttl is None else ttl)


def _lifetime(fields: Mapping[str, Any]) -> float | None:
    for name in _LIFETIME_FIELDS:
        if (seconds := as_number(fields.get(name))) is not None and seconds > 0:
            return seconds
    for name in _EXPIRY_FIELDS:
        if (moment := as_timestamp(fields.get(name))) is not None:
            return moment - time.time()
    return None


def as_number(value: Any) -> float | None:
    """A number, also one written as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if isfinite(number) else None


def as_timestamp(value: Any) -> float | None:
    """A moment in seconds since 1970: such a number, also of milliseconds, or a date of ISO 8601 or HTTP (UTC without a zone)."""
    if (number := as_number(value)) is not None:
        return number / 1000 if number > _FIRST_MILLISECONDS else number
    for read in (datetime.fromisoformat, parsedate_to_datetime) if isinstance(value, str) else ():
        try:
            moment = read(value.strip())
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    return None


def _seconds(name: str, written: str) -> float:
    seconds = as_number(written)
    limit = _MAX_TIMEOUT if name == "timeout" else 86_400.0
    if seconds is None or not 0 < seconds <= limit:
        raise CredentialError(f"{name}={written} of a command is not a number of seconds up to {limit:g}")
    return seconds

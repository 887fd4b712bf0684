"""`aws:`: the keys that sign requests to AWS, from where AWS's own SDKs look for them.

`aws:` alone tries, in this order: the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`; a web
identity (EKS); the profile `AWS_PROFILE` or `default` in `~/.aws`; the container service (ECS, EKS Pod Identity); the instance's
role (IMDSv2). One of them by name: `aws:profile=NAME`, `aws:id=env:A,secret=env:B`, `aws:container`, `aws:instance`. For SSO and
roles of other profiles: `aws:process=aws configure export-credentials --profile NAME`.
"""

from __future__ import annotations

import asyncio
import configparser
import os
import re
import time
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from antiphon.errors import CredentialError
from antiphon.http.client.request import Transport
from antiphon.providers.cloud.sigv4 import AwsKeys
from antiphon.providers.cloud.token_cache import Fetched, TokenError
from antiphon.providers.cloud.token_request import (
    METADATA_TIMEOUTS,
    Answer,
    host_of,
    read_token_file,
    refusal,
    request_token,
)
from antiphon.providers.credentials.command import Command, as_timestamp, parse_command, run_command
from antiphon.providers.credentials.secret import Credential

PREFIX = "aws:"
OPTIONS = ("profile", "id", "secret", "token", "container", "instance", "process")
_CONTAINER_HOST = "http://169.254.170.2"
_CONTAINER_ADDRESSES = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23")
_INSTANCE_HOST = "http://169.254.169.254"
_ROLE_PATH = "/latest/meta-data/iam/security-credentials/"
_INSTANCE_TOKEN_SECONDS = "21600"
_STATIC_SECONDS = 3600.0
"""Seconds after which keys without an expiry are read again: files are replaced."""
_PROCESS_ADVICE = "use aws:process=aws configure export-credentials --profile {profile}"
_xml_value = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration|Code)>([^<]*)</")


class AwsSource:
    """Fetches keys. `region` is for the token service of a web identity."""

    def __init__(
        self, options: Mapping[str, str], region: str, *, environ: Mapping[str, str], transport: Transport
    ) -> None:
        self._options = options
        self._region = region
        self._environ = environ
        self._transport = transport
        self._process: Command | None = None
        if "process" in options:
            self._process = parse_command(options["process"])
        for name in ("id", "secret", "token"):
            if name in options and not options[name].startswith(("env:", "file:")):
                raise CredentialError(f"aws: {name} contains a literal key; use {name}=env:NAME or {name}=file:PATH")
        if ("id" in options) != ("secret" in options):
            raise CredentialError("aws: id and secret belong together; set both")

    async def fetch(self) -> Fetched[AwsKeys]:
        """Keys and for how long they are valid. Raises `TokenError`."""
        environ, options = self._environ, self._options
        if self._process is not None:
            return await asyncio.to_thread(_from_process, self._process, environ)
        if "id" in options:
            return Fetched(await asyncio.to_thread(_named_keys, options, environ), _STATIC_SECONDS)
        if "profile" in options:
            return await asyncio.to_thread(_from_profile, options["profile"], environ)
        if "container" in options:
            return await self._from_container()
        if "instance" in options:
            return await self._from_instance()
        return await self._from_chain()

    async def _from_chain(self) -> Fetched[AwsKeys]:
        environ = self._environ
        if environ.get("AWS_ACCESS_KEY_ID", "").strip() and environ.get("AWS_SECRET_ACCESS_KEY", "").strip():
            variables = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
            return Fetched(AwsKeys(*(environ.get(name, "").strip() for name in variables)), _STATIC_SECONDS)
        if environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environ.get("AWS_ROLE_ARN"):
            return await self._from_web_identity()
        profile = environ.get("AWS_PROFILE", "").strip()
        has_profile: bool = bool(profile) or await asyncio.to_thread(_has_profile, "default", environ)
        if has_profile:
            return await asyncio.to_thread(_from_profile, profile or "default", environ)
        if environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") or environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            return await self._from_container()
        where = (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, create a profile with `aws configure`, or attach a role"
        )
        if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
            raise TokenError(f"aws: no credentials in the environment, in ~/.aws or from a container service; {where}")
        try:
            return await self._from_instance()
        except TokenError as error:
            raise TokenError(
                f"aws: no credentials in the environment, in ~/.aws or from a container service, and {error}; {where}",
                error.kind,
            ) from None

    async def _from_web_identity(self) -> Fetched[AwsKeys]:
        environ = self._environ
        path = environ["AWS_WEB_IDENTITY_TOKEN_FILE"]
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": environ["AWS_ROLE_ARN"],
            "RoleSessionName": environ.get("AWS_ROLE_SESSION_NAME", "").strip() or "antiphon",
            "WebIdentityToken": await asyncio.to_thread(read_token_file, path, "aws: cannot read"),
        }
        url = environ.get("AWS_ENDPOINT_URL_STS", "").strip() or f"https://sts.{self._region}.amazonaws.com"
        answer = await request_token(
            self._transport, f"{url.rstrip('/')}/?{urlencode({'Action': form['Action']})}", what="AWS STS", form=form
        )
        found = dict(_xml_value.findall(answer.body.decode("utf-8", "replace")))
        if answer.status != 200:
            advice = f"check AWS_ROLE_ARN and the trust policy of the role ({found.get('Code', 'no error code')})"
            raise refusal(answer, "AWS STS", advice)
        return _keys_in(found, "AWS STS", answer)

    async def _from_container(self) -> Fetched[AwsKeys]:
        environ = self._environ
        relative = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
        url = f"{_CONTAINER_HOST}{relative}" if relative else environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        if not _is_trusted_url(url):
            raise TokenError(
                "aws: AWS_CONTAINER_CREDENTIALS_FULL_URI is not an https URL or an address of this machine; correct it"
            )
        token = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "").strip()
        if path := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", ""):
            token = await asyncio.to_thread(read_token_file, path, "aws: cannot read")
        what = f"the container credentials service {host_of(url)}"
        headers = {"authorization": token} if token else None
        answer = await request_token(self._transport, url, what=what, headers=headers, timeouts=METADATA_TIMEOUTS)
        return _keys_in_answer(answer, what)

    async def _from_instance(self) -> Fetched[AwsKeys]:
        host = self._environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "").strip().rstrip("/") or _INSTANCE_HOST
        what = "the instance metadata service"
        token = await request_token(
            self._transport,
            f"{host}/latest/api/token",
            what=what,
            method="PUT",
            headers={"x-aws-ec2-metadata-token-ttl-seconds": _INSTANCE_TOKEN_SECONDS},
            timeouts=METADATA_TIMEOUTS,
        )
        if token.status != 200:
            raise refusal(token, what, "raise the hop limit of the metadata service if this is a container")
        headers = {"x-aws-ec2-metadata-token": token.body.decode("ascii", "replace").strip()}
        url = f"{host}{_ROLE_PATH}"
        roles = await request_token(self._transport, url, what=what, headers=headers, timeouts=METADATA_TIMEOUTS)
        if roles.status != 200 or not roles.body.strip():
            raise refusal(roles, what, "attach a role to the instance")
        role = roles.body.decode("utf-8", "replace").split()[0]
        answer = await request_token(
            self._transport, f"{url}{role}", what=what, headers=headers, timeouts=METADATA_TIMEOUTS
        )
        return _keys_in_answer(answer, what)


def profile_region(environ: Mapping[str, str], profile: str = "") -> str:
    """The region of a profile in `~/.aws/config`; empty if it has none."""
    try:
        return _profile(profile or environ.get("AWS_PROFILE", "").strip() or "default", environ).get("region", "")
    except TokenError:
        return ""


def _named_keys(options: Mapping[str, str], environ: Mapping[str, str]) -> AwsKeys:
    given = [Credential(secret=options[name]).read(environ) for name in ("id", "secret", "token") if name in options]
    return AwsKeys(*given)


def _from_process(command: Command, environ: Mapping[str, str]) -> Fetched[AwsKeys]:
    try:
        output = run_command(command, environ)
    except CredentialError as error:
        raise TokenError(f"aws: {error}") from None
    return _keys_in(output.fields, f"aws: {command.display_name}", None)


def _from_profile(profile: str, environ: Mapping[str, str]) -> Fetched[AwsKeys]:
    fields = _profile(profile, environ)
    if not fields:
        raise TokenError(
            f"aws: there is no profile {profile!r} in ~/.aws; create it with `aws configure --profile {profile}`"
        )
    if fields.get("aws_access_key_id") and fields.get("aws_secret_access_key"):
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        return Fetched(AwsKeys(*(fields.get(name, "") for name in names)), _STATIC_SECONDS)
    if process := fields.get("credential_process"):
        return _from_process(parse_command(process), environ)
    raise TokenError(
        f"aws: profile {profile!r} has no keys; for SSO and assumed roles {_PROCESS_ADVICE.format(profile=profile)}"
    )


def _has_profile(profile: str, environ: Mapping[str, str]) -> bool:
    return bool({"aws_access_key_id", "credential_process"} & _profile(profile, environ).keys())


def _profile(profile: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a profile in both files; keys in the credentials file win."""
    folder = Path(environ.get("HOME", "") or os.path.expanduser("~")) / ".aws"
    section = profile if profile == "default" else f"profile {profile}"
    places = (
        (environ.get("AWS_CONFIG_FILE", "").strip() or folder / "config", section),
        (environ.get("AWS_SHARED_CREDENTIALS_FILE", "").strip() or folder / "credentials", profile),
    )
    fields: dict[str, str] = {}
    for path, name in places:
        parser = configparser.RawConfigParser(strict=False, default_section="\0")
        try:
            parser.read(Path(path).expanduser(), encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            raise TokenError(f"aws: cannot read {path}; correct it, or create it with `aws configure`") from None
        if parser.has_section(name):
            fields |= dict(parser.items(name))
    return fields


def _keys_in_answer(answer: Answer, what: str) -> Fetched[AwsKeys]:
    if answer.status != 200:
        raise refusal(answer, what, "check the role of this machine")
    return _keys_in(answer.json(what), what, answer)


def _keys_in(fields: Mapping[str, Any], what: str, answer: Answer | None) -> Fetched[AwsKeys]:
    token = fields.get("Token") or fields.get("SessionToken") or ""
    values = (fields.get("AccessKeyId"), fields.get("SecretAccessKey"), token)
    if not all(isinstance(value, str) for value in values) or not values[0]:
        raise TokenError(f"{what} answered without AccessKeyId and SecretAccessKey")
    moment = as_timestamp(fields.get("Expiration"))
    lifetime = _STATIC_SECONDS
    if moment is not None:
        lifetime = moment - time.time() - (0.0 if answer is None else answer.ahead)
    return Fetched(AwsKeys(*map(str, values)), lifetime)


def _is_trusted_url(url: str) -> bool:
    """Whether a URL may be asked for keys: TLS, or an address that does not leave the machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" and host:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return parts.scheme == "http" and host == "localhost"
    return parts.scheme == "http" and (address.is_loopback or host in _CONTAINER_ADDRESSES)

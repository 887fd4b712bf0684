"""The list of models of a provider: a call that costs nothing, so that it also shows whether a key works.

`fetch_models` lists the names, `try_key` tells what the provider says to its key. A list that is answered without a key proves
nothing about a key (local servers, some hosts); `try_key` compares both. Every call is bounded in time and size.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.errors import AntiphonError, CredentialError
from antiphon.http.body import read_bounded
from antiphon.http.client.request import HttpRequest, Timeouts
from antiphon.json_text import NOT_JSON
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import error_from_status
from antiphon.providers.keys.secret import scrub_text
from antiphon.providers.presets import Preset

KeyVerdict: TypeAlias = Literal["works", "rejected", "no list", "unreachable", "unknown"]

LISTING_TIMEOUTS = Timeouts(connect=3.0, read=5.0, total=8.0)
_MOST_SECONDS = 12.0
_MAX_BYTES = 8_000_000
_MAX_NAMES = 2_000
_KEY_PATHS = {"openrouter": "/key"}
"""Endpoints that tell about a key, of hosts whose list of models needs none."""
_DEPLOYMENT = re.compile(r"/deployments/[^/]+$")
_REJECTIONS = ("authentication", "permission", "billing")


class ModelListReply(Struct, frozen=True, kw_only=True):
    """What a host answered to a request for its models. `status` is None if it did not answer; `problem` then says why."""

    status: int | None = None
    body: bytes = b""
    problem: str = ""
    has_no_token: bool = False
    """Whether nothing was sent because the key has no token."""

    def names(self, owner: str = "") -> tuple[str, ...]:
        """The listed models; with `owner` those whose `owned_by` is that. Raises `ValueError` if the body is not JSON."""
        try:
            listed: Any = msgspec.json.decode(self.body)
        except NOT_JSON as error:
            raise ValueError("not JSON") from error
        return tuple(dict.fromkeys(_names(listed, owner)))[:_MAX_NAMES]


class KeyTrial(Struct, frozen=True, kw_only=True):
    """What the provider says to a key, as a verdict and as a text with the next step."""

    verdict: KeyVerdict
    text: str
    status: int | None = None


def models_url(preset: Preset, endpoint: str = "/models") -> str | None:
    """Where a host lists its models; None if it is not known to list them."""
    if preset.serves_only_generation:
        return None
    if preset.models_path and endpoint == "/models":
        return preset.url_at_root(preset.models_path)
    if preset.format == "anthropic":
        return preset.at_path(f"/v1{endpoint}").url_for()
    if preset.format in ("gemini", "gemini-interactions"):
        version = re.match(r"/v\d\w*(?=/(?:models/|interactions))", preset.path)
        if version is None:
            return None
        return preset.at_path(f"{version[0]}{endpoint}").url_for()
    if not any(name in preset.path for name in ("/chat/completions", "/responses")):
        return None
    base, mark, query = preset.base_url.partition("?")
    host = preset.at_host(_DEPLOYMENT.sub("", base.rstrip("/")) + mark + query)
    return host.beside_deployments().beside(endpoint).url_for()


async def fetch_models(
    provider: Provider, timeouts: Timeouts = LISTING_TIMEOUTS, *, owner: str = ""
) -> tuple[str, ...]:
    """The models a provider lists; with `owner` those whose `owned_by` is that.

    Raises `ValueError` with the reason, which contains no secret.
    """
    url = models_url(provider.preset)
    if url is None:
        raise ValueError("the host has no list of models")
    reply = await request_models(provider, url, timeouts=timeouts)
    if reply.status != 200:
        raise ValueError(scrub_text(reply.problem, provider.secrets) or f"status {reply.status}")
    names = reply.names(owner)
    if not names and provider.preset.known_models and not owner:
        raise ValueError("its list is empty")
    return names


async def request_models(
    provider: Provider, url: str, *, with_key: bool = True, timeouts: Timeouts = LISTING_TIMEOUTS
) -> ModelListReply:
    """One request for `url`, with the provider's first key, whatever its health is, or without one.

    Never raises for what the host does.
    """
    request = HttpRequest(url=url, headers=provider.headers, method="GET", timeouts=timeouts)
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            sending = provider.send_with_first_key(request) if with_key else provider.transport.send(request)
            response = await sending
            body = await read_bounded(response, _MAX_BYTES)
    except TimeoutError:
        return ModelListReply(problem=f"no answer within {_MOST_SECONDS:g} s")
    except CredentialError as none:
        return ModelListReply(problem=str(none), has_no_token=True)
    except AntiphonError as error:
        return ModelListReply(problem=str(error))
    return ModelListReply(status=response.status, body=body)


async def try_key(provider: Provider, source: str) -> KeyTrial:
    """What the provider says to its key, which comes from `source` (`env:NAME`)."""
    endpoint = _KEY_PATHS.get(provider.preset.name, "/models")
    url = models_url(provider.preset, endpoint)
    if url is None and provider.has_tokens:
        return await _try_token(provider)
    if url is None:
        return KeyTrial(verdict="no list", text="cannot be tried: this host has no free call that needs a key")
    reply = await request_models(provider, url)
    trial = _judge(provider, reply, source)
    if trial.verdict == "works" and endpoint == "/models":
        without = await request_models(provider, url, with_key=False)
        if without.status == 200:
            return KeyTrial(
                verdict="no list", text="cannot be tried: the host lists its models without a key too", status=200
            )
    return trial


async def _try_token(provider: Provider) -> KeyTrial:
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            await provider.check_token()
    except TimeoutError:
        return KeyTrial(verdict="unreachable", text=f"no token within {_MOST_SECONDS:g} s")
    except CredentialError as none:
        return KeyTrial(verdict="rejected", text=f"no token: {none}")
    return KeyTrial(verdict="works", text="ok: a token is available; the host has no free call to try it with")


def _judge(provider: Provider, reply: ModelListReply, source: str) -> KeyTrial:
    status = reply.status
    if reply.has_no_token:
        return KeyTrial(verdict="rejected", text=f"no token: {reply.problem}")
    if status is None:
        text = f"unreachable: {reply.problem}; check base_url, the network and the proxy"
        return KeyTrial(verdict="unreachable", text=text)
    if status == 200:
        return KeyTrial(verdict="works", text="ok (200)", status=200)
    error = provider.scrub(error_from_status(provider.wire, status, reply.body))
    said = error.message.strip()[:200]
    if status == 401 or error.kind in _REJECTIONS:
        step = {"permission": "allow it to list models, or replace it", "billing": "add credit, or replace it"}
        text = f"rejected ({status}): {said}; {step.get(error.kind, 'replace the key')} in {source}"
        return KeyTrial(verdict="rejected", text=text, status=status)
    if status in (404, 405):
        text = f"cannot be tried: no list of models at {provider.base_url} ({status}); check base_url"
        return KeyTrial(verdict="no list", text=text, status=status)
    if status == 429:
        return KeyTrial(verdict="works", text="ok, but rate limited now (429)", status=status)
    return KeyTrial(verdict="unknown", text=f"answered {status}: {said}; try again later", status=status)


def _names(listed: Any, owner: str) -> Iterator[str]:
    """The names in a list of OpenAI, Anthropic (`data`), Gemini (`models`) or CodeBuddy (both), without disabled models."""
    models = (listed.get("data") or listed.get("models")) if isinstance(listed, dict) else listed
    models = models.get("models") if isinstance(models, dict) else models
    for model in models if isinstance(models, list) else ():
        name = (model.get("id") or model.get("name")) if isinstance(model, dict) else model
        is_wanted = not owner or (isinstance(model, dict) and model.get("owned_by") == owner)
        is_wanted &= not (isinstance(model, dict) and model.get("disabled") is True)
        if is_wanted and isinstance(name, str) and name.isprintable() and name:
            yield name.removeprefix("models/")

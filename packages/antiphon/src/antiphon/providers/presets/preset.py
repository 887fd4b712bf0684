"""`Preset`: the URL, authentication, format and dialect of a provider, as data. The known ones are in `presets`.

URLs: `path` follows the base URL; `{model}` and `{api_version}` in it are filled in for each call. If the base URL already ends
with the start of the path (`…/v1` before `/v1/messages`), that part is not repeated. If the base URL decides the path (Azure),
the first of `paths` whose expression matches it is used instead. `at_host` sets the base URL and the version that are used;
`beside`, `at_path` and others lead to another call of the same host. Hosts of a cloud have `settings` too, such as a region,
which `with_settings` fills in once. No I/O here, and the environment is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import Struct, structs

from antiphon.errors import ProviderSetupError
from antiphon.providers.routes import quote_path

AuthStyle: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"]


class PresetSetting(Struct, frozen=True):
    """A part of the URL that the user sets: its name, the variables that may have it, and an example."""

    name: str
    variables: tuple[str, ...]
    example: str
    default: str = ""


class HostVariables(Struct, frozen=True, kw_only=True):
    """What an environment says about a provider, in the variables that the provider's own SDK reads."""

    key: str = ""
    """A reference to its key, or to where its tokens come from; empty if there is none."""
    is_bearer: bool = False
    """Whether that key is sent as a bearer token, regardless of `auth`."""
    base_url: str = ""
    api_version: str = ""
    headers: Mapping[str, str] = {}
    """References to their values."""


class Preset(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One provider: address, authentication, format and dialect."""

    name: str
    format: str = "openai-chat"
    base_url: str = ""
    """As the provider's own SDK takes it. If empty, the user must set it."""
    path: str = "/chat/completions"
    paths: tuple[tuple[str, str], ...] = ()
    auth: AuthStyle = "bearer"
    headers: tuple[tuple[str, str], ...] = ()
    dialect: str | None = None
    key_variables: tuple[str, ...] = ()
    bearer_variables: tuple[str, ...] = ()
    """Variables whose key is sent as a bearer token, regardless of `auth`."""
    base_url_variables: tuple[str, ...] = ()
    header_variables: tuple[tuple[str, str], ...] = ()
    """Headers that are sent if a variable is set: (header, variable)."""
    api_version: str = ""
    api_version_variables: tuple[str, ...] = ()
    needs_key: bool = True
    models: tuple[str, ...] = ()
    """Globs of model names that belong to this provider without a prefix."""
    is_alternative: bool = False
    """Another API of a host that has a preset already: used where it is named, and not because its key is set."""
    models_path: str = ""
    """The path of the list of models from the root of the host, where it is not beside `path`."""
    known_models: tuple[str, ...] = ()
    """Models of a host that may not list them; shown where it does not."""
    other_presets: tuple[tuple[str, str], ...] = ()
    """Globs of models that the host serves in another format, each with the preset for them."""
    completions: tuple[str, ...] = ()
    """Globs of models that it serves at `/completions`, OpenAI's legacy API, too."""
    whole_call: tuple[str, str] = ("", "")
    """The end of the path for a stream, and the end for a whole answer, where they differ."""
    streams_only: bool = False
    """Whether the host refuses requests for a whole answer. Such an answer is read as a stream and assembled."""
    serves_only_generation: bool = False
    """Whether the host has no list of models, embeddings, files and batches in its format."""
    settings: tuple[PresetSetting, ...] = ()
    region: str = ""
    """The region in `settings` once it is known; signatures name it."""
    base_urls: tuple[tuple[str, str], ...] = ()
    """Base URLs with settings in them, by an expression that the region matches; used if none is given."""
    token_source: str = ""
    """The key that is used if none is given and no key variable is set."""
    token_variables: tuple[str, ...] = ()
    """`token_source` is used if one of these is set; without any, always."""
    token_scope: str = ""
    """What tokens of Entra ID are for."""
    service: str = ""
    """The name of the service in signatures of AWS."""
    host: Literal["", "bedrock", "vertex"] = ""
    """Whose form of requests of the format it takes."""

    def preset_for(self, model: str) -> str:
        """The preset that serves a model of the host, if it is another one; empty otherwise."""
        return next((name for glob, name in self.other_presets if fnmatchcase(model, glob)), "")

    @property
    def secret_variables(self) -> tuple[str, ...]:
        """The variables that may have the key."""
        return (*self.key_variables, *self.bearer_variables)

    def enabling_variable(self, environ: Mapping[str, str]) -> str:
        """The variable by which it is used where no provider is named: of its key, or of its URL if it needs no key. Empty if it
        is not set: another program may use the default port of a local server."""
        return first_set_variable(self.secret_variables if self.needs_key else self.base_url_variables, environ)

    def read_variables(self, environ: Mapping[str, str]) -> HostVariables:
        """What an environment says about the provider."""
        key = first_set_variable(self.key_variables, environ)
        bearer = "" if key else first_set_variable(self.bearer_variables, environ)
        has_tokens = not self.token_variables or first_set_variable(self.token_variables, environ)
        return HostVariables(
            key=f"env:{key or bearer}" if key or bearer else self.token_source if has_tokens else "",
            is_bearer=bool(bearer),
            base_url=environ.get(first_set_variable(self.base_url_variables, environ), ""),
            api_version=environ.get(first_set_variable(self.api_version_variables, environ), ""),
            headers={
                header: f"env:{variable}"
                for header, variable in self.header_variables
                if first_set_variable((variable,), environ)
            },
        )

    def missing_settings(self, values: Mapping[str, str], *, has_base_url: bool) -> list[PresetSetting]:
        """The settings that are needed and have no value."""
        text = self.path + "".join(value for _, value in self.headers)
        if not has_base_url and not self.base_url:
            text += "".join(url for _, url in self.base_urls)
        return [
            setting
            for setting in self.settings
            if (f"{{{setting.name}}}" in text or (setting.name == "region" and self.service))
            and not (values.get(setting.name) or setting.default)
        ]

    def describe_missing(self, setting: PresetSetting) -> str:
        """Where to put a missing setting."""
        places = [*setting.variables, f'{setting.name} = "{setting.example}"']
        if setting not in self.missing_settings({}, has_base_url=True):
            places.append(f"base_url ({' or '.join(self.base_url_variables)})")
        return f"set {', '.join(places[:-1])} or {places[-1]}"

    def with_all_settings(self, values: Mapping[str, str], *, name: str, has_base_url: bool) -> Preset:
        """The preset with its settings filled in. Raises `ProviderSetupError` if one is missing or not valid."""
        if missing := self.missing_settings(values, has_base_url=has_base_url):
            raise ProviderSetupError(f"{name} needs a {missing[0].name}: {self.describe_missing(missing[0])}")
        return self.with_settings(values)

    def with_settings(self, values: Mapping[str, str]) -> Preset:
        """The preset with its settings filled in, as far as they are known. Raises `ProviderSetupError`."""
        known = {setting.name: values.get(setting.name) or setting.default for setting in self.settings}
        if unknown := [name for name, value in values.items() if value and name not in known]:
            raise ProviderSetupError(
                f"{self.name} has no setting {' or '.join(unknown)}; known: {', '.join(known) or 'none'}"
            )
        for name, value in known.items():
            if value and not _is_setting(value):
                raise ProviderSetupError(
                    f"{self.name}: {name} {value!r} is not valid; use letters, digits, - . _ and :"
                )
        if not known:
            return self
        region = known.get("region", "")
        template = next((url for pattern, url in self.base_urls if re.search(pattern, region)), "")
        base_url = self.base_url or _fill(template, known)
        return structs.replace(
            self,
            region=region,
            base_url=base_url if "{" not in base_url else "",
            path=_fill(self.path, known),
            headers=tuple((header, _fill(value, known)) for header, value in self.headers),
        )

    def at_host(self, base_url: str, api_version: str = "") -> Preset:
        """The preset with another base URL, and another version if one is given."""
        return structs.replace(self, base_url=base_url, api_version=api_version or self.api_version)

    def at_path(self, path: str) -> Preset:
        """Another call of the host, at that path whatever the base URL."""
        return structs.replace(self, path=path, paths=())

    def beside(self, endpoint: str) -> Preset:
        """Another endpoint of an OpenAI-like host, such as `/embeddings`."""
        return self._with_paths(lambda path: _GENERATING.sub(endpoint, path))

    def beside_deployments(self) -> Preset:
        """The host without a model in its paths: Azure has files and lists there."""
        return self._with_paths(lambda path: path.replace("/deployments/{model}", ""))

    def verb(self, verb: str) -> Preset:
        """Another call of a Gemini-like host, such as `countTokens`."""
        return self.at_path(_GENERATE_VERB.sub(f":{verb}", self.path))

    def _with_paths(self, change: Callable[[str], str]) -> Preset:
        paths = tuple((pattern, change(path)) for pattern, path in self.paths)
        return structs.replace(self, path=change(self.path), paths=paths)

    def url_at_root(self, path: str) -> str:
        """The URL of a path of the host, whether or not the base URL has the beginning of `self.path`."""
        base, _, query = self.base_url.partition("?")
        base = base.rstrip("/")
        rest = _without_overlap(base, self.path)
        root = base.removesuffix(self.path.removesuffix(rest)) if rest != self.path else base
        return root + path + (f"?{query}" if query else "")

    def url_for(self, model: str = "") -> str:
        """The URL for a call of `model`."""
        base, _, query = self.base_url.partition("?")
        base = base.rstrip("/")
        path = next((path for pattern, path in self.paths if re.search(pattern, base)), self.path)
        path, _, own_query = path.partition("?")
        path = _without_overlap(base, path)
        if "{model}" in path:
            # If more path follows (Azure), a slash in the name would address another resource.
            name = quote_path(model.removeprefix("models/"), is_one_segment="{model}/" in path)
            path = path.replace("{model}", name)
        queries = [query, own_query.format(api_version=quote(self.api_version))]
        return base + path + "".join(sign + part for sign, part in zip("?&", filter(None, queries), strict=False))

    def credential_header(self, secret: str) -> dict[str, str]:
        """The header that carries a key; empty if the provider needs none."""
        if self.auth == "none":
            return {}
        header, scheme = _AUTH[self.auth]
        return {header: scheme + secret}


_AUTH: dict[str, tuple[str, str]] = {
    "bearer": ("authorization", "Bearer "),
    "x-api-key": ("x-api-key", ""),
    "x-goog-api-key": ("x-goog-api-key", ""),
    "api-key": ("api-key", ""),
}


_is_setting = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}").fullmatch
_GENERATING = re.compile("/chat/completions|/responses")
_GENERATE_VERB = re.compile(r":(?:streamG|g)enerateContent(?:\?alt=sse)?")


def _fill(template: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        if value:
            template = template.replace(f"{{{name}}}", value)
    return template


def first_set_variable(variables: Iterable[str], environ: Mapping[str, str]) -> str:
    """The first of the variables that is set; empty if none is."""
    return next((variable for variable in variables if environ.get(variable, "").strip()), "")


def _without_overlap(base: str, path: str) -> str:
    """The path without the segments that the base URL already ends with."""
    segments = path.split("/")
    for count in range(len(segments) - 1, 1, -1):
        beginning = "/".join(segments[:count])
        if "{" not in beginning and base.endswith(beginning):
            return path[len(beginning) :]
    return path


def normalize_base_url(base_url: str, name: str) -> str:
    """A base URL that can be used and shown. Raises `ProviderSetupError`.

    Ollama's variable has `host:port` only; a server that listens on 0.0.0.0 is reached on 127.0.0.1.
    """
    text = base_url.strip()
    if text and "://" not in text:
        text = f"http://{text}"
    text = text.replace("://0.0.0.0", "://127.0.0.1", 1)
    try:
        parts = urlsplit(text)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ProviderSetupError(f"{name}: the base URL is not an http or https URL; use one like https://host/v1")
    if parts.username is not None or parts.password is not None:
        raise ProviderSetupError(
            f"{name}: the base URL contains a user name or password; pass it in headers or keys instead"
        )
    return text

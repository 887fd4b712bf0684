"""Tokens of clouds, by the vendors' own libraries: botocore for AWS, google-auth for Google Cloud, msal for Microsoft Entra ID.

What a vendor's SDK accepts works here too: SSO, roles, workload identity, metadata services. The libraries are extras, imported
when they are needed, and called in threads, through a `TokenCache`, about once an hour. They read the environment of the process.
Static keys need no library.

    aws: | aws:profile=NAME | aws:container | aws:instance | aws:process=COMMAND | aws:id=env:A,secret=env:B
    google: | google:PATH | google:metadata
    entra: | entra:tenant=T,client=C,secret=env:NAME | …,certificate=PATH | …,token_file=PATH | entra:managed[,client=C]
"""

from __future__ import annotations

import configparser
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from antiphon.errors import CredentialError, StoreBusy
from antiphon.providers.cloud.sigv4 import AwsKeys
from antiphon.providers.cloud.token_cache import Fetched, TokenError
from antiphon.providers.keys.command import Command, as_timestamp, parse_command, run_command
from antiphon.providers.keys.secret import Credential, is_reference
from antiphon.providers.presets import Preset, first_set_variable
from antiphon.threads import Threads
from antiphon.wire.output import ErrorKind

T = TypeVar("T")

_THREADS = Threads("token services", workers=4, waiting=8)

AWS, GOOGLE, ENTRA = "aws:", "google:", "entra:"
AWS_OPTIONS = ("profile", "id", "secret", "token", "container", "instance", "process")
ENTRA_OPTIONS = ("tenant", "client", "secret", "certificate", "certificate_password", "token_file", "managed", "scope")
METADATA = "metadata"
_STATIC_SECONDS = 3600.0
"""Seconds after which keys without an expiry are read again: files are replaced."""
_TIMEOUT = 20
_LIFETIMES = (3600, 1800, 900, 600, 300, 120, 60)
_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GOOGLE_TYPES = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
    "impersonated_service_account": (
        "google.auth.impersonated_credentials",
        "from_impersonated_service_account_info",
    ),
    "external_account_authorized_user": ("google.auth.external_account_authorized_user", "from_info"),
    "aws": ("google.auth.aws", "from_info"),
    "pluggable": ("google.auth.pluggable", "from_info"),
    "identity_pool": ("google.auth.identity_pool", "from_info"),
}
"""What google-auth makes of a credentials file, by its type; the last three are kinds of `external_account`."""
_AUTHORITY = "https://login.microsoftonline.com"
_ENTRA_ADVICE = (
    "assign an identity to this machine, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, "
    "AZURE_CLIENT_CERTIFICATE_PATH or AZURE_FEDERATED_TOKEN_FILE"
)
_STATIC_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_STATIC_FIELDS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


class TokenSource(ABC, Generic[T]):
    """Where a token comes from: a library or a command, which is called in a thread."""

    async def fetch(self) -> Fetched[T]:
        """A token and for how long it is valid. Raises `CredentialError`, and `TokenError` if too many wait."""
        try:
            return await _THREADS.run(self.read)
        except StoreBusy as error:
            raise TokenError(str(error), "server") from None

    @abstractmethod
    def read(self) -> Fetched[T]:
        """The same; blocks."""


def require_library(module: str, extra: str, what: str) -> None:
    """Raise `CredentialError` that names the extra if a library is not installed."""
    try:
        is_there = find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is missing
        is_there = False
    if not is_there:
        raise CredentialError(f"{what} needs the package {module}; run pip install 'antiphon[{extra}]'")


def _refuse_literal_keys(source: str, options: Mapping[str, str], names: Iterable[str]) -> None:
    for name in names:
        if name in options and not is_reference(options[name]):
            raise CredentialError(f"{source} {name} contains a literal key; use {name}=env:NAME or {name}=file:PATH")


class AwsSource(TokenSource[AwsKeys]):
    """The keys that sign requests to AWS. `region` is for the token service."""

    def __init__(self, options: Mapping[str, str], region: str, *, environ: Mapping[str, str]) -> None:
        self._options = options
        self._region = region
        self._environ = environ
        self._process: Command | None = parse_command(options["process"]) if "process" in options else None
        _refuse_literal_keys(AWS, options, ("id", "secret", "token"))
        if ("id" in options) != ("secret" in options):
            raise CredentialError("aws: id and secret belong together; set both")
        if self._process is None and "id" not in options and self._static_keys() is None:
            require_library("botocore", "aws", "aws: without keys in the environment or in ~/.aws")

    def read(self) -> Fetched[AwsKeys]:
        """Keys."""
        if self._process is not None:
            return _keys_of_command(self._process, self._environ)
        if "id" in self._options:
            given = (self._options[name] for name in ("id", "secret", "token") if name in self._options)
            return Fetched(AwsKeys(*(Credential(secret=one).read(self._environ) for one in given)), _STATIC_SECONDS)
        static = self._static_keys()
        return self._ask_botocore() if static is None else Fetched(static, _STATIC_SECONDS)

    def _static_keys(self) -> AwsKeys | None:
        """The keys in the environment or in a profile; None if there are none, or something else is asked for."""
        environ, options = self._environ, self._options
        if "container" in options or "instance" in options:
            return None
        if not options and all(environ.get(name, "").strip() for name in _STATIC_VARIABLES[:2]):
            return AwsKeys(*(environ.get(name, "").strip() for name in _STATIC_VARIABLES))
        if not options and environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
            return None
        fields = _read_profile(options.get("profile", ""), environ)
        if "role_arn" in fields or not all(fields.get(name) for name in _STATIC_FIELDS[:2]):
            return None
        return AwsKeys(*(fields.get(name, "") for name in _STATIC_FIELDS))

    def _ask_botocore(self) -> Fetched[AwsKeys]:
        exceptions = import_module("botocore.exceptions")
        session = import_module("botocore.session").Session(profile=self._options.get("profile") or None)
        session.set_config_variable("region", self._region)
        limits = {"connect_timeout": 5, "read_timeout": _TIMEOUT, "retries": {"total_max_attempts": 2}}
        session.set_default_client_config(import_module("botocore.config").Config(**limits))
        named = {"container": "container-role", "instance": "iam-role"}
        provider = next((method for option, method in named.items() if option in self._options), "")
        try:
            if provider:
                found = session.get_component("credential_provider").get_provider(provider).load()
            else:
                found = session.get_credentials()
            keys = None if found is None else found.get_frozen_credentials()
        except exceptions.ClientError as error:
            raise TokenError(f"aws: {error}; check the role and its trust policy") from None
        except exceptions.HTTPClientError as error:
            raise TokenError(f"aws: {error}", "server") from None
        except (exceptions.BotoCoreError, ValueError) as error:
            kind: ErrorKind = "server" if isinstance(error, exceptions.MetadataRetrievalError) else "authentication"
            raise TokenError(f"aws: {error}", kind) from None
        if found is None or keys is None or not keys.access_key:
            where = f"from the {provider} service" if provider else "in the environment, in ~/.aws or from a role"
            raise TokenError(
                f"aws: no credentials {where}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, create a profile with "
                "`aws configure` or `aws configure sso`, or attach a role"
            )
        return Fetched(AwsKeys(keys.access_key, keys.secret_key, keys.token or ""), _seconds_left(found))


def _seconds_left(credentials: Any) -> float:
    """For how long they are valid, at least: botocore tells only whether it is less than so many seconds."""
    is_over = getattr(credentials, "refresh_needed", None)
    if is_over is None:
        return _STATIC_SECONDS
    return float(next((seconds for seconds in _LIFETIMES if not is_over(refresh_in=seconds)), 30))


def _keys_of_command(command: Command, environ: Mapping[str, str]) -> Fetched[AwsKeys]:
    try:
        fields = run_command(command, environ).fields
    except CredentialError as error:
        raise TokenError(f"aws: {error}") from None
    values = (fields.get("AccessKeyId"), fields.get("SecretAccessKey"), fields.get("SessionToken") or "")
    if not all(isinstance(value, str) for value in values) or not values[0]:
        raise TokenError(f"aws: {command.display_name} answered without AccessKeyId and SecretAccessKey")
    moment = as_timestamp(fields.get("Expiration"))
    return Fetched(AwsKeys(*map(str, values)), _STATIC_SECONDS if moment is None else moment - time.time())


def _read_profile(profile: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a profile in both files, as far as they can be read; keys in the credentials file win."""
    profile = profile or environ.get("AWS_PROFILE", "").strip() or "default"
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
            continue  # botocore says what is wrong with it
        if parser.has_section(name):
            fields |= dict(parser.items(name))
    return fields


class GoogleSource(TokenSource[Mapping[str, str]]):
    """Tokens of Google Cloud with the cloud-platform scope, as the headers that carry them."""

    def __init__(self, place: str, *, environ: Mapping[str, str]) -> None:
        self._path = find_google_file(place, environ)
        require_library("google.auth", "google", "google:")
        require_library("requests", "google", "google:")

    def read(self) -> Fetched[Mapping[str, str]]:
        """A token."""
        exceptions = import_module("google.auth.exceptions")
        request = partial(import_module("google.auth.transport.requests").Request(), timeout=_TIMEOUT)
        try:
            credentials = self._load()
            credentials.refresh(request)
        except exceptions.TransportError as error:
            raise TokenError(self._problem(error), "server") from None
        except (exceptions.GoogleAuthError, ValueError, KeyError, OSError) as error:
            kind: ErrorKind = "server" if getattr(error, "retryable", False) else "authentication"
            raise TokenError(self._problem(error), kind) from None
        headers: dict[str, str] = {}
        credentials.apply(headers)
        expiry = credentials.expiry  # UTC, without saying so
        lifetime = 300.0 if expiry is None else (expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
        return Fetched({name.lower(): value for name, value in headers.items()}, lifetime)

    def _load(self) -> Any:
        """The credentials. The file is read each time: it may be replaced by another key."""
        if self._path is None:
            return import_module("google.auth.compute_engine").Credentials(scopes=[_GOOGLE_SCOPE])
        account = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        kind = account.get("type")
        if kind == "external_account":
            source = account.get("credential_source", {})
            is_aws = account.get("subject_token_type") == "urn:ietf:params:aws:token-type:aws4_request"
            kind = "aws" if is_aws else "pluggable" if "executable" in source else "identity_pool"
        module, method = _GOOGLE_TYPES.get(str(kind), ("", ""))
        if not module:
            raise ValueError(f"its type is {kind!r}; known: {', '.join(_GOOGLE_TYPES)}")
        return getattr(import_module(module).Credentials, method)(account, scopes=[_GOOGLE_SCOPE])

    def _problem(self, error: Exception) -> str:
        if self._path is not None:
            return f"google: {self._path}: {_first_line(error)}; check that the file is current and its account enabled"
        return (
            f"google: no credentials file, and the metadata server of Google Cloud is not available: {_first_line(error)}; set "
            "GOOGLE_APPLICATION_CREDENTIALS, write google:PATH, or run `gcloud auth application-default login`"
        )


def find_google_file(place: str, environ: Mapping[str, str]) -> Path | None:
    """The credentials file that a reference means; None for the metadata server. Raises `CredentialError`."""
    if place == METADATA:
        return None
    named = place or environ.get("GOOGLE_APPLICATION_CREDENTIALS", "").strip()
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            source = "" if place else " (named by GOOGLE_APPLICATION_CREDENTIALS)"
            raise CredentialError(f"google: there is no credentials file {path}{source}; correct the path")
        return path
    folder = environ.get("CLOUDSDK_CONFIG", "").strip()
    home = environ.get("HOME", "") or os.path.expanduser("~")
    path = (Path(folder) if folder else Path(home) / ".config" / "gcloud") / "application_default_credentials.json"
    return path if path.is_file() else None


def find_google_project(place: str, environ: Mapping[str, str]) -> str:
    """The project of the credentials file that a reference means; empty if it names none."""
    try:
        path = find_google_file(place, environ)
        account = {} if path is None else msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (CredentialError, OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ""
    project = account.get("project_id") or account.get("quota_project_id")
    return project if isinstance(project, str) else ""


def find_settings(
    preset: Preset, given: Mapping[str, str], keys: Iterable[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """The value of each setting of a preset (region, project, …), in this order: given, from a variable, or from a file of the
    SDK of its keys; empty where there is none."""
    found = dict(given)
    for setting in preset.settings:
        if not found.get(setting.name):
            variable = first_set_variable(setting.variables, environ)
            found[setting.name] = environ.get(variable, "").strip() or _setting_in_files(setting.name, keys, environ)
    return found


def _setting_in_files(setting: str, keys: Iterable[str], environ: Mapping[str, str]) -> str:
    for key in keys:
        if setting == "region" and key.startswith(AWS):
            return _read_profile(key.partition("profile=")[2].partition(",")[0], environ).get("region", "")
        if setting == "project" and key.startswith(GOOGLE):
            return find_google_project(key.removeprefix(GOOGLE), environ)
    return ""


class EntraSource(TokenSource[Mapping[str, str]]):
    """Tokens of Microsoft Entra ID for one scope, such as `https://cognitiveservices.azure.com/.default`."""

    def __init__(self, options: Mapping[str, str], scope: str, *, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._scope = options.get("scope") or scope
        self._client = options.get("client") or environ.get("AZURE_CLIENT_ID", "").strip()
        self._tenant = options.get("tenant") or environ.get("AZURE_TENANT_ID", "").strip()
        self._options = {name: options[name] for name in ("secret", "certificate", "token_file") if options.get(name)}
        if password := options.get("certificate_password"):
            self._options["certificate_password"] = password
        if not self._options and "managed" not in options:
            self._options = _entra_variables(environ)
        _refuse_literal_keys(ENTRA, self._options, ("secret", "certificate_password"))
        for value, name in ((self._tenant, "tenant"), (self._client, "client")):
            if self._options and not value:
                raise CredentialError(
                    f"entra: the {name} is missing; set AZURE_{name.upper()}_ID, or write entra:{name}=…"
                )
        require_library("msal", "azure", "entra:")

    def read(self) -> Fetched[Mapping[str, str]]:
        """A token, as the header that carries it."""
        requests, exceptions = import_module("requests"), import_module("msal.exceptions")
        try:
            answer = self._ask_app() if self._options else self._ask_machine(requests)
        except (requests.RequestException, exceptions.MsalServiceError) as error:
            raise TokenError(f"entra: the token service is not available: {_first_line(error)}", "server") from None
        except Exception as error:  # of files and settings: the libraries that read them have no common type
            raise TokenError(f"entra: {self._problem(error)}") from None
        token = answer.get("access_token")
        if not isinstance(token, str):
            what = "certificate" if "certificate" in self._options else "secret"
            advice = f"check tenant, client and {what} of the app registration" if self._options else _ENTRA_ADVICE
            problem = f"{answer.get('error')}: {answer.get('error_description', '')}".strip().splitlines()[0]
            raise TokenError(f"entra: {problem}; {advice}")
        return Fetched({"authorization": f"Bearer {token}"}, float(answer.get("expires_in") or 300))

    def _ask_app(self) -> Mapping[str, Any]:
        """Ask as an app registration. Files are read each time: they are replaced while the gateway runs."""
        host = self._environ.get("AZURE_AUTHORITY_HOST", "").strip().rstrip("/") or _AUTHORITY
        app = import_module("msal").ConfidentialClientApplication(
            self._client,
            authority=f"{host if '://' in host else f'https://{host}'}/{self._tenant}",
            client_credential=self._credential(),
            instance_discovery=False,
            timeout=_TIMEOUT,
        )
        found: Mapping[str, Any] = app.acquire_token_for_client([self._scope])
        return found

    def _credential(self) -> Any:
        given = self._options
        if "secret" in given:
            return Credential(secret=given["secret"]).read(self._environ)
        if "token_file" in given:
            token = Path(given["token_file"]).expanduser().read_text().strip()
            return {"client_assertion": lambda: token}
        path = Path(given["certificate"]).expanduser()
        written = given.get("certificate_password")
        password = {"passphrase": Credential(secret=written).read(self._environ)} if written else {}
        data = path.read_bytes()
        if b"-----BEGIN" not in data:
            return {"private_key_pfx_path": os.fspath(path), **password}
        return {"private_key": data.decode(), "public_certificate": data.decode(), **password}

    def _problem(self, error: Exception) -> str:
        path = self._options.get("certificate") or self._options.get("token_file")
        if isinstance(error, OSError):
            return f"cannot read {path}: {error.strerror}"
        if "certificate" not in self._options:
            return _first_line(error)
        hint = "; if it is encrypted, check certificate_password"
        return f"{path} is not a PEM or PKCS#12 file with a certificate and its RSA private key{hint}"

    def _ask_machine(self, requests: Any) -> Mapping[str, Any]:
        """Ask as the managed identity of the machine."""
        msal = import_module("msal")
        identity = msal.SystemAssignedManagedIdentity()
        if self._client:
            identity = msal.UserAssignedManagedIdentity(client_id=self._client)
        with requests.Session() as session:
            session.request = partial(session.request, timeout=_TIMEOUT)
            client = msal.ManagedIdentityClient(identity, http_client=session)
            found: Mapping[str, Any] = client.acquire_token_for_client(resource=self._scope.removesuffix("/.default"))
        return found


def _entra_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """What the variables of Azure's SDKs say; nothing: the machine has an identity."""
    if environ.get("AZURE_CLIENT_SECRET", "").strip():
        return {"secret": "env:AZURE_CLIENT_SECRET"}
    if path := environ.get("AZURE_CLIENT_CERTIFICATE_PATH", "").strip():
        has_password = bool(environ.get("AZURE_CLIENT_CERTIFICATE_PASSWORD"))
        password = {"certificate_password": "env:AZURE_CLIENT_CERTIFICATE_PASSWORD"} if has_password else {}
        return {"certificate": path, **password}
    path = environ.get("AZURE_FEDERATED_TOKEN_FILE", "").strip()
    return {"token_file": path} if path else {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]

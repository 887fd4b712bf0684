"""`Address`: which database a store is in, and in which schema of it; the one place that knows the password.

What people, logs and errors see of it is `place`: user, host, port and database, and nothing else of what was given. A text that
cannot be read as an address is not repeated either, for the part that does not fit may be the password (law L10).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import ModuleType
from urllib.parse import parse_qsl, quote, urlencode

from msgspec import Struct

from antiphon.errors import StoreError
from antiphon.history.location import is_postgres_url

DEFAULT_SCHEMA = "antiphon"
_LONGEST_NAME = 63  # bytes; PostgreSQL cuts what is longer


class Address(Struct, frozen=True):
    """Where a store is. `parameters` are what the driver is told; they never leave this package."""

    parameters: dict[str, str]
    schema: str
    place: str

    @classmethod
    def of(cls, given: str, schema: str | None = None) -> Address:
        """Read `postgresql://user:password@host:port/database?schema=…`; the rest comes from the environment (PGHOST…)."""
        if not is_postgres_url(given):
            raise StoreError("an address of a PostgreSQL store begins with postgresql://")
        base, _, query = given.partition("?")
        asked = parse_qsl(query, keep_blank_values=True)
        named = schema or next((value for name, value in asked if name == "schema"), DEFAULT_SCHEMA)
        rest = urlencode([pair for pair in asked if pair[0] != "schema"], quote_via=quote)
        parameters = _read(f"{base}?{rest}" if rest else base)
        return cls(parameters, _checked(named), _place(parameters, named))

    @property
    def user(self) -> str:
        return _told(self.parameters, "user", "PGUSER", "the user of this process")

    def hidden(self, text: str) -> str:
        """A text of the driver's or the server's, in which no password stands."""
        for name in ("password", "sslpassword"):
            if secret := self.parameters.get(name):
                text = text.replace(secret, "***")
        return text

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("place", self.place)]

    def __repr__(self) -> str:
        return f"Address({self.place!r})"


def psycopg() -> ModuleType:
    """The driver, or an error that says how to get it."""
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise StoreError(
            f"a store in PostgreSQL needs the driver psycopg ({error}); install it with: pip install 'antiphon[postgres]'"
        ) from error
    return psycopg


def _read(given: str) -> dict[str, str]:
    """The parts of an address. One whose password was not %-coded may still seem to have some: its pieces stand elsewhere."""
    driver = psycopg()
    authority, _, database = given.partition("?")[0].partition("://")[2].partition("/")
    try:
        read = {name: str(value) for name, value in driver.conninfo.conninfo_to_dict(given).items()}
    except driver.Error:
        read = {"port": "unreadable"}
    if authority.count("@") > 1 or "@" in database or not re.fullmatch(r"[\d,]*", read.get("port", "")):
        raise StoreError(
            "this is no address of a PostgreSQL store; it is written postgresql://user:password@host:port/database, with "
            "%-codes for characters such as @ : / ? # in a name or password. It is not repeated here, for it may hold one"
        )
    return read


def _place(parameters: Mapping[str, str], schema: str) -> str:
    hosts = _told(parameters, "host", "PGHOST", parameters.get("hostaddr", "localhost")).split(",")
    ports = _told(parameters, "port", "PGPORT", "5432").split(",")
    where = ",".join(f"{host}:{ports[min(index, len(ports) - 1)]}" for index, host in enumerate(hosts))
    database = _told(parameters, "dbname", "PGDATABASE", "")
    user = f"{parameters['user']}@" if "user" in parameters else ""
    return f"postgresql://{user}{where}/{database}{'' if schema == DEFAULT_SCHEMA else f'?schema={schema}'}"


def _told(parameters: Mapping[str, str], name: str, variable: str, otherwise: str) -> str:
    return parameters.get(name) or os.environ.get(variable) or otherwise


def _checked(schema: str) -> str:
    if not schema or "\0" in schema or len(schema.encode()) > _LONGEST_NAME or schema.startswith("pg_"):
        raise StoreError(
            f"{schema[:80]!r} cannot be the name of a schema: it has 1 to {_LONGEST_NAME} bytes and does not begin with pg_"
        )
    return schema

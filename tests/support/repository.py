"""Where things are in the repository, for tests that read docs, examples and sources."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "packages"
LIBRARY = PACKAGES / "antiphon" / "src" / "antiphon"
GATEWAY = PACKAGES / "antiphon-gateway" / "src" / "antiphon_gateway"
CHAT = PACKAGES / "antiphon-chat" / "src" / "antiphon_chat"
DEVTOOLS = PACKAGES / "antiphon-devtools" / "src" / "antiphon_devtools"
SOURCES = (LIBRARY, GATEWAY, CHAT, DEVTOOLS)
"""The four packages, in order: each imports only those before it."""
MCP_PROGRAMS = PACKAGES / "antiphon" / "tests" / "tools" / "mcp"
TEST_PATHS = tuple(str(folder) for folder in (ROOT / "tests", *sorted(PACKAGES.glob("*/tests"))))
"""Where tests find each other's helpers: what `pythonpath` in pyproject.toml names."""

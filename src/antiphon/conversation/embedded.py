"""`EmbeddedCallPolicy`: when calls are read from the text of a model, and when its tools are described in the prompt."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from antiphon.context import LiveContext
from antiphon.providers.call import ProviderCallOptions
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from antiphon.tools.embedded import EmbeddedCalls, EmbeddedSetting

logger = logging.getLogger(__name__)


class EmbeddedCallPolicy:
    """The setting of a conversation, and the models that turned out to have no tools."""

    def __init__(self, setting: EmbeddedSetting) -> None:
        if setting != "auto":
            from antiphon.tools.embedded.text_tools import check_setting

            check_setting(setting)
        self.setting = setting
        self._without_tools: set[str] = set()

    @property
    def is_idle(self) -> bool:
        """Whether calls are made as they are. It is so until a model without tools is met."""
        return self.setting == "auto" and not self._without_tools

    def prepare(
        self, context: LiveContext, options: ProviderCallOptions, version: int
    ) -> tuple[LiveContext, ProviderCallOptions, EmbeddedCalls | None]:
        """The call as the model can read it, and the reader of its answer."""
        from antiphon.tools.embedded import EmbeddedCalls, with_text_tools
        from antiphon.tools.embedded.text_tools import mode_for

        mode = mode_for(self.setting, options.model)
        if mode == "auto" and options.model in self._without_tools:
            mode = "prompt"
        reader = None
        if options.tools and mode in (True, "prompt"):
            reader = EmbeddedCalls(options.tools, id_seed=str(version))
        if mode == "prompt":
            entries, options = with_text_tools(context, options)
            context = LiveContext(entries, context.left_out, screen=context.screen)
        return context, options, reader

    def can_retry(self, error: ProviderError, model: str) -> bool:
        """Whether the provider answered that `model` has no tools. It is called without them from then on."""
        from antiphon.tools.embedded.text_tools import is_unsupported, mode_for

        if model in self._without_tools or mode_for(self.setting, model) != "auto" or not is_unsupported(error):
            return False
        logger.info("%s does not support tools; describing them in the prompt", model)
        self._without_tools.add(model)
        return True

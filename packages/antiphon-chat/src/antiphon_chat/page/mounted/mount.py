"""What `antiphon serve` finds by name: the chat page of a gateway, in one process or shared by several."""

from antiphon_chat.page.mounted.gateway_chat import chat_factory as chat_factory
from antiphon_chat.page.mounted.shared_chat import shared_chat_factory as shared_chat_factory

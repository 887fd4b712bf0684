"""API keys: secrets, the health of each key, and the ring that picks one for a call."""

from antiphon.providers.keys.ring import KeyRing
from antiphon.providers.keys.secret import Credential

__all__ = ["Credential", "KeyRing"]

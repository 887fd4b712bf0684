"""API keys: secrets, the health of each key, and the pool that picks one for a call."""

from antiphon.providers.credentials.pool import CredentialPool
from antiphon.providers.credentials.secret import Credential

__all__ = ["Credential", "CredentialPool"]

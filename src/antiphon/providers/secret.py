"""Documented import path; see `providers.credentials.secret`."""

from antiphon.providers.credentials.secret import Credential as Credential

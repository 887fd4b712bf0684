"""Documented import path; see `providers.default_model`."""

from antiphon.providers.default_model import default_model as default_model

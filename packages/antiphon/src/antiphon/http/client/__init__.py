"""HTTP to providers: the request and response types, and the transports that carry them."""

from antiphon.http.client.request import HttpRequest, HttpResponse, Timeouts, Transport

__all__ = ["HttpRequest", "HttpResponse", "Timeouts", "Transport"]

"""Providers that are not reached with a fixed API key: tokens that expire, signed requests, and hosts that wrap a known format.

A key of such a provider names where its token comes from: `command:…`, `entra:…` (Azure), `google:…` (Vertex AI), `aws:…`
(Bedrock, Claude Platform on AWS). `Authentication` makes the last step between a written request and its bytes: it signs the
request, and signs it once more with a new token if the host rejects the first.

- `token_cache`: one token, fetched by one request at a time, replaced before it expires;
- `signers`: from a reference to what fetches its tokens: `credentials.command`, and `tokens`, by the vendors' own libraries;
- `sigv4`: signatures of AWS; `event_stream`: the frames of Bedrock; `hosts`: what Bedrock and Vertex AI change in a call.
"""

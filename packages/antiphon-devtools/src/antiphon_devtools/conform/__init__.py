"""A conformance suite for gateways between LLM API formats: `antiphon conform URL`.

The suite is both ends of the gateway under test: the client of each format, and the provider that gets the forwarded request.

    cases/       the conversations, answers and faults, as TOML that others can read and extend
    formats/     each format from both ends: write a request, read it back, write an answer, read it back
    rules/       what each API accepts, restated in small checks
    bodies       what formats and rules share to read and write JSON and events
    upstream     the mock providers; client: the sender; judge: the verdict; run: the order; report: the output

Nothing here imports `antiphon.wire` or `antiphon.repair`: the judge must not share a mistake with the code that it judges.
"""

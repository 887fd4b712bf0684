"""Cassettes: what clients ask a provider, recorded with the answers in one file, and answered again from it.

`antiphon serve --record | --replay` does it for any client; `use_tape` and the pytest fixture `antiphon_tape` for one test.
"""

from antiphon_devtools.cassettes.use_tape import TapedGateway as TapedGateway
from antiphon_devtools.cassettes.use_tape import use_tape as use_tape

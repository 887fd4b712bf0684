"""TensorZero's gateway as its Python package starts it: `python gateway_tensorzero.py CONFIG`, with that package installed.

The gateway is written in Rust and served by threads of this process, which itself only waits. It chooses its own port, and the
address it tells is the only line of standard output.
"""

import sys
import threading
from importlib import import_module

if __name__ == "__main__":
    package = import_module("tensorzero.tensorzero")
    gateway = package._start_http_gateway(
        config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
    )
    sys.stdout.write(f"{gateway.base_url}\n")
    sys.stdout.flush()
    threading.Event().wait()

"""Start TensorZero's gateway from its Python package: `python start_tensorzero.py CONFIG`, with that package installed.

The gateway is written in Rust and runs in threads of this process. It chooses its port; standard output has only its address.
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

"""A Temporal worker in a process of its own, to be killed: runs `sample_runs` over `$ANTIPHON_STORE` and prints `ready`."""

from __future__ import annotations

import asyncio
import os
import sys

from temporalio.client import Client

from antiphon.history.location import open_store
from antiphon.runs.temporal import temporal_worker
from runs.sample_runs import registry


async def main() -> None:
    with open_store(os.environ["ANTIPHON_STORE"]) as store:
        async with temporal_worker(await Client.connect(sys.argv[1]), store, registry):
            print("ready", flush=True)
            await asyncio.Event().wait()


asyncio.run(main())

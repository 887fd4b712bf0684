"""A worker of Temporal as a process of its own, to be killed: it plays `the_book` over `$ANTIPHON_STORE`; `ready`: it is up."""

from __future__ import annotations

import asyncio
import os
import sys

from temporalio.client import Client

from antiphon.history.location import open_store
from antiphon.runs.temporal import temporal_worker
from runs.the_book import book


async def main() -> None:
    with open_store(os.environ["ANTIPHON_STORE"]) as store:
        async with temporal_worker(await Client.connect(sys.argv[1]), store, book):
            print("ready", flush=True)
            await asyncio.Event().wait()


asyncio.run(main())

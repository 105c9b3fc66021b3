# Needs python3 (3.11 or newer, with venv) and make; everything else is installed into .venv from the locks.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

COMPILE := $(BIN)/python -m piptools compile --quiet --generate-hashes --strip-extras --allow-unsafe --no-header --no-annotate \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links
INSTALL := $(BIN)/python -m pip install --quiet --require-hashes

.PHONY: help run test check fmt bench drill lock clean

help: ## Show what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# `exec` makes the site make's own child: Ctrl-C reaches it, it drains, and its exit code is make's.
run: $(VENV)/run.stamp ## Install what is needed, then start the whole site (Ctrl-C drains and stops it)
	@trap '' INT; exec $(BIN)/python manage.py up

test: $(VENV)/dev.stamp ## Run all tests on a real PostgreSQL of their own (ARGS="-k name" narrows)
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/dev.stamp ## Lint, formatting, types, and no model change without its migration
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python manage.py makemigrations --check --dry-run

fmt: $(VENV)/dev.stamp ## Format the code and fix what can be fixed by itself
	$(BIN)/python -m ruff format .
	$(BIN)/python -m ruff check --fix .

bench: $(VENV)/dev.stamp ## Measure the budgets of docs/design.md on this machine
	$(BIN)/python -m tests.bench.http $(ARGS)

drill: $(VENV)/dev.stamp ## Kill everything at every crash point and check that no promise breaks
	$(BIN)/python -m pytest -p no:randomly -s tests/faults/drill_*.py $(ARGS)

lock: $(VENV)/dev.stamp ## Resolve the dependencies anew (public index only) and write both locks
	env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL -u PIP_INDEX_URL PIP_CONFIG_FILE=/dev/null \
		$(COMPILE) --upgrade -o requirements.lock pyproject.toml
	env -u PIP_FIND_LINKS -u PIP_EXTRA_INDEX_URL -u PIP_INDEX_URL PIP_CONFIG_FILE=/dev/null \
		$(COMPILE) --upgrade --extra dev -c requirements.lock -o requirements-dev.lock pyproject.toml

clean: ## Remove the environment and caches; var/ (the data) stays
	rm -rf $(VENV) staticfiles .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is newer than its lock exactly when the environment holds what the lock says.
$(VENV)/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.")'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "Python's venv module is missing: apt-get install python3-venv" >&2; exit 1; }
	@echo "Making $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/run.stamp: requirements.lock | $(VENV)/pyvenv.cfg
	@echo "Installing from $< (once, until it changes)" >&2
	@$(INSTALL) -r $<
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock | $(VENV)/pyvenv.cfg
	@echo "Installing from $< (once, until it changes)" >&2
	@$(INSTALL) -r $<
	@touch $@

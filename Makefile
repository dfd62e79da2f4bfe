# make demo   sets up and runs the main job on this machine's CPU, on a real language model
# make test   sets up and passes the tests; no root, no system package
# make check  ruff, mypy and the fast tests; what every commit passes
# make e2e    tests against real services (sshd); may install system packages
# make lock   resolves the three environments anew (deploy/locks)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := deploy/locks/embedded.txt
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(LOCK)

.PHONY: demo test check e2e lock format clean
.DEFAULT_GOAL := test

$(VENV)/made:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/embedded: $(VENV)/made pyproject.toml $(LOCK)
	$(PIP) --editable '.[embedded]'
	@touch $@

$(VENV)/dev: $(VENV)/made pyproject.toml $(LOCK)
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/embedded

demo: $(VENV)/embedded
	$(BIN)/runbook run demo --inventory inventory/local.py --yes
	$(BIN)/eagle3 show var/data/hidden --rows 0

test: $(VENV)/dev
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not e2e and not gpu'

check: $(VENV)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/runbook schema --check
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m 'not e2e and not gpu and not model and not slow'

# The link matrix mostly waits for links, so it goes beside the others.
e2e: $(VENV)/dev
	tests/e2e/install
	$(BIN)/python -m pytest -q -m e2e tests/e2e/test_link_matrix.py & links=$$!; \
	$(BIN)/python -m pytest -m e2e --ignore tests/e2e/test_link_matrix.py; code=$$?; \
	wait $$links && exit $$code

format: $(VENV)/dev
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock: $(VENV)/made
	$(BIN)/python -m deploy.locks.make_lock deploy/locks/controller.txt '.[controller]'
	$(BIN)/python -m deploy.locks.make_lock $(LOCK) '.[dev]'
	$(BIN)/python -m deploy.locks.make_lock deploy/locks/sglang.txt --python 3.12 sglang==0.5.17

clean:
	rm -rf $(VENV) build dist

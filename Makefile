# Two commands are all that a fresh clone needs: `make train` and `make test`. Each builds the environment first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: env train test check serve crash lock

env: $(STAMP)

$(STAMP): requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Gristmill needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	touch $@

train: env ## trains on the bundled digits; no server needed
	$(BIN)/python -m flows.train mnist

test: env ## the test suite
	$(BIN)/python -m pytest

check: env ## lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

serve: env ## Prefect server with UI at http://127.0.0.1:4200 and a deployment for every dataset
	@exec $(BIN)/python -m flows.serve

crash: env ## 100 kills at random moments and harm to every file of a checkpoint; each run must end with the same bits
	$(BIN)/python -m pytest -m slow -s tests/test_crash.py tests/test_resume.py

lock: env ## renews requirements.lock from the ranges in pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --no-header --allow-unsafe --strip-extras --upgrade --extra dev --output-file requirements.lock pyproject.toml

# Two commands are all that a fresh clone needs: `make train` and `make test`. Each builds the environment first.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: env train test check serve crash soak nights processes lock

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

serve: env ## Prefect server with UI at http://127.0.0.1:4200 and all deployments; DB=postgresql://user@host/name
	@$(if $(DB),GRISTMILL_DATABASE='$(DB)') exec $(BIN)/python -m flows.serve

crash: env ## 100 kills at random moments and harm to every file of a checkpoint; each run must end with the same bits
	$(BIN)/python -m pytest -n 0 -m slow -s tests/test_crash.py tests/test_resume.py

soak: env ## a hundred compressed nights in one process, 33 in processes of their own: tables, and plots under assets/
	GRISTMILL_NIGHTS=100 GRISTMILL_SOAK_PLOT=assets/soak.png $(BIN)/python -m pytest -n 0 -m slow -s tests/test_soak.py

nights: env ## 73 changes and what each runs, 100 random ones against their plans, 30 nights with trouble, runs that die
	$(BIN)/python -m pytest -n 0 -m slow -s tests/test_mutations.py tests/test_nights.py tests/test_service.py

processes: env ## one training in two processes: killed, frozen, stopped, gone on with by one, a run a host
	$(BIN)/python -m pytest -n 0 -m slow -s tests/test_processes.py tests/test_several_processes.py

lock: env ## renews requirements.lock from the ranges in pyproject.toml
	$(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --no-header --allow-unsafe --strip-extras --upgrade --extra dev --output-file requirements.lock pyproject.toml

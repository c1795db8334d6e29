# The front door. Every target sets up what it needs, in .venv.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help setup test reproduce bench clean

help:
	@echo "make setup      create .venv with the pinned versions of everything"
	@echo "make test       formatting, linter, types, test suite"
	@echo "make reproduce  the paper's tables and figures in miniature, into runs/quick"
	@echo "make bench      measure speed and memory against plain PyTorch"
	@echo "make clean      remove .venv, caches and builds, but not runs/"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 10) or sys.exit('bipolar needs Python 3.10 or newer; try make PYTHON=python3.12 ' + '$(MAKECMDGOALS)')"
	@echo "Setting up .venv; the first time this takes some minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable ".[lab,dev]"
	@touch $@

test: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal  # a thread for each process

reproduce: setup
	@$(BIN)/bipolar reproduce

bench: setup
	$(BIN)/python -m benchmarks.activations
	$(BIN)/python -m benchmarks.lsuv
	$(BIN)/python -m benchmarks.rnn
	$(BIN)/python -m benchmarks.generate
	$(BIN)/python -m benchmarks.text
	$(BIN)/python -m benchmarks.images

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

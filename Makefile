# The front door. Every target sets up what it needs, in .venv.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SEED ?= 1
MINUTES ?= 60

.PHONY: help setup test reproduce docs bench torture wheel clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-11s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv with the pinned versions of everything

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 10) or sys.exit('bipolar needs Python 3.10 or newer; try make PYTHON=python3.12 ' + '$(MAKECMDGOALS)')"
	@echo "Setting up .venv; the first time this takes some minutes."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable ".[lab,dev]"
	@touch $@

test: setup ## formatting, linter, types, test suite
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal  # a thread for each process

reproduce: setup ## the paper's tables and figures in miniature, into runs/quick
	@$(BIN)/bipolar reproduce

docs: setup ## the site, into site/; a broken link or a public name without documentation is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env -c docs -d build/doctrees . site
	@echo "The site is in site/index.html"

bench: setup ## measure speed and memory against plain PyTorch
	$(BIN)/python -m benchmarks.activations
	$(BIN)/python -m benchmarks.lsuv
	$(BIN)/python -m benchmarks.rnn
	$(BIN)/python -m benchmarks.grid
	$(BIN)/python -m benchmarks.generate
	$(BIN)/python -m benchmarks.text
	$(BIN)/python -m benchmarks.cells
	$(BIN)/python -m benchmarks.images
	$(BIN)/python -m benchmarks.deploy
	$(BIN)/python -m benchmarks.optim
	$(BIN)/python -m benchmarks.symmetry
	$(BIN)/python -m benchmarks.models

torture: setup ## crashes, broken files, random calls and models: SEED=1 MINUTES=60, into results/torture.md
	OMP_NUM_THREADS=1 $(BIN)/python -m torture --seed $(SEED) --minutes $(MINUTES)

wheel: setup ## build the wheel into dist/
	$(BIN)/python -m hatchling build -t wheel -d dist

clean: ## remove .venv, caches and builds, but not runs/
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test pytest lint-and-types test-all crash lint types format clean

## MARCO on the riddle: 2,000 real steps, the rest in the model; a table and a figure at the end.
## The default preset as it is: about three minutes on two cores, installation and compilation included.
demo: $(VENV)/runtime
	rm -rf runs/demo
	$(BIN)/marco train switch --out runs/demo

## Everything a change must pass. mypy keeps one core busy: the tests need not wait for it.
test: $(VENV)/dev
	$(MAKE) --jobs 2 lint-and-types pytest

pytest: $(VENV)/dev
	$(BIN)/pytest -n 2 --dist worksteal

## Also the examples as shipped, which train for minutes.
test-all: lint types
	MARCO_SLOW=1 $(BIN)/pytest -n 2 --dist worksteal

## Runs killed a hundred times at random moments, where the tests do it twice; their files damaged in 1,200 ways;
## 100,000 real steps in one process; 50 simulators and 20 drivers killed.
crash: $(VENV)/dev
	MARCO_CRASH=1 $(BIN)/pytest -s tests/runs/test_crash.py tests/runs/test_damage.py \
		tests/runs/test_worker_crash.py tests/sweeps/test_sweep.py

lint-and-types: lint types

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/dev
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/runtime: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/runtime

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache

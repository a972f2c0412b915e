# Two commands: `make demo` and `make test`. Both make .venv first, from Python 3.10 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch from the pinned version's CPU build where pip knows one; uv or a CUDA machine may install its own before.
.PHONY: demo test lint format install clean slow gpu-check

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --no-build-isolation --editable .
	touch $@

$(VENV)/.test: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable '.[test]'
	touch $@

install: $(VENV)/.base

demo: $(VENV)/.base
	$(BIN)/sapwood pull
	$(BIN)/sapwood run examples/quickstart.py

test: $(VENV)/.test
	$(BIN)/pytest

slow: $(VENV)/.test
	$(BIN)/pytest -m slow

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

# Two commands: `make demo` and `make test`. Both make .venv first, from Python 3.10 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip takes torch's CPU build of the pinned version where it knows one; to bring another, install it into .venv first.
.PHONY: demo test lint format install clean slow gpu-check

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip scikit-build-core nanobind cmake ninja
	$(BIN)/python -m pip install --progress-bar on --no-build-isolation --editable .
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

# On a machine with an NVIDIA card: every kernel against its reference, the engine's text against the CPU's, and how fast all is.
gpu-check: $(VENV)/.test
	$(BIN)/python benchmarks/gpu.py --only card
	$(BIN)/python -m pip install --quiet --editable '.[gpu]' --no-build-isolation
	$(BIN)/python benchmarks/gpu.py

lint: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/.test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache

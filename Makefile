# The suite's commands; `make help` lists them. The first one on a bare machine builds .venv, later ones find it built.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup setup-notebooks setup-nvrx07 run test slow bench lint format test-nvrx07 wheel wheelhouse clean

# NVRx has wheels for Python 3.10 to 3.12. A name on PATH may be a version manager's shim for a version that is not
# installed, so each is tried by running it.
PYTHON ?= $(shell for name in python3.11 python3.12 python3.10; do $$name -c '' 2>/dev/null && echo $$name && exit; done; echo python3)
# In a vendor's container: make setup VENV_FLAGS=--system-site-packages CONSTRAINTS=/path/of/its/constraints.txt
VENV_FLAGS ?=
CONSTRAINTS ?= constraints.txt
# Overrides of `make run`, e.g. make run ARGS="scenario=ckpt_smoke"
ARGS ?=

# Folder of `make wheelhouse`.
WHEELHOUSE ?= wheelhouse

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
INSTALL := $(PIP) install --quiet --progress-bar off --constraint $(CONSTRAINTS)
PYTEST := $(PY) -m pytest

NVRX07_VERSION := 0.7.0
NVRX07 := .cache/nvrx-$(NVRX07_VERSION)
NVRX07_NEEDS := defusedxml grpcio httpx protobuf pydantic-settings setproctitle
WITH_NVRX07 := PYTHONPATH=$(CURDIR)/$(NVRX07)

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## measure this machine: bench run $(ARGS)
	$(PY) -m bench run $(ARGS)

test: setup ## every test but the slow ones
	$(PYTEST) -m "not slow"

slow: setup-notebooks ## the slow tests
	$(PYTEST) -m slow --timeout 900

bench: setup ## what the instrument itself costs, held against its bounds
	$(PYTEST) -o python_files='bench_*.py' --timeout 300 tests/benchmarks

lint: setup ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: setup ## what ruff can mend and lay out by itself
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

wheel: setup ## dist/*.whl, with conf, scenarios and notebooks inside
	rm -rf build
	$(PY) -m build --wheel --no-isolation

# On a machine without an index: PIP_NO_INDEX=1 PIP_FIND_LINKS=$PWD/wheelhouse make setup
wheelhouse: wheel ## wheelhouse/: wheels of all that setup installs, for machines like this one without a package index
	rm -rf $(WHEELHOUSE)
	$(PIP) wheel --quiet --progress-bar off --no-build-isolation --constraint $(CONSTRAINTS) --wheel-dir $(WHEELHOUSE) \
		setuptools wheel "$$(ls -t dist/*.whl | head -n 1)[train,dev]"
	@du -sh $(WHEELHOUSE)

setup: $(VENV)/.setup ## .venv with the suite (editable), torch and NVRx; quick when it is there

setup-notebooks: $(VENV)/.setup-notebooks ## in addition Jupyter, for notebooks/

setup-nvrx07: $(NVRX07)/.setup ## NVRx 0.7.0's code in .cache, for test-nvrx07

test-nvrx07: setup setup-nvrx07 ## runs, recoveries and the checkpoint contract under NVRx 0.7.0
	$(WITH_NVRX07) $(PY) -c 'import importlib.metadata as m; assert m.version("nvidia-resiliency-ext") == "$(NVRX07_VERSION)"'
	$(WITH_NVRX07) $(PY) -m bench run scenario=ckpt_smoke
	$(WITH_NVRX07) $(PY) -m bench run scenario=recovery_smoke
	$(WITH_NVRX07) $(PYTEST) tests/checkpoint

clean: ## remove builds and caches; .venv and results stay
	rm -rf build dist *.egg-info .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' || \
		{ echo "$(PYTHON) is not Python 3.10, 3.11 or 3.12; name one that is: make setup PYTHON=python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV_FLAGS) $(VENV)

# The build tools come first, pinned like the rest, so that the editable install needs no unpinned ones of its own.
$(VENV)/.setup: pyproject.toml setup.py $(CONSTRAINTS) | $(PY)
	$(INSTALL) setuptools wheel
	$(INSTALL) --no-build-isolation --editable '.[train,dev]'
	touch $@

$(VENV)/.setup-notebooks: $(VENV)/.setup
	$(INSTALL) --no-build-isolation --editable '.[notebooks]'
	touch $@

# The wheel is for another Python than ours; its checkpointing code is plain Python, which is all that is used of it.
$(NVRX07)/.setup: | $(PY)
	rm -rf $(NVRX07)
	$(PIP) download --quiet --progress-bar off --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_39_x86_64 \
		--dest .cache nvidia-resiliency-ext==$(NVRX07_VERSION)
	$(PY) -m zipfile --extract .cache/nvidia_resiliency_ext-$(NVRX07_VERSION)-*.whl $(NVRX07)
	$(INSTALL) --target $(NVRX07) $(NVRX07_NEEDS)
	touch $@

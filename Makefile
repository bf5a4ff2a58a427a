# Every target prepares what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# PyTorch is for its own tests alone, and large.
TORCH := .venv-pytorch
# A file's tests stay together and in order, for they may share a daemon. WORKERS=0 is one after the other.
WORKERS ?= 2
# These tests wait more than they compute.
test kubernetes kubernetes-workers: WORKERS = 3
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test check test-tensorflow test-pytorch test-mongo kubernetes kubernetes-workers bench-replay bench-kubernetes clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(VENV)/.ready  ## Prepare .venv with everything pinned in requirements.lock

demo: setup  ## Set up and run the case study: two TensorFlow jobs, four presets (PRESET= COSTS= REPEATS= STORE=)
	$(BIN)/python examples/demo/demo.py $(PRESET:%=--preset %) $(COSTS:%=--costs %) $(REPEATS:%=--repeats %) $(STORE:%=--store '%')

test: setup  ## Set up and run the checks and all tests that need no TensorFlow, PyTorch, MongoDB or Kubernetes
	$(MAKE) check
	$(PYTEST) -m "not tensorflow and not pytorch and not mongo and not kubernetes"

check: setup  ## Format, lint, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-tensorflow: setup  ## The tests that start real TensorFlow processes
	$(PYTEST) -m "tensorflow and not mongo"

test-pytorch: setup $(TORCH)/.ready  ## The tests that start real PyTorch processes (installs it: 4.5 GB)
	$(PYTEST) -m pytorch tests/integration/pytorch

$(TORCH)/.ready: requirements-pytorch.lock
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-deps --require-hashes -r requirements-pytorch.lock
	@touch $@

test-mongo: setup  ## The store's tests on MONGODB_URI, else on a wire server (JDK, Maven)
	$(PYTEST) -m mongo

# Each worker has a cluster, or they share that of KUBECONFIG.
kubernetes: setup  ## The tests on a Kubernetes cluster: two nodes of its own for each worker (root; KUBENODE=, or Go), or KUBECONFIG=
	$(BIN)/python -m tests.kubernetes.grounds prepare
	$(PYTEST) -m kubernetes tests/kubernetes

kubernetes-workers:
	@echo $(WORKERS)

bench-replay: setup  ## How fast replays are; writes out/bench/replay.json
	$(BIN)/python benchmarks/replay.py

bench-kubernetes: setup  ## Reshape in a living pod against a restarted pod; writes out/bench/kubernetes.json
	$(BIN)/python -m tests.kubernetes.grounds prepare
	$(BIN)/python benchmarks/kubernetes_reshape.py

clean:  ## Remove what the targets made
	rm -rf $(VENV) $(TORCH) out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

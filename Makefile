# Every target prepares what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What the controller needs, and no TensorFlow: there in seconds.
CONTROLLER := .venv-controller
# PyTorch is for its own tests alone, and large.
TORCH := .venv-pytorch
# A file's tests stay together and in order, for they may share a daemon. WORKERS=0 is one after the other.
WORKERS ?= 2
# These tests wait more than they compute.
test kubernetes kubernetes-workers: WORKERS = 3
kubernetes-kueue kubernetes-pytorch: WORKERS = 0
# GATE=1: of a tier the tests marked "gate", of random tests a third of the examples (docs/dev/ci.md).
GATE ?=
export GATE
AND_GATE = $(if $(GATE), and gate)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 3

.PHONY: help setup setup-controller demo test check quick tables chaos test-tensorflow test-pytorch test-page vendor test-mongo ferretdb test-ferretdb kubernetes kubernetes-kueue kubernetes-pytorch kubernetes-workers bench-replay bench-kubernetes bench-handover findings versions gpu gpu-bundle clean

help:  ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

# Third-party packages come from a cache of this user's if another checkout has installed them.
$(VENV)/.ready: requirements.lock pyproject.toml .ci/environment.py
	$(PYTHON) .ci/environment.py requirements.lock $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(VENV)/.ready  ## Prepare .venv with everything pinned in requirements.lock

setup-controller: $(CONTROLLER)/.ready  ## Prepare .venv-controller with requirements-controller.lock: all but the tests, pictures and TensorFlow

$(CONTROLLER)/.ready: requirements-controller.lock .ci/environment.py
	$(PYTHON) .ci/environment.py requirements-controller.lock $(CONTROLLER)
	@touch $@

demo:  ## Replay the case study while the rest installs, then run it: two TensorFlow jobs, two presets (PRESETS=all PRESET= COSTS= REPEATS= OVERLAP=off STANDBY=off STORE=)
	@$(PYTHON) examples/demo/prepare.py
	@$(BIN)/python examples/demo/demo.py $(PRESETS:%=--presets %) $(PRESET:%=--preset %) $(COSTS:%=--costs %) $(REPEATS:%=--repeats %) $(OVERLAP:%=--overlap %) $(STANDBY:%=--standby %) $(STORE:%=--store '%')

test: setup  ## Set up and run the checks and all tests that need no TensorFlow, PyTorch, MongoDB, FerretDB or Kubernetes
	$(MAKE) check
	$(PYTEST) -m "not tensorflow and not pytorch and not mongo and not ferretdb and not kubernetes and not kubernetes_pytorch and not kueue and not page"

check: setup  ## Format, lint, types, import contracts and commit subjects
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/check_commits.py

quick: check  ## The checks and the unit tests of the deciding code, under a minute: run it after each edit
	$(BIN)/python -m pytest -q tests/unit/core tests/unit/policies tests/unit/test_tidy.py

tables: setup  ## Write the tables of docs/architecture.md that the code holds
	$(BIN)/python -m tests.support.architecture_tables

test-tensorflow: setup  ## The tests that start real TensorFlow processes
	$(PYTEST) -m "tensorflow and not mongo$(AND_GATE)"

test-pytorch: setup $(TORCH)/.ready  ## The tests that start real PyTorch processes (installs it: 4.5 GB)
	$(PYTEST) -m "pytorch$(AND_GATE)" tests/integration/pytorch

$(TORCH)/.ready: requirements-pytorch.lock .ci/environment.py
	$(PYTHON) .ci/environment.py requirements-pytorch.lock $(TORCH) --no-cache-dir --no-deps
	@touch $@

# Debian's Chromium: its driver is pinned in requirements.lock. Anyone but root gets the remedy from the tests.
test-page: setup  ## The page in a real browser (Chromium; root installs it if it is missing)
	@[ -x /usr/bin/chromium ] || [ "$$(id -u)" != 0 ] || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null)
	$(PYTEST) -m "page$(AND_GATE)" tests/page

vendor: setup  ## Fetch the page's library, and that of its tests, from npm again and compare the hashes
	$(BIN)/python -m tests.support.vendored

test-mongo: setup  ## The store's tests on MONGODB_URI, else on a wire server (JDK, Maven)
	$(PYTEST) -m "mongo$(AND_GATE)"

chaos: setup  ## Random kills, stops and full disks on real daemons and jobs, and an auditor (FAULTS=1000 SEED=0 AT_ONCE=1)
	$(BIN)/python -m tests.chaos $(or $(FAULTS),1000) --from $(or $(SEED),0) --workers $(or $(AT_ONCE),1)

# Built once for each user, in about a minute of one core; the module comes from Go's proxy.
ferretdb: setup  ## Build FerretDB, the second server that speaks MongoDB's protocol (Go)
	$(BIN)/python -m tests.support.ferretdb

test-ferretdb: ferretdb  ## The store's contract, and logins, on FerretDB (Go)
	$(PYTEST) -m "ferretdb$(AND_GATE)" tests/contract tests/integration

# Each worker has a cluster, or they share that of KUBECONFIG.
kubernetes: setup  ## The tests on a Kubernetes cluster: two nodes of its own for each worker (root; KUBENODE=, or Go), or KUBECONFIG=
	$(BIN)/python -m tests.kubernetes.grounds prepare
	$(PYTEST) -m "kubernetes$(AND_GATE)" tests/kubernetes

kubernetes-kueue: setup  ## Jobs beside the real Kueue on two nodes of its own (Go, which builds it once; KUEUE=)
	$(BIN)/python -m tests.kubernetes.grounds prepare
	$(BIN)/python -m tests.kubernetes.kueue prepare
	$(PYTEST) -m kueue tests/kubernetes/test_kueue.py

kubernetes-pytorch: setup $(TORCH)/.ready  ## A Trainer script in a pod, reshaped 2-1-2 on two nodes of its own (root; installs PyTorch: 4.5 GB)
	$(BIN)/python -m tests.kubernetes.grounds prepare
	$(PYTEST) -m kubernetes_pytorch tests/kubernetes/test_pytorch.py

kubernetes-workers:
	@echo $(WORKERS)

bench-replay: setup  ## How fast replays are; writes out/bench/replay.json
	$(BIN)/python benchmarks/replay.py

bench-kubernetes: setup  ## Reshape in a living pod against a restarted pod; writes out/bench/kubernetes.json
	$(BIN)/python -m tests.kubernetes.grounds prepare
	$(BIN)/python benchmarks/kubernetes_reshape.py

bench-handover: setup  ## A reshape by the way in which the new process starts; writes out/bench/handover.jsonl
	$(BIN)/python benchmarks/handover.py --model lenet
	$(BIN)/python benchmarks/handover.py --model resnet50

findings:  ## Behaviours of other libraries, as scripts that fail if they change (NAME=, LATEST=1, AGAIN=1, PYTHON=)
	@python3 findings/run.py $(NAME)

versions:  ## Tests with the newest version of each library that Reshape patches or calls; writes docs/dev/versions.md (NAME=, AGAIN=1)
	@$(PYTHON) .ci/versions.py $(NAME)

gpu:  ## On a machine with an NVIDIA GPU: answer what only a GPU can answer, in 8 minutes; writes out/gpu (PYTHON=, the Python that has PyTorch; ARGS=)
	@$(PYTHON) benchmarks/gpu $(ARGS)

gpu-bundle:  ## Fill gpu-bundle with the wheels that `make gpu` needs on a machine without network (16 MB)
	@$(PYTHON) benchmarks/gpu/packages.py

clean:  ## Remove what the targets made
	rm -rf $(VENV) $(CONTROLLER) $(TORCH) gpu-bundle out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

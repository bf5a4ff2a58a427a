"""The table of what .ci/run runs: each part, its budget, and the paths that pull it whole.

Does: holds values. Never: runs anything. State: none. docs/dev/ci.md explains the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

GATE_MIN = 34
"""Minutes of the gate on two free cores, if no tier is pulled whole."""
ALL_MIN = 80
"""Minutes of `.ci/run all` on two free cores."""
FITS_MIN = 42
"""A run without `all` takes a tier whole only if it is likely to end within so many minutes."""
LIMIT_MIN = 84
"""A run without `all` ends itself then and fails: 90 minutes after its start a runner cuts it off,
and what it said is lost."""

EVERYTHING = (".ci/", "Makefile", "requirements.lock", "tests/conftest.py", "tests/support/gate.py")
"""A change below one of these runs every tier whole."""
DECIDING = (
    "controller/reshape_controller/core/",
    "controller/reshape_controller/policies/",
    "controller/reshape_controller/replay/",
    "controller/reshape_controller/scheduling/",
    "tests/golden/",
    "tests/property/",
    "tests/replay/",
)
HOOK = "sidecar/reshape_sidecar/hook/"


class Gate(Enum):
    """How much of a part the gate runs, if no changed path pulls the part whole."""

    WHOLE = "whole"
    MARKED = "its gate only"
    """`GATE=1`: the tests marked `gate`, and a third of the generated examples."""


@dataclass(frozen=True)
class Part:
    """One line of the summary. Budgets are minutes on two free cores; 0 is none."""

    name: str
    command: tuple[str, ...]
    gate_min: float = 0
    all_min: float = 0
    gate: Gate = Gate.WHOLE
    pulled_by: tuple[str, ...] = ()
    """Prefixes of paths. A change below one of them runs the part whole."""
    after: str = ""
    """The part that must have passed before."""
    beside: bool = False
    """Started, niced, as soon as `after` has passed; waited for in its turn."""
    kubernetes: bool = False
    """`.ci/run fast` leaves it out."""


def make(target: str) -> tuple[str, ...]:
    return ("make", target)


def python(*words: str) -> tuple[str, ...]:
    return (".venv/bin/python", *words)


SETUP = "set-up (make setup)"
DEMO = "first README command (make demo)"
NODES = "Kubernetes can be started"
PREPARED = "Kubernetes prepared beside the parts above: the wait for it"

PARTS = (
    Part(SETUP, make("setup"), 1, 1),
    Part(NODES, python("-m", "tests.kubernetes.grounds", "check"), after=SETUP, kubernetes=True),
    Part(DEMO, make("demo"), 4, 4, after=SETUP),
    Part("the demo lost nothing", python(".ci/check_demo.py"), after=DEMO),
    Part("first picture of an empty clone", python(".ci/first_picture.py"), 1, 1, after=DEMO),
    Part(
        "second README command (make test)", make("test"), 8, 15,
        gate=Gate.MARKED, pulled_by=DECIDING, after=SETUP,
    ),
    Part(
        "TensorFlow tier (make test-tensorflow)", make("test-tensorflow"), 4, 18,
        gate=Gate.MARKED, after=SETUP,
        pulled_by=(HOOK, "examples/", "tests/e2e/", "tests/integration/tensorflow/"),
    ),
    Part(
        "PyTorch tier (make test-pytorch)", make("test-pytorch"), 4, 10,
        gate=Gate.MARKED, after=SETUP,
        pulled_by=(
            HOOK, "benchmarks/gpu/", "examples/pytorch/", "requirements-pytorch.lock",
            "sidecar/reshape_sidecar/pytorch/", "sidecar/reshape_sidecar/ranks/",
            "tests/integration/pytorch/",
        ),
    ),
    Part("page in a browser (make test-page)", make("test-page"), 2, 2, after=SETUP),
    Part(
        "MongoDB tier (make test-mongo)", make("test-mongo"), 1, 5,
        gate=Gate.MARKED, after=SETUP,
        pulled_by=(
            "controller/reshape_controller/store/", "examples/demo/", "tests/contract/",
            "tests/e2e/", "tests/support/mongo/",
        ),
    ),
    Part(
        "FerretDB tier (make test-ferretdb)", make("test-ferretdb"), 1, 1,
        gate=Gate.MARKED, after=SETUP,
        pulled_by=(
            "controller/reshape_controller/store/", "tests/contract/", "tests/support/ferretdb.py",
        ),
    ),
    Part(
        "instructions of replays and of the command line", python(".ci/instructions.py"), 1, 1,
        after=SETUP,
    ),
    Part("40 random faults (make chaos)", ("make", "chaos", "FAULTS=40"), 2, 2, after=SETUP),
    Part("wheel in empty environments", python("tests/wheel/check.py"), 1, 1, after=SETUP),
    Part(
        PREPARED, python("-m", "tests.kubernetes.grounds", "prepare"),
        after=NODES, beside=True, kubernetes=True,
    ),
    Part(
        "Kubernetes tier (make kubernetes)", make("kubernetes"), 4, 19,
        gate=Gate.MARKED, after=PREPARED, kubernetes=True,
        pulled_by=(
            "deploy/", "launcher/reshape_launcher/kubernetes/", "playbooks/", "tests/kubernetes/",
        ),
    ),
)  # fmt: skip
"""In the order in which they run."""

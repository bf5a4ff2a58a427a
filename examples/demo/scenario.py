"""The runs of the demo: two jobs, four simulated GPUs, four presets, two cost sets. Values only.

It follows the paper's case study (section II.C, Table I) at a tenth of its times. What is the
paper's, what is ours and why is told in docs/getting-started.md. No figure here was chosen for the
order in which the presets come out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reshape_profiles.loader import bundled

HERE = Path(__file__).parent
PIPE_COLUMNS = 100
"""The width of what is printed where the output is no terminal."""
GPUS = 4
RECORDS = {"job-1": HERE / "job-1.yaml", "job-2": HERE / "job-2.yaml"}
SUBMIT_AT_S = {"job-1": 0.0, "job-2": 18.0}
"""Seconds since the first submission; the paper's 180 s at a tenth."""
DEVICE_TRUTH = HERE / "device_truth.json"


@dataclass(frozen=True, slots=True)
class Preset:
    """One way to run the two jobs. ``flags`` go to ``reshape up``."""

    name: str
    flags: tuple[str, ...]
    text: str


PRESETS = (
    Preset(
        "default",
        ("--preset", "default", "--policy", "default:sizes=largest"),
        "a fixed number of GPUs for each job: Job 2 waits until Job 1 has ended",
    ),
    Preset(
        "case-study-termination",
        ("--preset", "case-study-termination"),
        "shrinks and grows by ending containers and launching others",
    ),
    Preset(
        "termination",
        ("--preset", "termination"),
        "starts small and only grows, by ending containers and launching others",
    ),
    Preset(
        "adaptive",
        ("--preset", "adaptive"),
        "weighs every option; reshapes inside the living container",
    ),
)

COMPARED = ("termination", "adaptive")
"""The presets of a run without an option: ending containers, and reshaping in the living one."""
SETS = {"compared": COMPARED, "all": tuple(preset.name for preset in PRESETS)}


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs of containers. ``measured``: those of this machine, with nothing added."""

    label: str
    flags: tuple[str, ...]
    profile: Path
    """The profile of the jobs' type that the scheduler has before the run."""
    said: dict[str, str | float]
    """Description of the set in the summary."""


COST_SET, COST_SCALE = "paper", 0.1
"""The scale of the submission times."""


def measured() -> Costs:
    """Nothing is added."""
    return Costs("measured", (), HERE / "profile.toml", {})


def assumed() -> Costs:
    """Containers start and stop more slowly, as the paper's set says at the demo's scale."""
    overhead = bundled().with_costs(COST_SET).overhead
    assert overhead is not None
    said: dict[str, str | float] = {
        "set": COST_SET,
        "scale": COST_SCALE,
        "source": overhead.source,
        "container_start_s": overhead.job_init_s * COST_SCALE,
        "container_stop_s": overhead.job_stop_s * COST_SCALE,
    }
    flags = ("--container-costs", f"{COST_SET}:{COST_SCALE}")
    return Costs("assumed", flags, HERE / "profile-paper.toml", said)

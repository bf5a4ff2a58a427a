"""A reshape in the running pod against a restart of the pod, phase by phase.

    make bench-kubernetes            # or: python benchmarks/kubernetes_reshape.py --rounds 5
    python benchmarks/kubernetes_reshape.py --hosts 2

On the test cluster a real TensorFlow job trains on four GPUs. In each round a newcomer takes two of
them and returns them: first in the running pod (preset ``paper``), then by a restart of the pod
(``case-study-termination``, the same policy). Between the two only the controller restarts;
training continues. With ``--hosts 2`` the job has a worker on each of two nodes and eight GPUs; the
newcomer takes two of each node, and a policy that predicts nothing decides. Writes
out/bench/kubernetes.json (kubernetes-hosts-2.json), and prints mean, least and largest seconds of
each phase. Exits with 1 unless playbook, scheduling and container take no time in the running pod,
and the time to the end of the first step beyond save, stop and process start is at most 1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from reshape_gpu import requests
from reshape_gpu.requests import Request

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "examples" / "demo")]

from metrics import STARTS, Reshape, reshapes  # noqa: E402
from observed import Run, read_log  # noqa: E402
from pod_times import PodTimes, PodTimestamps  # noqa: E402
from reshape_phases import REST_MAX_S  # noqa: E402

from reshape_controller.cli.serve.store_settings import store_settings  # noqa: E402
from reshape_controller.http.timeline import Timeline  # noqa: E402
from reshape_gpu import config  # noqa: E402
from reshape_gpu.values import JobView  # noqa: E402
from tests.kubernetes.grounds import grounds  # noqa: E402
from tests.kubernetes.layout import NODES  # noqa: E402
from tests.kubernetes.namespace import namespace  # noqa: E402
from tests.kubernetes.pod_daemon import (  # noqa: E402
    JOB_TYPE,
    SECONDS_PER_STEP,
    PodDaemon,
    cordon,
)
from tests.support import multi_worker  # noqa: E402
from tests.support.daemon_bed import PROGRAM  # noqa: E402
from tests.support.gang_policy import HalveGangs  # noqa: E402

IN_POD, RESTARTED = "in the living pod", "pod restarted"
WAYS = (IN_POD, RESTARTED)
DIRECTIONS = ("down", "up")
ORCHESTRATOR = ("playbook_s", "scheduling_s", "container_s")
"""Phases that only a restarted pod has."""
PHASES = (
    *("save_s", "stop_s", "pod_end_s", *ORCHESTRATOR, "sidecar_ready_s"),
    *("import_s", "build_s", "restore_s", "position_s", "first_step_s", "rest_s", "total_s"),
)
STEPS, BATCH = 4000, 16
"""A single epoch, because TensorFlow stalls between epochs on logical CPU devices."""
LOOP_STEPS = 1_000_000
NEWCOMER = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.05)
"""
"""Program that holds its GPUs until the file ``go`` exists."""
SPAN = {"workers": 2, "span": "any"}


def submit_keras(daemon: PodDaemon, size: int) -> str:
    """Submit a Keras job on one node; return its id."""
    return daemon.submit_keras("job", [size // 2, size], STEPS, batch=BATCH)


def submit_workers(daemon: PodDaemon, size: int) -> str:
    """Submit a job with a worker on each of two nodes; return its id."""
    record = multi_worker.record("job", [size // 2, size], LOOP_STEPS, JOB_TYPE)
    return daemon.submit_record("job", multi_worker.SCRIPT.read_text(), **record)


@dataclass(frozen=True, slots=True)
class Setup:
    """A job that is reshaped on so many nodes, and its daemon."""

    hosts: int
    text: str
    size: int
    """Its largest number of GPUs; the other is half of that."""
    submit: Callable[[PodDaemon, int], str]
    """Submit it; return its id."""
    newcomer: Mapping[str, Any]
    """Fields of the newcomer's record beside its size."""
    words: Mapping[str, tuple[str, ...]]
    """Options of ``reshape up`` for each way."""
    program: str = PROGRAM

    @property
    def name(self) -> str:
        """The name of the file with the figures."""
        return "kubernetes" if self.hosts == 1 else f"kubernetes-hosts-{self.hosts}"


SETUPS = {
    1: Setup(
        1,
        f"LeNet, TensorFlow on CPU, batch {BATCH}, 4 to 2 to 4 simulated GPUs",
        4,
        submit_keras,
        {},
        {IN_POD: ("--preset", "paper"), RESTARTED: ("--preset", "case-study-termination")},
    ),
    2: Setup(
        2,
        "a loop under MultiWorkerMirroredStrategy, TensorFlow on CPU, two workers on two nodes, "
        "8 to 4 to 8 simulated GPUs",
        8,
        submit_workers,
        SPAN,
        {
            IN_POD: ("--policy", HalveGangs.name, "--mechanism", "sidecar"),
            RESTARTED: ("--policy", HalveGangs.name, "--mechanism", "terminate"),
        },
        "tests.support.gang_policy",
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A reshape. ``rest_s`` is outside all phases: controller, SideCar, verification, messages."""

    way: str
    direction: str
    seconds: dict[str, float]
    load_1m: float


def main() -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5, help="reshapes of each kind")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench")
    parser.add_argument("--overlap", choices=("auto", "off"), default="auto")
    parser.add_argument("--hosts", type=int, choices=tuple(SETUPS), default=1, help="of the job")
    options = parser.parse_args()
    setup = SETUPS[options.hosts]
    rows = measured(setup, options.rounds, options.overlap)
    conditions = {
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "rounds": options.rounds,
        "overlap": options.overlap,
        "load_1m": [min(row.load_1m for row in rows), max(row.load_1m for row in rows)],
        "job": setup.text,
    }
    found = {"conditions": conditions, "rows": [asdict(row) for row in rows], "ratio": ratios(rows)}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{setup.name}.json").write_text(json.dumps(found, indent=2) + "\n")
    print("conditions:", ", ".join(f"{name} {value}" for name, value in conditions.items()))
    print("\n".join(tables(rows)))
    broken = promises_broken(rows)
    print(
        "\n".join(broken) or f"in the pod no orchestrator, and the rest is {REST_MAX_S} s or less"
    )
    return 1 if broken else 0


def measured(setup: Setup, rounds: int, overlap: str) -> list[Row]:
    """Return every reshape of a run."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reshape-bench-")))
        folder.chmod(0o755)
        ground = stack.enter_context(grounds())
        if not ground.own:
            sys.exit("this needs nodes of its own, which it may cordon: unset KUBECONFIG")
        name, shared = f"reshape-bench-{os.getpid()}", folder / "shared"
        space = stack.enter_context(namespace(ground, name, shared))
        for node in NODES[setup.hosts :]:  # so that a newcomer needs a shrink
            cordon(space, node.name, True)
            stack.callback(cordon, space, node.name, False)
        daemon = PodDaemon(folder, space)
        stack.callback(daemon.close)
        pods = stack.enter_context(PodTimes(space))
        return run(setup, daemon, shared, pods, rounds, overlap)


def run(
    setup: Setup, daemon: PodDaemon, shared: Path, pods: PodTimes, rounds: int, overlap: str
) -> list[Row]:
    """Run a job over all rounds, and return its reshapes from its log and its pods.

    ``shared``: the folder of the pods' shared claim. ``overlap``: the daemon's setting; with
    ``off`` no process is prepared while another trains, as on real GPUs.
    """
    pace = {str(size): SECONDS_PER_STEP for size in (setup.size // 2, setup.size)}
    daemon.truth.write_text(json.dumps({"seconds_per_step": {JOB_TYPE: pace}}))
    up = ("--launch-by", "ansible", "--overlap", overlap)
    daemon.up(*up, *setup.words[IN_POD], program=setup.program)
    job = setup.submit(daemon, setup.size)
    daemon.trains(job, setup.size)
    loads: list[float] = []
    for number in range(1, rounds + 1):
        for way in WAYS:
            daemon.stop()
            daemon.up(*up, *setup.words[way], program=setup.program)
            print(f"round {number} of {rounds}: {way}", flush=True)
            loads += there_and_back(setup, daemon, shared, job)
    events = daemon.client().ask(requests.history(job)).events
    timeline = daemon.client().ask(Request("GET", "/v1/timeline", Timeline))
    assert daemon.reshape("cancel", job).returncode == 0
    ended = daemon.wait(job, "is cancelled", state="cancelled", stage="none")
    daemon.nothing_left()
    daemon.stop()
    log = read_log(store_settings(config.load({"home": str(daemon.home)}, {})).make())
    whole = Run("kubernetes", (ended,), events, timeline, (), log.phases, log.processes, {})
    return rows_of(whole, ended, pods.of(job), loads)


def there_and_back(setup: Setup, daemon: PodDaemon, shared: Path, job: str) -> list[float]:
    """Run a newcomer; return the machine's load at both reshapes."""
    go = shared / "code" / "newcomer" / "go"
    go.unlink(missing_ok=True)
    half = setup.size // 2
    newcomer = daemon.submit_program("newcomer", NEWCOMER, [half], 100, **setup.newcomer)
    daemon.trains(job, half)
    loads = [os.getloadavg()[0]]
    go.touch()
    daemon.wait(newcomer, "the newcomer completes", state="completed", stage="none")
    daemon.trains(job, setup.size)
    return [*loads, os.getloadavg()[0]]


def rows_of(
    run: Run, job: JobView, pods: Sequence[PodTimestamps], loads: Iterable[float]
) -> list[Row]:
    """Return each reshape with its phases; pods belong to the reshape that created them."""
    launched = {event.attempt: event.at_s for event in run.of(job) if event.kind == "launched"}
    initialized = {e.attempt: e.at_s for e in run.of(job) if e.kind == "initialized"}
    rows = []
    for reshape, load in zip(reshapes(run), loads, strict=True):
        begin_s = job.submitted_at_s + reshape.at_s
        within = [p for p in pods if begin_s <= p.created_at_s <= begin_s + reshape.total_s]
        seconds = _process(reshape)
        if within:
            (attempt,) = {pod.attempt for pod in within}
            seconds |= _pods(within, launched[attempt], initialized[attempt])
        seconds["rest_s"] = reshape.total_s - sum(seconds.values())
        seconds["total_s"] = reshape.total_s
        way = RESTARTED if within else IN_POD
        rows.append(Row(way, "down" if reshape.down else "up", seconds, load))
    return rows


def _pods(
    pods: Sequence[PodTimestamps], launched_at_s: float, initialized_at_s: float
) -> dict[str, float]:
    """Return the phases in which an attempt waits for its pods; each ends with the last of them."""
    created_at_s = max(pod.created_at_s for pod in pods)
    scheduled_at_s = max(pod.scheduled_at_s for pod in pods)
    # The SideCar may say that it is ready before the node says that its container runs.
    running_at_s = min(max(pod.running_at_s for pod in pods), initialized_at_s)
    return {
        "playbook_s": created_at_s - launched_at_s,
        "scheduling_s": scheduled_at_s - created_at_s,
        "container_s": running_at_s - scheduled_at_s,
        "sidecar_ready_s": initialized_at_s - running_at_s,
    }


def _process(reshape: Reshape) -> dict[str, float]:
    """Return the phases that SideCar and controller measured; those of a missing pod are 0."""
    seconds = dict.fromkeys(PHASES[:-2], 0.0)
    for name in ("save_s", "stop_s", *STARTS):
        seconds[name] = getattr(reshape, name) or 0.0
    seconds["pod_end_s"] = reshape.container_stop_s or 0.0
    return seconds


def shares(rows: Sequence[Row], way: str, direction: str, phase: str) -> list[float]:
    """Return a phase of each reshape relative to the restart of its round and direction."""
    mine = [row for row in rows if row.direction == direction]
    pairs = zip(_of(mine, way), _of(mine, RESTARTED), strict=True)
    return [row.seconds[phase] / restarted.seconds["total_s"] for row, restarted in pairs]


def ratios(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return reshape over restart times: mean, least and largest."""
    found = {}
    for direction in DIRECTIONS:
        each = shares(rows, IN_POD, direction, "total_s")
        found[direction] = {"mean": mean(each), "least": min(each), "most": max(each)}
    return found


def _of(rows: Iterable[Row], way: str) -> list[Row]:
    return [row for row in rows if row.way == way]


def tables(rows: Sequence[Row]) -> Iterable[str]:
    """Yield Markdown tables of the phases, in seconds and then relative to a restart."""

    def seconds(way: str, direction: str, phase: str) -> list[float]:
        return [row.seconds[phase] for row in _of(rows, way) if row.direction == direction]

    def of_restart(way: str, direction: str, phase: str) -> list[float]:
        return shares(rows, way, direction, phase)

    columns = [(direction, way) for direction in DIRECTIONS for way in WAYS]
    for title, values in (("seconds", seconds), ("share of a restart", of_restart)):
        yield f"| {title} | " + " | ".join(f"{d}, {way}" for d, way in columns) + " |"
        yield "|---" * (len(columns) + 1) + "|"
        for phase in PHASES:
            cells = [_spread(values(way, direction, phase)) for direction, way in columns]
            yield f"| {phase.removesuffix('_s').replace('_', ' ')} | " + " | ".join(cells) + " |"
        yield ""


def _spread(values: Sequence[float]) -> str:
    if not any(values):
        return "0"
    return f"{mean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def promises_broken(rows: Sequence[Row]) -> list[str]:
    """Return the failed checks; empty if all hold."""
    broken = []
    for number, row in enumerate(rows):
        expected = WAYS[number // 2 % len(WAYS)]
        if row.way != expected:
            broken.append(f"reshape {number + 1} was to be {expected}, and is: {row.way}")
        elif row.way == IN_POD:
            orchestrator_s = sum(row.seconds[phase] for phase in ORCHESTRATOR)
            if orchestrator_s or row.seconds["rest_s"] > REST_MAX_S:
                rest_s = row.seconds["rest_s"]
                said = f"orchestrator {orchestrator_s:.2f} s, rest {rest_s:.2f} s"
                broken.append(f"reshape {number + 1}, {row.direction}: {said}")
    return broken


if __name__ == "__main__":
    sys.exit(main())

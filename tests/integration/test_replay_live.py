"""``profile costs`` and ``replay --live``: a daemon of the command's own, real processes.

What the errors are is not tested: that is a figure of a machine (docs/replay.md has ours).
"""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from reshape_profiles import files
from tests.support import processes
from tests.support.daemon_bed import Bed, eventually
from tests.support.daemon_bed import bed as make_bed

LIVE = ("--workload", "trace.csv", "--cluster", "4xV100", "--repeats", "1", "--speed-up", "100")
TRACE = """submit_s,job_type,steps,optional_gpus,name
0,resnet18-b256-imagenet,1500,2 4,first
120,resnet8-b1024-cifar10,300,2,second
"""
COSTS = {
    "costs": {
        "guess": {
            "job_init_s": 0.5,
            "process_init_s": 0.3,
            "checkpoint_s": 0.1,
            "process_stop_s": 0.1,
            "job_stop_s": 0.5,
        }
    }
}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    for made in make_bed(tmp_path):
        (made.folder / "trace.csv").write_text(TRACE)
        (made.folder / "costs.json").write_text(json.dumps(COSTS))
        yield made


def test_costs_are_measured_by_reshapes_and_say_where_they_are_from(bed: Bed) -> None:
    done = bed.reshape("profile", "costs", "--rounds", "1", "--out", "mine.json", "--set", "here")
    assert done.returncode == 0, done.stderr
    document = json.loads((bed.folder / "mine.json").read_text())
    ((name, overhead),) = files.load(bed.folder / "mine.json").bundle.costs
    assert name == "here"
    assert overhead.job_init_s > 0.0
    assert overhead.process_init_s > 0.0
    assert "without TensorFlow" in overhead.source
    assert len(document["provenance"]["samples_s"]["checkpoint_s"]) == 2
    again = bed.reshape("profile", "costs", "--out", "mine.json")
    assert again.returncode == 2
    assert "the file exists already" in again.stderr


def test_a_workload_is_replayed_and_lived_through_with_inputs_that_were_frozen(bed: Bed) -> None:
    words = ("replay", *LIVE, "--costs", "costs.json", "--live", "live", "-o", "json")
    done = bed.reshape(*words)
    assert done.returncode == 0 or "steps were late" in done.stderr, done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((bed.folder / "live" / "report.json").read_text())
    assert report["costs"] == "guess of costs.json"
    assert "without TensorFlow" in report["program"]
    (run,) = report["runs"]
    assert [job["job"] for job in run["jobs"]] == ["first", "second"]
    assert run["live_makespan_s"] > 0.0
    by_phase = {phase["phase"]: phase for phase in report["phases"]}
    assert {"initializing", "starting", "training"} <= by_phase.keys()
    for world in ("live_s", "replay_s"):
        mean_s = sum(job[world.replace("_s", "_jct_s")] for job in run["jobs"]) / 2
        assert sum(phase[world] for phase in by_phase.values()) == pytest.approx(mean_s, abs=0.5)
    inputs = bed.folder / "live" / "inputs"
    for name, mark in report["inputs"].items():
        assert hashlib.sha256((inputs / name).read_bytes()).hexdigest() == mark, name
    assert {
        "workload.jsonl",
        "profiles.json",
        "device-truth.json",
        "costs.json",
        "record.json",
    } <= set(report["inputs"])
    mark = str(bed.folder / "live")
    eventually(lambda: not any(processes.naming(mark)), text="nothing of the run is left")
    again = bed.reshape(*words)
    assert again.returncode == 2
    assert "not empty" in again.stderr


def test_nothing_that_decides_is_told_the_truth_that_paces_the_run(bed: Bed) -> None:
    done = bed.reshape("replay", *LIVE, "--costs", "costs.json", "--live", "live", "--seed", "5")
    assert done.returncode == 0 or "steps were late" in done.stderr, done.stderr
    inputs = bed.folder / "live" / "inputs"
    truth = json.loads((inputs / "device-truth.json").read_text())["seconds_per_step"]
    believed = files.load(inputs / "profiles.json").bundle.of("resnet18-b256-imagenet")
    assert believed is not None
    by_size = {point.gpus: point.seconds_per_step for point in believed.speed}
    ratios = {truth["first"][str(size)] / by_size[size] for size in (2, 4)}
    assert len({round(ratio, 6) for ratio in ratios}) == 1
    assert 0.85 <= ratios.pop() <= 1.15
    assert truth["first"]["4"] != by_size[4]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--costs", "paper"), "profile costs"),
        (("--costs", "costs.json", "--cluster", "4xV100+4xP100"), "one host"),
        (("--costs", "costs.json", "--workload", "four", "--jobs", "2"), "target accuracy"),
        (("--costs", "costs.json", "--speed-up", "0"), "speed-up"),
    ],
)
def test_what_cannot_be_run_live_is_refused_before_anything_starts(
    bed: Bed, words: tuple[str, ...], what: str
) -> None:
    usual = LIVE[2:] if "--workload" in words else LIVE
    done = bed.reshape("replay", *usual, *words, "--live", "live")
    assert done.returncode == 2
    assert what in done.stderr
    assert not (bed.folder / "live" / "run-1").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_the_daemon_and_the_jobs_of_a_live_run(
    bed: Bed, number: signal.Signals
) -> None:
    run = bed.folder / "live" / "run-1" / "home"
    with bed.start("replay", *LIVE, "--costs", "costs.json", "--live", "live") as process:
        agents = f"{run}/jobs/"
        eventually(lambda: list(processes.naming(agents)), text="a job has a container")
        process.send_signal(number)
        killed = number is signal.SIGKILL
        assert process.wait(90) == (-number if killed else 128 + number)
    eventually(lambda: not list(processes.naming(str(run))), text="it has ended", least_s=60.0)

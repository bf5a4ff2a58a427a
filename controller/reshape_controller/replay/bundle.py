"""The folder of a comparison: everything that checks or shows a result.

Does: write configuration, trace, per-job table, events, decisions, course and figures of a workload
beside the replays that ``sweep`` stores there. It replays only the seed whose course is drawn.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

from reshape_controller.core.explanation import explain_json
from reshape_controller.core.model import JobId
from reshape_controller.core.record import LogRecord
from reshape_controller.replay import figures, row_files
from reshape_controller.replay.figure_styles import labels_in_figures
from reshape_controller.replay.paper import WORKLOADS
from reshape_controller.replay.profile_figures import figure_2
from reshape_controller.replay.report import table_8
from reshape_controller.replay.rows import Interval
from reshape_controller.replay.setup import Contender, Setup, code_mark
from reshape_controller.replay.shell import Result, replay
from reshape_controller.replay.sweep import Run
from reshape_controller.replay.traces import csv_text
from reshape_sidecar import codec

PACKAGES = ("reshape-gpu", "numpy", "scipy", "matplotlib")
FILES = (
    *("config.json", "summary.json", "jobs.csv", "events.csv", "trace.csv", "report.md"),
    *("jobs.parquet", "events.parquet"),
    *("sensitivity.json", "sensitivity.md"),
)
"""Names of the files that the commands write beside the folders."""
OF_FIRST_SEED = ("events", "decisions", "course", "log")


def versions() -> dict[str, str]:
    """Return the versions of the programs that made the bundle."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def configuration(
    setup: Setup, contenders: Sequence[Contender], seeds: Sequence[int]
) -> dict[str, object]:
    """Return everything that determines the results."""
    return {
        "workload": setup.name,
        "cluster": setup.cluster.text,
        "costs": {"set": setup.costs.name, **asdict(setup.costs.overhead)},
        "sizes": list(setup.sizes),
        "jobs": setup.jobs,
        "last_submission_s": setup.last_s,
        "load": setup.load,
        "speed_spread": setup.spread,
        "device_truth": setup.device is not None,
        "policies": {one.label: f"{one.policy.name}+{one.mechanism.value}" for one in contenders},
        "seeds": list(seeds),
        "inputs": setup.fingerprint(),
        "code": code_mark(),
        "versions": versions(),
    }


def write(
    folder: Path,
    setup: Setup,
    contenders: Sequence[Contender],
    runs: Sequence[Run],
    summary: Mapping[str, Mapping[str, Interval]],
    document: str,
    *,
    parquet: bool = False,
) -> dict[str, Result]:
    """Write the bundle; return the drawn replays of its first seed, with their course.

    ``document``: the text of ``summary.json``; ``parquet``: also write jobs and events as Parquet.
    Raises OSError, NoMatplotlib, NoPyarrow.
    """
    seeds = list(dict.fromkeys(int(str(run.row["seed"])) for run in runs))
    folder.mkdir(parents=True, exist_ok=True)
    for place in (folder, *(folder / name for name in WORKLOADS)):
        clear(place)
    config = configuration(setup, contenders, seeds)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / "summary.json").write_text(document, encoding="utf-8")
    jobs = [job for run in runs for job in run.jobs]
    scene = setup.scene(seeds[0])
    (folder / "trace.csv").write_text(csv_text(scene.workload), encoding="utf-8")
    labels = labels_in_figures([one.label for one in contenders])
    events: list[dict[str, object]] = []
    shown: dict[str, Result] = {}
    for chosen in contenders:
        result = replay(scene, chosen.policy, chosen.mechanism, seed=seeds[0], keep=True)
        write_course(folder, chosen.label, result)
        events += row_files.event_rows(chosen.label, result)
        if chosen.label in labels:
            shown[chosen.label] = result
    for name, rows in (("jobs", jobs), ("events", events)):
        row_files.write_csv(folder / f"{name}.csv", rows)
        if parquet:
            row_files.write_parquet(folder / f"{name}.parquet", rows)
    times = completion_times(runs)
    pictures = folder / "figures"
    types = dict.fromkeys(host.gpu_type for host in scene.cluster.hosts)
    figure_2(pictures / "figure-02", setup.bundle.profiles, types)
    figures.figure_6(pictures / "figure-06", {setup.name: summary})
    figures.figure_7(pictures / "figure-07", shown)
    figures.figure_8(pictures / "figure-08", shown)
    figures.figure_9(pictures / "figure-09", {setup.name: times})
    figures.figure_10(pictures / "figure-10", shown)
    figures.figure_11(pictures / "figure-11", shown)
    head, lines = table_8({setup.name: summary})
    figures.table_8(pictures / "table-08", lines, head)
    return shown


def clear(folder: Path) -> None:
    """Remove the files of an earlier command with other inputs. Raises OSError.

    The replays stay, for each names its inputs.
    """
    for name in FILES:
        (folder / name).unlink(missing_ok=True)
    kinds = [(kind, "*.jsonl") for kind in OF_FIRST_SEED]
    for kind, pattern in (*kinds, ("figures", "figure-??.*"), ("figures", "table-08.*")):
        for path in (folder / kind).glob(pattern):
            path.unlink()
        with contextlib.suppress(OSError):
            (folder / kind).rmdir()  # only if it is empty


def completion_times(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Return the completion times of all jobs of all seeds, by policy in the figures."""
    labels = labels_in_figures(list(dict.fromkeys(str(run.row["policy"]) for run in runs)))
    found: dict[str, list[float]] = {label: [] for label in labels}
    for run in runs:
        label = str(run.row["policy"])
        if label in found:
            found[label] += [float(str(job["jct_s"])) for job in run.jobs]
    return found


def records(label: str, result: Result) -> list[LogRecord]:
    """Return the replay as a daemon's log has it, but for the digests."""
    return [
        LogRecord(seq, 1, "replay", label, one.at_s, one.events, one.plans, one.commands, "")
        for seq, one in enumerate(result.rounds, 1)
    ]


def write_course(folder: Path, label: str, result: Result) -> None:
    """Write events, decisions in the form of ``explain``, the course of the queue, and the log,
    which ``reshape show`` opens."""
    names = {JobId(str(job.job)): str(job.job) for job in result.jobs}
    texts = (
        [codec.dumps(entry) for entry in result.events],
        [
            explain_json(one.plan, at_s=one.at_s, policy=label, names=names)
            for one in result.decisions
        ],
        [codec.dumps(moment) for moment in result.course],
        [codec.dumps(record) for record in records(label, result)],
    )
    for kind, lines in zip(OF_FIRST_SEED, texts, strict=True):
        path = folder / kind / f"{label}-{result.seed}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

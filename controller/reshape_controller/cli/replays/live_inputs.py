"""Inputs of a live replay, written to files before anything runs.

Does: write workload, profiles, true speeds, costs and program of a scaled scene to files, hash
them, and read them back, so that replay and controller have the same inputs. The files are
write-protected, and their hashes are checked again at the end. State: the folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.profiles.costs import record_of
from reshape_controller.core.profile_book import ProfileBook
from reshape_controller.records import RecordInvalid, parse_record
from reshape_controller.replay.inputs import Costs, WorkJob
from reshape_controller.replay.shell import Scene
from reshape_controller.replay.time_scaling import ScaledScene, scale_scene
from reshape_controller.replay.traces import jsonl_text, parse
from reshape_profiles import files, loader
from reshape_profiles.schema import DEFAULT_TYPE, Profile
from reshape_sidecar import device_truth, foreign

REPORT_EVERY_S = 1.0
"""Interval of progress reports of hooked programs."""
WORKLOAD, PROFILES, TRUTH = "workload.jsonl", "profiles.json", "device-truth.json"
COSTS, RECORD = "costs.json", "record.json"


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The speed-up over the workload, and the seconds of the fastest step of each job type."""

    speed_up: float
    step_s: float


@dataclass(frozen=True, slots=True)
class FrozenInputs:
    """The inputs of a live replay. ``scene`` is the input of the replay."""

    folder: Path
    scene: Scene
    record: Mapping[str, Any]
    """Fields in the record of every job."""
    hashes: Mapping[str, str]

    def check(self) -> None:
        """Check that no file has changed. Raises CliError."""
        now = _hashes(self.folder)
        changed = [name for name in now if now[name] != self.hashes.get(name)]
        if changed:
            what = f"{', '.join(changed)} changed during the run"
            raise failed(
                Exit.FAILED, what, str(self.folder), "the results are not valid: run it again"
            )


def freeze(folder: Path, scene: Scene, pace: TimeScale, file: str | None) -> FrozenInputs:
    """Write the inputs into the new ``folder``, and return them.

    ``file``: the record of a program to run instead of the paced program. Raises CliError,
    ReplayError, OSError.
    """
    found = scale_scene(scene, pace.speed_up, pace.step_s)
    for job in found.workload.jobs:
        _can_be_submitted(job)
    record = record_of(file, folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    _write(folder, found, scene.costs)
    for path in _files(folder):
        path.chmod(0o444)
    return FrozenInputs(folder, _read(folder, scene), record, _hashes(folder))


def fields_of(job: WorkJob) -> dict[str, Any]:
    """Return the fields of a record that differ between jobs."""
    spec = job.spec
    assert spec.length is not None
    fields: dict[str, Any] = {
        "name": spec.name,
        "optional_gpus": list(spec.optional_gpus),
        "steps": int(spec.length.value),
        "job_type": spec.job_type,
        "global_batch": spec.global_batch,
        "user": spec.user or None,
        "priority": spec.priority or None,
        "max_wait_s": spec.max_wait_s,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _can_be_submitted(job: WorkJob) -> None:
    """Check that a job of a trace is valid as a record. Raises CliError.

    The controller would reject it only at its submission, hours into the run.
    """
    try:
        parse_record({**fields_of(job), "command": ["train"]})
    except RecordInvalid as error:
        first = error.errors[0]
        raise failed(Exit.USAGE, first.summary, f"job {job.spec.name}", first.hint) from None


def _write(folder: Path, found: ScaledScene, costs: Costs) -> None:
    believed = (
        *found.profiles,
        Profile(DEFAULT_TYPE, f"costs: {costs.name}", overhead=costs.overhead),
    )
    truth = {"seconds_per_step": found.device.seconds_per_step}
    texts = {
        WORKLOAD: jsonl_text(found.workload),
        PROFILES: loader.write(believed),
        TRUTH: json.dumps(truth, indent=2) + "\n",
        COSTS: json.dumps({"costs": {costs.name: asdict(costs.overhead)}}, indent=2) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _read(folder: Path, scene: Scene) -> Scene:
    """Return the scene of the files."""
    profiles = tuple(
        p for p in files.load(folder / PROFILES).bundle.profiles if p.job_type != DEFAULT_TYPE
    )
    ((name, overhead),) = files.load(folder / COSTS).bundle.costs
    text = foreign.read_text(folder / WORKLOAD, foreign.INPUT_BYTES_MAX)
    kinds = [profile.job_type for profile in profiles]
    return replace(
        scene,
        workload=parse(text, scene.workload.name, kinds, jsonl=True),
        profiles=profiles,
        costs=Costs(name, overhead),
        truth=replace(
            scene.truth,
            book=ProfileBook({profile.job_type: profile for profile in profiles}),
            device=device_truth.load(folder / TRUTH),
        ),
        report_every_s=REPORT_EVERY_S,
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _hashes(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): foreign.sha256(path) for path in _files(folder)}

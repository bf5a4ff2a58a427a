"""What a live replay is given, written down before anything runs.

Does: writes workload, believed speeds, true speeds, costs and program of a scaled scene to files,
hashes them, and reads them back: replay and controller are both given what the files say. Never:
changes them afterwards: they are write-protected, and their hashes are looked at again at the end.
State: the folder.
"""

from __future__ import annotations

import hashlib
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
from reshape_controller.replay.time_scaling import Scaled, scaled
from reshape_controller.replay.traces import jsonl_text, parse
from reshape_profiles import files, loader
from reshape_profiles.schema import DEFAULT_TYPE, Profile
from reshape_sidecar import device_truth

REPORT_EVERY_S = 1.0
"""SideCars of hooked programs tell progress once a second."""
WORKLOAD, PROFILES, TRUTH = "workload.jsonl", "profiles.json", "device-truth.json"
COSTS, RECORD = "costs.json", "record.json"


@dataclass(frozen=True, slots=True)
class Pace:
    """So many times as fast as the workload; seconds of the fastest step of each job type."""

    speed_up: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Frozen:
    """The inputs of a live replay. ``scene`` is what the replay is given."""

    folder: Path
    scene: Scene
    record: Mapping[str, Any]
    """Fields that the record of every job has."""
    hashes: Mapping[str, str]

    def check(self) -> None:
        """Raises CliError when a file is not what it was."""
        now = _hashes(self.folder)
        changed = [name for name in now if now[name] != self.hashes.get(name)]
        if changed:
            what = f"{', '.join(changed)} changed during the run"
            raise failed(
                Exit.FAILED, what, str(self.folder), "the results are not valid: run it again"
            )


def freeze(folder: Path, scene: Scene, pace: Pace, file: str | None) -> Frozen:
    """Write the inputs into ``folder``, which is new. ``file``: the record of a program to run
    instead of the paced one. Raises CliError, ReplayError, OSError."""
    found = scaled(scene, pace.speed_up, pace.step_s)
    for job in found.workload.jobs:
        _can_be_submitted(job)
    record = record_of(file, folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    _write(folder, found, scene.costs)
    for path in _files(folder):
        path.chmod(0o444)
    return Frozen(folder, _read(folder, scene), record, _hashes(folder))


def fields_of(job: WorkJob) -> dict[str, Any]:
    """What a job's record says of it alone."""
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
    """A trace may call its jobs as no record can. The controller would say so when the job comes,
    and end a run of hours. Raises CliError."""
    try:
        parse_record({**fields_of(job), "command": ["train"]})
    except RecordInvalid as error:
        first = error.errors[0]
        raise failed(Exit.USAGE, first.told, f"job {job.spec.name}", first.hint) from None


def _write(folder: Path, found: Scaled, costs: Costs) -> None:
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
    """The scene that the files describe."""
    profiles = tuple(
        p for p in files.load(folder / PROFILES).bundle.profiles if p.job_type != DEFAULT_TYPE
    )
    ((name, overhead),) = files.load(folder / COSTS).bundle.costs
    text = (folder / WORKLOAD).read_text(encoding="utf-8")
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
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in _files(folder)
    }

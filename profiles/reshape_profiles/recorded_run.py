"""A training script run from its start to its end, with or without stops, as a recording.

Does: start the script as a SideCar does, in a copy of its folder, start it again after each stop,
and read what the hook or the session API recorded. It leaves no processes behind.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reshape_profiles.hook_reports import listening
from reshape_profiles.training_run import (
    SOCKET,
    RunFailed,
    Script,
    remedy,
    started,
    tail,
    terminated,
)
from reshape_sidecar.contract import (
    ENV_FIRST_GPUS,
    ENV_RECORDING,
    ENV_REPORT_LEVEL,
    ENV_STOP_AFTER,
    HookReport,
)
from reshape_sidecar.wire import EXIT_SAVED, WIRE_LEVEL, Proof

POLL_S = 0.05
CODE_BYTES_MAX = 2 * 1024**3
IGNORED = ("__pycache__", ".git", ".venv", "node_modules", "lightning_logs")
"""Folders that are neither copied nor compared: Lightning's loggers begin one at each start."""
UNNAMED_FILES = ("events.out.tfevents",)
"""Files whose names hold the time and the process."""

Say = Callable[[int], None]
"""Called with the newest step."""


@dataclass(frozen=True, slots=True)
class Leg:
    """One process of a run: its devices, and the step after which it stops by itself."""

    devices: tuple[str, ...]
    stop_after: int | None = None
    first_devices: int | None = None
    """Number of devices with which training began; None: as many as those of the first process."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A whole run."""

    steps: tuple[tuple[int, dict[str, Any]], ...]
    """Each step in the order in which it was trained, with its values (hexadecimal floats)."""
    ends: tuple[tuple[str, Any], ...]
    """Names and values of Histories and attributes of callbacks at the end of each ``fit``."""
    files: dict[str, str]
    """Digests of the files that the run wrote or changed, by name below the code folder."""
    exit_code: int
    stops: tuple[int, ...]
    """Steps after which a process left."""
    verdict: str | None
    """Verdict of the hook; None without a report."""
    reason: str | None
    output: str
    """End of the script's output."""
    weights: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """After each step, by name: digest, norm and some numbers of each tensor of the model."""
    proofs: tuple[Proof, ...] = ()
    """What the first step after each stop has shown."""


def run(
    script: Script, legs: Sequence[Leg], folder: Path, say: Say = lambda step: None
) -> Recorded:
    """Run the script in ``folder``, which is empty. Raises RunFailed."""
    code, recording = folder / "code", folder / "recording.jsonl"
    before = copied(script.folder, code)
    recording.touch()
    stops: list[int] = []
    with listening(folder / SOCKET) as reports:
        for leg in legs:
            exit_code = _leg(script, leg, folder, say)
            if exit_code != EXIT_SAVED:
                break
            stops.append(_newest_step(recording))
        else:
            what = "the last run saved and stopped although nothing asked it to"
            raise RunFailed(f"{what}.{tail(folder / 'log')}")
    lines = [json.loads(line) for line in recording.read_text("utf-8").splitlines()]
    steps = tuple((line["step"], line["logs"]) for line in lines if "step" in line)
    if not steps:
        raise RunFailed(
            f"the script recorded no step (exit code {exit_code}).{tail(folder / 'log')}",
            remedy(script, reports),
        )
    verdict, reason = _verdict(reports)
    return Recorded(
        steps=steps,
        ends=tuple(_ends(lines)),
        files=changed(code, before),
        exit_code=exit_code,
        stops=tuple(stops),
        verdict=verdict,
        reason=reason,
        output=tail(folder / "log"),
        proofs=_proofs(reports),
        weights={line["weights_after"]: line["weights"] for line in lines if "weights" in line},
    )


def _leg(script: Script, leg: Leg, folder: Path, say: Say) -> int:
    """Run one process to its end; return its exit code. Raises RunFailed."""
    recording = folder / "recording.jsonl"
    extra = {ENV_RECORDING: str(recording), ENV_REPORT_LEVEL: str(WIRE_LEVEL)}
    if leg.stop_after is not None:
        extra[ENV_STOP_AFTER] = str(leg.stop_after)
    if leg.first_devices is not None:
        extra[ENV_FIRST_GPUS] = str(leg.first_devices)
    deadline = time.monotonic() + script.timeout_s
    with (folder / "log").open("ab") as log:
        process = started(script, leg.devices, folder, log, code=folder / "code", extra=extra)
        with terminated(process):
            while (code := process.poll()) is None:
                if time.monotonic() > deadline:
                    raise RunFailed(
                        f"the script did not end within {script.timeout_s:g} s."
                        f"{tail(folder / 'log')}",
                        "give a longer --timeout-s or fewer --steps",
                    )
                say(_newest_step(recording))
                time.sleep(POLL_S)
    return code


def _newest_step(recording: Path) -> int:
    """Return the last recorded step; 0 if there is none."""
    with recording.open("rb") as file:
        file.seek(max(0, recording.stat().st_size - 64 * 1024))
        lines = file.read().splitlines()
    for line in reversed(lines):
        try:
            value = json.loads(line)
        except ValueError:  # a line that is cut or still being written
            continue
        if "step" in value:
            return int(value["step"])
    return 0


def _ends(lines: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for line in lines:
        if "history" in line:
            found += [
                (f"History of fit {line['fit'] + 1}: {name}", values)
                for name, values in (line["history"] or {}).items()
            ]
        elif "callback" in line:
            found += [
                (f"{line['callback']}.{name} after fit {line['fit'] + 1}", value)
                for name, value in line["attributes"].items()
            ]
    return found


def _verdict(reports: Sequence[HookReport]) -> tuple[str | None, str | None]:
    for report in reversed(reports):
        if report.progress.trajectory is not None:
            return str(report.progress.trajectory), report.progress.trajectory_reason
    return None, None


def _proofs(reports: Sequence[HookReport]) -> tuple[Proof, ...]:
    found = (report.progress.proof for report in reports)
    return tuple(dict.fromkeys(proof for proof in found if proof is not None))


def copied(source: Path, target: Path) -> dict[str, str]:
    """Copy a code folder; return the digests of its files. Raises RunFailed."""
    size = sum(path.stat().st_size for path in _files(source))
    if size > CODE_BYTES_MAX:
        raise RunFailed(
            f"{source} has {size / 1024**3:.1f} GiB, and each run gets a copy of it",
            "move data out of the code folder, and name their folder in `dataset`",
        )
    shutil.copytree(source, target, symlinks=True, ignore=shutil.ignore_patterns(*IGNORED))
    return digests(target)


def changed(code: Path, before: dict[str, str]) -> dict[str, str]:
    """Return the digests of the files that are new or differ from ``before``."""
    return {name: text for name, text in digests(code).items() if before.get(name) != text}


def digests(code: Path) -> dict[str, str]:
    """Return the digest of each file below a folder whose name does not depend on time."""
    return {
        str(path.relative_to(code)): hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in _files(code)
        if not path.name.startswith(UNNAMED_FILES)
    }


def _files(folder: Path) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sorted(p for p in paths if not set(p.relative_to(folder).parts) & set(IGNORED))

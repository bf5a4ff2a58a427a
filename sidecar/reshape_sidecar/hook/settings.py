"""The settings that the agent passes to a training process in its environment, parsed once.

Does: turns the RESHAPE_* variables into one frozen value; a wrong value is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from reshape_sidecar import contract
from reshape_sidecar.hook.target import Target


class SettingsError(ValueError):
    """A RESHAPE_* variable has an invalid value; the message names it and the remedy."""


class ProofMode(StrEnum):
    """Whether the first step after a restart is compared with that of the process before."""

    REPORT = "report"
    STOP = "stop"
    """A difference ends the process before its second step."""
    OFF = "off"


@dataclass(frozen=True, slots=True)
class HookSettings:
    """The environment of one start; None means that the variable is not set."""

    job: str = ""
    name: str = ""
    attempt: int = 0
    generation: int = 0
    devices: tuple[str, ...] = ()
    simulated: bool = False
    device_truth: Path | None = None
    job_type: str | None = None
    checkpoints: Path | None = None
    socket: Path | None = None
    keep_running: Path | None = None
    epochs: int | None = None
    steps: int | None = None
    seed: int | None = None
    spawned_at_s: float | None = None
    worker: int = 0
    workers: int = 1
    meeting: Path | None = None
    rank: int = 0
    ranks: int = 1
    rank_page: Path | None = None
    """File that the ranks of this container share; None: there is one process."""
    report_level: int = 1
    hashed_generation: int | None = None
    target: Target | None = None
    first_gpus: int | None = None
    """GPUs of the job's first start; None: a checkpoint says so, or this is the first."""
    sizes: tuple[int, ...] = ()
    """Numbers of GPUs on which the job may be; empty: not known."""
    micro_batches: int | None = None
    """Micro-batches of a step under ``batch: micro``; None: each GPU has its part of the batch."""
    proof: ProofMode = ProofMode.REPORT
    save_deadline_s: float | None = None
    """Seconds that a request to save and leave gives; None: not known."""
    standby_fd: int | None = None
    """Descriptor on which a successor waits for its release; it has no generation before that."""

    @property
    def gpus(self) -> int:
        """GPUs, or simulated ones, of this start; 1 without Reshape."""
        return max(1, len(self.devices))

    @property
    def chief(self) -> bool:
        """Whether this process alone publishes checkpoints: rank 0 of the first worker."""
        return self.worker == 0 and self.rank == 0

    @property
    def hashed(self) -> tuple[int, int] | None:
        """Attempt and generation of the process whose checkpoints need no second hash."""
        generation = self.hashed_generation
        return None if generation is None else (self.attempt, generation)


def from_environment(environment: Mapping[str, str]) -> HookSettings | None:
    """Return the settings in ``environment``; None if it holds no RESHAPE_* variable at all.

    Raises SettingsError for an invalid value.
    """
    if not any(name.startswith("RESHAPE_") for name in environment):
        return None

    def text(name: str) -> str | None:
        return environment.get(name) or None

    def path(name: str) -> Path | None:
        value = text(name)
        return Path(value) if value else None

    def whole(name: str, least: int) -> int | None:
        value = text(name)
        if value is None:
            return None
        if not value.isascii() or not value.isdigit() or int(value) < least:
            raise SettingsError(
                f"{name}={value!r} is not a whole number of {least} or more. It is set by the "
                "agent; unset it when you start the script by hand."
            )
        return int(value)

    devices = text(contract.ENV_DEVICES) or ""
    sizes = text(contract.ENV_SIZES) or ""
    standby_fd = whole(contract.ENV_STANDBY_FD, 3)
    return HookSettings(
        job=text(contract.ENV_JOB) or "",
        name=text(contract.ENV_NAME) or text(contract.ENV_JOB) or "",
        attempt=whole(contract.ENV_ATTEMPT, 0) or 0,
        generation=0 if standby_fd is not None else whole(contract.ENV_GENERATION, 0) or 0,
        devices=tuple(name for name in devices.split(",") if name),
        simulated=text(contract.ENV_DEVICE_MODE) == "simulated",
        device_truth=path(contract.ENV_DEVICE_TRUTH),
        job_type=text(contract.ENV_JOB_TYPE),
        checkpoints=path(contract.ENV_CHECKPOINTS),
        socket=path(contract.ENV_SOCKET),
        keep_running=path(contract.ENV_KEEP_RUNNING),
        epochs=whole(contract.ENV_EPOCHS, 1),
        steps=whole(contract.ENV_STEPS, 1),
        seed=whole(contract.ENV_SEED, 0),
        spawned_at_s=_seconds(environment, contract.ENV_SPAWNED_AT_S),
        worker=whole(contract.ENV_WORKER, 0) or 0,
        workers=whole(contract.ENV_WORKERS, 1) or 1,
        meeting=path(contract.ENV_MEETING),
        rank=whole(contract.ENV_RANK, 0) or 0,
        ranks=whole(contract.ENV_RANKS, 1) or 1,
        rank_page=path(contract.ENV_RANK_PAGE),
        report_level=whole(contract.ENV_REPORT_LEVEL, 1) or 1,
        hashed_generation=whole(contract.ENV_HASHED_GENERATION, 1),
        target=_target(
            text(contract.ENV_TARGET_ACCURACY),
            text(contract.ENV_METRIC),
            whole(contract.ENV_EPOCHS_IN_A_ROW, 1) or 1,
        ),
        first_gpus=whole(contract.ENV_FIRST_GPUS, 1),
        micro_batches=whole(contract.ENV_MICRO_BATCHES, 1),
        sizes=tuple(int(size) for size in sizes.split(",") if size.isdecimal()),
        proof=_proof_mode(text(contract.ENV_PROOF)),
        save_deadline_s=_seconds(environment, contract.ENV_SAVE_DEADLINE_S),
        standby_fd=standby_fd,
    )


def _seconds(environment: Mapping[str, str], name: str) -> float | None:
    value = environment.get(name)
    try:
        return float(value) if value else None
    except ValueError:
        raise SettingsError(f"{name}={value!r} is not a time in seconds.") from None


def _proof_mode(word: str | None) -> ProofMode:
    if word is not None and word not in list(ProofMode):
        raise SettingsError(
            f"{contract.ENV_PROOF}={word!r} is none of {', '.join(ProofMode)}. It is set by the "
            "controller; unset it when you start the script by hand."
        )
    return ProofMode(word or ProofMode.REPORT)


def _target(accuracy: str | None, metric: str | None, epochs_in_a_row: int) -> Target | None:
    if accuracy is None:
        return None
    try:
        value = float(accuracy)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= 1.0:
        raise SettingsError(
            f"{contract.ENV_TARGET_ACCURACY}={accuracy!r} is not a number above 0 and at most 1. "
            "It is set by the agent; unset it when you start the script by hand."
        )
    return Target(value, metric, epochs_in_a_row)

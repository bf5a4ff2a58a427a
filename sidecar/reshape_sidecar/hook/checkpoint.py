"""The checkpoints of a Keras job: what a save holds, and how the newest one is loaded at start.

Does: claims the folder and reads the newest checkpoint in the background while the framework is
imported; publishes a state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reshape_sidecar import checkpoints, claims, durable
from reshape_sidecar.checkpoints import SHUFFLE_SEED_BYTES, PublishedCheckpoint
from reshape_sidecar.claims import CheckpointError
from reshape_sidecar.contract import MANIFEST_FILE
from reshape_sidecar.hook.data_state import SavedData
from reshape_sidecar.hook.end_states import EndState
from reshape_sidecar.hook.exactness import EXACT, Verdict
from reshape_sidecar.hook.position import Counts, SavedPosition
from reshape_sidecar.hook.settings import HookSettings
from reshape_sidecar.hook.values import Reader, Writer
from reshape_sidecar.wire import Trajectory


@dataclass(frozen=True, slots=True)
class FinishedFit:
    """A ``fit`` call that is over: its model (by order of first use) and its History."""

    model: int
    epochs: int
    epoch: list[int]
    history: dict[str, list[Any]]
    params: dict[str, Any]
    random: dict[str, Any]
    """Encoded random state after the call, so that the script goes on as it did before."""
    training: Counts = (0, 0)
    """Iterators over its training data, which the script may use again."""
    validation: Counts = (0, 0)
    """Iterators over its validation data."""
    raised: bool = False
    """True if the call ended by an exception, which no checkpoint can restore."""
    stop_training: bool = False
    """The model's ``stop_training`` after the call: a target or a callback ended it early."""
    data: SavedData = SavedData()
    """State of its data, which the script may use again."""
    script: dict[str, Any] = field(default_factory=dict)
    """Numbers and texts that its callbacks have bound to names of the script."""
    end_state: EndState | None = None
    """Weights of its model at its end; None if no later call has trained that model on."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Where a job resumes: steps and epochs since its first start, and the fit calls so far."""

    step: int
    epoch: int
    finished: tuple[FinishedFit, ...] = ()
    fit_epoch: int = 0
    """Epoch of the fit in progress; valid if there is a position."""
    position: SavedPosition | None = None


@dataclass(slots=True)
class SavedState:
    """A checkpoint that was found: its mark and its encoded parts."""

    resume_point: ResumePoint
    reader: Reader
    shuffle_seed: int
    complete: bool
    variables: list[Any] = field(default_factory=list)
    """Variables of the model that the newest fit trains or trained."""
    others: dict[str, list[Any]] = field(default_factory=dict)
    """Variables of the models of earlier fits, by their number."""
    callbacks: list[Any] = field(default_factory=list)
    ended_callbacks: dict[str, Any] = field(default_factory=dict)
    """States of the callbacks of finished fits; empty in a checkpoint of an older hook."""
    random: dict[str, Any] = field(default_factory=dict)
    script: dict[str, Any] = field(default_factory=dict)
    """Numbers and texts that the fit's callbacks have bound to names of the script."""
    data: SavedData = SavedData()
    logs: dict[str, float] = field(default_factory=dict)
    verdict: Verdict = Verdict(EXACT)
    target: dict[str, Any] | None = None
    """Judgement of the target accuracy; None without one, or in a checkpoint of an older hook."""


@dataclass(frozen=True, slots=True)
class EarlyLook:
    """What a successor reads without a claim; it is compared with the checkpoint at the release."""

    finished: int | None = None
    shuffle_seed: int | None = None


class CheckpointStore:
    """The checkpoint folder of this start; without a folder nothing is saved or loaded."""

    def __init__(self, settings: HookSettings) -> None:
        """While ``settings`` are those of a successor, this neither claims nor loads, until
        ``release``."""
        self._settings = settings
        self._folder = settings.checkpoints
        self._error: Exception | None = None
        self._saved_state: SavedState | None = None
        self._newest: PublishedCheckpoint | None = None
        self._searched = False
        self._shuffle_seed = int.from_bytes(os.urandom(SHUFFLE_SEED_BYTES), "big") >> 1
        self._early = EarlyLook() if settings.standby_fd is not None else None
        """What a successor knows of the checkpoints before its release."""
        self._used_seed: int | None = None
        self._lock = threading.RLock()
        self._thread = self._started(self._find if self._early is None else self._look)

    @property
    def enabled(self) -> bool:
        """Whether there is a folder to save to."""
        return self._folder is not None

    def saved_state(self) -> SavedState | None:
        """Return the state in the newest checkpoint, once it is read; None if there is none.

        Raises SystemExit, with the reason, if the folder cannot be used.
        """
        self._wait()
        if self._error is not None:
            raise SystemExit(f"reshape: {self._error}")
        return self._saved_state

    def shuffle_seed(self) -> int:
        """Return the seed of this job's unseeded shuffles: drawn once, the same in every process.

        A folder that cannot be used is no error here: it may hold the checkpoints of a session.
        """
        with self._lock:
            self._wait()
            seed = self._saved_state.shuffle_seed if self._saved_state else self._shuffle_seed
            if self._early is not None:
                seed = self._used_seed = self._early.shuffle_seed or seed
            return seed

    def finished_fits(self) -> int | None:
        """Return how many finished ``fit`` calls a successor finds; None without a checkpoint."""
        with self._lock:
            self._wait()
            return None if self._early is None else self._early.finished

    def release(self, settings: HookSettings) -> None:
        """Claim the folder and read the newest checkpoint, as the process of ``settings`` now."""
        with self._lock:
            self._thread.join()
            self._settings, self._early = settings, None
            self._thread = self._started(self._find)

    def is_seed_changed(self) -> bool:
        """Return whether the seed is another one than before the release."""
        return self._used_seed is not None and self.shuffle_seed() != self._used_seed

    def newest(self) -> PublishedCheckpoint | None:
        """Return the newest checkpoint that this process knows."""
        return self._newest

    def newest_step(self) -> int | None:
        """Return the step of the newest checkpoint that this process knows."""
        return self._newest.manifest.step if self._newest else None

    def publish(
        self, resume_point: ResumePoint, parts: dict[str, Any], writer: Writer, *, complete: bool
    ) -> PublishedCheckpoint:
        """Publish the state ``parts`` at ``resume_point``; raises CheckpointError."""
        document = {
            **parts,
            "mark": _encode_point(resume_point, writer),
            "shuffle_seed": self.shuffle_seed(),
        }
        return self._publish(resume_point, lambda folder: writer.write(folder, document), complete)

    def publish_complete(self, resume_point: ResumePoint) -> None:
        """Publish the newest checkpoint again as the end of training.

        Does nothing if it is complete already. Raises CheckpointError.
        """
        newest = self._newest
        if newest is None:
            raise CheckpointError("there is no checkpoint to complete")
        if not newest.manifest.complete:
            self._publish(resume_point, lambda folder: _link(newest.path, folder), True)

    def _publish(
        self, resume_point: ResumePoint, write: Callable[[Path], None], complete: bool
    ) -> PublishedCheckpoint:
        assert self._folder is not None
        self._newest = checkpoints.publish(
            self._folder,
            step=resume_point.step,
            epoch=resume_point.epoch,
            attempt=self._settings.attempt,
            generation=self._settings.generation,
            write=write,
            complete=complete,
            job=self._settings.job,
        )
        return self._newest

    def _started(self, search: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=search, daemon=True, name="reshape-find")
        thread.start()
        return thread

    def _look(self) -> None:
        """Read what a successor may know; a folder without it says less."""
        if self._folder is not None:
            with contextlib.suppress(Exception):
                self._early = _early_look(self._folder)

    def _wait(self) -> None:
        if self._folder is not None:
            self._thread.join()
            if not self._searched and self._early is None:
                self._find()  # in a process that the script has forked, the thread does not run

    def _find(self) -> None:
        if self._folder is None:
            return
        try:
            holder = checkpoints.claim(self._folder, self._settings.attempt, self._settings.job)
            self._shuffle_seed = holder.shuffle_seed or self._shuffle_seed
            self._newest = checkpoints.newest(self._folder, self._settings.hashed)
            if self._newest is not None:
                self._saved_state = _read(self._newest)
        except Exception as error:
            self._error = error
        self._searched = True


def _early_look(folder: Path) -> EarlyLook:
    newest = checkpoints.newest(folder)
    if newest is None:
        holder = claims.read(folder)
        return EarlyLook(shuffle_seed=holder.shuffle_seed if holder is not None else None)
    document = Reader(newest.path).document
    return EarlyLook(len(document["mark"]["finished"]), document["shuffle_seed"])


def _read(published: PublishedCheckpoint) -> SavedState:
    reader = Reader(published.path)
    reader.load()
    document = reader.document
    if "mark" not in document:
        raise CheckpointError(
            f"checkpoint {published.path} was not written by a `fit` of Keras; give an empty "
            "checkpoint folder"
        )
    return SavedState(
        resume_point=_decode_point(document["mark"], reader),
        reader=reader,
        shuffle_seed=document["shuffle_seed"],
        complete=published.manifest.complete,
        variables=document["variables"],
        others=document["others"],
        callbacks=document["callbacks"],
        ended_callbacks=document.get("ended_callbacks", {}),
        random=document["random"],
        script=document.get("script", {}),
        data=SavedData(*document.get("data", ())),  # unknown to an older hook
        logs=document["logs"],
        verdict=_verdict(*document.get("verdict", [EXACT])),
        target=document.get("target"),
    )


def _verdict(word: str, reason: str | None = None) -> Verdict:
    return Verdict(Trajectory.of(word), reason)


def _encode_point(resume_point: ResumePoint, writer: Writer) -> dict[str, Any]:
    position = resume_point.position
    finished = [
        {
            "model": fit.model,
            "epochs": fit.epochs,
            "random": fit.random,
            "training": fit.training,
            "validation": fit.validation,
            "raised": fit.raised,
            "stop_training": fit.stop_training,
            "data": dataclasses.astuple(fit.data),
            "script": fit.script,
            "end_state": dataclasses.astuple(fit.end_state) if fit.end_state else None,
            "returned": writer.encode([fit.epoch, fit.history, fit.params]),
        }
        for fit in resume_point.finished
    ]
    return {
        "step": resume_point.step,
        "epoch": resume_point.epoch,
        "fit_epoch": resume_point.fit_epoch,
        "position": None
        if position is None
        else {name: getattr(position, name) for name in SavedPosition.__slots__},
        "finished": finished,
    }


def _decode_point(value: dict[str, Any], reader: Reader) -> ResumePoint:
    position = value["position"]
    finished = []
    for entry in value["finished"]:
        epoch, history, params = reader.decode(entry["returned"])
        finished.append(
            FinishedFit(
                model=entry["model"],
                epochs=entry["epochs"],
                epoch=epoch,
                history=history,
                params=params,
                random=entry["random"],
                training=entry.get("training", (0, 0)),  # unknown to an older hook
                validation=entry.get("validation", (0, 0)),
                raised=entry.get("raised", False),
                stop_training=entry.get("stop_training", False),
                data=SavedData(*entry.get("data", ())),
                script=entry.get("script", {}),
                end_state=EndState(*entry["end_state"]) if entry.get("end_state") else None,
            )
        )
    return ResumePoint(
        step=value["step"],
        epoch=value["epoch"],
        fit_epoch=value["fit_epoch"],
        position=None if position is None else SavedPosition(**position),
        finished=tuple(finished),
    )


def _link(source: Path, target: Path) -> None:
    for file in source.iterdir():
        if file.name != MANIFEST_FILE:
            durable.link(file, target / file.name)

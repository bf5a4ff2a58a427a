"""The epochs of a loop by ``job.batches``: which are left, and when training is over.

A framework's loop adds the batches of an epoch, the position in them, and what a save holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reshape_sidecar.loop_session import LoopSession

WITHOUT_END = 1 << 62


class LoopError(ValueError):
    """A call of ``job.batches`` that cannot be served; the message says why, and the remedy."""


class EpochLoop(ABC):
    """The loop of one session, over epochs of batches."""

    def __init__(self, session: LoopSession, epochs: int | None, steps: int | None) -> None:
        """``epochs``, ``steps``: the lengths that come before that of the script."""
        self._session = session
        self._epochs, self._steps = epochs, steps
        self._total = 0
        """Epochs of the whole training."""
        self._in_epochs = False
        self._begun: int | None = None
        """Epoch of the newest call of ``batches``."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The epoch in which training is; 0 before it has begun."""

    @abstractmethod
    def next_epoch(self) -> None:
        """Go on to the first batch of the next epoch."""

    @abstractmethod
    def epoch_begins(self) -> None:
        """Stand before the script's code at the begin of an epoch of ``epochs``."""

    @abstractmethod
    def batches_left(self) -> Iterator[Any]:
        """Yield the batches of this epoch that are left, and count the steps, until the end."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Save everything into ``folder``."""

    def epochs(self, count: int | None) -> Iterator[int]:
        """Yield the number of each epoch that is left; then publish the end of training."""
        self.set_length(count)
        self._in_epochs = True
        while True:
            epoch = self.epoch
            self.epoch_begins()
            yield epoch
            if self._begun != epoch:
                raise LoopError("the body of job.epochs(...) must call job.batches(...) once")
            if not self._goes_on():
                return

    def left(self) -> Iterator[Any]:
        """Return the batches of this epoch that are left, or of all. Raises LoopError."""
        if not self._in_epochs:
            return self._all()
        if self._begun == self.epoch:
            raise LoopError("job.batches(...) was called twice in an epoch; call it once")
        return self._one()

    def is_over(self) -> bool:
        """Return whether no step is left, or no further one is wanted."""
        session = self._session
        done = self._steps is not None and session.step >= self._steps
        shortened = self.epoch >= self._total
        return done or shortened or session.complete or session.target_reached

    def set_length(self, count: int | None) -> None:
        """Take ``count`` as the number of all epochs, unless the record has one or its steps.

        In the body of ``job.epochs`` the length is known. Raises LoopError without any length.
        """
        if self._in_epochs:
            return
        epochs = self._epochs if self._epochs is not None else count
        if epochs is None and self._steps is not None:
            epochs = WITHOUT_END  # the steps end it
        if epochs is None or epochs < 1:
            raise LoopError(
                f"epochs is {epochs}: give a number of epochs from 1 on, as in job.epochs(10) or"
                " job.batches(..., epochs=10), or `epochs` or `steps` in the job's record"
            )
        self._total = epochs

    def _all(self) -> Iterator[Any]:
        while True:
            yield from self._one()
            if not self._goes_on():
                return

    def _one(self) -> Iterator[Any]:
        self._begun = self.epoch
        if not self.is_over():
            yield from self.batches_left()

    def _goes_on(self) -> bool:
        """Go on to the next epoch, or else publish the end of training."""
        if self.is_over() or self.epoch + 1 >= self._total:
            self._session.finished(self.write)
            return False
        self.next_epoch()
        return True

"""What a forecast keeps for the next one: the running jobs and the queue, as they stood.

Does: takes in which views were renewed since, and what was learned; is made from nothing for a
snapshot that is not the next one of the same state. Never: differs from what is made from nothing
(a test compares). State: in ``Snapshot.kept``, which only this module reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from reshape_controller.core.plan import JobView, Kept, Snapshot
from reshape_controller.core.prediction.predictor import Predictor
from reshape_controller.core.prediction.profiles import ProfileBook
from reshape_controller.core.prediction.tenures import Tenures
from reshape_controller.core.prediction.waits import Waits


class Standing:
    """One per state, or per snapshot that is of none."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._mechanism = snapshot.mechanism
        self.places = snapshot.places
        self._now_s = -inf
        self._book: ProfileBook | None = None
        self.tenures = Tenures(self.places, snapshot.mechanism)
        self.waits = Waits()

    @staticmethod
    def of(snapshot: Snapshot, predictor: Predictor) -> Standing:
        """How the jobs of a snapshot stand."""
        kept, known = snapshot.kept, None
        if kept is not None:
            queued, running = kept.shown
            if queued is not snapshot.queued or running is not snapshot.running:
                kept = None
            elif isinstance(kept.standing, Standing) and kept.standing._leads_to(snapshot):
                known = kept.standing
        if known is None or kept is None:
            known = Standing(snapshot)
            known._see(predictor, snapshot.running, snapshot.queued)
        else:
            known._renew(predictor, snapshot.profiles, kept)
        if kept is not None:
            kept.standing = known
            kept.running.clear()
            kept.queued.clear()
        known._book, known._now_s = snapshot.profiles, snapshot.now_s
        known.tenures.until(predictor, snapshot.now_s)
        return known

    def _leads_to(self, snapshot: Snapshot) -> bool:
        """Whether nothing is other than before but views, what was learned, and the time."""
        return (
            self.places is snapshot.kept_places
            and self._mechanism is snapshot.mechanism
            and self._now_s <= snapshot.now_s
        )

    def _see(
        self, predictor: Predictor, running: Iterable[JobView], queued: Iterable[JobView]
    ) -> None:
        for job in running:
            self.tenures.put(predictor, job)
        for job in queued:
            self.waits.put(predictor, job)

    def _renew(self, predictor: Predictor, book: ProfileBook, kept: Kept) -> None:
        for job_id in kept.running:
            self.tenures.drop(job_id)
        for job_id in kept.queued:
            self.waits.drop(job_id)
        if book is not self._book:
            self.tenures.learned(predictor, book)
        running = [job for job in kept.running.values() if job is not None]
        queued = [job for job in kept.queued.values() if job is not None]
        self._see(predictor, running, queued)

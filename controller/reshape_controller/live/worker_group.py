"""The SideCars of an attempt's workers as one SideCar: the engine knows of no other.

Does: splits what is desired among the workers, and folds what they say into one report. The first
worker (the chief) is asked first, and its answer is the answer of all: once it stops, the others
stop; if it refuses, they never hear of it. A start waits until every earlier process is gone and
every worker has said where it can be reached. Never: reads a clock, or keeps what a restarted
controller could not learn again from the workers. State: the newest report of each.
"""

from __future__ import annotations

from dataclasses import replace

from reshape_sidecar.wire import (
    Desired,
    Meeting,
    Mode,
    Observed,
    OnSaveTimeout,
    OutcomeKind,
    Phase,
)

CHIEF = 0
FOLLOW_S = 10.0
"""The chief has saved and stops: another worker has nothing to save, and ends within this."""
HURRY_S = 10.0
"""A worker died while the chief was asked to save: it has so long, for it may wait for the dead."""
_DOWN = (Phase.CRASHED, Phase.UNFIT)


class WorkerGroup:
    """The workers of one attempt. One worker alone is passed through as it is."""

    def __init__(self, desired: Desired, workers: int) -> None:
        self.desired = desired
        self._seen: list[Observed | None] = [None] * workers
        self._peers: tuple[str, ...] = ()
        self._peers_of = -1
        """The generation that they are for."""

    @property
    def workers(self) -> int:
        return len(self._seen)

    def take(self, worker: int, observed: Observed) -> bool:
        """Take in a report; False if it is late."""
        known = self._seen[worker]
        if known is not None and observed.sequence <= known.sequence:
            return False
        self._seen[worker] = observed
        return True

    # --- what each worker is told

    def told(self, worker: int) -> Desired | None:
        """What a worker shall be; None: nothing that it does not know, or not its turn yet."""
        if self.workers == 1:
            return self.desired
        own, chief = self._seen[worker], self._seen[CHIEF]
        if own is None:
            return None
        if worker == CHIEF:
            return self._told_chief(own)
        meeting = None if chief is None else chief.asks
        if own.generation >= self.desired.generation or self._all_stop():
            return self._share(worker, FOLLOW_S, meeting)
        if own.pid is None:
            return None
        # It trains as it was told before, perhaps by an earlier controller: that is said again.
        return replace(
            self.desired,
            generation=own.generation,
            mode=Mode.RUN,
            devices=own.devices,
            peers=own.peers,
            meeting=meeting,
        )

    def news(self, worker: int, observed: Observed) -> Desired | None:
        """What a worker is told, if its report does not say already that it knows."""
        told = self.told(worker)
        if told is None:
            return None
        newer = (told.epoch, told.generation) > (observed.epoch, observed.generation)
        if self.workers == 1:
            return told if newer else None
        other = (told.peers, told.meeting) != (observed.peers, observed.meeting)
        return told if newer or other else None

    def _told_chief(self, chief: Observed) -> Desired:
        others = [seen for seen in self._seen[1:] if seen is not None]
        known = len(others) + 1 == self.workers and all(o.meeting == chief.asks for o in others)
        meeting = chief.asks if known else None
        if self._all_stop():
            return self._share(CHIEF, 0.0, meeting)
        if any(_is_down(seen) for seen in others) and chief.generation > _started(others):
            return self._share(CHIEF, HURRY_S, meeting)
        return replace(
            self.desired, devices=self._devices(CHIEF), peers=self._known_peers(), meeting=meeting
        )

    def _share(self, worker: int, save_s: float, meeting: Meeting | None) -> Desired:
        """What is desired of one worker, which has ``save_s`` to stop and starts anew."""
        return replace(
            self.desired,
            devices=self._devices(worker),
            on_save_timeout=OnSaveTimeout.KILL,
            save_deadline_s=min(save_s, self.desired.save_deadline_s),
            peers=self._known_peers(),
            meeting=meeting,
            fresh=True,
        )

    def _all_stop(self) -> bool:
        """Whether what is desired now means the end of every process that runs: one of them ended
        for it already, or is dead."""
        wanted = self.desired.generation
        for seen in self._seen:
            outcome = None if seen is None else seen.outcome
            stops = outcome is not None and outcome.kind is OutcomeKind.STOPPING
            if outcome is not None and stops and outcome.generation >= wanted:
                return True
        return self._dead() is not None

    def _devices(self, worker: int) -> tuple[str, ...]:
        """The worker's equal part."""
        size = len(self.desired.devices) // self.workers
        return self.desired.devices[worker * size : (worker + 1) * size]

    def _known_peers(self) -> tuple[str, ...]:
        """Addresses for the start that is desired; none before every worker is ready for it."""
        wanted = self.desired.generation
        if self._peers_of == wanted:
            return self._peers
        found = self._agreed_peers()
        if found:
            self._peers, self._peers_of = found, wanted
        return found

    def _agreed_peers(self) -> tuple[str, ...]:
        wanted = self.desired.generation
        if self.desired.mode is not Mode.RUN:
            return ()
        for seen in self._seen:
            # Told by a controller that is no more; some may have started with them.
            if seen is not None and seen.generation == wanted and seen.peers:
                return seen.peers
        addresses = [
            seen.address
            for seen in self._seen
            if seen is not None and seen.address is not None and seen.stopped_generation >= wanted
        ]
        return tuple(addresses) if len(addresses) == self.workers else ()

    # --- what all of them are

    def folded(self, sequence: int) -> Observed | None:
        """One report for all, under the number ``sequence``; None before each has said a word."""
        if self.workers == 1:
            return self._seen[CHIEF]
        seen = [one for one in self._seen if one is not None]
        if len(seen) < self.workers:
            return None
        chief = seen[CHIEF]
        all_as_one = replace(
            chief,
            sequence=sequence,
            phase=_phase(chief, seen),
            devices=tuple(device for one in seen for device in one.devices),
            stopped_generation=min(one.stopped_generation for one in seen),
            gpu_use=tuple(use for one in seen for use in one.gpu_use),
            address=None,
            peers=(),
            meeting=None,
            asks=None,
        )
        dead = self._dead()
        if dead is None:
            return all_as_one
        error = f"worker {dead.worker}: {dead.error or 'its training process ended'}"
        return replace(all_as_one, phase=dead.phase, error=error, exit_code=dead.exit_code)

    def _dead(self) -> Observed | None:
        """A worker whose process died though nobody had asked the chief to stop."""
        chief = self._seen[CHIEF]
        if chief is None or chief.phase is Phase.FINISHED:
            return None
        for seen in self._seen:
            if seen is not None and _is_down(seen) and not _leaves(chief, seen.generation):
                return seen
        if _left_after_refusal(chief):
            return replace(
                chief, phase=Phase.CRASHED, error="it left after it had refused to leave"
            )
        return None


def _phase(chief: Observed, seen: list[Observed]) -> Phase:
    """The chief's; but all are initialised when each is."""
    if chief.phase is not Phase.INITIALIZED:
        return chief.phase
    same = all(
        one.phase is Phase.INITIALIZED and one.generation >= chief.generation for one in seen
    )
    return Phase.INITIALIZED if same else Phase.INITIALIZING


def _is_down(seen: Observed) -> bool:
    return seen.phase in _DOWN


def _started(others: list[Observed]) -> int:
    """Newest generation that all others have taken up."""
    return min((seen.generation for seen in others), default=0)


def _left_after_refusal(chief: Observed) -> bool:
    outcome = chief.outcome
    refused = outcome is not None and outcome.kind is OutcomeKind.REFUSED
    over = chief.stopped_generation >= chief.generation
    return refused and over and chief.phase is Phase.INITIALIZED


def _leaves(chief: Observed, generation: int) -> bool:
    """Whether the chief stops, or was asked to and has not refused, what ``generation`` started:
    then the end of another worker's process is no failure."""
    if chief.generation <= generation:
        return False
    outcome = chief.outcome
    if outcome is None or outcome.generation < chief.generation:
        return True
    return outcome.kind is OutcomeKind.STOPPING

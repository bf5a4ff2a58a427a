"""The SideCars of an attempt's workers, which the engine sees as one SideCar.

Does: gives each worker its part of what is desired, and merges the workers' reports into one. The
chief (worker 0) is asked first, and its answer holds for all: once it stops, the others stop; if it
refuses, the others are not asked. A start waits until every earlier process is gone and every
worker has reported its address. A restarted controller learns all of it again from the reports.
"""

from __future__ import annotations

from dataclasses import replace

from reshape_sidecar.wire import (
    WIRE_LEVEL,
    Desired,
    Meeting,
    Mode,
    Observed,
    OnSaveTimeout,
    OutcomeKind,
    Phase,
    Standby,
    StandbyState,
)
from reshape_sidecar.wire_levels import desired_at_level

CHIEF = 0
FOLLOW_S = 10.0
"""Time that another worker has to end once the chief has saved: it has nothing to save itself."""
HURRY_S = 10.0
"""Time that the chief has to save after another worker died: its save may wait for that worker."""
_DOWN = (Phase.CRASHED, Phase.UNFIT)


class WorkerGroup:
    """The workers of one attempt. A single worker's reports and desired state pass unchanged."""

    def __init__(self, desired: Desired, workers: int) -> None:
        self.desired = desired
        self._reports: list[Observed | None] = [None] * workers
        """Newest report of each worker."""
        self._peers: tuple[str, ...] = ()
        self._peers_generation = -1
        """Generation for which ``_peers`` holds."""

    @property
    def workers(self) -> int:
        """Number of workers."""
        return len(self._reports)

    def report_of(self, worker: int) -> Observed | None:
        """Return the newest report of a worker; None before its first."""
        return self._reports[worker]

    def take(self, worker: int, observed: Observed) -> bool:
        """Store a worker's report; return False if a newer one is there already."""
        previous = self._reports[worker]
        if previous is not None and observed.sequence <= previous.sequence:
            return False
        self._reports[worker] = observed
        return True

    # --- desired state of each worker

    def desired_of(self, worker: int) -> Desired | None:
        """Desired state of a worker; None while it has not reported, or while it has to wait for
        the chief."""
        if self.workers == 1:
            return self.desired
        own, chief = self._reports[worker], self._reports[CHIEF]
        if own is None:
            return None
        if worker == CHIEF:
            return self._desired_of_chief(own)
        meeting = None if chief is None else chief.asks
        if own.generation >= self.desired.generation or self._all_stop():
            return self._fresh_start(worker, FOLLOW_S, meeting)
        if own.pid is None:
            return None
        # It trains by an earlier desired state, perhaps of an earlier controller: repeat that.
        return replace(
            self.desired,
            generation=own.generation,
            mode=Mode.RUN,
            devices=own.devices,
            peers=own.peers,
            meeting=meeting,
        )

    def update_for(
        self, worker: int, observed: Observed, level: int = WIRE_LEVEL
    ) -> Desired | None:
        """Desired state of a worker if its report ``observed`` does not reflect it yet;
        ``level``: that of the fields that its SideCar knows."""
        desired = self.desired_of(worker)
        if desired is None:
            return None
        newer = (desired.epoch, desired.generation) > (observed.epoch, observed.generation)
        if self.workers == 1:
            same = desired_at_level(desired, level).prepare == observed.prepare
            return desired if newer or not same else None
        differs = (desired.peers, desired.meeting) != (observed.peers, observed.meeting)
        return desired if newer or differs else None

    def _desired_of_chief(self, chief: Observed) -> Desired:
        others = [report for report in self._reports[1:] if report is not None]
        agreed = len(others) + 1 == self.workers and all(o.meeting == chief.asks for o in others)
        meeting = chief.asks if agreed else None
        if self._all_stop():
            return self._fresh_start(CHIEF, 0.0, meeting)
        if any(_is_down(o) for o in others) and chief.generation > _oldest_generation(others):
            return self._fresh_start(CHIEF, HURRY_S, meeting)
        return replace(
            self.desired, devices=self._devices(CHIEF), peers=self._start_peers(), meeting=meeting
        )

    def _fresh_start(self, worker: int, save_s: float, meeting: Meeting | None) -> Desired:
        """Desired state of a worker that stops within ``save_s`` seconds and starts again."""
        return replace(
            self.desired,
            devices=self._devices(worker),
            on_save_timeout=OnSaveTimeout.KILL,
            save_deadline_s=min(save_s, self.desired.save_deadline_s),
            peers=self._start_peers(),
            meeting=meeting,
            fresh=True,
        )

    def _all_stop(self) -> bool:
        """Whether every process has to end now: one stops for the newest generation, or died."""
        newest = self.desired.generation
        for report in self._reports:
            outcome = None if report is None else report.outcome
            stops = outcome is not None and outcome.kind is OutcomeKind.STOPPING
            if outcome is not None and stops and outcome.generation >= newest:
                return True
        return self._failure() is not None

    def _devices(self, worker: int) -> tuple[str, ...]:
        """The worker's equal share of the devices."""
        size = len(self.desired.devices) // self.workers
        return self.desired.devices[worker * size : (worker + 1) * size]

    def _start_peers(self) -> tuple[str, ...]:
        """Addresses for the desired start; empty until every worker is ready for it."""
        newest = self.desired.generation
        if self._peers_generation == newest:
            return self._peers
        peers = self._agreed_peers()
        if peers:
            self._peers, self._peers_generation = peers, newest
        return peers

    def _agreed_peers(self) -> tuple[str, ...]:
        newest = self.desired.generation
        if self.desired.mode is not Mode.RUN:
            return ()
        reports = [report for report in self._reports if report is not None]
        for report in reports:
            # From an earlier controller; some workers may have started with these addresses.
            if report.generation == newest and report.peers:
                return report.peers
        addresses = [
            report.address
            for report in reports
            if report.address is not None and report.stopped_generation >= newest
        ]
        return tuple(addresses) if len(addresses) == self.workers else ()

    # --- the workers' state as one

    def merged_report(self, sequence: int) -> Observed | None:
        """Merge the newest reports into one numbered ``sequence``; None until each worker has
        reported. A single worker's report keeps its own number."""
        if self.workers == 1:
            return self._reports[CHIEF]
        reports = [report for report in self._reports if report is not None]
        if len(reports) < self.workers:
            return None
        chief = reports[CHIEF]
        merged = replace(
            chief,
            sequence=sequence,
            phase=_phase(chief, reports),
            devices=tuple(device for report in reports for device in report.devices),
            stopped_generation=min(report.stopped_generation for report in reports),
            gpu_use=tuple(use for report in reports for use in report.gpu_use),
            standby=_standby(chief, reports),
            ending=any(report.ending for report in reports),
            silent_s=min((s for r in reports if (s := r.silent_s) is not None), default=None),
            address=None,
            peers=(),
            meeting=None,
            asks=None,
        )
        dead = self._failure()
        if dead is None:
            return merged
        error = f"worker {dead.worker}: {dead.error or 'its training process ended'}"
        return replace(
            merged,
            phase=dead.phase,
            error=error,
            exit_code=dead.exit_code,
            exception=dead.exception,
            exception_message=dead.exception_message,
            refused=dead.refused,
        )

    def _failure(self) -> Observed | None:
        """Report of a worker whose process died although the chief was not asked to stop."""
        chief = self._reports[CHIEF]
        if chief is None or chief.phase is Phase.FINISHED:
            return None
        for report in self._reports:
            if report is not None and _is_down(report) and not _stops(chief, report.generation):
                return report
        if _left_after_refusal(chief):
            return replace(
                chief, phase=Phase.CRASHED, error="it left after it had refused to leave"
            )
        return None


def _phase(chief: Observed, reports: list[Observed]) -> Phase:
    """The chief's phase; but INITIALIZED only once every worker is."""
    if chief.phase is not Phase.INITIALIZED:
        return chief.phase
    ready = all(
        report.phase is Phase.INITIALIZED and report.generation >= chief.generation
        for report in reports
    )
    return Phase.INITIALIZED if ready else Phase.INITIALIZING


def _standby(chief: Observed, reports: list[Observed]) -> Standby | None:
    """The chief's zygote; but one that imports while any worker's does."""
    for report in reports:
        if report.standby is not None and report.standby.state is StandbyState.STARTING:
            return report.standby
    return chief.standby


def _is_down(report: Observed) -> bool:
    return report.phase in _DOWN


def _oldest_generation(reports: list[Observed]) -> int:
    """The oldest generation among the workers' reports."""
    return min((report.generation for report in reports), default=0)


def _left_after_refusal(chief: Observed) -> bool:
    outcome = chief.outcome
    refused = outcome is not None and outcome.kind is OutcomeKind.REFUSED
    over = chief.stopped_generation >= chief.generation
    return refused and over and chief.phase is Phase.INITIALIZED


def _stops(chief: Observed, generation: int) -> bool:
    """Whether the chief stops what ``generation`` started, or was asked to and has not refused:
    then the end of another worker's process is no failure."""
    if chief.generation <= generation:
        return False
    outcome = chief.outcome
    if outcome is None or outcome.generation < chief.generation:
        return True
    return outcome.kind is OutcomeKind.STOPPING

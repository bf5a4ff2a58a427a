"""Jobs of Slurm's accounting: the rows of one JobID, joined.

Slurm has a row for each piece of a job: for each run of a requeued job, for each size of a resized
one, and for each component of a heterogeneous one. A row that follows a resize is *submitted* when
the job was resized, which is after its start, and its Elapsed counts from the job's first start.

Does: read the times, states and GPUs of rows, and say which rows are one job, how long it ran with
how many GPUs, and which rows become no job, each with a reason. It reads no file.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import NamedTuple

from reshape_controller.replay import slurm_cells
from reshape_controller.replay.trace_cells import BadCell, gpus_of, is_no_time, time_of
from reshape_controller.replay.trace_rows import Cells, rows_text

_JOB_ID = re.compile(r"([0-9]+(?:_(?:[0-9]+|\[.*\]))?)(?:\+([0-9]+))?(?:\.(.+))?")
_WAITING = frozenset(("PENDING", "CONFIGURING", "RESV_DEL_HOLD"))
_RUNNING = frozenset(
    ("RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING")
)
_TO_RUN_AGAIN = frozenset(("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"))
_FOLLOWED = frozenset(("RESIZING", *_TO_RUN_AGAIN))
"""States of a row that another row of the same job follows."""
GAP_S = 600.0
"""Most seconds between the end of a run and the submission of the next run of the same job. Slurm
requeues a job once its epilog has ended, or later by hand while it knows the job (MinJobAge: 300 s
if not set); it gives a number to another job after weeks."""

STEPS = "of steps inside Slurm's jobs"
STILL_RUN = "of jobs that still run"
STILL_WAIT = "of jobs that wait, or wait to run again"
REPEATED = "that repeat another row"
NEVER_BEGAN = "of jobs that ended before they began"
BESIDE_BAD = "of jobs of which another row cannot be read"

JOINED = "the rows of one JobID are one job"
RESIZED = "jobs that changed their GPUs: they keep to the counts that they had"
PAUSED = "jobs that were suspended: the pauses count as no training"
HEADLESS = "resized jobs without their first row: from the resize on"
REUSED = "JobIDs that began anew: later jobs are numbered, as 123-2"
UNFINISHED = "jobs that failed or were cut short: as long as they ran"
NO_END = "jobs that ended and have no End: as long as their Elapsed"
ASKED = "jobs that ran, of which AllocTRES has no GPU: those of ReqTRES"
STRANGE = "states that Slurm does not have ({}): as long as they ran"
_NOTES = (RESIZED, PAUSED, HEADLESS, REUSED, UNFINISHED, NO_END, ASKED)
"""What is assumed of jobs, in the order in which it is said."""


def jobs_text(count: int) -> str:
    """Return ``1 job`` or ``2 jobs``."""
    return f"{count} job{'s' if count != 1 else ''}"


class Columns(NamedTuple):
    """Indices of a row's cells. ``elapsed`` is -1 if the file does not have it, and so on."""

    submit: int
    start: int
    end: int
    elapsed: int
    suspended: int
    state: int
    gpus: int
    hosts: int
    job: int
    user: int
    name: int
    asked: int
    """ReqTRES, beside AllocTRES."""


class Joined(NamedTuple):
    """What the rows of one job amount to."""

    seconds: float
    """On the GPUs of its cells: its GPU time is the sum of that of its rows."""
    gpu_counts: tuple[int, ...]
    """Numbers of GPUs that it had, if they changed; else empty."""
    lines: tuple[int, ...]


class Entry(NamedTuple):
    """A job, or rows that become none. ``line``: its first; ``joined``: None for a plain row;
    ``reason``: why it becomes no job, and then ``rows`` is the number of its rows."""

    line: int
    cells: Cells
    joined: Joined | None = None
    reason: str = ""
    rows: int = 1
    submit_s: float | None = None
    gpu_s: float = 0.0
    notes: tuple[str, ...] = ()
    """What is assumed of the job."""


class _Piece(NamedTuple):
    """A row of a job, read."""

    line: int
    cells: Cells
    component: int
    submit_s: float
    start_s: float | None
    end_s: float | None
    elapsed_s: float | None
    suspended_s: float
    state: str
    words: frozenset[str]
    gpus: float
    is_asked: bool
    """Whether the GPUs are those that the job asked for."""

    @property
    def is_after_resize(self) -> bool:
        return self.start_s is not None and self.submit_s > self.start_s


@dataclass(slots=True)
class Notes:
    """What was assumed of the jobs that are used, counted."""

    jobs: Counter[str] = field(default_factory=Counter)
    joined_rows: int = 0

    def add(self, entry: Entry) -> None:
        """Count what is assumed of a job."""
        self.jobs.update(entry.notes)
        if JOINED in entry.notes and entry.joined is not None:
            self.joined_rows += len(entry.joined.lines)

    def texts(self) -> list[str]:
        """Return what was assumed, in words."""
        found = []
        if joined := self.jobs[JOINED]:
            found = [f"{rows_text(self.joined_rows)} of Slurm are {jobs_text(joined)}: {JOINED}"]
        others = sorted(self.jobs.keys() - {JOINED, *_NOTES})
        counts = [(note, self.jobs[note]) for note in (*_NOTES, *others)]
        return found + [f"{note} ({jobs_text(count)})" for note, count in counts if count]


_UNFINISHED = frozenset(
    (
        *("FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "DEADLINE", "BOOT_FAIL"),
        *("PREEMPTED", "REVOKED", "LAUNCH_FAILED"),
    )
)
_ENDED = frozenset(("COMPLETED", *_UNFINISHED))
_OTHERS = frozenset(("POWER_UP_NODE", "RECONFIG_FAIL", "EXPEDITING", "UPDATE_DB"))
_STATES = _ENDED | _WAITING | _RUNNING | _TO_RUN_AGAIN | _OTHERS
"""States and flags of Slurm's documents."""


class Joiner:
    """Joins the rows of Slurm's jobs. State: what it noted.

    ``so_far``: whether a job that still runs counts: for the time until now, or for a default that
    its converter has.
    """

    def __init__(self, at: Columns, unit_s: float, zone: tzinfo, *, so_far: bool) -> None:
        self._at, self._unit_s, self._zone, self._so_far = at, unit_s, zone, so_far
        self.notes = Notes()

    def entries(self, rows: Iterable[tuple[int, Cells]]) -> Iterator[Entry]:
        """Return a job, or rows that become none, for each group of rows."""
        groups: dict[str, list[_Piece]] = {}
        damaged: set[str] = set()
        for line, cells in rows:
            found = _JOB_ID.fullmatch(cells[self._at.job].strip())
            if found is None:
                yield Entry(line, cells)
                continue
            job, component, step = found.groups()
            if step is not None:
                yield self._left_out([(line, cells)], STEPS)
                continue
            piece = self._piece(line, cells, int(component or 0))
            if piece is None:
                damaged.add(job)
                yield Entry(line, cells)
            else:
                groups.setdefault(job, []).append(piece)
        for job, pieces in groups.items():
            if job in damaged:
                rows_beside = [(piece.line, piece.cells) for piece in pieces]
                yield self._left_out(rows_beside, BESIDE_BAD)
            elif len(pieces) == 1 and "+" not in pieces[0].cells[self._at.job]:
                yield self._single(pieces[0])
            else:
                yield from self._group(job, pieces)

    def _piece(self, line: int, cells: Cells, component: int) -> _Piece | None:
        """Return a row, read; None if a cell of it is bad: the converter says which."""
        at = self._at
        try:
            submit_s = self._time(cells, at.submit)
            if submit_s is None:
                return None
            state = self._cell(cells, at.state).strip().rstrip("+")
            elapsed_s = slurm_cells.seconds_of(self._cell(cells, at.elapsed))
            gpus = gpus_of(cells[at.gpus], "")
            start_s, end_s = self._time(cells, at.start), self._time(cells, at.end)
        except (ValueError, BadCell):
            return None
        is_asked = False
        if gpus == 0.0 and start_s is not None and submit_s <= start_s:
            gpus = self._asked(cells)
            is_asked = gpus > 0.0
            cells = _with(cells, {at.gpus: cells[at.asked]}) if is_asked else cells
        suspended_s = slurm_cells.seconds_of(self._cell(cells, at.suspended)) or 0.0
        if start_s is not None and end_s is not None and elapsed_s is not None:
            suspended_s = max(0.0, end_s - start_s - elapsed_s)
        words = frozenset(state.upper().split())
        times = (submit_s, start_s, end_s, elapsed_s, suspended_s)
        return _Piece(line, cells, component, *times, state, words, gpus, is_asked)

    def _asked(self, cells: Cells) -> float:
        """Return the GPUs that a job asked for, if the file says that beside those that it got."""
        try:
            return gpus_of(self._cell(cells, self._at.asked), "")
        except BadCell:
            return 0.0

    def _cell(self, cells: Cells, index: int) -> str:
        return cells[index] if index >= 0 else ""

    def _time(self, cells: Cells, index: int) -> float | None:
        """Return a time; None if it is missing. Raises ValueError."""
        text = self._cell(cells, index)
        return None if is_no_time(text) else time_of(text, self._unit_s, self._zone)[0]

    def _left_out(
        self,
        rows: Sequence[tuple[int, Cells]],
        reason: str,
        submit_s: float | None = None,
        gpu_s: float = 0.0,
    ) -> Entry:
        line, cells = rows[0]
        return Entry(line, cells, None, reason, len(rows), submit_s, gpu_s)

    def _single(self, piece: _Piece) -> Entry:
        """Return the job of a row that is alone. Its own cells say its length, unless it was
        suspended or resized."""
        reason = self._reason(piece)
        if reason:
            gpu_s = piece.gpus * self._seconds(piece)
            return self._left_out([(piece.line, piece.cells)], reason, piece.submit_s, gpu_s)
        seconds, cells, notes = self._seconds(piece), piece.cells, _notes_of([piece])
        if piece.is_after_resize:
            notes += (HEADLESS,)
            cells = _with(cells, {self._at.submit: cells[self._at.start]})
        elif piece.suspended_s <= 0.0 and NO_END not in notes:
            return Entry(piece.line, cells, notes=notes)
        return Entry(piece.line, cells, Joined(seconds, (), (piece.line,)), notes=notes)

    def _reason(self, piece: _Piece) -> str:
        """Return why a job whose last row this is becomes none; empty if it becomes one."""
        if not piece.words:
            return ""
        has_begun = piece.start_s is not None or (self._at.start < 0 and bool(piece.elapsed_s))
        if not piece.words.isdisjoint(_TO_RUN_AGAIN):
            return STILL_WAIT
        if not piece.words.isdisjoint(_RUNNING) and (has_begun or "RESIZING" in piece.words):
            return "" if self._so_far and piece.end_s is None else STILL_RUN
        if not piece.words.isdisjoint(_WAITING):
            return STILL_WAIT
        return "" if has_begun else f"{NEVER_BEGAN} ({piece.state.split()[0]})"

    def _open(self, piece: _Piece) -> str:
        """Return why a job without a state, whose last row this is, has not ended; or empty."""
        if piece.words or piece.end_s is not None or self._at.end < 0 or self._so_far:
            return ""
        return STILL_WAIT if piece.start_s is None else STILL_RUN

    def _seconds(self, piece: _Piece, before: _Piece | None = None) -> float:
        """Return how long a row's piece ran, without pauses, and without the pieces before it that
        Slurm's Elapsed repeats after a resize."""
        if piece.start_s is None:
            elapsed_s = piece.elapsed_s or 0.0
            is_resized = before is not None and "RESIZING" in before.words
            return max(0.0, elapsed_s - (before.elapsed_s or 0.0 if is_resized and before else 0.0))
        begin_s = max(piece.start_s, piece.submit_s)
        if piece.end_s is not None:
            return max(0.0, piece.end_s - begin_s - piece.suspended_s)
        return max(0.0, (piece.elapsed_s or 0.0) - (begin_s - piece.start_s))

    def _group(self, job: str, pieces: list[_Piece]) -> Iterator[Entry]:
        """Return the jobs of the rows of one JobID."""
        kept: dict[tuple[int, float, float | None], _Piece] = {}
        repeats = 0
        for piece in pieces:
            key = piece.component, piece.submit_s, piece.start_s
            before = kept.get(key)
            repeats += before is not None
            if before is None or before.end_s is None or piece.end_s is not None:
                kept[key] = piece
        if repeats:
            rows = [(piece.line, piece.cells) for piece in pieces]
            yield self._left_out(rows[:repeats], REPEATED)
        jobs: list[list[list[_Piece]]] = []
        for component in sorted({piece.component for piece in kept.values()}):
            own = [piece for piece in kept.values() if piece.component == component]
            for number, run in enumerate(self._runs(own)):
                if number == len(jobs):
                    jobs.append([])
                jobs[number].append(run)
        for number, components in enumerate(jobs, start=1):
            if number == 1:
                yield self._job(job, components)
            else:
                later = self._job(f"{job}-{number}", components)
                yield later._replace(notes=(*later.notes, REUSED))

    def _runs(self, pieces: list[_Piece]) -> list[list[_Piece]]:
        """Return the rows of each job: Slurm's numbers of jobs begin anew some day."""
        runs: list[list[_Piece]] = []
        for piece in sorted(pieces, key=lambda each: (each.submit_s, each.line)):
            if runs and self._follows(piece, runs[-1][-1]):
                runs[-1].append(piece)
            else:
                runs.append([piece])
        return runs

    def _follows(self, piece: _Piece, before: _Piece) -> bool:
        """Return True if two rows with one JobID are of one job."""
        users = {self._cell(each.cells, self._at.user) for each in (piece, before)} - {""}
        if len(users) > 1:
            return False
        if piece.is_after_resize or not before.words.isdisjoint(_FOLLOWED):
            return True
        return before.end_s is not None and piece.submit_s <= before.end_s + GAP_S

    def _job(self, name: str, components: list[list[_Piece]]) -> Entry:
        """Return the job of rows, by component and by time."""
        pieces = sorted(each for run in components for each in run)
        first = min(pieces, key=lambda each: (each.submit_s, each.line))
        spans = [
            (piece, self._seconds(piece, before))
            for run in components
            for before, piece in zip([None, *run], run, strict=False)
        ]
        gpu_s = sum(piece.gpus * seconds for piece, seconds in spans)
        if len(pieces) == 1:
            single = self._single(pieces[0])
            return single._replace(cells=self._named(single.cells, name))
        reasons = [self._reason(run[-1]) or self._open(run[-1]) for run in components]
        has_run = any(piece.start_s is not None and seconds for piece, seconds in spans)
        ends = [each for each in reasons if each and not (has_run and NEVER_BEGAN in each)]
        if ends:
            rows = [(piece.line, piece.cells) for piece in pieces]
            return self._left_out(rows, ends[0], first.submit_s, gpu_s)
        return self._whole(name, components, spans, first, gpu_s)

    def _whole(
        self,
        name: str,
        components: list[list[_Piece]],
        spans: list[tuple[_Piece, float]],
        first: _Piece,
        gpu_s: float,
    ) -> Entry:
        """Return the job of rows that all say what it did."""
        submit = first.cells[self._at.start if first.is_after_resize else self._at.submit]
        if len(components) > 1:
            last = [_longest(run, spans) for run in components]
            gpus, counts = sum(each.gpus for each in last), tuple[int, ...]()
            resources = _sum([each.cells[self._at.gpus] for each in last])
            hosts = _sum([self._cell(each.cells, self._at.hosts) for each in last])
        else:
            main = _longest(components[0], spans)
            gpus, resources = main.gpus, main.cells[self._at.gpus]
            hosts = self._cell(main.cells, self._at.hosts)
            counts = tuple(sorted({math.ceil(each.gpus) for each, s in spans if s and each.gpus}))
            counts = counts if len(counts) > 1 else ()
        lines = tuple(sorted(piece.line for piece, _ in spans))
        notes = (JOINED, *_notes_of([run[-1] for run in components]))
        notes += (RESIZED,) if counts else ()
        notes += (HEADLESS,) if first.is_after_resize else ()
        pieces = [piece for piece, _ in spans]
        notes += (PAUSED,) if PAUSED not in notes and any(p.suspended_s for p in pieces) else ()
        notes += (ASKED,) if ASKED not in notes and any(p.is_asked for p in pieces) else ()
        cells = _with(
            self._named(first.cells, name),
            {self._at.submit: submit, self._at.gpus: resources, self._at.hosts: hosts},
        )
        seconds = gpu_s / gpus if gpus else 0.0
        return Entry(lines[0], cells, Joined(seconds, counts, lines), notes=notes)

    def _named(self, cells: Cells, name: str) -> Cells:
        """Return cells with a job's name, if the JobID is its name."""
        at = self._at
        is_named = cells[at.name] == cells[at.job]
        return _with(cells, {at.name: name}) if is_named else cells


def _notes_of(last: Sequence[_Piece]) -> tuple[str, ...]:
    """Return what is assumed of a job with these last rows, of its components."""
    words = frozenset(word for piece in last for word in piece.words)
    states = [piece.state.split()[0].upper() for piece in last if piece.words]
    strange = next((state for state in states if not _is_known(state)), None)
    ended = [piece for piece in last if not piece.words.isdisjoint(_ENDED) and piece.elapsed_s]
    found = (
        (UNFINISHED, not words.isdisjoint(_UNFINISHED)),
        (NO_END, any(piece.end_s is None and piece.start_s is not None for piece in ended)),
        (PAUSED, any(piece.suspended_s for piece in last)),
        (ASKED, any(piece.is_asked for piece in last)),
        (STRANGE.format(strange), strange is not None),
    )
    return tuple(note for note, holds in found if holds)


def _is_known(state: str) -> bool:
    """Return whether a text is a state of Slurm, or the first letters of one: ``OUT_OF_ME+``."""
    return state in _STATES or any(known.startswith(state) for known in _STATES)


def _longest(run: list[_Piece], spans: list[tuple[_Piece, float]]) -> _Piece:
    """Return the row with the most GPU time of those with its number of GPUs; the first of them."""
    gpu_s: dict[float, float] = {}
    for piece, seconds in spans:
        if piece in run:
            gpu_s[piece.gpus] = gpu_s.get(piece.gpus, 0.0) + piece.gpus * seconds
    return max(run, key=lambda each: gpu_s[each.gpus])


def _sum(texts: list[str]) -> str:
    """Return the sum of cells with numbers or with Slurm's resources."""
    if all(text.isdecimal() for text in texts):
        return str(sum(map(int, texts)))
    return slurm_cells.sum_of(texts)


def _with(cells: Cells, changes: dict[int, str]) -> Cells:
    """Return cells with others in some places; places below 0 are of columns that a file lacks."""
    return tuple(changes.get(index, cell) for index, cell in enumerate(cells))

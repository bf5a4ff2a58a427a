"""Candidates for one lease in any order of looks, writes, lost replies and stops, each with a clock
of its own: never two that hold it, unless it ran out for the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from reshape_controller.live.leadership import Candidate
from reshape_launcher.leases import LEASE_S, NOBODY, Lease, Seen
from tests.support.gate import examples


@dataclass
class Server:
    """Keeps one lease; a write counts only over the version that was read."""

    seen: Seen = field(default_factory=lambda: Seen(Lease(), ""))
    writes: int = 0
    holders: dict[int, set[str]] = field(default_factory=dict)
    """Who ever had each term."""

    def write(self, lease: Lease, over: Seen) -> Seen | None:
        if over.version != self.seen.version:
            return None
        self.writes += 1
        self.seen = Seen(lease, str(self.writes))
        if lease.holder != NOBODY:
            self.holders.setdefault(lease.term, set()).add(lease.holder)
        return self.seen


@dataclass
class Process:
    """A candidate whose clock shows ``ahead_s`` more than the world's. A write under way is kept
    with what it is to be written over, then its reply; both with when it was begun."""

    candidate: Candidate
    ahead_s: float
    writing: tuple[Lease, Seen, float] | None = None
    reply: tuple[Seen | None, float] | None = None

    def now_s(self, world_s: float) -> float:
        return world_s + self.ahead_s


class World:
    """Three candidates. Time passes only by ``wait``."""

    def __init__(self, ahead_s: list[float]) -> None:
        self.server, self.now_s = Server(), 0.0
        self.processes = [
            Process(Candidate(f"candidate-{number}"), ahead) for number, ahead in enumerate(ahead_s)
        ]

    def wait(self, wait_s: float) -> None:
        self.now_s += wait_s

    def read(self, number: int) -> None:
        """Look, and begin to write if that is due; the write arrives later, or never."""
        process = self.processes[number]
        if process.writing is not None or process.reply is not None:
            return  # one call at a time
        now_s = process.now_s(self.now_s)
        process.candidate = process.candidate.after_read(self.server.seen, now_s)
        wanted = process.candidate.claim(now_s)
        if wanted is not None:
            process.writing = (wanted, self.server.seen, now_s)

    def arrive(self, number: int) -> None:
        """The server does the write under way; the reply gets back later, or never."""
        process = self.processes[number]
        if process.writing is not None:
            wanted, over, began_s = process.writing
            process.writing = None
            process.reply = (self.server.write(wanted, over), began_s)

    def hear(self, number: int) -> None:
        """The reply gets back."""
        process = self.processes[number]
        if process.reply is not None:
            written, began_s = process.reply
            process.reply = None
            if written is not None:
                now_s = process.now_s(self.now_s)
                process.candidate = process.candidate.after_write(written, began_s, now_s)

    def write(self, number: int) -> None:
        """Both at once."""
        self.arrive(number)
        self.hear(number)

    def lose(self, number: int) -> None:
        """The server does not answer this candidate."""
        self.processes[number].writing = self.processes[number].reply = None
        self.processes[number].candidate = self.processes[number].candidate.after_failure()

    def release(self, number: int) -> None:
        """It ends in order, and another process of the same machine takes its place."""
        process = self.processes[number]
        freed = process.candidate.after_read(self.server.seen, process.now_s(self.now_s)).release()
        if freed is not None:
            self.server.write(freed, self.server.seen)
        fresh = Candidate(f"{process.candidate.name}+")
        self.processes[number] = Process(fresh, process.ahead_s)

    def check(self) -> None:
        holding = [p.candidate.name for p in self.processes if self.holds(p)]
        assert len(holding) <= 1, holding
        assert all(len(names) == 1 for names in self.server.holders.values())

    def holds(self, process: Process) -> bool:
        return process.candidate.holds(process.now_s(self.now_s))


ACT = st.one_of(
    st.tuples(st.just("wait"), st.floats(0.1, 1.5 * LEASE_S)),
    st.tuples(st.just("read"), st.integers(0, 2)),
    st.tuples(st.just("arrive"), st.integers(0, 2)),
    st.tuples(st.just("hear"), st.integers(0, 2)),
    st.tuples(st.just("lose"), st.integers(0, 2)),
    st.tuples(st.just("release"), st.integers(0, 2)),
)


@settings(max_examples=examples(500), deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3),
    st.lists(ACT, max_size=60),
)
def test_never_do_two_hold_the_lease_and_a_term_has_one_holder(
    ahead_s: list[float], acts: list[tuple[str, float]]
) -> None:
    world = World(ahead_s)
    for what, value in acts:
        if what == "wait":
            world.wait(value)
        else:
            getattr(world, what)(int(value))
        world.check()


def held_by_first() -> World:
    world = World([0.0, 1000.0, -1000.0])
    world.read(0)
    world.write(0)
    assert world.holds(world.processes[0])
    return world


def test_a_standby_waits_the_whole_lease_and_then_has_it() -> None:
    world = held_by_first()
    world.read(1)
    world.wait(LEASE_S - 0.1)
    world.read(1)
    assert world.processes[1].writing is None
    world.wait(0.2)
    world.read(1)
    world.write(1)
    assert world.holds(world.processes[1])
    assert world.server.seen.lease == Lease("candidate-1", 2)


def test_a_renewed_lease_is_nobody_elses_however_long_it_lasts() -> None:
    world = held_by_first()
    for _ in range(20):
        world.wait(LEASE_S / 2)
        world.read(1)
        assert world.processes[1].writing is None
        world.read(0)
        world.write(0)
    assert world.server.seen.lease == Lease("candidate-0", 1)


def test_after_an_outage_the_wait_begins_anew_so_the_same_holder_goes_on() -> None:
    world = held_by_first()
    world.read(1)
    for number in (0, 1):
        world.lose(number)
    world.wait(4 * LEASE_S)
    assert not world.holds(world.processes[0])
    world.read(1)
    assert world.processes[1].writing is None, "it was not looked at: its holder may live"
    world.read(0)
    world.write(0)
    assert world.holds(world.processes[0])
    assert world.server.seen.lease.term == 1


def test_what_was_released_is_had_at_once() -> None:
    world = held_by_first()
    world.read(1)
    world.release(0)
    world.read(1)
    world.write(1)
    assert world.holds(world.processes[1])


def test_two_that_write_over_the_same_lease_get_it_once() -> None:
    world = World([0.0, 0.0, 0.0])
    for number in (0, 1, 2):
        world.read(number)
    for number in (2, 0, 1):
        world.write(number)
    assert [world.holds(process) for process in world.processes] == [False, False, True]


def test_a_holder_that_was_stopped_does_not_hold_what_ran_out() -> None:
    world = held_by_first()
    world.wait(LEASE_S)
    assert not world.holds(world.processes[0])


def test_a_reply_that_comes_late_lengthens_nothing() -> None:
    world = World([0.0, 0.0, 0.0])
    world.read(0)
    world.arrive(0)
    world.wait(LEASE_S - 1)
    world.hear(0)
    assert world.holds(world.processes[0])
    world.wait(1)
    assert not world.holds(world.processes[0])

"""Random clusters as a policy sees them, partly used and with a queue.

Speeds are multiples of a quarter second and steps are whole, so that no sum is rounded and two ways
of adding up agree to the millisecond; except for jobs of ``few_types``, whose
speeds were measured.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from reshape_controller.core.knowledge import Measured
from reshape_controller.core.model import HostId, Mechanism, Share, Spans
from reshape_controller.core.plan import HostView, JobView, Snapshot
from reshape_sidecar.wire import Progress
from tests.support.clusters import COSTS, FREE, Cluster

SIZES: tuple[tuple[int, ...], ...] = (
    (1,),
    (2,),
    (1, 2),
    (2, 4),
    (1, 2, 4),
    (3, 4),
    (1, 2, 3, 4),
    (4, 8),
    (1, 2, 4, 8),
)
MECHANISMS = 4 * [Mechanism.SIDECAR] + 2 * [Mechanism.TERMINATE] + [Mechanism.NONE]
SPEEDS = st.integers(1, 40).map(lambda quarters: quarters / 4)
STEPS = st.integers(1, 400)


GANGS = ((2, (2, 4, 8)), (2, (4, 8)), (3, (3, 6)), (2, (2,)), (4, (4, 8, 16)))
"""Workers and sizes of jobs that may be on several hosts."""


@st.composite
def clusters(
    draw: st.DrawFn, queued: int = 5, few_types: bool = False, spans: bool = False
) -> Snapshot:
    """One to three hosts of one or two GPU types, partly used, and a queue. With ``few_types``
    there are one or two job types; else each job has its own. With ``spans`` some jobs are, or may
    be, on several hosts."""
    kinds = draw(st.lists(st.sampled_from(["P100", "V100"]), min_size=1, max_size=3))
    totals = draw(st.lists(st.integers(1, 8), min_size=len(kinds), max_size=len(kinds)))
    hosts = {f"h{n}": entry for n, entry in enumerate(zip(kinds, totals, strict=True))}
    cluster = Cluster(
        hosts,
        draw(st.sampled_from([FREE, COSTS])),
        draw(st.sampled_from(MECHANISMS)),
        seed=draw(st.integers(0, 9)),
    )
    known: list[dict[str, Any]] = []
    if few_types:
        several = st.sampled_from([(1, 2), (1, 2, 4), (1, 2, 4, 8)])
        for number in range(draw(st.integers(1, 2))):
            known.append({**job(draw, cluster, draw(several)), "kind": f"kind {number}"})
    idle = {name: total for name, (_, total) in hosts.items()}
    if spans:
        for _ in range(draw(st.integers(0, 2))):
            run_gang(draw, cluster, idle)
    for name in hosts:
        left = idle[name]
        while left and draw(st.integers(0, 4)):
            fitting = [s for sizes in SIZES for s in sizes if s <= left]
            size = draw(st.sampled_from(fitting))
            left -= size
            sizes = draw(st.sampled_from([sizes for sizes in SIZES if size in sizes]))
            more = job(draw, cluster, sizes)
            fitting_kinds = [kind for kind in known if size in kind["sizes"]]
            if fitting_kinds:
                more = {**draw(st.sampled_from(fitting_kinds)), "left": draw(STEPS)}
                more["measured"] = draw(measured(more["sizes"], hosts[name][0]))
            more["only_host"] = draw(st.sampled_from([None, name]))
            more["unfit_on"] = draw(unfit_on([other for other in hosts if other != name]))
            more["loses"] = draw(st.sampled_from([False, False, True]))
            if more["loses"]:
                more["progress"] = Progress(draw(st.integers(0, more["left"])))
            cluster.runs(f"run-{cluster.place:02d}", size, on=name, **more)
    for _ in range(draw(st.integers(0, queued))):
        sizes = draw(st.sampled_from(SIZES))
        more = job(draw, cluster, sizes)
        if known:
            more = {**draw(st.sampled_from(known)), "left": draw(STEPS)}
        more["only_host"] = draw(st.sampled_from([None, None, *hosts, "drained"]))
        more["unfit_on"] = draw(unfit_on([*hosts, "drained"]))
        if spans and draw(st.booleans()):
            more = gang(draw, cluster)
        more["max_wait_s"] = draw(st.sampled_from([None, None, None, 0.0]))
        cluster.waits(f"new-{cluster.place:02d}", **more)
    return cluster.snapshot()


@st.composite
def alike(draw: st.DrawFn) -> Snapshot:
    """Two full hosts whose jobs are of one type and size, and differ in their steps alone; and a
    queue."""
    hosts = {"a": ("V100", 8), "b": (draw(st.sampled_from(["P100", "V100"])), 8)}
    cluster = Cluster(hosts, draw(st.sampled_from([FREE, COSTS])))
    size, sizes = draw(st.sampled_from([(2, (1, 2)), (4, (1, 2, 4)), (4, (2, 3, 4))]))
    donor = {**job(draw, cluster, sizes), "kind": "donor"}
    for name in [*"ab"] * (8 // size):
        cluster.runs(f"run-{cluster.place:02d}", size, on=name, **{**donor, "left": draw(STEPS)})
    for _ in range(draw(st.integers(1, 3))):
        cluster.waits(
            f"new-{cluster.place:02d}", **job(draw, cluster, draw(st.sampled_from(SIZES[:5])))
        )
    return cluster.snapshot()


def gang(draw: st.DrawFn, cluster: Cluster) -> dict[str, Any]:
    """A job that may be on several hosts."""
    workers, sizes = draw(st.sampled_from(GANGS))
    span = draw(st.sampled_from([Spans.ANY, Spans.ANY, Spans.IF_NEEDED]))
    return {**job(draw, cluster, sizes), "workers": workers, "span": span}


def run_gang(draw: st.DrawFn, cluster: Cluster, idle: dict[str, int]) -> None:
    """Add a running job whose workers are on hosts of one GPU type, drawn one by one, if they have
    room."""
    more = gang(draw, cluster)
    size, workers = draw(st.sampled_from(more["sizes"])), more["workers"]
    kind, each = draw(st.sampled_from(sorted(cluster.hosts.values())))[0], size // workers
    left, placed = dict(idle), dict[str, int]()
    for _ in range(workers):
        room = [n for n in left if cluster.hosts[n][0] == kind and left[n] >= each]
        if not room:
            return
        name = draw(st.sampled_from(room))
        left[name] -= each
        placed[name] = placed.get(name, 0) + 1
    idle.update(left)
    shares = tuple(Share(HostId(name), count) for name, count in placed.items())
    on = shares[0].host
    more["shares"] = shares if len(shares) > 1 else ()
    cluster.runs(f"gang-{cluster.place:02d}", size, on=on, **more)


def measured(sizes: tuple[int, ...], kind: str) -> st.SearchStrategy[tuple[Measured, ...]]:
    """Measurements of a job at none, one or several of its sizes."""
    speeds = st.dictionaries(st.sampled_from(sizes), SPEEDS, max_size=len(sizes))
    return speeds.map(lambda by_size: tuple(Measured(kind, n, s, 5) for n, s in by_size.items()))


def unfit_on(hosts: list[str]) -> st.SearchStrategy[tuple[HostId, ...]]:
    """Mostly none."""
    none: st.SearchStrategy[tuple[HostId, ...]] = st.just(())
    some = st.lists(st.sampled_from(hosts), max_size=2, unique=True).map(
        lambda names: tuple(map(HostId, names))
    )
    return st.one_of(none, none, some) if hosts else none


def fit_hosts(snapshot: Snapshot, job: JobView) -> list[HostView]:
    """Return the hosts on which a queued job may start: those from which its files can be reached,
    without those on which it failed to start, unless no other host can hold it."""
    if job.only_host is not None:
        return [host for host in snapshot.hosts if host.id == job.only_host]
    others = [
        host
        for host in snapshot.hosts
        if host.id not in job.unfit_on and min(job.sizes) <= host.usable
    ]
    return others if job.unfit_on and others else list(snapshot.hosts)


def job(draw: st.DrawFn, cluster: Cluster, sizes: tuple[int, ...]) -> dict[str, Any]:
    kinds = {kind for kind, _ in cluster.hosts.values()}
    return {
        "speeds": {kind: {size: draw(SPEEDS) for size in sizes} for kind in sorted(kinds)},
        "sizes": sizes,
        "left": draw(STEPS),
    }

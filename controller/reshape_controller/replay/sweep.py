"""Many replays: each policy at each seed, on every core, resumable.

Does: hands seeds to worker processes, keeps each replay that is done in a file of its own, and
leaves out what a former run with the same inputs has done. Never: draws or prints. State: the
folder; without one, nothing is kept.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from reshape_controller.replay.bounds import makespan_bound_s
from reshape_controller.replay.rows import Row, row_of
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.shell import Result, Scene, replay

RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Run:
    """A replay that is done: its row, and a row for each of its jobs."""

    row: Row
    jobs: tuple[dict[str, object], ...]


def workers_for(asked: int | None) -> int:
    """Processes to use: as asked, else one for each core that this process may use."""
    return asked if asked is not None else max(1, len(os.sched_getaffinity(0)))


def run_file(folder: Path, label: str, seed: int) -> Path:
    """Where a replay is kept."""
    return folder / RUNS / label / f"{seed}.json"


def sweep(
    setup: Setup,
    contenders: Sequence[Contender],
    seeds: Sequence[int],
    *,
    folder: Path | None = None,
    workers: int = 1,
    done: Callable[[Run], None] = lambda run: None,
) -> list[Run]:
    """Replay every contender at every seed. By policy as given, then by seed.

    ``done`` is told of each replay as it ends. Raises ReplayError, and BrokenProcessPool
    if somebody kills a worker.
    """
    mark = setup.fingerprint()
    found: dict[tuple[str, int], Run] = {}
    todo: list[tuple[int, list[Contender]]] = []
    for seed in seeds:
        missing = []
        for contender in contenders:
            known = _read(folder, contender.label, seed, mark) if folder is not None else None
            if known is None:
                missing.append(contender)
            else:
                found[contender.label, seed] = known
                done(known)
        if missing:
            todo.append((seed, missing))
    for run in _all(setup, todo, folder, mark, min(workers, len(todo))):
        found[str(run.row["policy"]), int(str(run.row["seed"]))] = run
        done(run)
    return [found[contender.label, seed] for contender in contenders for seed in seeds]


def _all(
    setup: Setup,
    todo: Sequence[tuple[int, list[Contender]]],
    folder: Path | None,
    mark: str,
    workers: int,
) -> Iterator[Run]:
    if workers <= 1:
        for seed, contenders in todo:
            yield from seed_runs(setup, contenders, seed, folder, mark)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_end_with_parent)
    try:
        with _ctrl_c_is_for_the_command():
            futures: list[Future[list[Run]]] = [
                pool.submit(_seed_list, setup, contenders, seed, folder, mark)
                for seed, contenders in todo
            ]
        for future in as_completed(futures):
            yield from future.result()
    except BaseException:
        # What is done is kept; without this, workers first do what they were handed, for minutes.
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _ctrl_c_is_for_the_command() -> Iterator[None]:
    """Workers that are started within it never see SIGINT, which a terminal sends to them too: they
    would tell of it, and go on with the next seed."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """In a worker: nobody tells it that the command was killed; it would wait for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _seed_list(
    setup: Setup, contenders: Sequence[Contender], seed: int, folder: Path | None, mark: str
) -> list[Run]:
    return list(seed_runs(setup, contenders, seed, folder, mark))


def seed_runs(
    setup: Setup, contenders: Sequence[Contender], seed: int, folder: Path | None, mark: str
) -> Iterator[Run]:
    """All replays of a seed; each is kept as soon as it is done."""
    scene = setup.scene(seed)
    bound_s = makespan_bound_s(scene)
    for contender in contenders:
        run = run_of(contender, scene, seed, bound_s)
        if folder is not None:
            _write(run_file(folder, contender.label, seed), mark, run)
        yield run


def run_of(contender: Contender, scene: Scene, seed: int, bound_s: float) -> Run:
    """One replay."""
    result = replay(scene, contender.policy, contender.mechanism, seed=seed)
    return Run(row_of(contender.label, result, bound_s), job_lines(contender.label, result))


def job_lines(label: str, result: Result) -> tuple[dict[str, object], ...]:
    """The jobs of a replay, for the CSV."""
    return tuple(
        {
            "policy": label,
            "seed": result.seed,
            **asdict(job),
            "jct_s": job.jct_s,
            "wait_s": job.wait_s,
        }
        for job in result.jobs
    )


def _read(folder: Path, label: str, seed: int, mark: str) -> Run | None:
    """A replay of a former run; None where there is none with the same inputs."""
    try:
        document = json.loads(run_file(folder, label, seed).read_text(encoding="utf-8"))
        if document["inputs"] == mark:
            return Run(document["row"], tuple(document["jobs"]))
    except (OSError, ValueError, TypeError, KeyError):
        pass  # not there, or not ours
    return None


def _write(path: Path, mark: str, run: Run) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"inputs": mark, "row": run.row, "jobs": run.jobs})
    partial = path.with_suffix(".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise

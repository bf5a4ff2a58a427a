"""Replays of every policy at every seed, on all cores, resumable.

Does: distribute seeds to worker processes, write each finished replay to a file of its own, and
skip the replays of an earlier run with the same inputs. State: the folder; without a folder, none.
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
from reshape_sidecar import foreign

RUNS = "runs"


@dataclass(frozen=True, slots=True)
class Run:
    """A finished replay: its row, and a row for each of its jobs."""

    row: Row
    jobs: tuple[dict[str, object], ...]


def workers_for(asked: int | None) -> int:
    """Return the number of processes: ``asked``, or the number of cores of this process."""
    return asked if asked is not None else max(1, len(os.sched_getaffinity(0)))


def run_file(folder: Path, label: str, seed: int) -> Path:
    """Return the file of a replay."""
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
    """Replay every contender at every seed; return the runs by contender, then by seed.

    ``done`` is called with each replay that ends. Raises ReplayError, and BrokenProcessPool if a
    worker is killed.
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
        # Finished replays are stored. Without this, workers go on with their seeds for minutes.
        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _ctrl_c_is_for_the_command() -> Iterator[None]:
    """Make workers that start within the context ignore SIGINT, which a terminal sends to them too.

    They would print a traceback and go on with the next seed.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """End this worker with the command, which cannot notify it if it is killed."""
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
    """Yield all replays of a seed; each is stored as soon as it ends."""
    scene = setup.scene(seed)
    bound_s = makespan_bound_s(scene)
    for contender in contenders:
        run = run_of(contender, scene, seed, bound_s)
        if folder is not None:
            _write(run_file(folder, contender.label, seed), mark, run)
        yield run


def run_of(contender: Contender, scene: Scene, seed: int, bound_s: float) -> Run:
    """Run a replay."""
    result = replay(scene, contender.policy, contender.mechanism, seed=seed)
    return Run(row_of(contender.label, result, scene, bound_s), job_lines(contender.label, result))


def job_lines(label: str, result: Result) -> tuple[dict[str, object], ...]:
    """Return the rows of a replay's jobs for the CSV."""
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
    """Return a replay of an earlier run; None without one with the same inputs."""
    try:
        text = foreign.read_text(run_file(folder, label, seed), foreign.INPUT_BYTES_MAX)
        document = json.loads(text)
        if document["inputs"] == mark:
            return Run(document["row"], tuple(document["jobs"]))
    except (OSError, ValueError, TypeError, KeyError):
        pass  # missing, or not a replay
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

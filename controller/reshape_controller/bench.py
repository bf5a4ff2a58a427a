"""Replays as DataFrames and pictures, for notebooks: ``from reshape_gpu import bench``.

    found = bench.replay("jobs.csv", cluster="2*8xV100", policies=["default", "adaptive"], seeds=6)
    found.metrics.groupby("policy").makespan_s.median()
    found.figure(8)

Does: what ``reshape compare`` does, with the values that it would print and write. It starts no
daemon. pandas and matplotlib are imported when a DataFrame or a figure is asked for.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from reshape_controller.cli.exits import CliError
from reshape_controller.cli.replays import inputs
from reshape_controller.cli.replays.options import SPREAD_MAX
from reshape_controller.cli.replays.runs import run_sweep
from reshape_controller.replay import bundle, figures, row_files
from reshape_controller.replay.inputs import ReplayError
from reshape_controller.replay.rows import Interval, summary
from reshape_controller.replay.setup import Contender, Setup
from reshape_controller.replay.shell import Result
from reshape_controller.replay.shell import replay as replay_once
from reshape_controller.replay.sweep import Run, workers_for

FIGURES = (6, 7, 8, 9, 10, 11)
"""Numbers of the paper's figures that a replay has."""


class BenchError(ValueError):
    """A replay cannot be made, or its results cannot be shown. The text has the remedy."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as SVG, which a notebook shows."""

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> None:
        """Write the SVG. Raises OSError."""
        Path(path).write_text(self.svg, encoding="utf-8")


@dataclass(frozen=True)
class Replays:
    """Replays of each policy at each seed. ``metrics``, ``jobs``, ``events`` and ``course`` are
    DataFrames, the last two of the first seed; ``rows`` gives the same without pandas."""

    setup: Setup
    contenders: tuple[Contender, ...]
    runs: tuple[Run, ...]

    @property
    def metrics(self) -> Any:
        """A row for each policy and seed (docs/replay.md, Metrics)."""
        return _data_frame(self.rows("metrics"))

    @property
    def jobs(self) -> Any:
        """A row for each job of each replay."""
        return _data_frame(self.rows("jobs"))

    @property
    def events(self) -> Any:
        """A row for each event of the first seed (docs/history.md)."""
        return _data_frame(self.rows("events"))

    @property
    def course(self) -> Any:
        """Pending and running jobs and allocated GPUs over time, of the first seed."""
        return _data_frame(self.rows("course"))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return metrics, jobs, events or course as a list of dicts. Raises BenchError."""
        if name == "metrics":
            return [dict(run.row) for run in self.runs]
        if name == "jobs":
            return [dict(job) for run in self.runs for job in run.jobs]
        if name == "events":
            return [
                row
                for label, one in self._first.items()
                for row in row_files.event_rows(label, one)
            ]
        if name == "course":
            return [
                row
                for label, one in self._first.items()
                for row in row_files.course_rows(label, one)
            ]
        raise BenchError(f"no rows are called {name!r}; use metrics, jobs, events or course")

    def figure(self, number: int) -> Picture:
        """Return one of the paper's figures, 6 to 11, of these replays. Raises BenchError."""
        if number not in FIGURES:
            known = ", ".join(str(each) for each in FIGURES)
            raise BenchError(f"no figure has the number {number}; use one of {known}")
        with tempfile.TemporaryDirectory(prefix="reshape-figure-") as folder:
            path = Path(folder) / "figure"
            try:
                self._draw(number, path)
            except figures.NoMatplotlib as error:
                raise BenchError(str(error)) from None
            return Picture(path.with_suffix(".svg").read_text(encoding="utf-8"))

    def to_csv(self, folder: str | Path) -> None:
        """Write jobs.csv and events.csv into a folder, which is made. Raises OSError."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name in ("jobs", "events"):
            row_files.write_csv(Path(folder) / f"{name}.csv", self.rows(name))

    def to_parquet(self, folder: str | Path) -> None:
        """Write the same as Parquet. Raises BenchError without pyarrow; OSError."""
        try:
            row_files.pyarrow()
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name in ("jobs", "events"):
                row_files.write_parquet(Path(folder) / f"{name}.parquet", self.rows(name))
        except row_files.NoPyarrow:
            what = "Parquet needs pyarrow, which is not installed: pip install pyarrow"
            raise BenchError(f"{what}, or use to_csv()") from None

    def _draw(self, number: int, path: Path) -> None:
        name, runs = self.setup.name, list(self.runs)
        if number == 6:
            found: dict[str, dict[str, Interval]] = summary([run.row for run in runs])
            figures.figure_6(path, {name: found})
        elif number == 9:
            figures.figure_9(path, {name: bundle.completion_times(runs)})
        else:
            of_results = {
                7: figures.figure_7,
                8: figures.figure_8,
                10: figures.figure_10,
                11: figures.figure_11,
            }
            of_results[number](path, self._first)

    @cached_property
    def _first(self) -> dict[str, Result]:
        """Replays of the first seed, with their course."""
        seed = int(str(self.runs[0].row["seed"]))
        scene = self.setup.scene(seed)
        return {
            one.label: replay_once(scene, one.policy, one.mechanism, seed=seed, keep=True)
            for one in self.contenders
        }


def replay(
    workload: str | Path = "one",
    *,
    policies: str | Sequence[str] = ("adaptive",),
    seeds: int | str | Sequence[int] = 1,
    cluster: str | None = None,
    costs: str = "paper",
    profiles: str | None = None,
    sizes: Sequence[int] | None = None,
    jobs: int | None = None,
    last: float | None = None,
    load: float = 1.0,
    spread: float | None = None,
    device_truth: str | None = None,
    workers: int | None = 1,
) -> Replays:
    """Replay a workload under policies in virtual time; return the results.

    ``workload``: one to four, or a file of jobs; ``seeds``: a number of seeds from 0 on, or seeds;
    ``workers``: processes, None for one on each core (a script then needs a main guard). The others
    are the options of ``reshape compare``. Raises BenchError.
    """
    labels = policies.split(",") if isinstance(policies, str) else policies
    if not labels or not seeds:
        raise BenchError("give at least a policy and a seed")
    if spread is not None and not 0.0 <= spread <= SPREAD_MAX:
        raise BenchError(f"spread is {spread:g}, and must be a number from 0 to {SPREAD_MAX:g}")
    if workers is not None and workers < 1:
        raise BenchError(f"workers is {workers}; give 1 or more, or None for one on each core")
    request = inputs.ReplayRequest(
        str(workload),
        cluster,
        costs,
        profiles,
        ",".join(str(size) for size in sizes) if sizes is not None else None,
        jobs,
        last,
        spread,
        device_truth,
    )
    try:
        chosen = inputs.seeds_of(_words(seeds))
        (one_load,) = inputs.loads_of(str(load))
        setup = inputs.setup_of(replace(request, load=one_load))
        contenders = tuple(inputs.contender(label) for label in labels)
        runs = run_sweep(setup, contenders, chosen, None, workers_for(workers))
    except CliError as error:
        raise BenchError(_text(error)) from None
    except ReplayError as error:
        raise BenchError(str(error)) from None
    return Replays(setup, contenders, tuple(runs))


def _words(seeds: int | str | Sequence[int]) -> str:
    """Return seeds as in ``--seeds``; a single one as ``4-4``, since ``4`` would mean four."""
    if isinstance(seeds, int | str):
        return str(seeds)
    return ",".join(map(str, seeds)) if len(seeds) != 1 else f"{seeds[0]}-{seeds[0]}"


def _text(error: CliError) -> str:
    """Return the problems of an error, each with its remedy."""
    return "; ".join(
        f"{problem.what} ({problem.remedy})" if problem.remedy else problem.what
        for problem in error.problems
    )


def _data_frame(rows: list[dict[str, Any]]) -> Any:
    try:
        pandas = importlib.import_module("pandas")
    except ImportError:
        what = "a DataFrame needs pandas, which is not installed: pip install pandas"
        raise BenchError(f"{what}, or use rows()") from None
    return pandas.DataFrame(rows)

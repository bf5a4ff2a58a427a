"""The seed of policies that draw: in the log, so that a run can be repeated."""

from __future__ import annotations

import asyncio
from pathlib import Path

from reshape_controller.cli.serve.up import checked
from reshape_controller.core import events as ev
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.store.sqlite.store import SqliteStore
from reshape_gpu.config import load
from reshape_gpu.settings import Value
from tests.support.live_fakes import Nothing


def started(path: Path, seed: int | None = None) -> int:
    """Start a controller on the store once; the seed that its state and its log have then."""

    async def inside() -> int:
        store, nothing = SqliteStore(path), Nothing()
        await store.open()
        try:
            loop = Loop(store, Settings(nothing, seed=seed), WallClock())
            await loop.start(nothing)
            events = [event async for record in store.read(0) for event in record.events]
            started = [event for event in events if isinstance(event, ev.ControllerStarted)]
            assert started[-1].seed == loop.engine.state.seed
            return loop.engine.snapshot().seed
        finally:
            await store.close()

    return asyncio.run(inside())


def test_a_seed_that_is_given_is_that_of_the_snapshot_and_of_the_log(tmp_path: Path) -> None:
    assert started(tmp_path / "store.sqlite", 42) == 42


def test_without_one_it_is_drawn_once_and_kept_by_later_starts(tmp_path: Path) -> None:
    drawn = {name: started(tmp_path / f"{name}.sqlite") for name in "abc"}
    assert len(set(drawn.values())) > 1
    assert {name: started(tmp_path / f"{name}.sqlite") for name in "abc"} == drawn
    assert started(tmp_path / "a.sqlite", 7) == 7
    assert started(tmp_path / "a.sqlite") == 7


def test_the_flag_and_its_absence_reach_the_daemons_settings(tmp_path: Path) -> None:
    flags: dict[str, Value] = {"home": str(tmp_path), "simulated_gpus": 2}
    assert checked(load({**flags, "seed": 42})).seed == 42
    assert checked(load(flags)).seed is None

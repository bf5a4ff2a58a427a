"""The command ``db init``: prepares a store before its first daemon.

Does: create what the store lacks (repeatable); an empty log gets the bundled profiles as its first
records. Never: write to a log that a controller has begun; the daemon adds missing profiles at its
next start.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from reshape_controller.cli.home import Home
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit
from reshape_controller.cli.profiles import files as profile_files
from reshape_controller.cli.profiles.files import ProfileFiles
from reshape_controller.cli.serve.store_settings import StoreSettings, store_error, store_settings
from reshape_controller.cli.serve.up import start_logging
from reshape_controller.core import events as ev
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.policies import make_policy
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Store, StoreError
from reshape_gpu.config import Config

_POLICY = "default"
"""Policy of the records, which a log requires; nothing is decided here."""


@dataclass(frozen=True, slots=True)
class InitReport:
    """The content of a store after ``db init``. ``seeded``: the newly recorded job types."""

    store: str
    last_seq: int
    job_types: tuple[str, ...]
    seeded: tuple[str, ...]
    validators: tuple[str, ...]
    """Collections with validation by the server."""


class _NoEffects:
    """Effects of a store without jobs: none."""

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        return None


@options_from(
    "home",
    "store",
    "store_credentials",
    "store_ca",
    "profiles",
    "output",
    profiles="File of profiles to record beside the bundled ones.",
)
def init(config: Config) -> None:
    """Create a store with its tables, indexes and the bundled profiles. Safe to repeat."""
    start_logging("warning")
    place = store_settings(config)
    known = profile_files.read(config.text("profiles"), config.source("profiles"))
    if place.file is not None:
        Home(config.home).prepare()
    try:
        made = asyncio.run(_make(place, known))
    except StoreError as error:
        raise store_error(error, place.text) from None
    emit(made, form(config), lambda: _text(made))


async def _make(place: StoreSettings, known: ProfileFiles) -> InitReport:
    store = place.make()
    try:
        await store.open()
        checked = await store.make_validators() if isinstance(store, MongoStore) else ()
        seeded = await _seed(store, known) if await store.last_seq() == 0 else ()
        types = tuple(row.job_type for row in await store.profiles())
        return InitReport(place.text, await store.last_seq(), types, seeded, checked)
    finally:
        await store.close()


async def _seed(store: Store, known: ProfileFiles) -> tuple[str, ...]:
    """Begin the log with the profiles; return their job types."""
    loop = Loop(store, Settings(make_policy(_POLICY)), WallClock())
    await loop.start(_NoEffects())
    work = asyncio.create_task(loop.run())
    try:
        missing = known.missing(loop.engine.state.profiles)
        await asyncio.gather(*(loop.commit(ev.ProfileRecorded(p)) for p in missing))
    finally:
        loop.stop()
        await work
    return tuple(profile.job_type for profile in missing)


def _text(made: InitReport) -> str:
    lines = [
        f"{made.store}: ready, log at record {made.last_seq}, {len(made.job_types)} job types known"
    ]
    if made.seeded:
        lines.append(f"  recorded now: {', '.join(made.seeded)}")
    if made.validators:
        lines.append(f"  checked by the server too: {', '.join(made.validators)}")
    return "\n".join(lines)

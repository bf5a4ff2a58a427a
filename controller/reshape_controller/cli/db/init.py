"""The command ``db init``: a store that is ready before a daemon ever ran on it.

Does: makes what the store lacks, any number of times; an empty log gets the bundled profiles as its
first records. Never: writes to a log that a controller has begun: what that lacks, the daemon
records at its next start. State: none.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from reshape_controller.cli.config import load
from reshape_controller.cli.home import Home
from reshape_controller.cli.options import (
    CaOption,
    CredentialsOption,
    HomeOption,
    OutputOption,
    StoreOption,
    form,
)
from reshape_controller.cli.output import emit
from reshape_controller.cli.profiles import files as profile_files
from reshape_controller.cli.profiles.files import ProfileFiles
from reshape_controller.cli.serve.store_settings import StorePlace, store_error, store_place
from reshape_controller.cli.serve.up import start_logging
from reshape_controller.core import events as ev
from reshape_controller.core.commands import Command
from reshape_controller.core.engine import Engine
from reshape_controller.live.clock import WallClock
from reshape_controller.live.loop import Loop, Settings
from reshape_controller.policies import make_policy
from reshape_controller.store.mongo.store import MongoStore
from reshape_controller.store.protocol import Store, StoreError

_POLICY = "default"
"""Nothing is decided here; a log names the policy of each of its records."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a store has after ``db init``. ``seeded`` are the job types that it recorded now."""

    store: str
    last_seq: int
    job_types: tuple[str, ...]
    seeded: tuple[str, ...]
    validators: tuple[str, ...]
    """Collections that the server itself checks."""


class _NoEffects:
    """There is nothing to carry out: no job is there."""

    def carry_out(self, engine: Engine, commands: tuple[Command, ...]) -> None:
        return None


def init(
    home: HomeOption = None,
    store: StoreOption = None,
    store_credentials: CredentialsOption = None,
    store_ca: CaOption = None,
    profiles: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="File of profiles to record beside the bundled ones."),
    ] = None,
    output: OutputOption = None,
) -> None:
    """Create a store with its tables, indexes and the bundled profiles. Safe to repeat."""
    config = load(locals())  # each option is called as its setting
    start_logging("warning")
    place = store_place(config)
    known = profile_files.read(config.text("profiles"), config.source("profiles"))
    if place.file is not None:
        Home(config.home).prepare()
    try:
        made = asyncio.run(_make(place, known))
    except StoreError as error:
        raise store_error(error, place.text) from None
    emit(made, form(config), lambda: _text(made))


async def _make(place: StorePlace, known: ProfileFiles) -> Made:
    store = place.make()
    try:
        await store.open()
        checked = await store.make_validators() if isinstance(store, MongoStore) else ()
        seeded = await _seed(store, known) if await store.last_seq() == 0 else ()
        types = tuple(row.job_type for row in await store.profiles())
        return Made(place.text, await store.last_seq(), types, seeded, checked)
    finally:
        await store.close()


async def _seed(store: Store, known: ProfileFiles) -> tuple[str, ...]:
    """Begin the log with the profiles."""
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


def _text(made: Made) -> str:
    lines = [
        f"{made.store}: ready, log at record {made.last_seq}, {len(made.job_types)} job types known"
    ]
    if made.seeded:
        lines.append(f"  recorded now: {', '.join(made.seeded)}")
    if made.validators:
        lines.append(f"  checked by the server too: {', '.join(made.validators)}")
    return "\n".join(lines)

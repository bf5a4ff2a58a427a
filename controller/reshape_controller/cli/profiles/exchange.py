"""The commands profile import and export: a daemon's profiles from and to files.

Does: read a whole file before the first request, and send its profiles to the daemon. Once the
command reports success, the log has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import HomeOption, OutputOption, client, form, settings
from reshape_controller.cli.output import emit, note
from reshape_controller.cli.profiles.files import load_file
from reshape_controller.http.profile_views import ProfileList, ProfilesRecorded
from reshape_gpu.requests import Request
from reshape_profiles import gavel, loader, table
from reshape_profiles.schema import Profile

REQUEST_BYTES = 256 * 1024
"""Approximate size of a request of profiles; each is one append, or few."""


class ProfileFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    GAVEL = "gavel"


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="File of profiles: .toml, .json or .csv.")
    ],
    part: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Part of the file to read, if it has several."),
    ] = None,
    home: HomeOption = None,
    output: OutputOption = None,
) -> None:
    """Import profiles from a file; the daemon predicts with them from then on."""
    config = settings(home, output)
    profiles = load_file(file, "FILE", part).bundle.profiles
    if not profiles:
        raise failed(
            Exit.USAGE, "the file has no profile", file, "write [[profile]] above each one"
        )
    ask = client(config)
    recorded: list[str] = []
    unchanged: list[str] = []
    for some in _requests(profiles):
        answer = ask.ask(
            Request("POST", "/v1/profiles", ProfilesRecorded, body=loader.document(some))
        )
        recorded += answer.recorded
        unchanged += answer.unchanged
    done = ProfilesRecorded(tuple(recorded), tuple(unchanged))
    emit(done, form(config), lambda: _said(done))


def export(
    types: Annotated[
        list[str] | None, typer.Argument(metavar="[TYPE]...", help="Job types; default: all.")
    ] = None,
    as_: Annotated[ProfileFormat, typer.Option("--as", help="File format.")] = ProfileFormat.JSON,
    into: Annotated[
        str | None, typer.Option(metavar="FILE", help="File to write; default: stdout.")
    ] = None,
    home: HomeOption = None,
) -> None:
    """Export the daemon's profiles to a file that import reads."""
    known = client(settings(home)).ask(Request("GET", "/v1/profiles", ProfileList)).profiles
    chosen = _chosen([row.profile for row in known if row.profile is not None], types)
    text, left_out = _written(chosen, as_)
    for what in left_out:
        note(f"left out: {what}")
    if into is None:
        typer.echo(text, nl=False)
        return
    try:
        with open(into, "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        remedy = "give a name that is not taken: --into FILE"
        raise failed(Exit.USAGE, "the file exists already", into, remedy) from None
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise failed(
            Exit.FAILED, what, into, "give a file that you can write: --into FILE"
        ) from None
    note(f"wrote {len(chosen)} profiles to {into}")


def _requests(profiles: Sequence[Profile]) -> Iterator[list[Profile]]:
    """Yield the profiles in order, as many at a time as fit a request; at least one."""
    some: list[Profile] = []
    size = 0
    for profile in profiles:
        length = len(json.dumps(loader.document((profile,))))
        if some and size + length > REQUEST_BYTES:
            yield some
            some, size = [], 0
        some.append(profile)
        size += length
    yield some


def _chosen(known: list[Profile], types: list[str] | None) -> list[Profile]:
    if not types:
        return known
    by_type = {profile.job_type: profile for profile in known}
    missing = [kind for kind in types if kind not in by_type]
    if missing:
        what = f"no recorded profile of {', '.join(missing)}"
        raise failed(
            Exit.NOT_FOUND, what, "TYPE", f"recorded types: {', '.join(by_type) or 'none'}"
        )
    return [by_type[kind] for kind in types]


def _written(profiles: list[Profile], kind: ProfileFormat) -> tuple[str, tuple[str, ...]]:
    match kind:
        case ProfileFormat.JSON:
            return loader.write(profiles), ()
        case ProfileFormat.CSV:
            return table.write(profiles), ()
        case ProfileFormat.GAVEL:
            return gavel.write(profiles)


def _said(done: ProfilesRecorded) -> str:
    lines = [f"recorded: {', '.join(done.recorded) or 'nothing'}"]
    if done.unchanged:
        lines.append(f"unchanged: {', '.join(done.unchanged)}")
    return "\n".join(lines)

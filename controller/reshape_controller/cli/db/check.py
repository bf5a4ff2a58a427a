"""The command ``db check``: the integrity of the store, and its projections against its log.

Does: read a file's pages and chain itself (also beside a daemon), then compare row by row and
repair what differs. Never: change the log.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit
from reshape_controller.cli.serve.store_settings import (
    StoreSettings,
    of_file,
    store_error,
    store_settings,
)
from reshape_controller.live.audit import Audit, audit
from reshape_controller.store.protocol import StoreCorrupt, StoreError
from reshape_controller.store.sqlite.lock import StoreInUse
from reshape_controller.store.sqlite.recover import CheckReport
from reshape_controller.store.sqlite.recover import check as check_file
from reshape_gpu.config import Config
from reshape_gpu.errors import Problem

SHOWN_MAX = 20
FileArgument = Annotated[
    str | None, typer.Argument(metavar="[FILE]", help="Store file; default: the store of the home.")
]


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The result of the check.

    ``problems`` are in the log and cannot be repaired here; ``wrong`` rows are missing or differ,
    ``extra`` rows are not in the log.
    """

    store: str
    first_seq: int
    last_good_seq: int
    requests: int | None
    """Requests that wait in the inbox; None for a server, whose inbox is not read."""
    problems: tuple[str, ...]
    compared: bool
    """True if the projections were compared; if not, ``why_not`` says why."""
    why_not: str
    rows: int
    wrong: tuple[str, ...]
    extra: tuple[str, ...]
    repaired: bool


@options_from("home", "store", "store_credentials", "store_ca", "repair", "output")
def check(
    config: Config,
    file: FileArgument = None,
    repair: Annotated[
        bool, typer.Option("--repair/--no-repair", help="Rewrite rows that differ from the log.")
    ] = True,
) -> None:
    """Check a store: verify its log, compare all rows with it, and repair rows that differ.
    Exit code 1 if the log is damaged or rows still differ."""
    place = of_file(Path(file).absolute()) if file else store_settings(config)
    if place.file is not None and not place.file.exists():
        what = "the store does not exist"
        raise failed(
            Exit.NOT_FOUND, what, place.text, "give the store's file, or its home: --home DIR"
        )
    try:
        checked = check_file(place.file) if place.file is not None else None
        report = asyncio.run(_compare(place, checked, repair))
    except StoreError as error:
        raise store_error(error, place.text) from None
    emit(report, form(config), lambda: _text(report))
    _complain(report, place)


async def _compare(place: StoreSettings, checked: CheckReport | None, repair: bool) -> StoreReport:
    found, why_not = None, ""
    damage: tuple[str, ...] = checked.problems if checked is not None else ()
    if damage:
        why_not = "the log is damaged"
    else:
        store = place.make()
        try:
            await store.open()
            found = await audit(store, repair=repair)
        except StoreInUse:
            why_not = "a daemon has the store open; it repairs rows at each start"
        except StoreCorrupt as error:
            damage, why_not = (str(error).partition("; remedy: ")[0],), "the log is damaged"
        except StoreError as error:
            if checked is None:
                raise
            why_not = str(error)  # for example a copy that is read only
        finally:
            await store.close()
    return _report(place, checked, found, damage, why_not)


def _report(
    place: StoreSettings,
    checked: CheckReport | None,
    found: Audit | None,
    damage: tuple[str, ...],
    why_not: str,
) -> StoreReport:
    first, last = (found.begin_seq, found.end_seq) if found is not None else (0, 0)
    if checked is not None:
        first, last = checked.first_seq, checked.last_good_seq
    return StoreReport(
        store=place.text,
        first_seq=first,
        last_good_seq=last,
        requests=checked.requests if checked is not None else None,
        problems=damage,
        compared=found is not None,
        why_not=why_not,
        rows=found.rows if found is not None else 0,
        wrong=found.wrong if found is not None else (),
        extra=found.extra if found is not None else (),
        repaired=found is not None and found.repaired and not found.sound,
    )


def _complain(report: StoreReport, place: StoreSettings) -> None:
    if report.problems:
        remedy = "restore a backup (mongorestore)"
        if place.file is not None:
            remedy = f"stop the daemon, then: reshape db recover {place.file}"
        raise CliError(Exit.FAILED, *(Problem(p, place.text, remedy) for p in report.problems[:1]))
    differing = len(report.wrong) + len(report.extra)
    if differing and not report.repaired:
        what = f"{differing} rows differ from the log"
        raise failed(Exit.FAILED, what, place.text, "run the command again without --no-repair")


def _text(report: StoreReport) -> str:
    state = "sound" if not report.problems else "DAMAGED"
    waiting = f", {report.requests} requests wait" if report.requests is not None else ""
    good = f"records {report.first_seq} to {report.last_good_seq} are good"
    lines = [
        f"{report.store}: {state}; {good}{waiting}",
        *(f"  {problem}" for problem in report.problems),
    ]
    if not report.compared:
        return "\n".join([*lines, f"rows were not compared with the log: {report.why_not}"])
    named = [f"  {name}: missing or different" for name in report.wrong]
    named += [f"  {name}: not in the log" for name in report.extra]
    if not named:
        return "\n".join([*lines, f"all {report.rows} rows match the log"])
    done = "repaired" if report.repaired else "NOT repaired"
    lines.append(f"{len(named)} of {report.rows} rows differ from the log; {done}:")
    more = [f"  and {len(named) - SHOWN_MAX} more"] if len(named) > SHOWN_MAX else []
    return "\n".join([*lines, *named[:SHOWN_MAX], *more])

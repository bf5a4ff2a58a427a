"""Commands about the store: db init, check, backup, restore, set-time-back (modules of their own),
recover.

``db recover`` reads the file itself, because no daemon can open it then. Never: change that file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.db import check as db_check
from reshape_controller.cli.db import init as db_init
from reshape_controller.cli.db import loss, time_back
from reshape_controller.cli.db.check import FileArgument
from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit
from reshape_controller.cli.serve.store_settings import store_error
from reshape_controller.store.protocol import StoreError
from reshape_controller.store.sqlite.recover import RecoveryReport
from reshape_controller.store.sqlite.recover import recover as recover_file
from reshape_gpu.config import Config

db_app = typer.Typer(
    help="The store: create, check, back up, restore, recover.", no_args_is_help=True
)
db_app.command("init")(db_init.init)
db_app.command("check")(db_check.check)
db_app.command("backup")(loss.back_up)
db_app.command("restore")(loss.restore)
db_app.command("set-time-back")(time_back.set_time_back)


@db_app.command("recover")
@options_from("home", "store", "store_credentials", "store_ca", "output")
def recover(
    config: Config,
    file: FileArgument = None,
    into: Annotated[
        str | None, typer.Option("--into", metavar="NEW", help="File to write; must not exist.")
    ] = None,
    accept_loss: loss.LossOption = False,
) -> None:
    """Recover a damaged store: copy its intact records to a new file. With --accept-loss: go on
    with a log that lost records."""
    if accept_loss:
        loss.accept(config, file)
        return
    path = _path(file, config.home)
    target = Path(into).absolute() if into else path.with_name(path.name + ".recovered")
    try:
        found = recover_file(path, target)
    except StoreError as error:
        raise store_error(error, str(path)) from None
    emit(_shown(found), form(config), lambda: _recovered_text(path, found))


def _path(file: str | None, home: Path) -> Path:
    path = Path(file).absolute() if file else Home(home).store
    if not path.exists():
        what = "the store does not exist"
        raise failed(
            Exit.NOT_FOUND, what, str(path), "give the store's file, or its home: --home DIR"
        )
    return path


def _shown(found: RecoveryReport) -> object:
    return {
        "into": str(found.into),
        "first_seq": found.first_seq,
        "last_seq": found.last_seq,
        "requests": found.requests,
        "lost": found.lost,
    }


def _recovered_text(path: Path, found: RecoveryReport) -> str:
    lines = [
        f"wrote records {found.first_seq} to {found.last_seq} and {found.requests} requests to "
        f"{found.into}",
        f"lost: {found.lost}" if found.lost else "nothing was lost",
        "to use the new file, stop the daemon and run:",
        f"  mv {path} {path}.damaged && rm -f {path}-wal {path}-shm && mv {found.into} {path}",
    ]
    return "\n".join(lines)

"""The command show: the page of a run that is over, or of a replay, read-only.

Does: serves a copy of the run on loopback until Ctrl-C; the copy is removed then.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.output import note, write_text
from reshape_controller.cli.serve.store_settings import store_error
from reshape_controller.cli.show.runs import Run, chosen, open_copy, runs_in
from reshape_controller.http.app import LOOPBACK, CannotListen, Server, bind
from reshape_controller.http.past import past_context, past_routes
from reshape_controller.store.protocol import StoreError


def show(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A daemon's home, or a folder with runs.")
    ],
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="Which of several runs.")
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 is any free one.")
    ] = 0,
) -> None:
    """Open the page of a run that is over, or of a replay, read-only, until Ctrl-C."""
    runs = runs_in(folder)
    it = chosen(runs, run)
    others = [each.name for each in runs if each != it]
    try:
        asyncio.run(_serve(it, port, others))
    except StoreError as error:
        raise store_error(error, str(it.path)) from None
    except OSError as error:
        what = f"it cannot be read: {error.strerror}"
        raise failed(Exit.FAILED, what, str(it.path), "check its rights, and the disk") from None


async def _serve(run: Run, port: int, others: list[str]) -> None:
    """Serve a copy of the run until a signal. Raises CliError, StoreError, OSError."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    token = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory(prefix="reshape-show-") as folder:
        store = await open_copy(run, Path(folder))
        try:
            context = await past_context(store, run.logs, token)
            server = Server(_listen(port), context, past_routes())
            server.start()
            _say(run, server.port, token, others)
            await stop.wait()
            await server.stop()
            await context.timeline.stop()
        finally:
            await store.close()


def _listen(port: int) -> socket.socket:
    try:
        return bind(LOOPBACK, port)
    except CannotListen as error:
        raise failed(Exit.FAILED, str(error), "--port", error.remedy) from None


def _say(run: Run, port: int, token: str, others: list[str]) -> None:
    url = f"http://{LOOPBACK}:{port}/page/#/?token={token}"
    write_text(f"the page of {run.name}, until Ctrl-C: {url}\n")
    sys.stdout.flush()
    if others:
        note(f"other runs of this folder, by --run: {', '.join(others)}")

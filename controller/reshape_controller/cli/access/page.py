"""The command page: a link that opens the daemon's page, so that no token goes into a browser."""

from __future__ import annotations

import os
import webbrowser
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

import typer

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import client, form, options_from
from reshape_controller.cli.output import emit, note
from reshape_gpu import logins, requests
from reshape_gpu.config import Config
from reshape_sidecar import durable

FILE_NAME = "page.html"


@dataclass(frozen=True, slots=True)
class OpenLink:
    """A link as the command prints it."""

    url: str
    expires_in_s: float


@options_from("home", "context", "output")
def page(
    config: Config,
    open_it: Annotated[
        bool, typer.Option("--open", help="Also open it in the browser of this machine.")
    ] = False,
) -> None:
    """Print a link that opens the page, logged in as you; it works once, for a minute."""
    daemon = client(config)
    made = daemon.ask(requests.page_link())
    link = OpenLink(f"{daemon.url}/page/#link={made.link}", made.expires_in_s)
    emit(link, form(config), lambda: link.url)
    if open_it and not _opened(link.url):
        note("no browser was found; open the link yourself")


def _opened(url: str) -> bool:
    """Open a link; return whether a browser took it. Raises CliError.

    The browser gets a file: other users of this machine can read its arguments.
    """
    path = logins.logins_file(os.environ).with_name(FILE_NAME)
    text = (
        f'<!doctype html><meta http-equiv="refresh" content="0; url={quote(url, safe=":/#=[]")}">'
    )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.write_whole(path, text.encode(), 0o600)
    except OSError as error:
        what = f"the file for the browser cannot be written: {error.strerror}"
        raise failed(Exit.FAILED, what, str(path), "open the printed link yourself") from None
    return webbrowser.open(path.absolute().as_uri())

"""Commands about daemons elsewhere: login, logout, context list, context use."""

from __future__ import annotations

import getpass
import os
import sys
import urllib.parse
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit, grid, note
from reshape_gpu import logins as logins_of
from reshape_gpu.client import Client
from reshape_gpu.config import Config
from reshape_gpu.logins import LOCAL, Login, Logins
from reshape_gpu.target import Target, check_tls, checked_url, given_token, named

context_app = typer.Typer(help="The daemons that you are logged in at.", no_args_is_help=True)
ContextArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of a login.")]


@options_from("token_file", "ca")
def login(
    config: Config,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL: https://HOST:PORT.")],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the login; default: the host.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Send the token without TLS, if URL is http://.")
    ] = False,
) -> None:
    """Log in at a daemon elsewhere; later commands talk to it. Reads the token from stdin."""
    url = checked_url(url, "URL")
    check_tls(url, "URL", plain_http=plain_http)
    token, token_from = given_token(config, os.environ) or (_from_stdin(), "stdin")
    ca = config.text("ca")
    path = None if ca is None else Path(ca).expanduser().absolute()
    client = Client.at(Target(url, token, "URL", token_from, path))
    found = client.whoami()
    name = name or urllib.parse.urlsplit(url).hostname or ""
    if name == LOCAL:
        remedy = "choose another: --name NAME"
        raise failed(Exit.USAGE, f"{LOCAL!r} is the home on this machine", "--name", remedy)
    added = Login(name, url, token, None if path is None else str(path), plain_http)
    _write(_logins().having(added))
    note(f"logged in at {url} as {found.name} ({found.role}); this is the login {name}")


def logout(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of a login; default: the current.")
    ] = None,
) -> None:
    """Forget a login and its token. An operator revokes the token."""
    found = _logins()
    name = name or found.current
    if name is None:
        raise failed(Exit.NOT_FOUND, "there is no current login", "NAME", "reshape context list")
    named(found, name, "NAME")
    _write(found.without(name))
    note(f"forgot the login {name}")


@context_app.command("list")
@options_from("output")
def list_contexts(config: Config) -> None:
    """List the logins, and mark the current."""
    found = _logins()
    shown = [
        {"name": each.name, "url": each.url, "current": each.name == found.current}
        for each in found.logins
    ]
    emit({"contexts": shown}, form(config), lambda: _table(found))


@context_app.command("use")
def use(name: ContextArgument) -> None:
    """Make a login the current; `local` is the home on this machine."""
    found = _logins()
    if name != LOCAL:
        named(found, name, "NAME")
    _write(found.using(name))


def _table(found: Logins) -> RenderableType:
    table = grid("CURRENT", "NAME", "URL")
    local = Login(LOCAL, "the home on this machine", "")
    for each in (local, *found.logins):
        current = each.name == (found.current or LOCAL)
        table.add_row("*" if current else "", each.name, each.url)
    return table


def _from_stdin() -> str:
    """Read the token. Raises CliError."""
    text = getpass.getpass("token: ") if sys.stdin.isatty() else sys.stdin.readline()
    if not text.strip():
        remedy = "paste the token, or give its file: --token-file FILE"
        raise failed(Exit.USAGE, "no token was given", "stdin", remedy)
    return text.strip()


def _logins() -> Logins:
    return logins_of.read(logins_of.logins_file(os.environ))


def _write(logins: Logins) -> None:
    logins_of.write(logins_of.logins_file(os.environ), logins)

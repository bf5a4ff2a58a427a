"""Commands of the operator about named tokens: token create, list, revoke, rotate.

Does: change ``tokens.json``, which the daemon follows, so that no daemon has to run. Never: store a
token, or show one again.
"""

from __future__ import annotations

import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from reshape_controller.access import token_file
from reshape_controller.access.identity import Role
from reshape_controller.access.token_file import NamedToken, TokenFile, TokenFileError
from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.options import form, options_from
from reshape_controller.cli.output import emit, grid, note
from reshape_controller.cli.words import moment, seconds_of
from reshape_gpu.config import Config

token_app = typer.Typer(help="Tokens of the people who share the daemon.", no_args_is_help=True)
DEFAULT_OVERLAP = "1h"
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the person or program.")]


class PersonRole(StrEnum):
    """The roles that a named token can have."""

    VIEWER = Role.VIEWER.value
    USER = Role.USER.value
    OPERATOR = Role.OPERATOR.value
    SCRAPER = Role.SCRAPER.value


class TokenState(StrEnum):
    """Whether a token opens anything. The jobs of its name have its uid in each state."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just drawn; only its hash is stored."""

    name: str
    role: str
    expires_at_s: float | None
    token: str


@token_app.command("create")
@options_from("home", "secrets", "output")
def create(
    config: Config,
    name: NameArgument,
    role: Annotated[PersonRole, typer.Option(help="What the token allows.")] = PersonRole.USER,
    expires: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="Lifetime, such as 90d; default: no end."),
    ] = None,
    uid: Annotated[
        str | None,
        typer.Option(metavar="UID", help="Unix user (number or name) under whom its jobs run."),
    ] = None,
    priority: Annotated[int, typer.Option(help="Highest priority of its jobs.")] = 0,
    pin: Annotated[bool, typer.Option("--pin/--no-pin", help="May fix GPU counts.")] = True,
    may_restart: Annotated[
        bool, typer.Option("--may-restart/--no-may-restart", help="May set may_restart.")
    ] = True,
) -> None:
    """Create a token and print it. It is shown once; the daemon stores its hash."""
    home, secret, now_s = _home(config), token_file.new_token(), time.time()
    added = NamedToken(
        name,
        Role(role.value),
        token_file.digest(secret.encode()),
        now_s,
        None if expires is None else now_s + _span(expires, "--expires"),
        _uid(uid),
        priority,
        pin,
        may_restart,
    )
    _edit(home, lambda file: file.created(added))
    _show(config, added, secret)


@token_app.command("rotate")
@options_from("home", "secrets", "output")
def rotate(
    config: Config,
    name: NameArgument,
    overlap: Annotated[
        str, typer.Option(metavar="SPAN", help="Time for which the old token stays valid.")
    ] = DEFAULT_OVERLAP,
) -> None:
    """Print a new token for a name; the old one stays valid for a while."""
    home, secret, now_s = _home(config), token_file.new_token(), time.time()
    sha256, overlap_s = token_file.digest(secret.encode()), _span(overlap, "--overlap")
    changed = _edit(home, lambda file: file.rotated(name, sha256, now_s, overlap_s))
    _show(config, changed.of(name)[-1], secret)
    note(f"the token before is valid until {moment(now_s + overlap_s)} UTC")


@token_app.command("revoke")
@options_from("home", "secrets")
def revoke(config: Config, name: NameArgument) -> None:
    """Revoke the tokens of a name; it holds from the next request on. Jobs go on."""
    _edit(_home(config), lambda file: file.revoked(name))
    note(f"revoked the tokens of {name}; its jobs go on, and an operator can cancel them")


@token_app.command("list")
@options_from("home", "secrets", "output")
def list_tokens(config: Config) -> None:
    """List the named tokens with role, caps and expiry; a revoked one if it has a uid."""
    path = _home(config).named_tokens_file
    try:
        file = token_file.read(path)
    except TokenFileError as error:
        raise _refused(error, path) from None
    now_s = time.time()
    shown = [_plain(token, now_s) for token in file.listed]
    emit({"tokens": shown}, form(config), lambda: _table(file.listed, now_s))


def _state(token: NamedToken, now_s: float) -> TokenState:
    if token.revoked:
        return TokenState.REVOKED
    return TokenState.VALID if token.valid_at(now_s) else TokenState.EXPIRED


def _plain(token: NamedToken, now_s: float) -> dict[str, object]:
    """Return a token's values without its hash."""
    return {
        "name": token.name,
        "role": token.role.value,
        "uid": token.uid,
        "created_at_s": token.created_at_s,
        "expires_at_s": token.expires_at_s,
        "priority": token.priority,
        "pin": token.pin,
        "may_restart": token.may_restart,
        "state": _state(token, now_s).value,
    }


def _table(tokens: tuple[NamedToken, ...], now_s: float) -> RenderableType:
    names = ("NAME", "ROLE", "UID", "PRIORITY", "PIN", "MAY_RESTART", "CREATED", "EXPIRES")
    table = grid(*names, right=("UID", "PRIORITY"))
    for token in tokens:
        table.add_row(
            token.name,
            token.role.value,
            "-" if token.uid is None else str(token.uid),
            str(token.priority),
            "yes" if token.pin else "no",
            "yes" if token.may_restart else "no",
            moment(token.created_at_s),
            _end(token, now_s),
        )
    return table


def _end(token: NamedToken, now_s: float) -> str:
    state = _state(token, now_s)
    if state is TokenState.REVOKED:
        return state.value
    end = "no end" if token.expires_at_s is None else moment(token.expires_at_s)
    return end if state is TokenState.VALID else f"{end} ({state.value})"


def _show(config: Config, token: NamedToken, secret: str) -> None:
    made = NewToken(token.name, token.role.value, token.expires_at_s, secret)
    emit(made, form(config), lambda: secret)
    note(f"give it to {token.name}, who runs: reshape login URL")


def _home(config: Config) -> Home:
    """Return the home, which has had a daemon. Raises CliError."""
    home = Home(config.home, config.secrets)
    if not home.token_file.exists():
        what = "no daemon has ever run in this home"
        remedy = "start one: reshape up; or give another home: --home DIR or RESHAPE_HOME"
        raise failed(Exit.FAILED, what, str(home.folder), remedy)
    return home


def _edit(home: Home, change: Callable[[TokenFile], TokenFile]) -> TokenFile:
    """Change the file of tokens. Raises CliError."""
    path = home.named_tokens_file
    try:
        return token_file.edit(path, change)
    except TokenFileError as error:
        raise _refused(error, path) from None


def _refused(error: TokenFileError, path: Path) -> CliError:
    return failed(Exit.FAILED, str(error), str(path), error.remedy)


def _span(text: str, where: str) -> float:
    span_s = seconds_of(text)
    if span_s is None:
        what = f"{text!r} is not a time span"
        raise failed(Exit.USAGE, what, where, "for example 90d, 12h or 0s")
    return span_s


def _uid(text: str | None) -> int | None:
    """Return the number of a Unix user. Raises CliError."""
    if text is None:
        return None
    try:
        uid = int(text) if text.isascii() and text.isdigit() else pwd.getpwnam(text).pw_uid
    except KeyError:
        remedy = "give a user of this machine, by name or number"
        raise failed(Exit.USAGE, f"there is no Unix user {text!r}", "--uid", remedy) from None
    if not 0 < uid < 2**31:
        remedy = "give the user's own uid: jobs under uid 0 could do everything"
        raise failed(Exit.USAGE, f"uid {uid} is not one for jobs", "--uid", remedy)
    return uid

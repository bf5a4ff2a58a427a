"""The operator's file of the targets of notifications.

Does: read the file strictly and report all problems at once. Never: show a secret, or the path of a
URL, which may hold one.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from reshape_controller.cli.exits import CliError, Exit, failed
from reshape_controller.live.notifications.targets import Event, Target
from reshape_gpu import strict_yaml
from reshape_gpu.errors import Problem
from reshape_gpu.strict_yaml import NotYaml
from reshape_sidecar import foreign

SECRET_LENGTH_MIN = 16
TARGETS_MAX = 32
AFTER_MAX_S = 31_536_000.0
FORM = "write NAME: {url: https://HOST/PATH, secret_file: FILE, events: [ended, failed]}"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]{0,62}$")]


class _TargetFields(BaseModel):
    """One target of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    url: str = Field(max_length=2000, pattern=r"^[!-~]+$")
    secret: str | None = Field(None, min_length=SECRET_LENGTH_MIN, max_length=1000)
    secret_file: str | None = None
    events: list[Annotated[Event, Field(strict=False)]] = Field(min_length=1)
    after_s: float | None = Field(None, ge=1, le=AFTER_MAX_S, allow_inf_nan=False)
    allow: list[str] = Field(default_factory=list, max_length=64)


_FILE = TypeAdapter(
    Annotated[dict[Name, _TargetFields], Field(max_length=TARGETS_MAX)],
)


def read(name: str | None, where: str) -> tuple[Target, ...]:
    """Return the targets; ``name`` is a file, ``where`` its setting. Raises CliError."""
    if name is None:
        return ()
    path = Path(name).expanduser().absolute()
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = foreign.read_text(path, foreign.SETTINGS_BYTES_MAX)
        value = strict_yaml.load(text)
    except (OSError, UnicodeDecodeError) as error:
        what = f"notify: the file cannot be read: {getattr(error, 'strerror', None) or error}"
        raise failed(Exit.USAGE, what, f"{path} ({where})", FORM) from None
    except NotYaml as error:
        raise failed(Exit.USAGE, f"notify: not YAML: {error}", str(path), FORM) from None
    try:
        fields = _FILE.validate_python(value if value is not None else {})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems = [(".".join(map(str, one["loc"])), one["msg"]) for one in details]
        found = (Problem(f"{place}: {text}", str(path), FORM) for place, text in problems)
        raise CliError(Exit.USAGE, *found) from None
    errors = [
        Problem(f"{name}.{what}", str(path), remedy)
        for name, each in fields.items()
        for what, remedy in _wrong(each, mode)
    ]
    if errors:
        raise CliError(Exit.USAGE, *errors)
    return tuple(_target(name, each, path) for name, each in sorted(fields.items()))


def _wrong(fields: _TargetFields, mode: int) -> Iterator[tuple[str, str]]:
    """Yield each problem of a target that concerns more than the form of a field."""
    yield from _wrong_url(fields)
    if (fields.secret is None) == (fields.secret_file is None):
        yield "secret: exactly one of secret and secret_file is needed", FORM
    if fields.secret is not None and mode & 0o077:
        what = f"secret: other users can read the file that has it (mode {mode:03o})"
        yield what, "chmod 600 the file, or name the secret's own file: secret_file"
    if (Event.WAITING in fields.events) != (fields.after_s is not None):
        what = "after_s: it says after how long a wait `waiting` is sent"
        yield what, "give both, or neither: events: [waiting], after_s: 3600"
    for text in fields.allow:
        try:
            ip_network(text)
        except ValueError:
            what = f"allow: {text!r:.60} is not an address or a network"
            yield what, "give addresses, not names: 10.1.2.3, or 10.1.2.0/24"


def _wrong_url(fields: _TargetFields) -> Iterator[tuple[str, str]]:
    remedy = "give https://HOST[:PORT]/PATH without a user, a password or a #"
    try:
        parts = urlsplit(fields.url)
        port = parts.port
    except ValueError:
        yield "url: it is not a URL", remedy
        return
    if parts.scheme not in ("https", "http") or not parts.hostname or port == 0:
        yield "url: it is not a URL", remedy
    elif "@" in parts.netloc or parts.fragment:
        yield "url: it has a user or a fragment", remedy
    elif parts.scheme == "http" and not fields.allow:
        yield (
            "url: without TLS others can read and change a notification",
            "use https, or name the receiver's private address: allow: [10.1.2.3]",
        )


def _target(name: str, fields: _TargetFields, path: Path) -> Target:
    """Return the value of a checked target. Raises CliError."""
    secret = fields.secret or _secret(
        name, path.parent / Path(fields.secret_file or "").expanduser()
    )
    return Target(
        name=name,
        url=fields.url,
        secret=secret.encode(),
        events=frozenset(fields.events),
        after_s=fields.after_s or 0.0,
        allow=tuple(ip_network(text) for text in fields.allow),
    )


def _secret(name: str, path: Path) -> str:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        text = foreign.read_text(path, foreign.SECRET_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        what = f"{name}.secret_file: it cannot be read: {getattr(error, 'strerror', None) or error}"
        raise failed(Exit.USAGE, what, str(path), "write the secret there, mode 0600") from None
    if mode & 0o037:
        what = f"{name}.secret_file: other users can read or write it (mode {mode:03o})"
        raise failed(Exit.USAGE, what, str(path), f"chmod 600 {path}")
    if len(text) < SECRET_LENGTH_MIN:
        what = f"{name}.secret_file: it has fewer than {SECRET_LENGTH_MIN} characters"
        raise failed(Exit.USAGE, what, str(path), "write a longer secret: openssl rand -hex 32")
    return text

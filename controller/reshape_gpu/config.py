"""Settings: defaults, then the configuration file, then the environment, then flags.

Does: read each source once, reject unknown settings, and record the source of each value. A later
source overrides an earlier one. Commands get their flags from the same table
(``options.options_from``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_gpu.errors import SettingError
from reshape_gpu.settings import BY_NAME, SETTINGS, Setting, Value
from reshape_sidecar import foreign

FLAG, ARGUMENT = "flag", "argument"
"""Begin the source of a value that a flag sets, or an argument of a Python program."""
ENV_PREFIX = "RESHAPE_"
ENV_JOB = "RESHAPE_JOB"
"""Set inside a job, whose environment has further names that are no settings."""
TOKEN_ENV = "RESHAPE_TOKEN"
"""A token in the environment; it is no setting, so that no command shows it."""
OTHER_ENV = (TOKEN_ENV, "RESHAPE_CONFIG", "RESHAPE_DEBUG", "RESHAPE_CGROUP", "RESHAPE_ZYGOTE")
"""Names in the environment that are no settings."""
_OF_A_SERVICE = re.compile(
    r"(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)", re.ASCII
)
_OF_A_PORT = re.compile(r"(tcp|udp|sctp)://")


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A value and its source."""

    name: str
    value: Value
    source: str


class Config:
    """The values of all settings. Read only."""

    def __init__(self, found: dict[str, SettingValue], token: str | None = None) -> None:
        self._found = found
        self.token = token
        """A token that a Python program gave; it is no setting, so that no command shows it."""

    def text(self, name: str) -> str | None:
        """Return a text setting; None if it is not set."""
        value = self._found[name].value
        return None if value is None else str(value)

    def number(self, name: str) -> int | None:
        """Return an integer setting; None if it is not set."""
        value = self._found[name].value
        return value if isinstance(value, int) else None

    @property
    def home(self) -> Path:
        """Folder of the daemon, absolute."""
        return Path(os.path.abspath(os.path.expanduser(self.text("home") or "")))

    @property
    def secrets(self) -> Path | None:
        """Folder of the daemon's secrets, absolute; None: its home."""
        text = self.text("secrets")
        return None if text is None else Path(os.path.abspath(os.path.expanduser(text)))

    def source(self, name: str) -> str:
        return self._found[name].source

    def is_given(self, name: str) -> bool:
        """Whether a flag, or an argument of a Python program, sets it."""
        return self.source(name).startswith((FLAG, ARGUMENT))

    def all(self) -> tuple[SettingValue, ...]:
        """Return every setting without its secrets."""
        found = (self._found[setting.name] for setting in SETTINGS)
        return tuple(replace(f, value=_shown(f)) for f in found)


def config_file(env: Mapping[str, str]) -> tuple[Path, bool]:
    """Return the configuration file, and True if it was named and has to exist."""
    if env.get("RESHAPE_CONFIG"):
        return Path(env["RESHAPE_CONFIG"]).expanduser(), True
    base = env.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "reshape" / "config.yaml", False


def load(
    flags: Mapping[str, Value],
    env: Mapping[str, str] | None = None,
    *,
    token: str | None = None,
    by: str = FLAG,
) -> Config:
    """Return the settings; a flag that is None was not given. Raises SettingError.

    ``by``: FLAG, or ARGUMENT if a Python program gives them.
    """
    given = os.environ if env is None else env
    env = {name: text for name, text in given.items() if not _is_of_a_service(name, text)}
    _check_names(env)
    path, named = config_file(env)
    found = {s.name: SettingValue(s.name, s.default, "default") for s in SETTINGS}
    for name, raw in _file(path, named).items():
        found[name] = SettingValue(
            name, _checked(BY_NAME[name], raw, f"file {path}"), f"file {path}"
        )
    for setting in SETTINGS:
        text = env.get(setting.env)
        if text:
            source = f"environment {setting.env}"
            found[setting.name] = SettingValue(
                setting.name, _checked(setting, text, source), source
            )
        flag = flags.get(setting.name)
        if flag is not None:
            source = f"{by} {setting.flag if by == FLAG else setting.name}"
            found[setting.name] = SettingValue(
                setting.name, _checked(setting, flag, source), source
            )
    return Config(found, token)


def _is_of_a_service(name: str, text: str) -> bool:
    """Whether Kubernetes sets a variable in each pod of a namespace with a Service whose name
    begins with ``reshape``. ``RESHAPE_PORT`` is one only with a Service's value."""
    rest = name.removeprefix(ENV_PREFIX)
    if rest == name or _OF_A_SERVICE.fullmatch(rest) is None:
        return False
    return name not in {setting.env for setting in SETTINGS} or bool(_OF_A_PORT.match(text))


def _check_names(env: Mapping[str, str]) -> None:
    """Refuse a name that would silently set nothing. Raises SettingError."""
    if ENV_JOB in env:
        return
    known = {*(setting.env for setting in SETTINGS), *OTHER_ENV}
    for name in sorted(env):
        if name.startswith(ENV_PREFIX) and name not in known:
            import difflib  # here, because a right environment does not need it

            near = difflib.get_close_matches(name, known, 1)
            remedy = f"write {near[0]}" if near else "unset it; reshape config show lists all"
            what = f"{name} is the name of no setting"
            raise SettingError.of(what, f"environment {name}", remedy)


def _file(path: Path, named: bool) -> dict[str, object]:
    try:
        text = foreign.read_text(path, foreign.SETTINGS_BYTES_MAX)
    except FileNotFoundError:
        if named:
            remedy = "create it, or unset RESHAPE_CONFIG"
            raise SettingError.of(
                "the configuration file does not exist", str(path), remedy
            ) from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError.of(
            f"the configuration file cannot be read: {error}", str(path), "fix the file"
        ) from None
    from reshape_gpu import strict_yaml  # here, because most commands run without a file

    try:
        value = strict_yaml.load(text)
    except strict_yaml.NotYaml as error:
        what = f"the configuration file cannot be read as YAML: {error}"
        raise SettingError.of(what, str(path), "write lines like: port: 7470") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        what = "the configuration file is not a list of settings"
        raise SettingError.of(what, str(path), "write lines like: port: 7470")
    for name in value:
        if name not in BY_NAME:
            known = ", ".join(BY_NAME)
            raise SettingError.of(
                f"unknown setting {name!r}", f"file {path}", f"use one of: {known}"
            )
    return value


def _checked(setting: Setting, raw: object, source: str) -> Value:
    if raw is None:
        return None
    if setting.kind is int:
        return _whole(setting, raw, source)
    if raw is False and "off" in setting.choices:
        raw = "off"  # YAML reads it as false if it stands without quotation marks
    if not isinstance(raw, str) or not raw or "\0" in raw:
        raise _wrong(setting, raw, source, "text")
    if setting.choices and raw not in setting.choices:
        raise _wrong(setting, raw, source, f"one of {', '.join(setting.choices)}")
    return raw


def _whole(setting: Setting, raw: object, source: str) -> int:
    expected = f"a whole number from {setting.least} to {setting.most}"
    if isinstance(raw, bool) or not isinstance(raw, (int, str)):
        raise _wrong(setting, raw, source, expected)
    try:
        value = int(raw)
    except ValueError:
        raise _wrong(setting, raw, source, expected) from None
    if not setting.least <= value <= setting.most:
        raise _wrong(setting, raw, source, expected)
    return value


def _shown(found: SettingValue) -> Value:
    """Return the value, without the user and password of an address."""
    value = found.value
    if not BY_NAME[found.name].secret or not isinstance(value, str):
        return value
    scheme, mark, rest = value.partition("://")
    return f"{scheme}{mark}{rest.partition('?')[0].rpartition('@')[2]}"


def _wrong(setting: Setting, raw: object, source: str, expected: str) -> SettingError:
    shown = "what was given" if setting.secret else repr(raw)
    what = f"{setting.name}: {shown} is not {expected}"
    return SettingError.of(what, source, f"{setting.name}: {setting.text}")

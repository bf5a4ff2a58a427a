"""Settings: defaults, then the configuration file, then the environment, then flags.

Does: read each source once, reject unknown settings, and record the source of each value. A later
source overrides an earlier one. Commands get their flags from the same table
(``options.options_from``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from reshape_gpu.errors import SettingError
from reshape_launcher.local import job_environment

Value = str | int | None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. ``kind`` is str or int."""

    name: str
    default: Value
    text: str
    kind: type = str
    least: int = 0
    most: int = 2**31
    choices: tuple[str, ...] = ()
    secret: bool = False
    """True if the value may contain a secret, which is not shown."""
    metavar: str = ""
    """Form of the value in the help; empty: its kind."""
    help: str = ""
    """Text of the option in the help; empty: ``text`` as a sentence."""
    short: str = ""
    """Short flag; empty: there is none."""

    @property
    def env(self) -> str:
        return f"RESHAPE_{self.name.upper()}"

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def option_help(self) -> str:
        return self.help or f"{self.text[0].upper()}{self.text[1:]}."


DEFAULT_PORT = 7470
LOG_LEVELS = ("debug", "info", "warning", "error")

SETTINGS = (
    Setting(
        "home",
        "~/.local/state/reshape",
        "folder of the daemon: store, token, job files",
        metavar="DIR",
        help="Folder of the daemon (store, token, job files); default: ~/.local/state/reshape.",
    ),
    Setting(
        "secrets",
        None,
        "folder with the files token (for users) and secret (for SideCars), the same for all "
        "controllers; default: the home, where the daemon creates them",
        metavar="DIR",
    ),
    Setting(
        "store",
        None,
        "store: mongodb://HOST:PORT/DATABASE; default: a file in the home",
        secret=True,
        metavar="mongodb://HOST:PORT/DATABASE",
        help="MongoDB server for the store; default: a file in the home.",
    ),
    Setting(
        "store_credentials", None, "file with USER:PASSWORD of the store's server", metavar="FILE"
    ),
    Setting(
        "store_ca",
        None,
        "file with the CA certificates (PEM) of the store's server",
        metavar="FILE",
        help="CA certificates (PEM) of the store's server; turns TLS on.",
    ),
    Setting(
        "url",
        None,
        "URL of a daemon elsewhere, to which commands talk; default: the home's or a login's",
        metavar="URL",
    ),
    Setting("context", None, "login to use, or local; default: the current one", metavar="NAME"),
    Setting(
        "token_file",
        None,
        "file with the token of a command; default: the home's or a login's",
        metavar="FILE",
    ),
    Setting("ca", None, "file with the CA certificates (PEM) of the daemon at url", metavar="FILE"),
    Setting(
        "public_bind",
        None,
        "IP:PORT at which people elsewhere reach the daemon, with TLS or a trusted proxy",
        metavar="IP:PORT",
    ),
    Setting(
        "public_names",
        None,
        "host names for public_bind, with commas, beside its address and the machine's name",
        metavar="NAME,...",
    ),
    Setting(
        "tls_cert", None, "file with certificate and chain (PEM) of public_bind", metavar="FILE"
    ),
    Setting("tls_key", None, "file with the private key (PEM) of public_bind", metavar="FILE"),
    Setting(
        "trusted_proxy",
        None,
        "IP address of the proxy that alone may connect to public_bind",
        metavar="IP",
    ),
    Setting("bind", "127.0.0.1", "loopback address of the HTTP API", metavar="ADDRESS"),
    Setting("port", DEFAULT_PORT, "port of the HTTP API; 0: any free port", int, 0, 65535),
    Setting(
        "launcher",
        "local",
        "where containers run: local or kubernetes",
        choices=("local", "kubernetes"),
        metavar="local|kubernetes",
        help="Where containers run.",
    ),
    Setting(
        "kubeconfig",
        None,
        "kubeconfig of the cluster; default: as kubectl finds it",
        metavar="FILE",
    ),
    Setting(
        "cluster",
        None,
        "cluster file: namespace, image and other settings of all pods",
        metavar="FILE",
    ),
    Setting(
        "launch_by",
        "ansible",
        "how pods are created: ansible (the playbook) or client (Kubernetes API)",
        choices=("ansible", "client"),
        metavar="ansible|client",
        help="How pods are created: Ansible playbook or Kubernetes client.",
    ),
    Setting(
        "sidecar_bind",
        None,
        "IP:PORT of this machine at which SideCars in pods reach the daemon",
        metavar="IP:PORT",
        help="IP address and port of this machine at which SideCars in pods reach the daemon.",
    ),
    Setting(
        "sidecar_url",
        None,
        "URL by which pods reach the daemon, if sidecar_bind is not it",
        metavar="URL",
        help="URL by which pods reach the daemon, if --sidecar-bind is not it.",
    ),
    Setting(
        "lease",
        None,
        "Kubernetes Lease with which several daemons elect a leader",
        metavar="NAME",
    ),
    Setting(
        "job_listing",
        "all",
        "jobs whose names and states a user sees: all or own",
        choices=("all", "own"),
        metavar="all|own",
        help="Jobs whose names and states a user sees.",
    ),
    Setting(
        "inserts",
        None,
        "identity of everything that is written into the store; default: none is known",
        metavar="NAME",
        help="Identity (operator, or the name of a token) of all that is inserted into the store.",
    ),
    Setting(
        "insert_users",
        None,
        "names of tokens, with commas: inserts into the collection inbox.NAME of a MongoDB store "
        "are NAME's",
        metavar="NAME,...",
    ),
    Setting(
        "keep_logs_days",
        None,
        "days after a job's end for which its logs are kept; default: for ever",
        int,
        metavar="DAYS",
        help="Days after a job's end for which its logs are kept; default: for ever.",
    ),
    Setting("notify", None, "file of the targets of notifications", metavar="FILE"),
    Setting("preset", "adaptive", "preset of policy and mechanism, such as adaptive"),
    Setting(
        "policy",
        None,
        "policy in place of the preset's",
        help="Policy in place of the preset's, with options: NAME:OPTION=VALUE,...",
    ),
    Setting(
        "mechanism",
        None,
        "how jobs reshape, not as the preset: sidecar, terminate or none",
        choices=("sidecar", "terminate", "none"),
    ),
    Setting(
        "seed",
        None,
        "random seed for policies that need one; default: drawn once per log",
        int,
        help="Random seed of the policy; default: drawn once, logged.",
    ),
    Setting(
        "gpus", None, "largest number of this machine's GPUs to use; default: all", int, 1, 1024
    ),
    Setting(
        "gpu_type",
        None,
        "GPU type of this machine in profiles; default: the name that the driver (NVML) gives",
    ),
    Setting(
        "simulated_gpus", None, "number of simulated GPUs to use instead of real ones", int, 1, 64
    ),
    Setting("device_truth", None, "file with the step times of simulated GPUs", metavar="FILE"),
    Setting(
        "container_costs",
        None,
        "SET:SCALE, costs that slow down containers on simulated GPUs",
        metavar="SET:SCALE",
        help="Slow down containers on simulated GPUs by a set of costs, such as paper:0.1.",
    ),
    Setting(
        "standby",
        "auto",
        "whether a process that has imported the framework starts training: auto or off",
        choices=("auto", "off"),
        metavar="auto|off",
        help="Start training from a process that has imported the framework; off: for no job.",
    ),
    Setting(
        "overlap",
        "auto",
        "whether the next process is prepared while the one before trains: auto or off",
        choices=("auto", "off"),
        metavar="auto|off",
        help="Prepare the next process while the one before trains; off: for no job.",
    ),
    Setting(
        "job_environment",
        job_environment.DEFAULT,
        "names of the daemon's variables that local jobs get, with * for any text",
        metavar="NAME,...",
        help="Variables of the daemon that local jobs get, with * for any text; default: "
        f"{job_environment.DEFAULT}.",
    ),
    Setting(
        "profiles",
        None,
        "file of profiles to record at the start",
        metavar="FILE",
        help="File of profiles to record at the start, beside the bundled ones.",
    ),
    Setting(
        "prices",
        None,
        "price of a GPU-hour by GPU type, such as H100=2.50,A100=1.10, for reshape usage",
        metavar="TYPE=PRICE,...",
    ),
    Setting(
        "output",
        "table",
        "output format: table, wide, json, jsonl or yaml",
        choices=("table", "wide", "json", "jsonl", "yaml"),
        metavar="table|wide|json|jsonl|yaml",
        help="Output format.",
        short="-o",
    ),
    Setting(
        "log_level",
        "info",
        "lowest severity that the daemon logs",
        choices=LOG_LEVELS,
        help="Least level to log: debug, info, warning or error.",
    ),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
FLAG, ARGUMENT = "flag", "argument"
"""Begin the source of a value that a flag sets, or an argument of a Python program."""
ENV_PREFIX = "RESHAPE_"
ENV_JOB = "RESHAPE_JOB"
"""Set inside a job, whose environment has further names that are no settings."""
TOKEN_ENV = "RESHAPE_TOKEN"
"""A token in the environment; it is no setting, so that no command shows it."""
OTHER_ENV = (TOKEN_ENV, "RESHAPE_CONFIG", "RESHAPE_DEBUG", "RESHAPE_CGROUP", "RESHAPE_ZYGOTE")
"""Names in the environment that are no settings."""


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
    env = os.environ if env is None else env
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
        text = path.read_text(encoding="utf-8")
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

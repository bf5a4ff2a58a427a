"""The settings: name, default, bounds and text of each, as a table.

Does: gives ``config`` what it reads and checks, and commands their options.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        "sidecar_tls",
        "pinned",
        "SideCars in pods take only this daemon's own key (pinned), or speak plain HTTP (off)",
        choices=("pinned", "off"),
        metavar="pinned|off",
        help="Whether SideCars in pods take only this daemon's own key, or speak plain HTTP.",
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
        "root_jobs",
        "refuse",
        "whether a daemon that is root runs jobs of tokens without a uid, as root: refuse or allow",
        choices=("refuse", "allow"),
        metavar="refuse|allow",
        help="Refuse jobs of tokens without a uid if the daemon is root, or run them as root.",
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
    Setting(
        "start_timeout_s",
        1800,
        "seconds of silence after which a start has failed, unless its record says otherwise; 0: "
        "never",
        int,
        0,
        24 * 3600,
        metavar="SECONDS",
        help="Seconds of silence after which a start has failed; a record may say otherwise; "
        "default: 1800, 0: never.",
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
        "hosts",
        1,
        "number of hosts that this machine plays, to try several without a cluster",
        int,
        1,
        16,
        help="Number of hosts that this machine plays, to try several without a cluster; "
        "default: 1.",
    ),
    Setting(
        "gpus",
        None,
        "largest number of this machine's GPUs to use, on each host; default: all",
        int,
        1,
        1024,
        help="Largest number of this machine's GPUs to use (on each host); default: all.",
    ),
    Setting(
        "gpu_type",
        None,
        "GPU type of this machine in profiles; default: the name that the driver (NVML) gives",
    ),
    Setting(
        "simulated_gpus",
        None,
        "number of simulated GPUs to use instead of real ones, on each host",
        int,
        1,
        64,
        help="Number of simulated GPUs to use instead of real ones (on each host).",
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

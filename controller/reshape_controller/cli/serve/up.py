"""The command ``up``: its options, their checks, the log, and the start of the daemon.

Does: check all settings before anything is opened, those of simulated GPUs included (device truth,
declared container costs), and then run the daemon.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo

from reshape_controller.cli import streams
from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.options import options_from
from reshape_controller.cli.profiles import files as profile_files
from reshape_controller.cli.safe_text import safe
from reshape_controller.cli.serve import notify_file
from reshape_controller.cli.serve.devices import NODES, Devices, find
from reshape_controller.cli.serve.kubernetes_settings import KubernetesSettings, kubernetes_settings
from reshape_controller.cli.serve.leader_election import lease_name
from reshape_controller.cli.serve.public_access import public_access
from reshape_controller.cli.serve.settings import DaemonSettings
from reshape_controller.cli.serve.store_settings import store_settings
from reshape_controller.core.limits import KUBERNETES, LOCAL
from reshape_controller.core.model import Mechanism
from reshape_controller.core.plan import Policy
from reshape_controller.policies import PRESETS, UnknownPolicy, make_policy
from reshape_gpu.config import Config
from reshape_launcher.declared_costs import ContainerCosts
from reshape_launcher.local import job_environment
from reshape_profiles.loader import ProfileError, bundled
from reshape_sidecar import device_truth as truth
from reshape_sidecar.wire import Shortcut

OPTIONS = (
    "home",
    "secrets",
    "store",
    "store_credentials",
    "store_ca",
    "port",
    "bind",
    "hosts",
    "gpus",
    "gpu_type",
    "simulated_gpus",
    "launcher",
    "kubeconfig",
    "cluster",
    "launch_by",
    "sidecar_bind",
    "sidecar_url",
    "sidecar_tls",
    "lease",
    "public_bind",
    "public_names",
    "tls_cert",
    "tls_key",
    "trusted_proxy",
    "job_listing",
    "root_jobs",
    "inserts",
    "insert_users",
    "preset",
    "policy",
    "mechanism",
    "seed",
    "device_truth",
    "container_costs",
    "standby",
    "overlap",
    "job_environment",
    "keep_logs_days",
    "start_timeout_s",
    "notify",
    "profiles",
    "log_level",
)
"""The settings of a daemon, which ``doctor`` takes too."""


@options_from(*OPTIONS)
def up(config: Config) -> None:
    """Start the daemon. SIGTERM or Ctrl-C stops it; running jobs train on without it."""
    start_logging(config.text("log_level") or "info")
    from reshape_controller.cli.serve.daemon import serve

    asyncio.run(serve(checked(config)))


def start_logging(level: str) -> None:
    """Log to stderr, a line for each event, coloured on a terminal only.

    A line that cannot be written is lost.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.basicConfig(level=max(number, logging.WARNING), stream=sys.stderr)
    # It warns of each handshake that fails: a stranger would decide how long the log gets.
    logging.getLogger("tornado.general").setLevel(logging.ERROR)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
            _safe_values,
            # Plain: a pretty traceback shows local variables, and with them jobs' environments.
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=_safe_traceback
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, streams.LossyStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )


def _safe_values(_: object, __: str, event: EventDict) -> EventDict:
    """Make the texts of a line safe for a terminal, and keep them in it, or one could look like
    lines of this log; the line's own colours come later."""
    return {
        key: safe(value).replace("\n", "\\n") if isinstance(value, str) else value
        for key, value in event.items()
    }


def _safe_traceback(stream: TextIO, error: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    stream.write(safe(text.getvalue()))


def checked(config: Config) -> DaemonSettings:
    """Return the settings after all checks that need no file of the home. Raises CliError."""
    policy, mechanism = _policy(config)
    kubernetes, store = kubernetes_settings(config), store_settings(config)
    return DaemonSettings(
        home=Home(config.home, config.secrets),
        store=store,
        address=config.text("bind") or "",
        port=config.number("port") or 0,
        port_is_asked_for=config.source("port") != "default",
        devices=devices(config, kubernetes),
        policy=policy,
        mechanism=mechanism,
        seed=config.number("seed"),
        device_truth=truth_file(config),
        container_costs=container_costs(config),
        standby=Shortcut(config.text("standby") or Shortcut.AUTO),
        overlap=Shortcut(config.text("overlap") or Shortcut.AUTO),
        job_environment=_job_environment(config),
        limits=replace(
            LOCAL if kubernetes is None else KUBERNETES,
            start_timeout_s=float(config.number("start_timeout_s") or 0),
        ),
        kubernetes=kubernetes,
        lease=lease_name(config, store),
        users_see_all=config.text("job_listing") != "own",
        public=public_access(config),
        root_jobs=config.text("root_jobs") == "allow",
        inserts=config.text("inserts"),
        keep_logs_days=config.number("keep_logs_days"),
        notify=notify_file.read(config.text("notify"), config.source("notify")),
        profiles=profile_files.read(config.text("profiles"), config.source("profiles")),
    )


def devices(config: Config, kubernetes: KubernetesSettings | None) -> Devices:
    """Return the devices of this daemon; those of nodes are discovered later."""
    simulated = config.number("simulated_gpus")
    if kubernetes is not None and simulated is None:
        return NODES
    hosts = config.number("hosts") or 1
    return find(simulated, config.number("gpus"), config.text("gpu_type"), hosts)


def _job_environment(config: Config) -> tuple[str, ...]:
    try:
        return job_environment.parse(config.text("job_environment") or "")
    except job_environment.BadPattern as error:
        what = f"job_environment: {error} is no name of a variable"
        remedy = f"give names with commas between them, such as {job_environment.DEFAULT}"
        raise failed(Exit.USAGE, what, config.source("job_environment"), remedy) from None


def _policy(config: Config) -> tuple[Policy, Mechanism]:
    name = config.text("preset") or ""
    preset = PRESETS.get(name)
    if preset is None:
        what = f"unknown preset {name!r}"
        known = f"use one of {', '.join(PRESETS)}"
        raise failed(Exit.USAGE, what, config.source("preset"), known)
    mechanism = config.text("mechanism")
    try:
        policy = make_policy(config.text("policy") or preset.policy)
    except UnknownPolicy as error:
        source = config.source("policy" if config.text("policy") else "preset")
        raise failed(Exit.USAGE, str(error), source, "use one of these") from None
    return policy, Mechanism(mechanism) if mechanism is not None else preset.mechanism


def truth_file(config: Config) -> Path | None:
    """Return the readable device truth; None: steps are not paced. Raises CliError."""
    name = config.text("device_truth")
    if name is None:
        return None
    where = config.source("device_truth")
    if config.number("simulated_gpus") is None:
        what = "device_truth paces simulated GPUs, and there are none"
        raise failed(Exit.USAGE, what, where, "add --simulated-gpus N, or remove device_truth")
    path = Path(name).expanduser().absolute()
    try:
        truth.load(path)
    except truth.DeviceTruthError as error:
        remedy = 'write {"seconds_per_step": {"JOB_TYPE": {"1": 0.2}}}'
        raise failed(Exit.USAGE, str(error), where, remedy) from None
    return path


def container_costs(config: Config) -> ContainerCosts | None:
    """Return the costs of ``SET`` or ``SET:SCALE``; None: none are declared. Raises CliError."""
    text = config.text("container_costs")
    if text is None:
        return None
    where = config.source("container_costs")
    if config.number("simulated_gpus") is None:
        what = "container_costs needs simulated GPUs"
        raise failed(Exit.USAGE, what, where, "add --simulated-gpus N, or remove device_truth")
    name, _, scale = text.partition(":")
    try:
        overhead = bundled().with_costs(name).overhead
        factor = float(scale or "1")
        if overhead is None or not 0 < factor <= 1:
            raise ValueError
        return ContainerCosts(
            f"assumed:{text}", overhead.job_init_s * factor, overhead.job_stop_s * factor
        )
    except ProfileError as error:
        raise failed(
            Exit.USAGE, str(error), where, "give SET:SCALE with a known set of costs"
        ) from None
    except ValueError:
        what = f"{text!r} is not SET:SCALE with a scale from 0 to 1"
        raise failed(Exit.USAGE, what, where, "for example paper:0.1") from None

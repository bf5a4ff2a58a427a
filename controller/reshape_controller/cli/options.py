"""Options that several commands share, and their meaning."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import typer

from reshape_controller.cli.client import Client, connect
from reshape_controller.cli.config import Config, load
from reshape_controller.cli.exits import Exit, failed
from reshape_controller.cli.home import Home
from reshape_controller.cli.output import Output
from reshape_controller.http.views import KEY

HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help="Folder of the daemon (store, token, job files).",
        show_default=False,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="mongodb://HOST:PORT/DATABASE",
        help="MongoDB server for the store; default: a file in the home.",
    ),
]
CredentialsOption = Annotated[
    str | None,
    typer.Option(
        "--store-credentials", metavar="FILE", help="File with USER:PASSWORD of the store's server."
    ),
]
CaOption = Annotated[
    str | None,
    typer.Option(
        "--store-ca",
        metavar="FILE",
        help="CA certificates (PEM) of the store's server; turns TLS on.",
    ),
]
LauncherOption = Annotated[
    str | None,
    typer.Option("--launcher", metavar="local|kubernetes", help="Where containers run."),
]
KubeconfigOption = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig of the cluster; default: as kubectl finds it.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="Cluster file: namespace, image and other settings of all pods.",
    ),
]
LaunchByOption = Annotated[
    str | None,
    typer.Option(
        "--launch-by",
        metavar="ansible|client",
        help="How pods are created: Ansible playbook or Kubernetes client.",
    ),
]
SidecarBindOption = Annotated[
    str | None,
    typer.Option(
        "--sidecar-bind",
        metavar="ADDRESS:PORT",
        help="Address on which the daemon listens for pods.",
    ),
]
SidecarUrlOption = Annotated[
    str | None,
    typer.Option(
        "--sidecar-url",
        metavar="URL",
        help="URL by which pods reach the daemon, if --sidecar-bind is not it.",
    ),
]
LeaseOption = Annotated[
    str | None,
    typer.Option(
        "--lease",
        metavar="NAME",
        help="Kubernetes Lease with which several daemons elect a leader.",
    ),
]
SecretsOption = Annotated[
    str | None,
    typer.Option(
        "--secrets",
        metavar="DIR",
        help="Folder with the files token and secret; default: the home.",
    ),
]
SimulatedGpusOption = Annotated[
    int | None,
    typer.Option("--simulated-gpus", help="Number of simulated GPUs to use instead of real ones."),
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="table|json|yaml", help="Output format."),
]


def one_of(what: str, listed_by: str, where: str) -> Callable[[str | None], str | None]:
    """Return a check of an argument, which becomes a part of a path of the API."""

    def check(key: str | None) -> str | None:
        if key is not None and not re.fullmatch(KEY, key):
            remedy = f"reshape {listed_by} lists the {what}s"
            raise failed(
                Exit.NOT_FOUND, f"{key!r:.80} is not a valid {what} name or id", where, remedy
            )
        return key

    return check


JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Job id or name.", callback=one_of("job", "get", "JOB")),
]


def settings(home: str | None = None, output: str | None = None) -> Config:
    """Return the settings of a client command. Raises CliError."""
    return load({"home": home, "output": output})


def form(config: Config) -> Output:
    return Output(config.text("output") or "table")


def client(config: Config) -> Client:
    """Return a client of the daemon of the configured home. Raises CliError."""
    return connect(Home(config.home, config.secrets))

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
    typer.Option("--home", metavar="DIR", help="Home of the daemon.", show_default=False),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="mongodb://HOST:PORT/DATABASE", help="Store on a server."),
]
CredentialsOption = Annotated[
    str | None,
    typer.Option("--store-credentials", metavar="FILE", help="USER:PASSWORD of that server."),
]
CaOption = Annotated[
    str | None, typer.Option("--store-ca", metavar="FILE", help="CA of that server; turns TLS on.")
]
LauncherOption = Annotated[
    str | None,
    typer.Option("--launcher", metavar="local|kubernetes", help="Where containers run."),
]
KubeconfigOption = Annotated[
    str | None,
    typer.Option("--kubeconfig", metavar="FILE", help="Cluster; in a pod its service account."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="FILE", help="What every pod of this controller gets."),
]
LaunchByOption = Annotated[
    str | None,
    typer.Option("--launch-by", metavar="ansible|client", help="What brings pods into it."),
]
SidecarBindOption = Annotated[
    str | None,
    typer.Option("--sidecar-bind", metavar="ADDRESS:PORT", help="Where pods reach this daemon."),
]
SidecarUrlOption = Annotated[
    str | None, typer.Option("--sidecar-url", metavar="URL", help="That address as pods see it.")
]
LeaseOption = Annotated[
    str | None,
    typer.Option("--lease", metavar="NAME", help="Lease by which several daemons elect one."),
]
SecretsOption = Annotated[
    str | None,
    typer.Option("--secrets", metavar="DIR", help="Token and secret that they share."),
]
SimulatedGpusOption = Annotated[
    int | None, typer.Option("--simulated-gpus", help="Use so many simulated GPUs.")
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="table|json|yaml", help="Form of the document."),
]


def one_of(what: str, listed_by: str, where: str) -> Callable[[str | None], str | None]:
    """Return a check of an argument, which becomes a part of a path of the API."""

    def check(key: str | None) -> str | None:
        if key is not None and not re.fullmatch(KEY, key):
            remedy = f"reshape {listed_by} lists the {what}s"
            raise failed(Exit.NOT_FOUND, f"no {what} can be called {key!r:.80}", where, remedy)
        return key

    return check


JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Id or name of a job.", callback=one_of("job", "get", "JOB")
    ),
]


def settings(home: str | None = None, output: str | None = None) -> Config:
    """Return the settings of a client command. Raises CliError."""
    return load({"home": home, "output": output})


def form(config: Config) -> Output:
    return Output(config.text("output") or "table")


def client(config: Config) -> Client:
    """Return a client of the daemon of the configured home. Raises CliError."""
    return connect(Home(config.home, config.secrets))

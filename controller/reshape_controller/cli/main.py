"""The entry point of the command ``reshape``.

Does: names the commands, and turns every error into words on stderr and an exit code. Never: lets
a traceback out for a mistake of the user's. State: none.
"""

from __future__ import annotations

import os
import sys

import typer

from reshape_controller.cli import (
    about_commands,
    cluster_commands,
    db_commands,
    explain_commands,
    job_commands,
    profile_commands,
    replay_commands,
    timeline_commands,
    workload_commands,
)
from reshape_controller.cli import up as up_command
from reshape_controller.cli.exits import CliError, Exit, failed

DEBUG = "RESHAPE_DEBUG"
"""Set, it lets the traceback of a defect out."""

app = typer.Typer(
    name="reshape",
    help="Elastic GPU training: change the number of GPUs of a job inside its living container.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("up")(up_command.up)
for command in (
    job_commands.submit,
    job_commands.get,
    job_commands.describe,
    job_commands.logs,
    job_commands.cancel,
    job_commands.halt,
    job_commands.resume,
    cluster_commands.gpus,
    cluster_commands.drain,
    cluster_commands.undrain,
    explain_commands.explain,
    timeline_commands.timeline,
    replay_commands.replay,
    replay_commands.compare,
    about_commands.version,
):
    app.command(command.__name__)(command)
app.add_typer(profile_commands.profile_app, name="profile")
app.add_typer(workload_commands.workload_app, name="workload")
app.add_typer(db_commands.db_app, name="db")
app.add_typer(about_commands.config_app, name="config")


def main() -> None:
    """Run a command and exit."""
    try:
        app()
    except CliError as error:
        print(error.text(), file=sys.stderr)
        sys.exit(error.code)
    except BrokenPipeError:
        # The reader left (``reshape get | head``); nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Exit.OK)
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        what = f"reshape has a defect: {type(error).__name__}: {error}"
        remedy = f"report it with what is shown when you run it again with {DEBUG}=1"
        print(failed(Exit.FAILED, what, " ".join(sys.argv), remedy).text(), file=sys.stderr)
        sys.exit(Exit.FAILED)


if __name__ == "__main__":
    main()

"""The entry point of the command ``reshape``.

Does: list the commands, and turn every error into a message on stderr and an exit code. Never: show
a traceback for a user's mistake.
"""

from __future__ import annotations

import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, NoReturn

from reshape_controller.cli import streams
from reshape_controller.cli.exits import Exit, code_of, failed
from reshape_gpu.errors import ClientError

if TYPE_CHECKING:
    import typer

COMPLETE = "_RESHAPE_COMPLETE"
"""Environment variable by which a shell asks for completions."""
DEBUG = "RESHAPE_DEBUG"
"""Environment variable that shows the traceback of a defect."""

COLLECT_AFTER = 50_000
"""Number of new objects after which garbage is collected: short commands need no collection."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a full or failing disk."""

COMMANDS = {
    "up": "serve.up",
    "submit": "jobs.submit",
    "get": "jobs.listing",
    "describe": "jobs.commands",
    "logs": "jobs.commands",
    "cancel": "jobs.commands",
    "pause": "jobs.commands",
    "resume": "jobs.commands",
    "pin": "jobs.pin",
    "unpin": "jobs.pin",
    "gpus": "jobs.cluster",
    "clear": "jobs.cluster",
    "drain": "jobs.cluster",
    "undrain": "jobs.cluster",
    "status": "jobs.cluster",
    "explain": "jobs.explain",
    "usage": "jobs.usage",
    "verify": "jobs.verify",
    "timeline": "timeline.commands",
    "show": "show.command",
    "replay": "replays.commands",
    "compare": "replays.compare",
    "experiment": "replays.experiment",
    "page": "access.page",
    "login": "access.login",
    "logout": "access.login",
    "doctor": "serve.doctor",
    "version": "about",
}
"""The module of each command; its function has the command's name."""
ALIASES = {"halt": "pause"}
"""Older names of commands, hidden from the help."""
GROUPS = {
    "profile": "profiles.commands",
    "workload": "replays.workload",
    "db": "db.commands",
    "token": "access.tokens",
    "context": "access.login",
    "config": "about",
}
"""The module of each group of commands; its ``GROUP_app`` holds them."""
SUMMARIES = {
    "up": "Start the daemon. SIGTERM or Ctrl-C stops it; running jobs train on without it.",
    "submit": "Submit job records and print the ids of the jobs.",
    "get": "List all jobs, or show one.",
    "describe": "Show everything about a job: GPUs, progress, errors, history.",
    "logs": "Show the log of a job, also after it ended or crashed.",
    "cancel": "Cancel jobs for good. Their checkpoints stay. Asks if they are several.",
    "pause": "Pause jobs: save a checkpoint and release their GPUs.",
    "resume": "Resume paused jobs from their checkpoints: queue them again.",
    "pin": "Fix the GPU count of jobs.",
    "unpin": "Undo pin: let jobs use all their GPU counts again.",
    "gpus": "List GPUs with their state, owner and next owner.",
    "clear": "Return a quarantined GPU to use. First check that no process runs on it.",
    "drain": "Drain a host: its jobs save and leave, and no job starts there.",
    "undrain": "Let jobs start on a host again.",
    "status": "Show the daemon's role (leader or standby) and readiness.",
    "explain": "Explain a job's GPU count: decisions and compared options.",
    "usage": "Show who used how many GPU-hours, and how many no job held.",
    "verify": "Compare a job's training with and without stops; name the first difference.",
    "timeline": "Show which job held each GPU over time, and each job's phases.",
    "show": "Open the page of a run that is over, or of a replay, read-only, until Ctrl-C.",
    "replay": "Replay a workload under a policy in virtual time.",
    "compare": "Compare policies over seeds, or two result folders.",
    "experiment": "Replay the experiment of another paper, and show its printed figures beside "
    "ours.",
    "page": "Print a link that opens the page, logged in as you; it works once, for a minute.",
    "login": "Log in at a daemon elsewhere; later commands talk to it. Reads the token from stdin.",
    "logout": "Forget a login and its token. An operator revokes the token.",
    "doctor": "Check the requirements of `reshape up`; exit 1 if a check fails.",
    "version": "Show the version.",
    "profile": "Profiles of job types: speeds, accuracies and costs.",
    "workload": "Workloads: files of jobs for replays.",
    "db": "The store: create, check, back up, restore, recover.",
    "token": "Tokens of the people who share the daemon.",
    "context": "The daemons that you are logged in at.",
    "config": "Settings of the daemon and the commands.",
}
"""How the help of each command and group begins, so that `reshape --help` need import none."""

EXAMPLES = {
    "up": "reshape up --simulated-gpus 4",
    "submit": "reshape submit train.yaml --wait",
    "get": "reshape get --state running,paused --user ada --sort eta -o wide",
    "describe": "reshape describe mnist",
    "logs": "reshape logs mnist --follow",
    "cancel": "reshape cancel 'lr-*' --yes",
    "pause": "reshape pause --user ada",
    "resume": "reshape resume --all",
    "pin": "reshape pin mnist 4",
    "unpin": "reshape unpin mnist",
    "gpus": "reshape gpus -o json",
    "clear": "reshape clear GPU-5f2c",
    "drain": "reshape drain local",
    "undrain": "reshape undrain local",
    "status": "reshape status",
    "explain": "reshape explain mnist --all",
    "usage": "reshape usage --from 2026-01-01 --to 2026-02-01 --prices H100=2.50",
    "verify": "reshape verify train.yaml --sizes 4,2,4",
    "timeline": "reshape timeline --last 2h",
    "show": "reshape show out/demo",
    "replay": "reshape replay --policy adaptive --seed 1",
    "compare": "reshape compare --seeds 3",
    "experiment": "reshape experiment dragon",
    "page": "reshape page --open",
    "login": "reshape login https://gpu.example.org:7470",
    "logout": "reshape logout",
    "doctor": "reshape doctor",
    "version": "reshape version",
    "profile show": "reshape profile show resnet50",
    "profile plot": "reshape profile plot resnet50 --svg speed.svg",
    "profile run": "reshape profile run --type mnist --sizes 1,2 -- python train.py",
    "profile import": "reshape profile import profiles.toml",
    "profile export": "reshape profile export --as csv --into profiles.csv",
    "profile costs": "reshape profile costs --out costs.json",
    "workload generate": "reshape workload generate --workload four --seed 7 --out jobs.csv",
    "workload convert": "reshape workload convert trace.csv --gpus gpu_num --out jobs.csv",
    "workload describe": "reshape workload describe jobs.csv --picture load.svg",
    "db init": "reshape db init --store mongodb://db.example.org/reshape",
    "db check": "reshape db check --no-repair",
    "db recover": "reshape db recover store.sqlite --into new.sqlite",
    "db backup": "reshape db backup /backup/store.sqlite",
    "db restore": "reshape db restore /backup/store.sqlite",
    "db set-time-back": "reshape db set-time-back --apply",
    "token create": "reshape token create ada --uid ada --expires 90d",
    "token list": "reshape token list",
    "token rotate": "reshape token rotate ada --overlap 1h",
    "token revoke": "reshape token revoke ada",
    "context list": "reshape context list",
    "context use": "reshape context use local",
    "config show": "reshape config show -o json",
}
"""An example for the help of each command and subcommand."""


def build(words: Sequence[str] = (), *, names_alone: bool = False) -> typer.Typer:
    """Return the command line; only the command that ``words`` begin with, if they do.

    The import of all commands takes longer than most of them run. ``names_alone``: if ``words``
    begin with none, have names and summaries of all, for the help and for completion.
    """
    import typer  # here, so that a missing package gives a message, not a traceback

    app = typer.Typer(
        name="reshape",
        help="Elastic GPU training: change a job's GPU count without restarting its container.",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    wanted = words[0] if words and words[0] in {*COMMANDS, *ALIASES, *GROUPS} else None
    app.callback()(_keep_the_name if wanted else _module("about").root)
    if names_alone and wanted is None:
        for name, summary in SUMMARIES.items():
            app.command(name, help=summary)(_name)
        return app
    for name, module in COMMANDS.items():
        if wanted in (None, name):
            epilog = _example(name)
            app.command(name, epilog=epilog)(getattr(_module(module), name))
    for alias, name in ALIASES.items():
        if wanted in (None, alias):
            app.command(alias, hidden=True)(getattr(_module(COMMANDS[name]), name))
    for name, module in GROUPS.items():
        if wanted in (None, name):
            group: typer.Typer = getattr(_module(module), f"{name}_app")
            for command in group.registered_commands:
                command.epilog = _example(f"{name} {command.name}")
            app.add_typer(group, name=name)
    return app


def _name() -> None:
    """Stand for a command in a list: one that is called is built itself."""
    raise AssertionError("the words of the command line begin with a command, or call none")


def _example(command: str) -> str:
    return f"Example: {EXAMPLES[command]}"


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"reshape_controller.cli.{name}")


def _keep_the_name() -> None:
    """Callback that makes an application of a single command take the command's name."""


def _words() -> list[str]:
    """Return the words of the command line; while a shell completes them, those of its own."""
    for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        if COMPLETE in os.environ and name in os.environ:
            return os.environ[name].split()[1:]
    if sys.argv[1:2] == ["--"]:
        del sys.argv[1]
    return sys.argv[1:]


def _built(words: list[str]) -> typer.Typer:
    """Build without garbage collections: during imports they find nothing, and take long."""
    gc.disable()
    try:
        return build(words, names_alone=True)
    finally:
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER)
        gc.enable()


def main() -> None:
    """Run a command and exit."""
    streams.make_whole()
    try:
        _run()
    finally:
        streams.let_go()


def _run() -> None:
    try:
        try:
            _built(_words())()
        finally:
            sys.stdout.flush()  # here, because a closed pipe cannot be handled later
    except KeyboardInterrupt:  # during imports; a running command handles it itself
        sys.exit(128 + signal.SIGINT)
    except ClientError as error:
        _end(error)
    except BrokenPipeError:
        # The reader has closed the pipe (``reshape get | head``).
        sys.exit(Exit.OK)
    except ModuleNotFoundError as error:
        what = f"the command needs the package {error.name}, which is not installed"
        remedy = "pip install PATH; PATH is the folder, or the wheel, of Reshape"
        _end(failed(Exit.FAILED, what, sys.executable, remedy))
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        _end(_no_room(error) or _defect(error))


def _end(error: ClientError) -> NoReturn:
    streams.say(error.text())
    sys.exit(code_of(error))


def _no_room(error: Exception) -> ClientError | None:
    """Return the error if a full disk, under stdout or a file, is the cause; None if not."""
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return None
    what = f"writing failed: {error.strerror}"
    where = str(error.filename or "stdout, or the file that the command writes")
    return failed(Exit.FAILED, what, where, "free space there, or write elsewhere")


def _defect(error: Exception) -> ClientError:
    what = f"reshape has a defect: {type(error).__name__}: {error}"
    remedy = f"report it with the output of the same command under {DEBUG}=1"
    return failed(Exit.FAILED, what, " ".join(sys.argv), remedy)


if __name__ == "__main__":
    main()

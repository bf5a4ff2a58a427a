"""One run: a daemon on a fresh home, the two jobs at their times, until both have ended.

Does what a user would do, with the command ``reshape``. Never: reaches into the daemon. State: the
run's folder.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from observed import Run, read_log
from rich.console import Console
from scenario import DEVICE_TRUTH, GPUS, RECORDS, SUBMIT_AT_S, Costs, Preset
from watch import Watch

from reshape_controller.cli.home import Home
from reshape_controller.cli.replays.own_daemon import is_over, own_daemon
from reshape_controller.cli.serve.store_settings import store_settings
from reshape_controller.http.timeline import Timeline
from reshape_gpu import config
from reshape_gpu.requests import Request

STORE = "RESHAPE_STORE"
OF_THE_STORE = {
    STORE: "store",
    f"{STORE}_CREDENTIALS": "store_credentials",
    f"{STORE}_CA": "store_ca",
}

Server = dict[str, str]
"""Variables with the store's address and what it takes to reach it; empty: files."""


def server_of(flag: str | None) -> Server:
    """The server of ``--store`` or of the settings. Raises CliError."""
    settings = config.load({"store": flag})
    store_settings(settings)
    found = ((variable, settings.text(name)) for variable, name in OF_THE_STORE.items())
    return {variable: text for variable, text in found if text is not None}


def run(
    preset: Preset, costs: Costs, folder: Path, server: Server, console: Console, coming: str
) -> Run:
    """Run both jobs; ``coming`` is what follows the run.

    Raises RunFailed; no process of the run is left either way.
    """
    home = Home((folder / "home").absolute())
    if STORE in server:
        # A server has no fresh home: a database of the run's own.
        stamp = time.strftime("%Y%m%d-%H%M%S")
        server = server | {STORE: _with_database(server[STORE], f"{preset.name}_{stamp}")}
    place = store_settings(config.load({"home": str(home.folder)}, server))
    if place.server is not None:
        console.print(f"its store is {place.text}")
    words = ["--simulated-gpus", str(GPUS), "--device-truth", str(DEVICE_TRUTH)]
    words += ["--profiles", str(costs.profile), *preset.flags, *costs.flags]
    folder.mkdir(parents=True, exist_ok=True)
    with own_daemon(folder, words, server) as client:
        watch = Watch(client, console)
        begin_s = time.monotonic()
        for name, record in RECORDS.items():
            due_s = begin_s + SUBMIT_AT_S[name]
            if time.monotonic() < due_s:
                watch.until(
                    lambda _, due_s=due_s: time.monotonic() >= due_s,  # type: ignore[misc]
                    f"{name} comes at {SUBMIT_AT_S[name]:.0f} s",
                )
            _submit(home, record)
        watch.until(
            lambda jobs: len(jobs) == len(RECORDS) and all(map(is_over, jobs.values())), coming
        )
        watch.read_all()
        timeline = client.ask(Request("GET", "/v1/timeline", Timeline))
    facts = read_log(place.make())
    return Run(
        preset=preset.name,
        jobs=tuple(watch.jobs.values()),
        history=tuple(watch.events),
        timeline=timeline,
        samples=tuple(watch.samples),
        phases=facts.phases,
        processes=facts.processes,
        containers={job.id: len(set(_inits(home.jobs / job.id))) for job in watch.jobs.values()},
    )


def clear(out: Path) -> None:
    """Empty ``out``; ends the program when a daemon of an earlier demo still runs there."""
    for address in sorted(out.glob("**/address.json")):
        if Home(address.parent.absolute()).has_daemon():
            sys.exit(f"a daemon of an earlier demo still runs on {address.parent}: stop it first")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)


def _with_database(server: str, name: str) -> str:
    """The address with ``name`` behind the database that it names, or in place of none."""
    address, mark, options = server.partition("?")
    scheme, _, rest = address.partition("://")
    host, _, given = rest.partition("/")
    return f"{scheme}://{host}/{given or 'demo'}_{name}{mark}{options}"


def reshape() -> list[str]:
    """The command ``reshape`` of this interpreter."""
    return [sys.executable, "-m", "reshape_controller.cli.main"]


def _inits(folder: Path) -> list[str]:
    """The init (pid and start time) of each container that a job ever had."""
    return [path.read_text() for path in sorted(folder.glob("attempt-*/run/init.json"))]


def _submit(home: Home, record: Path) -> None:
    """Submit a record as a user does."""
    done = subprocess.run(
        [*reshape(), "submit", str(record), "--home", str(home.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{record} was not accepted:\n{done.stderr}")

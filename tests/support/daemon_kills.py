"""Kill -9 of real daemons at random moments: ``python -m tests.support.daemon_kills --kills 1000``.

Does: forks a daemon with everything imported, sends it requests, kills it, and starts the next one
on the same home. Fails at the first daemon that ends by itself (a false refusal), and at the first
acknowledged request that the log lacks.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
import urllib.parse
from contextlib import closing
from pathlib import Path
from typing import Any

from reshape_controller.cli.serve.daemon import serve
from reshape_controller.cli.serve.up import checked, start_logging
from reshape_gpu.config import load
from tests.support.crash_states import noted_in

IN_REQUEST_S = 0.02
"""A kill comes at most this long after the newest request was sent: in its append, or after it."""
UP_S = 60.0
"""Longest time for a start."""
KILLS_PER_HOME = 100
EARLY = 0.2
"""Share of the daemons that are killed at a random moment of their start."""


class Kills:
    """One home, and the daemons on it, one after another."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        folder.mkdir(mode=0o700, parents=True)
        self.home = folder / "home"
        self.log = folder / "daemon.log"
        self._dice = dice
        self.acknowledged = 0
        self.starts_s: list[float] = []
        self._before = (0, 0)
        """The log's end and the acknowledged requests at the kill before."""

    def life(self) -> None:
        """Start a daemon, ask it for a while, kill it, and compare log and mark."""
        began_s = time.monotonic()
        pid = self._fork()
        try:
            if self._dice.random() < EARLY:
                time.sleep(self._dice.uniform(0.0, 0.5))
            else:
                url, token = self._wait_until_up(pid, began_s)
                self._ask_for(self._dice.uniform(0.0, 0.3), url, token)
        finally:
            os.kill(pid, signal.SIGKILL)  # a daemon that has ended is there until it is waited for
            _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"a daemon ended by itself: {self._said()}"
        self._compare()
        self._check_acknowledged()

    def _check_acknowledged(self) -> None:
        """Check that the log holds every acknowledged request."""
        if not self.acknowledged:
            return
        with closing(sqlite3.connect(self.home / "store.sqlite")) as store:
            bodies = [str(body) for (body,) in store.execute("SELECT body FROM log")]
        there = sum(body.count('"HostDrained"') + body.count('"HostUndrained"') for body in bodies)
        assert there >= self.acknowledged, f"{self.acknowledged} acknowledged, {there} in the log"

    def _said(self) -> str:
        return self.log.read_text()[-2000:]

    def _fork(self) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            number = os.open(self.log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            os.dup2(number, 1)
            os.dup2(number, 2)
            sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
            start_logging("info")
            given: dict[str, str | int | None] = {"simulated_gpus": 4, "port": 0}
            given["home"] = str(self.home)
            asyncio.run(serve(checked(load(given))))
        except BaseException as error:
            print(f"ended: {error!r} {getattr(error, 'problems', '')}", flush=True)
        finally:
            os._exit(9)

    def _wait_until_up(self, pid: int, began_s: float) -> tuple[str, str]:
        file = self.home / "address.json"
        while time.monotonic() < began_s + UP_S:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            assert state != "Z", f"a daemon ended by itself: {self._said()}"
            try:
                address = json.loads(file.read_text())
            except (OSError, ValueError):
                address = {}
            if address.get("pid") == pid:
                self.starts_s.append(time.monotonic() - began_s)
                return address["url"], (self.home / "token").read_text().strip()
            time.sleep(0.01)
        raise AssertionError(f"does not come up: {self._said()}")

    def _ask_for(self, wait_s: float, url: str, token: str) -> None:
        """Ask for a while; return in the middle of the newest request."""
        place = urllib.parse.urlsplit(url)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        until_s = time.monotonic() + wait_s
        with closing(http.client.HTTPConnection(place.netloc, timeout=UP_S)) as daemon:
            for number in itertools.count():
                action = "undrain" if number % 2 else "drain"
                daemon.request("POST", f"/v1/hosts/local/{action}", b"{}", headers)
                if time.monotonic() >= until_s:
                    break
                with daemon.getresponse() as answer:
                    assert answer.status == 200, answer.read()
                    answer.read()
                self.acknowledged += 1
            time.sleep(self._dice.uniform(0.0, IN_REQUEST_S))

    def _compare(self) -> None:
        path = self.home / "store.sqlite"
        mark = path.with_name(path.name + ".mark")
        if not path.exists():
            assert not mark.exists(), "a mark without a store"
            return
        with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as store:
            last = store.execute("SELECT coalesce(max(seq), 0) FROM log").fetchone()[0]
        noted = noted_in(mark.read_bytes() if mark.exists() else None)
        # A kill may come between a commit and its mark, also in several lives in a row; a request
        # that was acknowledged was noted before.
        acknowledged = self.acknowledged > self._before[1]
        least = self._before[0] + 1 if acknowledged else 0
        assert least <= noted <= last, f"the log ends at {last}, the mark says {noted}"
        self._before = (last, self.acknowledged)


def campaign(kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Kill ``kills`` daemons. Raises AssertionError at the first false refusal."""
    dice = random.Random(seed)
    acknowledged, starts_s = 0, []
    for begin in range(0, kills, KILLS_PER_HOME):
        home = Kills(folder / f"{begin}", dice)
        for number in range(begin, min(kills, begin + KILLS_PER_HOME)):
            try:
                home.life()
            except AssertionError as error:
                raise AssertionError(f"kill {number} of seed {seed}: {error}") from error
        acknowledged += home.acknowledged
        starts_s += home.starts_s
    starts_s.sort()
    return {
        "kills": kills,
        "seed": seed,
        "false refusals": 0,
        "requests acknowledged": acknowledged,
        "starts until ready": len(starts_s),
        "start p50, max (s)": [round(starts_s[len(starts_s) // 2], 2), round(starts_s[-1], 2)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(campaign(asked.kills, asked.seed, Path(name)), indent=2))


if __name__ == "__main__":
    main()

"""A parameter server and its workers, without any framework: a line is fitted to points.

    RESHAPE_WORKER=0 RESHAPE_PEERS=127.0.0.1:7800,127.0.0.1:7801 python train.py
    RESHAPE_WORKER=1 RESHAPE_PEERS=127.0.0.1:7800,127.0.0.1:7801 python train.py

Worker 0 is the server: it has the parameters, adds what the others push, and saves. The others
pull, compute a gradient on points of their own and push it, each at its own pace. This is level 0:
at SIGTERM the server saves and leaves with exit code 75; the others have nothing to save.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
import xmlrpc.client
from pathlib import Path
from xmlrpc.server import SimpleXMLRPCServer

EXIT_SAVED = 75
SLOPE, OFFSET = 3.0, -2.0
"""The weights that training shall find."""
RATE = 0.05
stop = threading.Event()


class Parameters:
    """The server's state; every call is one at a time."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.updates, self.slope, self.offset = 0, 0.0, 0.0
        if path is not None and path.exists():
            found = json.loads(path.read_text())
            self.updates, self.slope, self.offset = found["updates"], *found["line"]

    def pull(self) -> list[float]:
        return [self.slope, self.offset]

    def push(self, slope: float, offset: float) -> int:
        self.slope -= RATE * slope
        self.offset -= RATE * offset
        self.updates += 1
        return self.updates

    def save(self) -> None:
        """Beside it, synced, renamed: a reader sees the old state or the new one, never half."""
        if self.path is None:
            return
        beside = self.path.with_suffix(".new")
        with beside.open("w") as file:
            json.dump({"updates": self.updates, "line": self.pull()}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


def serve(address: str, path: Path | None, updates: int) -> int:
    """Until enough was pushed, or a SIGTERM."""
    host, port = address.rsplit(":", 1)
    parameters = Parameters(path)
    print(f"begins after update {parameters.updates} at {address}", flush=True)
    with SimpleXMLRPCServer((host, int(port)), logRequests=False) as server:
        server.timeout = 0.1
        server.register_function(parameters.pull)
        server.register_function(parameters.push)
        while parameters.updates < updates and not stop.is_set():
            server.handle_request()
    parameters.save()
    print(f"saves update {parameters.updates}", flush=True)
    if parameters.updates < updates:
        return EXIT_SAVED
    print(f"y = {parameters.slope:.2f} x {parameters.offset:+.2f}", flush=True)
    return 0


def work(server: str, number: int, pause_s: float) -> int:
    """Until a SIGTERM: the server, whose end is that of the job, is the one that counts."""
    draw = random.Random(number)
    parameters = xmlrpc.client.ServerProxy(f"http://{server}")
    while not stop.wait(pause_s):
        x = draw.uniform(-1.0, 1.0)
        try:
            slope, offset = parameters.pull()
            error = slope * x + offset - (SLOPE * x + OFFSET)
            parameters.push(error * x, error)
        except (OSError, xmlrpc.client.Error):
            time.sleep(0.1)  # it is not up yet, or has gone first
    return EXIT_SAVED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between two gradients")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    number, peers = int(os.environ["RESHAPE_WORKER"]), os.environ["RESHAPE_PEERS"].split(",")
    if number:
        return work(peers[0], number, options.pause)
    folder = os.environ.get("RESHAPE_CHECKPOINTS")
    return serve(peers[0], Path(folder, "state.json") if folder else None, options.updates)


if __name__ == "__main__":
    sys.exit(main())

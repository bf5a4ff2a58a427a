"""A batch job without any framework: it saves on SIGTERM and goes on from its newest file.

    python count.py --items 500

This is level 0, the whole contract for a program that knows nothing of Reshape: at SIGTERM save
and leave with exit code 75; at the start go on from the newest checkpoint. The folder is in the
environment variable RESHAPE_CHECKPOINTS; started by hand the program keeps nothing.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

EXIT_SAVED = 75
stopping = False


def stop(number: int, frame: object) -> None:
    """Only remember it; the loop saves between two items."""
    global stopping
    stopping = True


def load(path: Path | None) -> dict[str, int]:
    """The newest state, or the beginning."""
    if path is not None and path.exists():
        return dict(json.loads(path.read_text()))
    return {"item": 0, "sum": 0}


def save(path: Path, state: dict[str, int]) -> None:
    """Write beside it, sync, rename: a reader sees the old state or the new one, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".new")
    with open(beside, "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0.02, help="work per item")
    options = parser.parse_args()

    signal.signal(signal.SIGTERM, stop)
    folder = os.environ.get("RESHAPE_CHECKPOINTS")
    path = Path(folder, "state.json") if folder else None
    state = load(path)
    print(f"begin at item {state['item']}", flush=True)
    while state["item"] < options.items:
        if stopping:
            if path is not None:
                save(path, state)
            return EXIT_SAVED
        time.sleep(options.seconds)
        state["item"] += 1
        state["sum"] += state["item"]
    if path is not None:
        save(path, state)
    print(f"sum of {options.items} items: {state['sum']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

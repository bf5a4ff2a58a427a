"""The training program of live replays: it trains nothing, and takes the time that steps take.

A real process without TensorFlow: it counts to its length, is paced by the device truth of
simulated GPUs, saves at SIGTERM and goes on from its newest checkpoint. It is copied beside the
jobs that run it, and imports nothing but the session of the SideCar. State: its number of steps.
"""

from __future__ import annotations

from pathlib import Path

from reshape_sidecar import session


def main() -> None:
    """Run to the length that the job record says."""
    job = session.start(total_steps=1)

    def save(folder: Path) -> None:
        (folder / "step").write_text(f"{job.step}\n", encoding="utf-8")

    while job.step < (job.total_steps or 0):
        job.step_done(save)
    job.finished(save)


if __name__ == "__main__":
    main()

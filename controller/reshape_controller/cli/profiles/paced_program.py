"""The training program of live replays: it only takes the time of training steps.

A real process without TensorFlow: it counts to its length at the pace of the simulated GPUs' device
truth, saves at SIGTERM and continues from its newest checkpoint. It is copied beside the jobs that
run it, and imports only the session of the SideCar. State: its number of steps.
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

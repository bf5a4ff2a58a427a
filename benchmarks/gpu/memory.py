"""What a GPU holds, sampled: when memory became free, and when a process was gone.

Does: reads NVML some hundred times a second in a thread. Never: uses the GPU. State: the samples.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from reshape_sidecar import gpu

EVERY_S = 0.005
NEAR_BYTES = 32 << 20
"""Memory is as before if it is within this of what the GPU held at the beginning."""


def used(uuid: str) -> int:
    """Return the bytes in use on a GPU, without the driver's reserve; -1 if NVML does not say."""
    readings = gpu.use((uuid,))
    return readings[0].memory_used_bytes if readings else -1


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that its parent has not reaped has."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in ("Z", "X")


class Samples:
    """Samples of one GPU from the beginning of the context to its end."""

    def __init__(self, uuid: str) -> None:
        self.base_bytes = used(uuid)
        self._uuid = uuid
        self._lock = threading.Lock()
        self._samples: list[tuple[float, int]] = []
        self._watched: set[int] = set()
        self._gone: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Samples:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def watch(self, pid: int) -> None:
        """Note when this process ends."""
        with self._lock:
            self._watched.add(pid)

    def gone_s(self, pid: int) -> float | None:
        """Return when a watched process had ended; None: it runs."""
        with self._lock:
            return self._gone.get(pid)

    def below_s(self, limit_bytes: int, since_s: float) -> float | None:
        """Return the first time from ``since_s`` on at which the GPU held at most so much."""
        with self._lock:
            found = (at for at, held in self._samples if at >= since_s and 0 <= held <= limit_bytes)
            return next(found, None)

    def as_before_s(self, since_s: float) -> float | None:
        """Return the first time at which it held about what it held at the beginning."""
        return self.below_s(self.base_bytes + NEAR_BYTES, since_s)

    def before(self, at_s: float) -> int:
        """Return what the last sample before a time says."""
        with self._lock:
            return next((held for at, held in reversed(self._samples) if at <= at_s), -1)

    def most(self) -> int:
        """Return the most that it held."""
        with self._lock:
            return max((held for _, held in self._samples), default=-1)

    def save(self, path: Path) -> None:
        """Write each sample that differs from the one before, as CSV."""
        lines, last = ["at_s,used_bytes"], None
        with self._lock:
            for at, held in self._samples:
                if held != last:
                    lines.append(f"{at:.4f},{held}")
                last = held
        path.write_text("\n".join(lines) + "\n")

    def _sample(self) -> None:
        while not self._ended.is_set():
            held = used(self._uuid)
            now_s = time.monotonic()
            with self._lock:
                self._samples.append((now_s, held))
                for pid in [pid for pid in self._watched if is_gone(pid)]:
                    self._watched.discard(pid)
                    self._gone[pid] = now_s
            time.sleep(EVERY_S)

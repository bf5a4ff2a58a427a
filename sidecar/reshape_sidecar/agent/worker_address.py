"""One of several workers: the address at which the others reach it, and the save barrier's file.

Does: finds an address of this container (a number, so that no name service is needed), and writes
the file from which training reads the step of the save barrier.
"""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from reshape_sidecar import durable
from reshape_sidecar.wire import Meeting

MEETING_FILE = "meeting"
MEETING_MODE = 0o644
"""Training may be another user's."""


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def address(coordinator_url: str) -> str:
    """Return this container's address in the coordinator's network, with a free port.

    Nothing is sent. Raises OSError if there is no route to the coordinator.
    """
    parts = urlsplit(coordinator_url)
    where = (parts.hostname or "127.0.0.1", parts.port or 80)
    family, kind, _, _, target = socket.getaddrinfo(*where, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        host = str(probe.getsockname()[0])
    return f"[{host}]:{free_port(host)}" if ":" in host else f"{host}:{free_port(host)}"


def write(run: Path, meeting: Meeting | None) -> None:
    """Write the step of the save barrier for training, or remove it. Raises OSError."""
    path = run / MEETING_FILE
    if meeting is None:
        path.unlink(missing_ok=True)
    else:
        text = f"{meeting.generation} {meeting.step}"
        durable.write_whole(path, text.encode(), MEETING_MODE)

"""This worker among the workers of its job: where it can be reached, and when all of them save.

Does: finds an address that the others can use, and keeps the file that tells training of a meeting.
Never: believes a name (addresses need no name service). State: the file.
"""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from reshape_sidecar import durable
from reshape_sidecar.wire import Meeting

MEETING_FILE = "meeting"


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody uses now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def address(coordinator_url: str) -> str:
    """Address of this container, as the coordinator's network sees it, with a free port.

    Nothing is sent. Raises OSError while there is no way to the coordinator.
    """
    parts = urlsplit(coordinator_url)
    where = (parts.hostname or "127.0.0.1", parts.port or 80)
    family, kind, _, _, target = socket.getaddrinfo(*where, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        host = str(probe.getsockname()[0])
    return f"[{host}]:{free_port(host)}" if ":" in host else f"{host}:{free_port(host)}"


def write(run: Path, meeting: Meeting | None) -> None:
    """Tell training of the meeting, or that there is none. Raises OSError."""
    path = run / MEETING_FILE
    if meeting is None:
        path.unlink(missing_ok=True)
    else:
        durable.write_whole(path, f"{meeting.generation} {meeting.step}".encode())

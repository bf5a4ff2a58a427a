"""The names of the hosts that this machine plays."""

from __future__ import annotations

HOST = "local"
"""Name of the local launcher's host, on every machine; the first of several."""


def host_name(number: int) -> str:
    """Return the name of a host of this machine, from its number, which begins with 0."""
    return f"{HOST}-{number}" if number else HOST

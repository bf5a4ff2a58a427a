"""The Host header of a request."""

from __future__ import annotations

import re

from reshape_controller.http.errors import ApiError, bad_request

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/@\s]+))(?::([0-9]{0,5}))?")
PORT_MAX = 65_535


def split_host(header: str) -> tuple[str, str]:
    """Return name and port of a Host header; an empty port if it has none. Raises ApiError."""
    match = _HOST.fullmatch(header)
    if match is None or int(match[3] or 0) > PORT_MAX:
        raise _odd(header)
    return (match[1] or match[2]).lower(), match[3] or ""


def _odd(header: str) -> ApiError:
    what = f"{header!r:.200} is no host name with at most a port"
    return bad_request(what, "header Host", "send NAME, NAME:PORT or [ADDRESS]:PORT")

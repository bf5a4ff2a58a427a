"""One signed POST to a target: over a connection to an address that was checked.

Does: resolve the host once, check each address, and connect to one of these, so that a second
answer of the DNS changes nothing. Never: follow a redirect, use a proxy, or read more than a
status line; or look up a name in a thread that the rest of the daemon needs. Every wait has a
bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum

from reshape_controller.core.errors import ReshapeError
from reshape_controller.live.notifications.addresses import is_allowed, is_permitted
from reshape_controller.live.notifications.messages import Message, headers
from reshape_controller.live.notifications.targets import Target

DELIVERY_S = 10.0
"""Longest time of a delivery, from the DNS to the status line."""
STATUS_BYTES_MAX = 4096
LOOKUPS_MAX = 64
"""Names that are looked up at once. If no server of the DNS answers, a lookup outlives its delivery
for up to a minute."""
REFUSALS = (400, 413, 415, 422)
"""The receiver has read the message, and does not take it: a repeat would not help."""


class Outcome(StrEnum):
    """How a delivery ended."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    FAILED = "failed"


class DeliveryFailed(ReshapeError):
    """The receiver did not take the message; it may take it later."""


async def deliver(target: Target, message: Message, now_s: float) -> Outcome:
    """Send a message; return whether it was taken or refused. Raises DeliveryFailed."""
    try:
        async with asyncio.timeout(DELIVERY_S):
            address = await _address(target)
            status = await _posted(target, address, message, now_s)
    except TimeoutError:
        raise DeliveryFailed(f"no answer within {DELIVERY_S:g} s") from None
    except (OSError, ValueError, EOFError) as error:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DeliveryFailed(text) from None
    if 200 <= status < 300:
        return Outcome.DELIVERED
    if status in REFUSALS:
        return Outcome.REFUSED
    redirect = ", and redirects are not followed" if 300 <= status < 400 else ""
    raise DeliveryFailed(f"the receiver answered {status}{redirect}")


async def _address(target: Target) -> str:
    """Resolve the host once; return an address that was checked. Raises OSError, DeliveryFailed."""
    look = functools.partial(socket.getaddrinfo, target.host, target.port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_lookups(), look)
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not is_permitted(address, target.allow):
            raise DeliveryFailed(f"{address} is not public, and the target does not allow it")
        if not target.has_tls and not is_allowed(address, target.allow):
            raise DeliveryFailed(f"{address}: plain HTTP goes only to addresses of allow")
    return addresses[0]


@functools.cache
def _lookups() -> ThreadPoolExecutor:
    """Return threads of our own: the loop's few also renew the lease, and a lookup can hang."""
    return ThreadPoolExecutor(LOOKUPS_MAX, "notify-lookup")


@functools.cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def _posted(target: Target, address: str, message: Message, now_s: float) -> int:
    """Send the request to an address; return the status of the answer. Raises OSError,
    ValueError, EOFError."""
    tls = _tls() if target.has_tls else None
    name = target.host if tls is not None else None
    reader, writer = await asyncio.open_connection(
        address, target.port, ssl=tls, server_hostname=name, limit=STATUS_BYTES_MAX
    )
    try:
        fields = {
            "Host": target.host_header,
            "Content-Length": str(len(message.body)),
            "Connection": "close",
            **headers(target, message, now_s),
        }
        lines = [f"POST {target.path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + message.body)
        await writer.drain()
        line = await reader.readline()
        if not line:
            raise EOFError("the receiver closes the connection without an answer")
        version, _, status = line.decode("latin-1").partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdecimal():
            raise ValueError("the receiver does not answer by HTTP/1")
        return int(status[:3])
    finally:
        writer.close()
        with contextlib.suppress(OSError):  # but not a cancel, or the daemon could not stop
            await asyncio.wait_for(writer.wait_closed(), 1.0)

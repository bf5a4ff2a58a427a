"""The address and port at which the daemon listens beyond this machine, read from one text."""

from __future__ import annotations

import ipaddress

from reshape_controller.cli.exits import Exit, failed


def address_and_port(text: str, where: str, remedy: str) -> tuple[str, int]:
    """Return the IP address and the port of ``IP-ADDRESS:PORT``. Raises CliError.

    ``where``: the setting that has the text.
    """
    address, colon, port = text.rpartition(":")
    address = address.strip("[]")
    try:
        ipaddress.ip_address(address)
    except ValueError:
        colon = ""
    if not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise failed(Exit.USAGE, f"{text!r} is not IP-ADDRESS:PORT", where, remedy)
    return address, int(port)

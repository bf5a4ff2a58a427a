"""The addresses that a notification may be sent to: public ones, and those that a target allows.

Does: keep a target's URL from reaching the daemon's machine, its network, or a cloud's metadata.
Pure.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from reshape_controller.live.notifications.targets import Network

Address = IPv4Address | IPv6Address
METADATA = (IPv4Network("168.63.129.16/32"), IPv4Network("192.0.0.0/24"))
"""Public by their number, though clouds answer there with secrets of the machine."""
_NAT64 = IPv6Network("64:ff9b::/96")
_UNICAST = IPv6Network("2000::/3")
"""The only IPv6 addresses that are of the public internet."""


def is_permitted(text: str, allow: tuple[Network, ...]) -> bool:
    """Whether a connection to this address is permitted. ``allow``: of the target."""
    address = _embedded(ip_address(text.partition("%")[0]))
    return is_public(address) or is_allowed(text, allow)


def is_allowed(text: str, allow: tuple[Network, ...]) -> bool:
    """Whether the target names this address itself."""
    address = _embedded(ip_address(text.partition("%")[0]))
    return _is_in(address, allow)


def is_public(address: Address) -> bool:
    """Whether the address is of the public internet: not private, shared, loopback, link-local,
    multicast, reserved or a cloud's metadata."""
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return False
    blocked = address.is_multicast or address.is_reserved
    return address.is_global and not blocked and not _is_in(address, METADATA)


def _is_in(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def _embedded(address: Address) -> Address:
    """Return the IPv4 address to which an IPv6 address leads, if it does."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address

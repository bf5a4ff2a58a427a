"""The login on a server: the credentials in use, read again once the server refuses them.

Does: says whether newer credentials are there, and how long a refusal holds, so that a wrong
password is not sent again and again. State: the address in use, and its newest refusal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from reshape_controller.store.mongo.address import MongoAddress
from reshape_controller.store.protocol import StoreError, StoreRefused

REFUSED_AGAIN_S = 30.0
"""The same credentials are sent again at the earliest after this time: the server's user may have
been made or changed meanwhile."""


class Login:
    """One per store. ``read_again`` reads the address with its credentials from their files."""

    def __init__(
        self,
        address: MongoAddress,
        read_again: Callable[[], MongoAddress] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._read_again = read_again
        self._clock = clock
        self._refusal: StoreRefused | None = None
        self._again_at_s = 0.0

    @property
    def refused(self) -> bool:
        """Whether the server refused these credentials the last time."""
        return self._refusal is not None

    def on_refusal(self, refusal: StoreRefused) -> None:
        """Note that the server refused the credentials in use."""
        self._refusal = refusal
        self._again_at_s = self._clock() + REFUSED_AGAIN_S

    def on_success(self) -> None:
        """Note that the server let a call pass."""
        self._refusal = None

    def renew(self) -> bool:
        """Read the credentials again; return whether they are others than before.

        Files that cannot be read now, or hold no credentials, change nothing.
        """
        if self._read_again is None:
            return False
        try:
            address = self._read_again()
        except StoreError:
            return False
        if address.credentials == self.address.credentials:
            return False
        self.address = address
        self._refusal = None
        return True

    def check(self) -> None:
        """Raise the newest refusal again while it holds. Raises StoreRefused."""
        if self._refusal is not None and self._clock() < self._again_at_s:
            raise StoreRefused(str(self._refusal), login=True)

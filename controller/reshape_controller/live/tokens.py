"""Tokens of attempts: what lets a SideCar speak for its attempt and for no other.

Does: derives a token from the controller's secret, the job and the attempt. None is stored, and a
restarted controller derives the same ones.
"""

from __future__ import annotations

import hashlib
import hmac

from reshape_launcher.spec import worker_token


class Tokens:
    """Tokens under one secret."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def of(self, job: str, attempt: int) -> str:
        """Derive the token of an attempt, as hexadecimal text."""
        return hmac.new(self._secret, f"{job}/{attempt}".encode(), hashlib.sha256).hexdigest()

    def valid(self, job: str, attempt: int, token: str, worker: int = 0) -> bool:
        """Whether ``token`` is that of the attempt's worker, compared in constant time."""
        right = worker_token(self.of(job, attempt), worker)
        return hmac.compare_digest(right.encode(), token.encode())

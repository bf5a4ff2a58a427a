"""The controller's own key and certificate, by which SideCars in pods know it.

Does: derive an Ed25519 key from the daemon's secret, sign a certificate with it, and say what
SideCars pin. Every start, and every controller with this secret, has the same key; nobody renews
it, and no file holds it. The arithmetic is that of RFC 8032, with Python's integers: it runs once
at a start, on a secret of this process. OpenSSL checks that certificate and key belong together.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import ssl
import urllib.parse
from dataclasses import dataclass

from reshape_sidecar.agent.pinned_key import key_sha256

PURPOSE = b"tls key for sidecars"
_ALGORITHM = bytes.fromhex("300506032b6570")
"""Ed25519, as DER names it."""
_NAME = bytes.fromhex("30123110300e0603550403") + b"\x0c\x07reshape"
"""CN=reshape."""
_DATES = b"\x30\x20\x17\x0d000101000000Z\x18\x0f99991231235959Z"
"""From 2000 to the end of 9999: nobody looks at them."""
_P = 2**255 - 19
_L = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _P) % _P
_BASE = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)
_Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class SidecarTls:
    """What the server of SideCars needs, and what a launch tells them."""

    context: ssl.SSLContext
    key_sha256: str

    @staticmethod
    def url(plain: str) -> str:
        """Return the URL of the same port with TLS."""
        parts = urllib.parse.urlsplit(plain)
        place = parts.netloc if parts.port is not None else f"{parts.netloc}:80"
        return parts._replace(scheme="https", netloc=place).geturl()


def sidecar_tls(secret: bytes) -> SidecarTls:
    """Return the key that belongs to a daemon's secret, with its certificate."""
    seed = hmac.new(secret, PURPOSE, hashlib.sha256).digest()
    made = certificate(seed)
    key = b"\x30\x2e\x02\x01\x00" + _ALGORITHM + b"\x04\x22\x04\x20" + seed
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could ask for work without end
    context.num_tickets = 0  # SideCars resume no session
    memory = os.memfd_create("sidecar-tls")  # OpenSSL takes a path, and no file shall have the key
    try:
        os.write(memory, _pem("CERTIFICATE", made) + _pem("PRIVATE KEY", key))
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return SidecarTls(context, key_sha256(made))


def certificate(seed: bytes) -> bytes:
    """Return a self-signed DER certificate of the key with this seed."""
    public = public_key(seed)
    key = _der(0x30, _ALGORITHM + _der(0x03, b"\x00" + public))
    body = _der(0x30, b"\x02\x01\x01" + _ALGORITHM + _NAME + _DATES + _NAME + key)
    return _der(0x30, body + _ALGORITHM + _der(0x03, b"\x00" + sign(seed, body)))


def public_key(seed: bytes) -> bytes:
    """Return the Ed25519 public key of a seed."""
    return _encoded(_times(_scalar(seed)[0], _BASE))


def sign(seed: bytes, message: bytes) -> bytes:
    """Return the Ed25519 signature of a message."""
    scalar, prefix = _scalar(seed)
    nonce = _number(prefix + message)
    commitment = _encoded(_times(nonce, _BASE))
    challenge = _number(commitment + public_key(seed) + message)
    return commitment + ((nonce + challenge * scalar) % _L).to_bytes(32, "little")


def _scalar(seed: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(seed).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.sha512(data).digest(), "little") % _L


def _times(factor: int, point: _Point) -> _Point:
    total = (0, 1)
    while factor:
        if factor & 1:
            total = _plus(total, point)
        point, factor = _plus(point, point), factor >> 1
    return total


def _plus(one: _Point, other: _Point) -> _Point:
    (x1, y1), (x2, y2) = one, other
    both = _D * x1 * x2 * y1 * y2 % _P
    return (
        (x1 * y2 + x2 * y1) * pow(1 + both, -1, _P) % _P,
        (y1 * y2 + x1 * x2) * pow(1 - both, -1, _P) % _P,
    )


def _encoded(point: _Point) -> bytes:
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _der(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    count = (length.bit_length() + 7) // 8
    return bytes((tag, 0x80 | count)) + length.to_bytes(count, "big") + content


def _pem(kind: str, data: bytes) -> bytes:
    text = base64.encodebytes(data).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n".encode()

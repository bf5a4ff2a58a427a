"""The controller's public key, as the spec of an attempt pins it; standard library only.

Does: takes a TLS connection whose certificate holds the pinned key, and ends every other before a
byte of a request is sent. Names, dates and signers of the certificate are not looked at: it may be
renewed, and the machine's clock may be wrong.
"""

from __future__ import annotations

import hashlib
import hmac
import ssl

_LONG = 0x80
"""First byte of a length that has bytes of its own."""
_VERSION = 0xA0
"""Tag of a certificate's version, which may be left out."""
_BEFORE_KEY = 5
"""Parts of a certificate between its version and its key: number, algorithm, issuer, dates, name.
"""


def key_sha256(certificate: bytes) -> str:
    """Return the SHA-256 of the public key (SubjectPublicKeyInfo) in a DER certificate.

    Raises ValueError if it is no certificate.
    """
    try:
        _, begin, _ = _part(certificate, 0)
        _, begin, _ = _part(certificate, begin)
        tag, _, end = _part(certificate, begin)
        begin = end if tag == _VERSION else begin
        for _ in range(_BEFORE_KEY):
            _, _, begin = _part(certificate, begin)
        _, _, end = _part(certificate, begin)
    except IndexError:
        raise ValueError("it is cut") from None
    return hashlib.sha256(certificate[begin:end]).hexdigest()


def context(sha256: str) -> ssl.SSLContext:
    """Return a client's context that takes only a server with this public key."""

    class Pinned(ssl.SSLSocket):
        """Checks the key when the handshake is done."""

        def do_handshake(self, block: bool = False) -> None:
            super().do_handshake(block)
            try:
                found = key_sha256(self.getpeercert(True) or b"")
            except ValueError as error:
                found = str(error)
            if not hmac.compare_digest(found.encode(), sha256.encode()):
                what = f"the key there is {found:.16}..., and this attempt knows {sha256:.16}..."
                raise ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, what)

    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.sslsocket_class = Pinned
    return made


def _part(data: bytes, at: int) -> tuple[int, int, int]:
    """Return tag, begin and end of the content of a DER part. Raises IndexError."""
    tag, length, begin = data[at], data[at + 1], at + 2
    if length & _LONG:
        count = length - _LONG
        length = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    if begin + length > len(data):
        raise IndexError
    return tag, begin, begin + length

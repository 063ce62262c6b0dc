"""The ciphers that use the processor's instructions give what the generic ones give, for every length.

Both are asked by the names of their drivers (AF_ALG, Documentation/crypto/userspace-if.rst).
"""

from __future__ import annotations

import errno
import itertools
import random
import re
import socket
import struct
from pathlib import Path
from typing import NamedTuple

LENGTHS = (*range(1, 273), *(near + by for near in (512, 1024, 1500, 2048, 4096, 8192) for by in (-1, 0, 1)))
"""Every length up to a few blocks of each implementation, then around what is processed at once."""

GCM_PORTABLE = "gcm_base(ctr(aes-generic),ghash-generic)"
DRIVERS = ("rfc4106-gcm-aesni", "generic-gcm-aesni", "chacha20-simd", "poly1305-simd", "cbc-aes-aesni")


class Pair(NamedTuple):
    """Two drivers of one algorithm: with the processor's instructions, and without.

    ``associated`` are the lengths of what is only authenticated, ``multiple`` what that of the data is.
    """

    fast: str
    portable: str
    key: bytes
    iv_bytes: int
    icv_bytes: int
    associated: tuple[int, ...]
    multiple: int = 1


def pseudorandom(length: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(length)  # noqa: S311


def authenc_key(authentication_bytes: int, encryption_bytes: int) -> bytes:
    """Both keys as authenc wants them (crypto_authenc_extractkeys() in crypto/authenc.c)."""
    header = struct.pack("=HH", 8, 1) + struct.pack("!I", encryption_bytes)
    return header + pseudorandom(authentication_bytes + encryption_bytes)


def hashed(hash_: str, key_bytes: int, icv_bytes: int) -> Pair:
    return Pair(
        fast=f"authenc(hmac({hash_}),cbc(aes))",
        portable=f"authenc(hmac({hash_}-generic),cbc(aes-generic))",
        key=authenc_key(key_bytes, 16),
        iv_bytes=16,
        icv_bytes=icv_bytes,
        associated=(8, 24),
        multiple=16,
    )


SIMD, GENERIC = (f"chacha20-{kind},poly1305-{kind}" for kind in ("simd", "generic"))
PAIRS = (
    *(
        Pair("rfc4106-gcm-aesni", f"rfc4106({GCM_PORTABLE})", pseudorandom(bits // 8 + 4), 8, 16, (16, 20))
        for bits in (128, 256)
    ),
    *(
        Pair("generic-gcm-aesni", GCM_PORTABLE, pseudorandom(bits // 8), 12, 16, (0, 1, 15, 16, 17, 28))
        for bits in (128, 256)
    ),
    Pair(f"rfc7539({SIMD})", f"rfc7539({GENERIC})", pseudorandom(32), 12, 16, (0, 7, 16)),
    Pair(f"rfc7539esp({SIMD})", f"rfc7539esp({GENERIC})", pseudorandom(36), 8, 16, (16, 20)),
    hashed("sha1", 20, 12),
    hashed("sha256", 32, 16),
    hashed("sha512", 64, 32),
)


class Aead:
    def __init__(self, name: str, key: bytes, *, icv_bytes: int) -> None:
        self._icv_bytes = icv_bytes
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0) as kind:
            kind.bind(("aead", name))
            kind.setsockopt(socket.SOL_ALG, socket.ALG_SET_KEY, key)
            kind.setsockopt(socket.SOL_ALG, socket.ALG_SET_AEAD_AUTHSIZE, None, icv_bytes)
            self._socket, _ = kind.accept()

    def seal(self, associated: bytes, iv: bytes, data: bytes) -> bytes:
        return self._do(socket.ALG_OP_ENCRYPT, associated, iv, data, len(data) + self._icv_bytes)

    def open(self, associated: bytes, iv: bytes, data: bytes) -> bytes | None:
        """None if it is not authentic."""
        try:
            return self._do(socket.ALG_OP_DECRYPT, associated, iv, data, len(data) - self._icv_bytes)
        except OSError as error:
            if error.errno != errno.EBADMSG:
                raise
            return None

    def _do(self, operation: int, associated: bytes, iv: bytes, data: bytes, length: int) -> bytes:
        self._socket.sendmsg_afalg([associated + data], op=operation, iv=iv, assoclen=len(associated))
        return self._socket.recv(len(associated) + length)[len(associated) :]


def compare(pair: Pair) -> int:
    """How many messages both drivers sealed alike, and opened for each other."""
    fast = Aead(pair.fast, pair.key, icv_bytes=pair.icv_bytes)
    portable = Aead(pair.portable, pair.key, icv_bytes=pair.icv_bytes)
    times = 0
    for length, associated_bytes in itertools.product(LENGTHS, pair.associated):
        if length % pair.multiple:
            continue
        data = pseudorandom(length, length)
        iv = pseudorandom(pair.iv_bytes, times)
        associated = pseudorandom(associated_bytes, times)
        if associated_bytes >= 16 and pair.iv_bytes == 8:
            # ESP's IV is at the end of what is authenticated (crypto_rfc4106_crypt() in crypto/gcm.c).
            associated = associated[:-8] + iv
        sealed = fast.seal(associated, iv, data)
        where = f"{pair.fast}, {length} bytes, {associated_bytes} associated"
        assert sealed == portable.seal(associated, iv, data), where
        assert (len(sealed) == length + pair.icv_bytes and sealed[:length] != data) or length < 8, where
        assert fast.open(associated, iv, sealed) == portable.open(associated, iv, sealed) == data, where
        broken = bytes([*sealed[:-1], sealed[-1] ^ 1])
        assert fast.open(associated, iv, broken) is portable.open(associated, iv, broken) is None, where
        times += 1
    return times


def drivers(key: str, value: str) -> list[str]:
    """What this kernel says of each driver of which that is true."""
    blocks = Path("/proc/crypto").read_text(encoding="utf-8").split("\n\n")
    return [block for block in blocks if re.search(rf"^{key}\s+: {re.escape(value)}$", block, re.M)]


def main() -> None:
    for pair in PAIRS:
        print(f"{pair.fast}: {compare(pair)} messages")
    for driver in DRIVERS:
        (found,) = drivers("driver", driver)
        assert re.search(r"^selftest\s+: passed$", found, re.M), found
    for name in ("sha1", "sha256", "sha512"):
        assert len(drivers("name", name)) > 1, f"only one driver of {name}"


if __name__ == "__main__":
    main()

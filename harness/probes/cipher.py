"""The protections' ciphers stand-alone: ``programs/cipher.py`` in each kernel of a path, by AF_ALG.

ESP asks the kernel for one AEAD in every case: that of RFC 4106 or RFC 7634, or ``authenc`` of an integrity
check and a cipher (net/ipv4/esp4.c, esp_init_aead() and esp_init_authenc()). AF_ALG gives access to the same
ones.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from harness.analysis import theory
from harness.hosts import Host, programs
from harness.model.errors import RequirementError
from harness.model.escape import printable
from harness.model.probing import Cipher, CipherFigures, CipherTimes, KernelCipher
from harness.parse import proc_crypto
from harness.probes.tools import ProbedPath, ProbeOutcome, keep

SIZES = (64, 1408)
"""Bytes to encrypt: a short packet, and one that almost fills a frame; both are whole cipher blocks."""

DURATION_S = 0.3
DEADLINE_S = 20.0

SALT_BYTES = {"rfc4106(gcm(aes))": 4}
"""Salt after the key (RFC 4106, section 8.1)."""

KEY_BYTES = {
    "ecb(cipher_null)": 0,
    "cbc(des3_ede)": 24,  # RFC 2451, section 2.2
    "rfc7539esp(chacha20,poly1305)": 36,  # RFC 7634, section 2: 32, and 4 of salt
    "rfc7539(chacha20,poly1305)": 32,  # RFC 8439, section 2.8
    "hmac(sha1)": 20,  # RFC 2404, section 3
    "hmac(sha256)": 32,  # RFC 4868, section 2.1.1
}
"""Algorithms whose keys have only one length."""


BARE = {"gcm(aes)": (12, 16), "rfc7539(chacha20,poly1305)": (12, 16)}
"""AEADs that are not ESP's: bytes of IV and check value (SP 800-38D; RFC 8439, section 2.8)."""


class Aead(msgspec.Struct, frozen=True, kw_only=True):
    """What the program opens: a name of the kernel's, and a key in hex, which protects nothing."""

    name: str
    key: str
    iv_bytes: int
    icv_bytes: int


def aead(algorithms: Sequence[str], key_bits: int | None) -> Aead:
    """The AEAD that the protection would ask for. KeyError for unknown algorithms."""
    encryption = next((name for name in algorithms if name in theory.CIPHERS), algorithms[0])
    name, key = encryption, _key(encryption, key_bits)
    if len(algorithms) > 1:
        name, key = _authenc(algorithms[-1], encryption, _key(algorithms[-1], None), key)
    if encryption in BARE:
        iv_bytes, icv_bytes = BARE[encryption]
    else:
        (iv_bytes, _), icv_bytes = theory.CIPHERS[encryption], theory.CHECK_VALUES[algorithms[-1]]
    return Aead(name=name, key=key.hex(), iv_bytes=iv_bytes, icv_bytes=icv_bytes)


def nothing() -> Aead:
    """An AEAD that neither encrypts nor authenticates: only the system call and the copies remain."""
    name, key = _authenc("digest_null", "ecb(cipher_null)", b"", b"")
    return Aead(name=name, key=key.hex(), iv_bytes=0, icv_bytes=0)


def _authenc(check: str, encryption: str, check_key: bytes, key: bytes) -> tuple[str, bytes]:
    """A check and a cipher as one, with both keys as include/crypto/authenc.h defines: first a struct rtattr
    with the length of the cipher's key."""
    parameter = struct.pack("=HH", 8, 1) + struct.pack(">I", len(key))
    return f"authenc({check},{encryption})", parameter + check_key + key


def _key(algorithm: str, key_bits: int | None) -> bytes:
    """Any key that is not weak."""
    if algorithm not in KEY_BYTES and key_bits is None:
        raise KeyError(algorithm)
    length = KEY_BYTES.get(algorithm, (key_bits or 0) // 8 + SALT_BYTES.get(algorithm, 0))
    return bytes(range(1, length + 1))


class _Times(msgspec.Struct):
    """What the program prints for one AEAD, operation and size."""

    aead: int
    operation: str
    bytes: int
    ns: float


class _PrintedCiphers(msgspec.Struct):
    processors: int
    turns: int
    stretch: float
    times: list[_Times]


def measure(probe: Cipher, probed: ProbedPath) -> ProbeOutcome:
    """Measure each kernel's ciphers, one kernel after another. RequirementError for unknown algorithms, and
    for those that a kernel does not have or does not offer."""
    try:
        asked = [aead(probe.algorithms, probe.key_bits), nothing()]
    except KeyError as error:
        raise RequirementError(f"the key of {error} is unknown to the harness") from error
    request = {"aeads": asked, "sizes": SIZES, "duration_s": DURATION_S}
    kernels: dict[object, tuple[Host, list[str]]] = {}
    for end, host in (("initiator", probed.path.initiator), ("target", probed.path.target)):
        kernels.setdefault(host.kernel, (host, []))[1].append(end)
    found = []
    for host, ends in kernels.values():
        argv = [programs.PYTHON, "-I", "-S", "-", msgspec.json.encode(request).decode()]
        done = host.run(argv, input=programs.source(__package__, "cipher"), check=False, timeout_s=DEADLINE_S)
        keep(probed.raw, f"cipher-{host.name}", done)
        if done.status != 0:
            said = printable(done.stderr.strip()[-160:]) or f"status {done.status}"
            raise RequirementError(f"the {host.name}'s kernel does not offer its ciphers by AF_ALG: {said}")
        (crypto,) = host.read_files(["/proc/crypto"])
        driver = ", ".join(proc_crypto.drivers(crypto, probe.algorithms))
        try:
            kernel = understand(done.stdout, tuple(ends), driver)
        except (msgspec.DecodeError, KeyError) as error:
            return ProbeOutcome().refuse(
                f"expected figures from the ciphers' program on the {host.name}: {error}"
            )
        # A short message may cost a fast cipher less than two measurements differ by, a packet does not.
        if min(kernel.encrypt.long_ns, kernel.decrypt.long_ns) <= 0:
            return ProbeOutcome().refuse(
                f"the ciphers of the {host.name} took no longer than the null cipher, in "
                f"{kernel.turns} turns: other programs used the processor"
            )
        found.append(kernel)
    return ProbeOutcome(figures=CipherFigures(kernels=tuple(found)))


def understand(text: str, ends: tuple[str, ...], driver: str) -> KernelCipher:
    """The program's output, minus the cost of the AEAD that does nothing. DecodeError or KeyError for other
    output."""
    printed = msgspec.json.decode(text, type=_PrintedCiphers)
    times = {(each.aead, each.operation, each.bytes): each.ns for each in printed.times}

    short, long = SIZES

    def net(operation: str, size: int) -> float:
        # A short message costs a fast cipher less than two measurements differ by.
        return max(0.0, round(times[0, operation, size] - times[1, operation, size], 1))

    encrypt, decrypt = (
        CipherTimes(short_bytes=short, short_ns=net(name, short), long_bytes=long, long_ns=net(name, long))
        for name in ("encrypt", "decrypt")
    )
    return KernelCipher(
        ends=ends,
        cores=printed.processors,
        driver=driver,
        turns=printed.turns,
        stretch=printed.stretch,
        encrypt=encrypt,
        decrypt=decrypt,
    )


OFFERED = ((Cipher, measure),)

"""Times the kernel's ciphers stand-alone, as ESP uses them: AF_ALG (Documentation/crypto/userspace-if.rst).

The request is JSON on the command line: ``{"aeads": [{"name", "key" (hex), "iv_bytes", "icv_bytes"}, …],
"sizes": [bytes, …], "duration_s"}``. All AEADs take turns, one operation each, so that whatever else the
machine does affects all alike. The program prints ``{"processors", "turns", "stretch", "times": [{"aead" (its
index), "operation", "bytes", "ns"}, …]}``. If this kernel lacks an AEAD, or gives wrong results, it prints a
line on standard error and ends with status 1.

Only recv(2) is timed: the kernel works there (algif_aead.c, _aead_recvmsg()). That includes a copy of all
bytes and the system call; an AEAD that does nothing shows their cost. ``ns`` is the mean of the fastest
tenth, because interruptions are not the cipher's. ``stretch`` is how many times longer the turns took than
their fastest tenth: it is above 1 if other programs used the processor.
"""

import json
import mmap
import os
import socket
import sys
import time
from typing import Any

FEWEST_TURNS = 300
"""A quiet machine makes 700 in 0.3 s. Of fewer, the fastest tenth may have no undisturbed one."""

LONGEST = 10
"""But no more than so many times the duration that was asked for."""

SPI_AND_SEQUENCE = bytes(range(8))
"""RFC 4303, section 2: authenticated but not encrypted, in front of the IV."""


class KernelAead:
    """An AEAD of this kernel with its key set."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.icv_bytes: int = request["icv_bytes"]
        with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0) as kind:
            kind.bind(("aead", request["name"]))
            kind.setsockopt(socket.SOL_ALG, socket.ALG_SET_KEY, bytes.fromhex(request["key"]))
            kind.setsockopt(socket.SOL_ALG, socket.ALG_SET_AEAD_AUTHSIZE, None, self.icv_bytes)
            self.socket, _ = kind.accept()
        iv = bytes(range(request["iv_bytes"]))
        self.associated = SPI_AND_SEQUENCE + iv
        self.options: dict[str, Any] = {"assoclen": len(self.associated)}
        if iv:
            self.options["iv"] = iv
        # A page of its own, so that the result lies in one page.
        self.page = memoryview(mmap.mmap(-1, mmap.PAGESIZE))

    def do(self, operation: int, data: bytes, result_bytes: int) -> int:
        """The kernel's time for it, in ns; the result is at the beginning of ``page``."""
        self.socket.sendmsg_afalg([data], op=operation, **self.options)
        room = self.page[:result_bytes]
        began_ns = time.perf_counter_ns()
        self.socket.recv_into(room)
        return time.perf_counter_ns() - began_ns


class Timed:
    """One AEAD, one operation, one size."""

    def __init__(self, place: int, cipher: KernelAead, operation: str, size: int) -> None:
        self.cipher, self.answer = cipher, {"aead": place, "operation": operation, "bytes": size}
        clear = cipher.associated + bytes(size)
        sealed_bytes = len(clear) + cipher.icv_bytes
        cipher.do(socket.ALG_OP_ENCRYPT, clear, sealed_bytes)
        sealed = bytes(cipher.page[:sealed_bytes])
        cipher.do(socket.ALG_OP_DECRYPT, sealed, len(clear))
        if bytes(cipher.page[: len(clear)]) != clear:
            sys.exit("expected the kernel to decrypt what it had encrypted, found something else")
        if operation == "encrypt":
            self.arguments = (socket.ALG_OP_ENCRYPT, clear, sealed_bytes)
        else:
            self.arguments = (socket.ALG_OP_DECRYPT, sealed, len(clear))
        self.times_ns: list[int] = []

    def once(self) -> None:
        self.times_ns.append(self.cipher.do(*self.arguments))


def undisturbed_ns(times_ns: list[int]) -> float:
    """The mean of the fastest tenth of one or more times."""
    fastest = sorted(times_ns)[: len(times_ns) // 10 + 1]
    return sum(fastest) / len(fastest)


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """The whole output."""
    timed: list[Timed] = []
    for place, aead in enumerate(request["aeads"]):
        try:
            cipher = KernelAead(aead)
            for operation in ("encrypt", "decrypt"):
                timed += [Timed(place, cipher, operation, size) for size in request["sizes"]]
        except OSError as error:
            sys.exit(f"{aead['name']}: {error.strerror}")
    turns_ns: list[int] = []
    now_ns = time.perf_counter_ns()
    lasts_ns = round(request["duration_s"] * 1e9)
    enough_ns, end_ns = now_ns + lasts_ns, now_ns + LONGEST * lasts_ns
    while now_ns < (enough_ns if len(turns_ns) >= FEWEST_TURNS else end_ns) or not turns_ns:
        for one in timed:
            one.once()
        turns_ns.append(time.perf_counter_ns() - now_ns)
        now_ns += turns_ns[-1]
    return {
        "processors": os.cpu_count(),
        "turns": len(turns_ns),
        "stretch": round(sum(turns_ns) / len(turns_ns) / undisturbed_ns(turns_ns), 3),
        "times": [{**one.answer, "ns": round(undisturbed_ns(one.times_ns), 1)} for one in timed],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(json.loads(sys.argv[1]))))

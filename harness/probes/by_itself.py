"""Single operations of a machine, each timed alone: system calls, wake-ups, copies, TCP, ciphers.

No root is needed there, and nothing is left behind: the programs come through ssh(1)'s standard input.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from harness.analysis.cpu_costs import VERSION, CpuCost, CpuCosts, Operation, Per, WhichEnd
from harness.analysis.interval import Interval
from harness.hosts import programs, remote
from harness.model.errors import RequirementError
from harness.model.escape import printable
from harness.model.probing import KernelCipher
from harness.parse.hosts import HostAddress
from harness.parse.profiles import load_proposal
from harness.probes import cipher, in_run

DEADLINE_S = 40.0
PROPOSALS = ("aes128gcm16", "aes256gcm16", "chacha20poly1305", "aes128-sha256")
"""Whose ciphers are timed, where the kernel has them."""


class _Timed(msgspec.Struct):
    part: str
    per: Per
    ns: float
    low: float
    high: float
    what: str


class _Printed(msgspec.Struct):
    processor: str
    cores: int
    kernel: str
    governor: str
    operations: list[_Timed]


def measure(address: HostAddress) -> CpuCosts:
    """The CPU cost file of a machine, as far as single operations give it. RequirementError if it cannot be
    reached, or has no Python."""
    text, said = _asked(address, "operations")
    try:
        printed = msgspec.json.decode(text, type=_Printed)
        found = [
            CpuCost.of(Operation(o.part, o.per), WhichEnd.NONE, Interval(o.low, o.ns, o.high), o.what)
            for o in printed.operations
        ]
    except (msgspec.DecodeError, ValueError) as error:
        raise RequirementError(
            f"expected the times of operations from {address.text}, found "
            f"{printable(said.strip()[-160:]) or error}",
            hint=f"it needs {programs.PYTHON} there, and ssh without a password",
        ) from error
    for name in PROPOSALS:
        probe = in_run.of_proposal(load_proposal(name))
        aeads = [cipher.aead(probe.algorithms, probe.key_bits), cipher.nothing()]
        asked = {"aeads": aeads, "sizes": cipher.SIZES, "duration_s": cipher.DURATION_S}
        text, _ = _asked(address, "cipher", msgspec.json.encode(asked).decode())
        try:
            found += _of_cipher(name, cipher.understand(text, ("initiator", "target"), ""))
        except (msgspec.DecodeError, KeyError):
            continue  # this kernel lacks it, or does not offer its ciphers to programs
    return CpuCosts(
        name="this list",
        version=VERSION,
        title="single operations of a machine, without root",
        processor=printed.processor,
        kernel=printed.kernel,
        cores=printed.cores,
        governor=printed.governor,
        costs=tuple(found),
    )


def _of_cipher(name: str, kernel: KernelCipher) -> Iterator[CpuCost]:
    words = f"the cipher by itself (AF_ALG), {kernel.turns} turns"
    for does, times in (("encrypt", kernel.encrypt), ("decrypt", kernel.decrypt)):
        for per, ns in times.costs_ns.items():
            found = Interval(ns, ns, ns * max(1.0, kernel.stretch))
            yield CpuCost.of(Operation(name, Per(per), does), WhichEnd.NONE, found, words)


def _asked(address: HostAddress, name: str, *words: str) -> tuple[str, str]:
    """The output of a program of this package there, and its error messages."""
    argv = remote.reaching(address, [programs.PYTHON, "-I", "-S", "-", *words])
    done = remote.asked_once(argv, programs.source(__package__, name), within_s=DEADLINE_S)
    if done is None:
        raise RequirementError(
            f"expected {address.text} to answer within {DEADLINE_S:.0f} s, found no answer",
            hint="is it reachable with ssh, without a password?",
        )
    return done

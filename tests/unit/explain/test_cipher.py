"""Ciphers by themselves: what the kernel is asked for, what its times say of one I/O, and what limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harness.analysis.interval import Interval, exact, within
from harness.analysis.limit import Limit
from harness.analysis.path_demands import Sealed
from harness.explain import cipher, waterfall
from harness.explain.evidence import Evidence, collect
from harness.explain.text import Explained, as_json, sentence, text
from harness.explain.verdict import Confidence, judge
from harness.hosts import programs
from harness.model import Status
from harness.model.errors import UsageError
from harness.model.probing import Cipher, CipherFigures, CipherTimes, KernelCipher, check
from harness.parse.profiles import load_proposal
from harness.probes import cipher as probing
from harness.probes import in_run
from harness.report import paths
from harness.results.probe_records import ProbeRecord
from tests.unit.explain.test_explain import GCM_ESP, US, asked, columns, known, plan_of_them, protected
from tests.unit.fakes import Command, FakeHost
from tests.unit.probes.test_probes import Net, blank
from tests.unit.probes.test_probes import judge as judge_probe

GCM = Cipher(algorithms=("rfc4106(gcm(aes))",), key_bits=128)
DRIVER = "rfc4106(gcm_base(ctr(aes-generic),ghash-generic))"


def test_each_proposal_is_asked_for_as_esp_asks() -> None:
    for proposal, name, key_bytes, iv_bytes in (
        ("aes128gcm16", "rfc4106(gcm(aes))", 16 + 4, 8),
        ("aes256gcm16", "rfc4106(gcm(aes))", 32 + 4, 8),
        ("chacha20poly1305", "rfc7539esp(chacha20,poly1305)", 32 + 4, 8),
        ("aes128-sha256", "authenc(hmac(sha256),cbc(aes))", 8 + 32 + 16, 16),
        ("null-sha256", "authenc(hmac(sha256),ecb(cipher_null))", 8 + 32, 0),
    ):
        probe = in_run.of_proposal(load_proposal(proposal))
        made = probing.aead(probe.algorithms, probe.key_bits)
        key = bytes.fromhex(made.key)
        assert (made.name, len(key), made.iv_bytes, made.icv_bytes) == (name, key_bytes, iv_bytes, 16)
        if name.startswith("authenc"):
            # struct rtattr of 8 bytes, in this machine's order; in it the length of the cipher's key.
            assert int.from_bytes(key[:2], sys.byteorder) == 8, proposal
            assert int.from_bytes(key[4:8], "big") == key_bytes - 8 - 32, proposal
    with pytest.raises(UsageError, match="cannot be part of a probe profile"):
        check(GCM)


def test_the_program_measures_or_says_in_a_line_what_is_missing() -> None:
    aeads = [probing.aead(GCM.algorithms, GCM.key_bits), probing.nothing()]
    request = msgspec.json.encode({"aeads": aeads, "sizes": probing.SIZES, "duration_s": 0.05}).decode()
    argv = [sys.executable, "-I", "-S", "-", request]
    program = programs.source("harness.probes", "cipher")
    done = subprocess.run(argv, input=program, capture_output=True, text=True, timeout=30)
    if done.returncode:  # a kernel without AF_ALG, or without this
        assert done.stdout == "" and done.stderr.startswith("rfc4106(gcm(aes)): "), done
        assert done.stderr.count("\n") == 1
    else:
        found = probing.understand(done.stdout, ("initiator",), "")
        assert found.encrypt.long_ns > 0 and found.turns > 0


def printed(cipher_ns: dict[tuple[str, int], float], nothing_ns: float = 1000.0) -> str:
    times = [
        {"aead": place, "operation": operation, "bytes": size, "ns": ns if place == 0 else nothing_ns}
        for place in (0, 1)
        for (operation, size), ns in cipher_ns.items()
    ]
    return json.dumps({"processors": 1, "turns": 100, "stretch": 1.5, "times": times})


ENCRYPTING = {("encrypt", 64): 2000.0, ("encrypt", 1408): 8720.0}
TIMES = ENCRYPTING | {("decrypt", 64): 1640.0, ("decrypt", 1408): 8360.0}


class Kernel(Net):
    """Whose AF_ALG answers as told."""

    def __init__(self, *answer: Any) -> None:
        super().__init__()
        self.answer: tuple[int, str, str] = answer

    def text_of(self, path: str) -> str:
        offered = f"name         : rfc4106(gcm(aes))\ndriver       : {DRIVER}\npriority     : 100\n"
        return offered if path == "/proc/crypto" else super().text_of(path)

    def run(self, host: FakeHost, command: Command, timeout_s: float) -> tuple[int, str, str]:
        return self.answer if command.argv[0] == programs.PYTHON else super().run(host, command, timeout_s)


def test_what_nothing_takes_is_no_ciphers(tmp_path: Path) -> None:
    for is_shared in (False, True):  # also where the path itself must not be measured
        net = Kernel(0, printed(TIMES), "")
        record = judge_probe(net, tmp_path, GCM, ipsec="aes128gcm16", is_shared=is_shared)
        assert record.status is Status.OK, record.reason
        assert isinstance(record.figures, CipherFigures)
        (kernel,) = record.figures.kernels
        assert (kernel.ends, kernel.driver) == (("initiator", "target"), DRIVER)
        assert (kernel.encrypt.each_byte_ns, kernel.decrypt.each_byte_ns) == pytest.approx((5, 5))
        assert kernel.encrypt.each_packet_ns == pytest.approx(1000 - 64 * 5)
        # No packet was sent, so no counter of ESP's has to show one.
        assert record.protected_bytes is None and record.raw
        (line,) = paths.probes([record])
        assert "encrypt: 5 ns per byte, 0.68 µs per packet" in line[4] and DRIVER in line[4]
    # One as fast as nothing takes no time: with AES-NI a short message took 15 ns less than nothing.
    found = probing.understand(printed(TIMES, nothing_ns=5000.0), ("initiator",), "aesni")
    assert found.encrypt.short_ns == 0.0
    assert msgspec.json.decode(msgspec.json.encode(found), type=KernelCipher) == found


def test_what_a_kernel_does_not_offer_is_no_figure(tmp_path: Path) -> None:
    camellia = Cipher(algorithms=("cbc(camellia)", "hmac(sha256)"))
    md5 = Cipher(algorithms=("cbc(aes)", "hmac(md5)"), key_bits=128)
    for probe, answer, status, word in (
        (GCM, (1, "", "rfc4106(gcm(aes)): No such file or directory\n"), Status.SKIPPED, "No such file"),
        (GCM, (0, "{}", ""), Status.INVALID, "expected figures"),
        (GCM, (0, printed({("encrypt", 64): 1.0}), ""), Status.INVALID, "expected figures"),
        (GCM, (0, printed(TIMES, 8500.0), ""), Status.INVALID, "no longer than the null cipher"),
        (camellia, (0, "", ""), Status.SKIPPED, "camellia"),
        (md5, (0, "", ""), Status.SKIPPED, "md5"),
    ):
        record = judge_probe(Kernel(*answer), tmp_path, probe, ipsec="aes128gcm16")
        assert (record.status, record.figures) == (status, None), word
        assert word in known(record.reason)


def kernel(*ends: str, processors: int = 1, stretch: float = 1.0, factor: float = 1.0) -> KernelCipher:
    """500 ns for each packet; 2 ns for each byte encrypted, 3 decrypted."""
    encrypt, decrypt = (
        CipherTimes(short_bytes=64, short_ns=short * factor, long_bytes=1408, long_ns=long * factor)
        for short, long in ((500 + 64 * ns, 500 + 1408 * ns) for ns in (2, 3))
    )
    more: dict[str, Any] = {"driver": "aes-generic", "turns": 100, "stretch": stretch}
    return KernelCipher(ends=ends, cores=processors, encrypt=encrypt, decrypt=decrypt, **more)


def measured(*kernels: KernelCipher, **changes: Any) -> ProbeRecord:
    figures = CipherFigures(kernels=kernels)
    whole: dict[str, Any] = {"run_id": "r1", "status": Status.OK, "figures": figures}
    return replace(blank(GCM, "aes128gcm16"), **whole | changes)


SEALED = (Sealed("initiator", 1, 100), Sealed("target", 10, 10_000))
LAB = measured(kernel("initiator", "target"))


def work_ns(*probes: ProbeRecord) -> Interval:
    return known(cipher.work_ns(probes, SEALED))


def test_on_one_core_all_work_is_one_after_another_and_of_several_one_has_the_longest_part() -> None:
    work = 2 * 11 * 500 + 10_100 * (2 + 3)  # Of each end's packets: encrypted there, decrypted by the other.
    assert work_ns(LAB, LAB) == Interval(work, work, cipher.AMPLE * work)
    many = kernel("initiator", "target", processors=8)
    apart = (kernel("initiator", processors=8), kernel("target", processors=8))
    decrypting = 10 * 500 + 10_000 * 3
    for kernels in ((many,), apart):
        found = work_ns(*[measured(*kernels)] * 2)
        assert found.low == decrypting and found.high == pytest.approx(cipher.AMPLE * work)
    small = measured(kernel("initiator"), kernel("target"))
    assert work_ns(small, small).low == 500 + 200 + decrypting
    # Bounds hold what was seen in a run.
    slow = measured(kernel("initiator", "target", factor=1.2, stretch=3.0))
    found, alone = work_ns(slow, LAB), work_ns(LAB, LAB)
    assert found.low == alone.low and found.high == pytest.approx(cipher.AMPLE * 3.0 * 1.2 * alone.low)
    assert work_ns(LAB).low == pytest.approx(0.75 * alone.low)


def evidence_with(*probes: ProbeRecord) -> dict[str, Evidence]:
    return {each.name: each for each in collect(columns(), {"r1": plan_of_them()}, probes)}


def test_the_probes_of_the_run_are_evidence_and_without_them_there_is_a_reason() -> None:
    failed = measured(status=Status.SKIPPED, figures=None, reason="no AF_ALG")
    assert cipher.work_ns([failed], SEALED) is None
    assert cipher.reasons([failed, failed]) == ["no AF_ALG"] and cipher.reasons([failed, LAB]) == []
    gcm = evidence_with(failed)["wired+aes128gcm16"]
    assert gcm.cipher_ns is None and "no stand-alone ciphers: no AF_ALG" in gcm.missing
    there, back = asked(framing=GCM_ESP).sealed  # All data is encrypted with its headers.
    assert (there.by, there.packets, back.by) == ("initiator", 1, "target")
    # A header of TCP, and of 2 to 5 bytes the trailer with its padding, in each.
    assert 262144 + 48 + 34 * back.packets <= back.bytes <= 262144 + 48 + 38 * back.packets
    assert back.packets == pytest.approx(262144 / 1438, rel=0.06)
    assert asked().sealed == ()
    elsewhere = measured(kernel("initiator", "target", factor=100.0), run_id="r2")
    found = evidence_with(LAB, LAB, elsewhere)
    gcm = found["wired+aes128gcm16"]
    assert gcm.cipher_ns == cipher.work_ns([LAB, LAB], known(gcm.path).sealed)
    assert found["wired+null-sha256"].cipher_ns is None and found["wired"].cipher_ns is None


def without_null(cipher_us: float, part: float = 0.1, **changes: Any) -> Evidence:
    """Of 12.5 ms 10 are IPsec's, and the core idled for 2.25 of the 2.5 without."""
    return protected(null=None, cipher_ns=within(cipher_us * US, part), **changes)


def test_without_a_null_column_the_ciphers_themselves_tell() -> None:
    crypto, unknown, cpu = (judge(without_null(cipher_us)) for cipher_us in (9000, 5200, 1000))
    for said, limit in ((crypto, Limit.CRYPTO), (unknown, Limit.UNKNOWN), (cpu, Limit.CPU)):
        assert said.limited_by is limit, said.reason
        assert sum(said.waterfall_ns.values()) == said.whole_ns
    assert cpu.detail == "core 85% busy, ciphers at most 9% of the time"
    evidence = without_null(9000)
    assert crypto.detail == f"{evidence.driver}, at least 64% of a core, core 85% busy"
    disturbed = judge(replace(evidence, cipher_ns=Interval(8500 * US, 9000 * US, 18_000 * US)))
    assert (crypto.confidence, disturbed.confidence) == (Confidence.HIGH, Confidence.MEDIUM)
    assert disturbed.limited_by is Limit.CRYPTO and "a quiet machine" not in unknown.reason
    disturbed = judge(replace(evidence, cipher_ns=Interval(3000 * US, 5000 * US, 9000 * US)))
    assert "measure again on a quiet machine" in disturbed.reason
    # What is not reported has both figures.
    cell = Explained.of(without_null(5200))
    low, high = cell.verdict.either[Limit.CRYPTO]
    # Of 4.7 to 5.7 ms up to 0.5 may fit into what the core idled without IPsec and does not now.
    assert 0.33 < low < high < 0.47
    words = f"crypto work {low * 100:.0f}-{high * 100:.0f} %, processor work outside crypto "
    assert words in sentence(cell) and words in text([cell])
    assert "more closely" in sentence(cell)
    (shown,) = json.loads(as_json([cell]))["cells"]
    assert shown["either"]["crypto"] == [low, high] and shown["cipher_ns"]["mid"] == 5200 * US
    # Work that the link hides is waited for by nobody: the core was idle for as long as ciphers take.
    hidden = without_null(1900, 0.02, time_ns=within(2560 * US, 0.001), busy=exact(0.9))
    guess = known(waterfall.best_guess(hidden))
    assert known(guess.crypto_ns) < 0.03 * guess.whole_ns < known(guess.cipher_ns)
    # ... but it is no other work of the core's either.
    assert waterfall.parts(guess)["cpu"] < 0.2 * guess.whole_ns
    assert judge(hidden).limited_by is Limit.LINK and not judge(hidden).doubt
    # Of many I/Os ciphers take of a full core.
    full: dict[str, Any] = {"depth": 8, "device_alone_ns": exact(50 * US), "busy": exact(0.98)}
    for cipher_us, limit in ((8000, Limit.CRYPTO), (3000, Limit.CPU), (6100, Limit.UNKNOWN)):
        said = judge(without_null(cipher_us, 0.05, **full))
        assert said.limited_by is limit, cipher_us
    assert set(said.either) == {Limit.CRYPTO, Limit.CPU}
    wrong = Explained.of(without_null(20_000, 0.05))  # Those that take more than IPsec adds are doubted.
    said = wrong.verdict
    assert said.confidence in (Confidence.LOW, Confidence.NONE)
    assert "us more than all that IPsec adds" in said.doubt and said.doubt in sentence(wrong)
    assert judge(protected(cipher_ns=within(9000 * US, 0.05))).doubt == ""

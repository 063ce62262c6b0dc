"""Links of IPv6: the same stack, the same proofs. Everything but the first test is for `-m long`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.analysis import path_demands, theory
from harness.analysis.wire import framing_of
from harness.model import IPV4, IPV6, KERNEL_TARGETS, LINK_LOCAL, Status
from harness.results.store import RunFolder
from tests.lab.cli import Measured, harness, is_sampled, measure, only_run, run_inside, well

pytestmark = pytest.mark.lab

WRITES = ("--workload", "seq-write-256k")


def assert_proved(measured: Measured, *keys: str) -> None:
    """All of these cells are ok, those of IPv6 say so, and nothing of the protected ones was in clear."""
    for record in measured.ok(*keys).values():
        assert record.column.ip == (IPV6 if record.column.link.endswith("-ip6") else IPV4)
        proof = record.proof
        if record.column.link == LINK_LOCAL:
            continue
        assert proof is not None
        if record.column.protection:
            assert proof.cleartext_segments == 0 and is_sampled(proof), proof
            assert proof.protected_bytes > (record.write.bytes if record.write else 0)
        if record.column.ip == IPV6:
            assert record.link_title.endswith(", IPv6")


def test_a_run_over_ipv6_is_proved_without_ipsec_and_with_it(tmp_path: Path) -> None:
    words = ("--ip", "6", "--link", "local", "--link", "wired", "--ipsec", "off", "--ipsec", "aes128gcm16")
    measured = measure(tmp_path, *words, "--no-probes", "--size", "32M", *WRITES)
    keys = ("local", "wired-ip6", "wired-ip6+aes128gcm16")
    assert_proved(measured, *(f"{column}.seq-write-256k.r1" for column in keys))
    column = measured.environment["column wired-ip6+aes128gcm16"]
    (link,) = column["link"]
    assert "inet6 2001:2:0:1::1/64" in link["initiator_interface"]
    assert "Gigabit" in measured.done.out and "IPv6" in measured.done.out


@pytest.mark.long
def test_both_families_stand_next_to_each_other(tmp_path: Path) -> None:
    stacks = ("off", "aes128gcm16", "macsec", "macsec+aes128gcm16")
    words = [f"--protect={stack}" for stack in stacks]
    measured = measure(tmp_path, "--ip", "4", "--ip", "6", "--link", "wired", *words, *WRITES)
    columns = [f"{link}+{stack}".removesuffix("+off") for link in ("wired", "wired-ip6") for stack in stacks]
    assert_proved(measured, *(f"{column}.seq-write-256k.r1" for column in columns))
    # What IPv6 sends unasked, it sends on its own links alone.
    (link,) = measured.environment["column wired"]["link"]
    assert "inet6" not in link["initiator_interface"] + link["target_interface"]


@pytest.mark.long
def test_tunnels_and_hops(tmp_path: Path) -> None:
    words = ["--ip", "6", "--ipsec", "on", "--ipsec-mode", "tunnel", "--auth", "cert"]
    words += [f"--link={link}" for link in ("wired", "wifi", "routed:2", "switched:1")]
    measured = measure(tmp_path, *words, *WRITES)
    links = ("wired", "wifi", "routed-2", "switched-1")
    assert_proved(measured, *(f"{link}-ip6+aes128gcm16.seq-write-256k.r1" for link in links))


@pytest.mark.long
def test_kernels_per_host(tmp_path: Path) -> None:
    words = ("--ip", "6", "--kernels", "per-host", "--link", "wired", "--ipsec", "both")
    measured = measure(tmp_path, *words, *WRITES)
    columns = ("wired-ip6", "wired-ip6+aes128gcm16")
    assert_proved(measured, *(f"{column}.seq-write-256k.r1" for column in columns))


@pytest.mark.long
def test_probes_speak_ipv6(tmp_path: Path) -> None:
    kinds = [f"--probe={kind}" for kind in ("ping", "tcp", "udp", "udp-latency")]
    words = ("--ip", "6", "--link", "wired", "--ipsec", "both", *kinds, "--count", "10", "--duration", "1s")
    well(harness("probe", *words, "--results", str(tmp_path)))
    records = list(RunFolder(only_run(tmp_path)).load_probes())
    assert {record.key: record.reason for record in records if record.status is not Status.OK} == {}
    assert {record.column.link for record in records} == {"wired-ip6"} and len(records) > 8


@pytest.mark.long
@pytest.mark.custom_kernel
def test_what_takes_the_labs_custom_kernel(tmp_path: Path) -> None:
    words = ["--ip", "6", "--lab-kernel", "custom", "--link", "wired", "--link", "wifi"]
    words += [f"--transport={name}" for name in KERNEL_TARGETS]
    words += [f"--protect={stack}" for stack in ("off", "on", "wireguard", "wireguard+aes128gcm16")]
    measured = measure(tmp_path, *words, *WRITES)
    records = measured.ok().values()
    assert len(records) == 8 * len(KERNEL_TARGETS) and {record.column.ip for record in records} == {IPV6}


@pytest.mark.long
@pytest.mark.custom_kernel
def test_virtual_time_agrees_with_theory_on_both_families(tmp_path: Path) -> None:
    """As docs/theory.md compares: one read of 4K at a time from a disk that takes 0.1 ms."""
    words = ["--virtual-time", "--disk", "sata-ssd", "--ip", "4", "--ip", "6", "--link", "wired"]
    words += [f"--protect={stack}" for stack in ("off", "aes128gcm16", "wireguard", "macsec")]
    words += [*(f"--transport={name}" for name in KERNEL_TARGETS), "--workload", "rand-read-4k"]
    measured = measure(tmp_path, *words)
    plan = RunFolder(measured.folder).load_plan()
    assert len(measured.records) == 8 * len(KERNEL_TARGETS)
    times = {}
    for key, record in measured.records.items():
        assert record.status is Status.OK and record.read is not None, (key, record.reason)
        link = plan.links[record.column.link]
        protection = record.column.protection
        framing = framing_of(protection, plan.proposals, plan.ipsec_mode, link.mtu_bytes, link.ip)
        dialogue = path_demands.dialogue_of(record.column.transport or "", record.session, "read")
        assert dialogue is not None
        path_there = theory.Wire(link=link, framing=framing)
        predicted = theory.predict(path_there, dialogue, direction="read", block_bytes=4096, device_s=100e-6)
        found_s = record.read.runtime_ns / record.read.ios / 1e9
        times[key] = (predicted.time_s * 1e6, found_s * 1e6)
    assert {key: us for key, us in times.items() if us[1] != pytest.approx(us[0], rel=0.01)} == {}, times


@pytest.mark.long
def test_real_machines_get_addresses_of_the_runs_own_or_use_the_users() -> None:
    done = run_inside("inside.over_ssh", "ipv6")
    assert "own addresses: proved, and gone" in done.out
    assert "the user's addresses: proved, and left" in done.out
    assert "switched off: refused" in done.out

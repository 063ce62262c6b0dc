"""What a run may be asked for besides the default matrix: proposals, modes, links, backings, profiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.parse.profiles import data_folder
from tests.lab.cli import Measured, harness, measure, well

pytestmark = pytest.mark.lab

STAYS_UP = "debian"
PROPOSALS = {
    **dict.fromkeys(("aes128gcm16", "aes128gcm16-gso", "aes256gcm16"), "rfc4106(gcm(aes))"),
    "chacha20poly1305": "rfc7539esp(chacha20,poly1305)",
    "aes128-sha256": "cbc(aes) + hmac(sha256)",
    "null-sha256": "ecb(cipher_null) + hmac(sha256)",
}
"""Every file of ipsec/, and what the kernel then says it uses."""

OWN_JOB_FILE = """\
; Mixed block sizes at random, as somebody might keep it for their own disks.
[global]
ioengine=libaio
direct=1
iodepth=4
bs=16k

[own-16k-reads]
rw=randread
runtime=300ms
time_based

[own-writes]
rw=randwrite
size=4M
"""


@pytest.fixture(scope="module")
def tunnels(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """All proposals in tunnel mode, with certificates, on one link."""
    words = [f"--ipsec={name}" for name in PROPOSALS]
    words += ["--link=wired", "--ipsec-mode=tunnel", "--auth=cert", "--workload=rand-write-4k"]
    return measure(tmp_path_factory.mktemp("tunnels"), *words)


def test_every_proposal_of_the_project_is_tried() -> None:
    assert {file.stem for file in (data_folder() / "ipsec").glob("*.toml")} == PROPOSALS.keys()


def test_every_proposal_works_as_a_tunnel_with_certificates(tunnels: Measured) -> None:
    records = tunnels.ok(*(f"wired+{name}.rand-write-4k.r1" for name in PROPOSALS))
    for name, algorithm in PROPOSALS.items():
        record = records[f"wired+{name}.rand-write-4k.r1"]
        agreed = record.agreed[name]
        assert record.column.mode == agreed["mode"] == "tunnel"
        assert (agreed["proposal"], agreed["algorithm"]) == (name, algorithm)
        assert len(agreed["drivers"].split(", ")) == len(algorithm.split(" + "))
        assert record.proof is not None and record.write is not None
        assert record.proof.protected_bytes >= record.write.bytes > 0
        assert record.proof.cleartext_segments == 0


def test_certificates_leave_no_key_behind(tunnels: Measured) -> None:
    logs = [file.read_bytes() for file in tunnels.folder.rglob("*") if file.is_file()]
    assert not any(b"PRIVATE KEY" in text for text in logs)
    charon = (tunnels.folder / "charon-initiator.log").read_text(encoding="utf-8", errors="replace")
    assert "CN=target.harness" in charon, "the peer proved itself with its certificate"
    assert "pre-shared key" not in charon


def test_file_backing(tmp_path: Path) -> None:
    names = ("seq-write-256k", "rand-read-4k")
    words = ("--backing=file", "--size=64M", "--link=local", "--link=wired", "--ipsec=off")
    measured = measure(tmp_path, *words, *(f"--workload={name}" for name in names))
    measured.ok(*(f"{link}.{name}.r1" for link in ("local", "wired") for name in names))
    local_job = (measured.folder / "raw/local.rand-read-4k.r1/job.fio").read_text(encoding="utf-8")
    device = re.search(r"^filename=(\S+)$", local_job, re.MULTILINE)
    assert device is not None and device[1].endswith(".img"), "local measures the same file"
    assert "size=67108864\n" in local_job


def test_links_with_modifiers(tmp_path: Path) -> None:
    words = ("--link=wired:jumbo", "--link=wired:unshaped", "--link=wired", "--ipsec=off")
    measured = measure(tmp_path, *words, "--workload=seq-read-256k", "--size=64M")
    links = ("wired-mtu9000", "wired-unshaped", "wired")
    records = measured.ok(*(f"{link}.seq-read-256k.r1" for link in links))
    described = {link: measured.environment[f"column {link}"]["link"][0] for link in links}
    for end in ("initiator", "target"):
        assert "mtu 9000" in described["wired-mtu9000"][f"{end}_interface"]
        assert "mtu 1500" in described["wired-unshaped"][f"{end}_interface"]
        assert "netem" in described["wired-mtu9000"][f"{end}_qdisc"]
        assert "netem" not in described["wired-unshaped"][f"{end}_qdisc"]
    speeds = {link: records[f"{link}.seq-read-256k.r1"].read for link in links}
    shaped, jumbo, unshaped = (speeds[link] for link in ("wired", "wired-mtu9000", "wired-unshaped"))
    assert shaped is not None and jumbo is not None and unshaped is not None
    assert max(shaped.bytes_per_s, jumbo.bytes_per_s) < 125e6
    # Of what no rate holds back, other programs may; but not each I/O.
    gigabits_ns = (256 << 10) * 8.0
    assert unshaped.latency.min_ns is not None and unshaped.latency.min_ns < gigabits_ns
    for io in (shaped, jumbo):
        assert io.latency.min_ns is not None and io.latency.min_ns > gigabits_ns


@pytest.mark.long
def test_modern_profile(tmp_path: Path) -> None:
    names = ("mixed-70-30-4k-qd32", "fsync-4k")
    words = ("--profile=modern", "--link=wired", "--ipsec=on", "--size=64M")
    measured = measure(tmp_path, *words, *(f"--workload={name}" for name in names))
    records = measured.ok(*(f"wired+aes128gcm16.{name}.r1" for name in names))
    mixed = records["wired+aes128gcm16.mixed-70-30-4k-qd32.r1"]
    assert mixed.read is not None and mixed.write is not None
    assert 0.6 < mixed.read.ios / (mixed.read.ios + mixed.write.ios) < 0.8
    synced = records["wired+aes128gcm16.fsync-4k.r1"]
    assert synced.sync_latency is not None and (synced.sync_latency.mean_ns or 0) > 0
    assert synced.write is not None
    directions = {(c["workload"], c["direction"]) for c in measured.table()["cells"]}
    assert ("mixed-70-30-4k-qd32", "read+write") in directions
    assert measured.table("--metric", "p99")["cells"], "latencies as well"


@pytest.mark.long
def test_job_file_of_the_user_s_own(tmp_path: Path) -> None:
    job_file = tmp_path / "my jobs.fio"
    job_file.write_text(OWN_JOB_FILE, encoding="utf-8")
    results = tmp_path / "results"
    measured = measure(results, f"--profile={job_file}", "--link=wired", "--ipsec=off", "--size=64M")
    records = measured.ok("wired.own-16k-reads.r1", "wired.own-writes.r1")
    assert {record.workload.block_bytes for record in records.values()} == {16 << 10}
    assert records["wired.own-16k-reads.r1"].read is not None
    assert records["wired.own-writes.r1"].write is not None
    assert job_file.read_text(encoding="utf-8") == OWN_JOB_FILE


@pytest.mark.long
def test_cells_are_repeated_until_their_interval_is_narrow(tmp_path: Path) -> None:
    words = ("--link=local", "--link=wired", "--ipsec=off", "--size=64M", "--workload=seq-read-256k")
    measured = measure(tmp_path, *words, "--confidence=2%", "--max-repeats=8")
    well(measured.done)
    cells = {cell["column"]["link"]: cell for cell in measured.table()["cells"]}
    assert cells.keys() == {"local", "wired"}
    for link, cell in cells.items():
        # Disturbed repeats are left out of the value, but count towards the limit.
        assert 6 <= cell["repeats"] <= 8 and cell["n"] <= cell["repeats"]
        is_narrow = max(cell["high"] / cell["value"] - 1, 1 - cell["low"] / cell["value"]) <= 0.02
        assert is_narrow or cell["repeats"] == 8
        said = f"{link} seq-read-256k" in measured.done.out and "Inconclusive" in measured.done.out
        assert is_narrow or said, measured.done
    for record in measured.records.values():
        assert any(name.endswith("/bw.log") for name in record.raw)
    again = harness("run", "--resume", measured.folder.name, "--results", str(tmp_path))
    assert "nothing is left to measure" in again.err, again

"""Figures of others: units as people write them, other names of keys, and one sentence for all else."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.parse import reported
from tests.unit.parsing import known, listed, refused


def test_units_of_throughput_ios_and_links() -> None:
    for texts, bytes_s in (
        ("1.8 Gbit/s | 1.8Gbps | 1,8 Gbit/s", 225e6),
        ("940 Mbits/sec | 940 mbps", 117.5e6),
        ("~5 Gb/s | 4-6 Gb/s | 4 to 6 Gbit/s", 625e6),
        ("3 Gbits per second", 375e6),
        ("110 MB/s", 110e6),
        ("105 MiB/s", 105 * 2**20),
        ("105MBps", 105e6),
        ("120 MBytes/sec", 120e6),
        ("64 kB/s", 64e3),
        ("64 KiB/s", 65536),
    ):
        for text in listed(texts):
            found = reported.amount(text, "throughput")
            assert found.value == pytest.approx(bytes_s) and not found.is_io, text
    assert reported.amount("52.5k IOPS", "iops") == reported.Amount(52500, 100, is_io=True)
    assert reported.amount("1.8 Gbit/s", "x").step == pytest.approx(12.5e6)
    for links, rate_bit_s in (
        ("10G X520", 10e9),
        ("2x25GbE", 50e9),
        ("1000BASE-T | gigabit ethernet | 1Gb | 125 MB/s", 1e9),
        ("100 Mbit/s", 1e8),
        ("ConnectX-7, 400 GbE", 4e11),
        ("the internet | 5G mobile", None),
        ("WiFi 6, 1200 Mbit/s", 1.2e9),
    ):
        for words in listed(links):
            link = reported.link(words, "link")
            assert link.rate_bit_s == rate_bit_s, words
            assert link.is_radio == ("WiFi" in words or "mobile" in words), words


def test_keys_and_other_names_of_them() -> None:
    for key, value, name, read in (
        ("rtt", "0.2 ms", "round_trip", 2e-4),
        ("round_trip_us", 150, "round_trip", 1.5e-4),
        ("Queue Depth", "QD32", "depth", 32),
        ("busiest-core", "99.5 %", "busiest_core", 0.995),
        ("cpu", 12, "processor", 0.12),
        ("cpu", 1.0, "processor", 1.0),
        ("cpu_percent", 1, "processor", 0.01),
        ("cpu", "100 % of one core", "busiest_core", 1.0),
        ("server_cpu", "97 % of a core", "target_busiest_core", 0.97),
        ("cpu", "idle", "processor", 0.05),
        ("bs", "128KB", "block", 131072),
        ("gbit_s", 8, "throughput", reported.Amount(1e9, 1.25e8)),
        ("MB/s", 110, "throughput", reported.Amount(110e6, 1e6)),
        ("unprotected_mbit_s", 940.0, "unprotected", reported.Amount(117.5e6, 12.5e3)),
        ("iops", "25,412", "iops", reported.Amount(25412, 1, is_io=True)),
        ("cipher", "aes-128-gcm", "algorithm", "aes-128-gcm"),
        ("cipher", "1.1 GB/s", "cipher", reported.Amount(1.1e9, 1e8)),
        ("figure", "5 MB/s", "throughput", reported.Amount(5e6, 1e6)),
        ("iops", 50000, "iops", reported.Amount(50000, 1, is_io=True)),
    ):
        found, got = reported.entry(key, value)
        assert found == name, key
        assert got == (pytest.approx(read) if isinstance(read, float) else read), key


def test_what_is_no_figure_is_refused_in_a_sentence() -> None:
    for key, values, words in (
        ("thruput", ["1 Gbit/s"], "did you mean throughput"),
        ("busyest_core", ["1 %"], "did you mean busiest_core"),
        ("xyzzyq", [1], "there are title"),
        ("throughput", ["-5 MB/s", "0 MB/s", float("nan"), "1e99 MB/s"], "above 0"),
        ("throughput", [float("inf"), int("9" * 4000)], "below 1e18"),
        ("throughput", [5, "5 parsec"], "MB/s, MiB/s"),
        ("throughput", ["100 mb/s"], "bits or bytes"),
        ("throughput", ["1,234 MB/s"], "1234 or 1.234"),
        ("throughput", [["1 MB/s"], True], "a text or a number below"),
        ("throughput", ["1e-320 MB/s"], "a number above 0 with its unit"),
        ("throughput", ["1 MB/s\x1b[2J"], "visible"),
        ("round_trip", [5], "a time with its unit"),
        ("round_trip", ["-1 ms"], "above 0"),
        ("depth", [0, 1.5], "from 1"),
        ("block", ["-4k"], "number of bytes"),
        ("busiest_core", ["-3 %"], "above 0"),
        ("busiest_core", ["99 furlongs"], "percentage"),
        ("link", ["-10G", float("nan")], "the link's rate"),
        ("link", ["0G"], "bits per second"),
        ("mtu", [2**70], "below 1e18"),
    ):
        for value in values:
            assert words in str(refused(reported.entry, key, value)), key


def test_files_of_figures(tmp_path: Path) -> None:
    def claim(text: str) -> tuple[reported.Reported, ...]:
        (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
        return reported.load(tmp_path / "mine.toml")

    # They share what stands above them.
    text = 'link = "10G"\ncores = 8\n[[figure]]\nMB_s = 5\n[[figure]]\nMB_s = 6\nlink = "25G"\n'
    found = claim(text)
    assert [(each.cores, known(each.link).rate_bit_s) for each in found] == [(8, 10e9), (8, 25e9)]
    # Words that decide nothing are kept together.
    (one,) = claim('kernel = "6.12"\nnic = "E810"\nfigure = "5 MB/s"\n')
    assert one.note == "6.12 E810" and one.throughput == reported.Amount(5e6, 1e6)
    for text, words in (
        ("figure = {a = 1}", "expected tables"),
        ("figure = 3", "a unit such as"),
        ("figure = [1]", "expected tables"),
        ('speed = "1 MB/s"\nthroughput = "1 MB/s"', "twice"),
        ("speed = ", "valid TOML"),
        ("\0", "NUL"),
        ('lnik = "10G"', "line 1, lnik: there is no key"),
        ("[throughput]\na = 1", "a text or a number below"),
        (f"block = 0x{'f' * 9000}", "below 1e18"),
    ):
        assert words in str(refused(claim, text)), text
    assert "a folder" in str(refused(reported.load, tmp_path))
    # All that is asked is a key.
    assert set(reported.QUESTIONS) < set(reported.READ) == set(reported.Reported.__struct_fields__)

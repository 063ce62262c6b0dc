"""Figures of others: units as people write them, other names of keys, and one sentence for all else."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from harness.analysis.interval import Interval
from harness.questions.figures import quantities, reported
from harness.questions.figures.reported import Amount
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
            found = reported.amount(text)
            assert found.value.mid == pytest.approx(bytes_s) and not found.unit, text
    assert reported.amount("52.5k IOPS") == Amount(Interval(52450, 52500, 52550), quantities.IOS)
    told = reported.amount("1.8 Gbit/s").value
    assert told.high - told.low == pytest.approx(12.5e6)
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
            link = reported.link(words)
            assert link.members == 1 and not link.is_half
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
        ("gbit_s", 8, "throughput", 1e9),
        ("MB/s", 110, "throughput", 110e6),
        ("unprotected_mbit_s", 940.0, "unprotected", 117.5e6),
        ("iops", "25,412", "iops", 25412.0),
        ("cipher", "aes-128-gcm", "algorithm", "aes-128-gcm"),
        ("cipher", "1.1 GB/s", "cipher", 1.1e9),
        ("figure", "5 MB/s", "throughput", 5e6),
        ("iops", 50000, "iops", 50000.0),
        # What people have.
        ("iops", "800K", "iops", 800e3),
        ("iops", "~1.06M IOPS", "iops", 1.06e6),
        ("iops", "21k-22k", "iops", 21500.0),
        ("iops", "21k \u2013 22k IOPS", "iops", 21500.0),
        ("throughput", "900 Mbit/s to 1.1 Gbit/s", "throughput", 125e6),
        ("throughput", "2\u20135 Mbps", "throughput", 437.5e3),
        ("throughput", "about 88 megabits per second", "throughput", 11e6),
        ("throughput", "around 400 MBytes/sec", "throughput", 400e6),
        ("throughput", "1.2 Mpps", "throughput", 1.2e6),
        ("pps", "148,809 pps", "throughput", 148809.0),
        ("cpu", "85.5% idle", "processor", 0.145),
        ("cpu", "0 % idle", "processor", 1.0),
        ("cpu", "70-80%", "processor", 0.75),
        ("cpu", "95 % of one core", "busiest_core", 0.95),
        ("latency", "under 400\u00b5s", "latency", 4e-4),
        ("latency", "2 ms (p99)", "latency", 2e-3),
        ("p99", "2 ms", "latency", 2e-3),
        ("latency", "1.5 ms mean", "latency", 1.5e-3),
        ("window", "~480 KB", "window", 480 * 1024.0),
        ("streams", "8 parallel streams", "streams", 8),
        ("streams", "-P 8", "streams", 8),
        ("packet", "64", "packet", 64),
        ("mtu", "9000", "mtu", 9000),
        ("mtu", "jumbo frames", "mtu", 9000),
        ("cpu", "idle 85 %", "processor", 0.15),
        ("rtt", "<1 ms", "round_trip", 1e-3),
    ):
        found, got = reported.entry(key, value)
        got = got.value if isinstance(got, Amount) else got
        assert found == name, key
        assert (got.mid if isinstance(got, Interval) else got) == pytest.approx(read), key


def test_what_is_told_of_a_number_is_an_interval() -> None:
    for text, low, high in (
        ("100 MB/s", 99.5e6, 100.5e6),
        ("about 100 MB/s", 95e6, 105e6),
        ("90 to 110 MB/s", 90e6, 110e6),
        ("up to 100 MB/s", 0.0, 100e6),
    ):
        found = reported.amount(text).value
        assert (found.low, found.high) == pytest.approx((low, high)), text
    # What is not told of a mean: at least the slowest hundredth takes as long (Markov).
    slow = reported.entry("p99", "2 ms")[1]
    assert slow.low == pytest.approx(2e-5, rel=0.5) and math.isinf(slow.high)
    sized = reported.entry("window", "64 KB")[1]
    assert sized.low < 64000 < 65536 < sized.high


def test_links_as_negotiated_and_bonds() -> None:
    for words, rate_bit_s, is_half, members in (
        ("1 GbE (negotiated 100 Mbit/s, half duplex)", 1e8, True, 1),
        ("gigabit, 100 Mbit/s negotiated", 1e8, False, 1),
        ("Speed: 100Mb/s Duplex: Half", 1e8, True, 1),
        ("2 x 1G bond", 2e9, False, 2),
        ("2 Gbps bond0", 2e9, False, 2),
        ("4x10GbE LACP", 40e9, False, 4),
        ("2 dual ported 50GbE", 200e9, False, 1),
        ("dual-port 25G", 50e9, False, 1),
        ("bond of 10G", 20e9, False, 2),
        ("10G trunk", 10e9, False, 1),
    ):
        found = reported.link(words)
        assert (found.rate_bit_s, found.is_half, found.members) == (rate_bit_s, is_half, members), words
    assert reported.entry("duplex", "half")[1].is_half
    assert reported.entry("negotiated", "100 Mbit/s")[1].rate_bit_s == 1e8


def test_parts_of_another_figure() -> None:
    for text, of in (
        ("70 % of clear", "unprotected"),
        ("100 % of the link", "link"),
        ("70% of line rate", "link"),
        ("0.9 of the disk alone", "local"),
        ("50 % of 'AES-GCM, one SA'", "AES-GCM, one SA"),
    ):
        found = reported.amount(text)
        assert (found.unit, found.part_of) == (reported.PARTS, of), text


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
        ("mtu", [1, 67, 70000], "68 to 65536 bytes (RFC 791)"),
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
    assert one.note == "6.12 E810" and known(one.throughput).value.mid == 5e6
    for text, words in (
        ("figure = {a = 1}", "expected tables"),
        ("figure = [1]", "expected tables"),
        ('speed = "1 MB/s"\nthroughput = "1 MB/s"', "twice"),
        ("mtu = 1", "line 1, mtu"),
        ("speed = ", "valid TOML"),
        ("\0", "NUL"),
        ('lnik = "10G"', "line 1, lnik: there is no key"),
        ("[throughput]\na = 1", "a text or a number below"),
        (f"block = 0x{'f' * 9000}", "below 1e18"),
    ):
        assert words in str(refused(claim, text)), text
    assert "a folder" in str(refused(reported.load, tmp_path))
    # All that is asked is a key.
    fields = {*reported.Reported.__struct_fields__} - {"unused"}
    assert {*reported.QUESTIONS} < {*reported.READ} == fields
    # What nothing is understood of is kept, with the reason, and so is a key that is no other misspelt.
    (one,) = claim('throughput = "fast"\nswitch = 1\nspeed = "5 parsec"\nlatency = "low"\ndepth = "many"\n')
    assert one.throughput is None and len(one.unused) == 5 and "'fast'" in one.unused[0]
    # A link's speed and duplex belong to it, and the mean is worth more than a percentile.
    (one,) = claim(
        'link = "1 GbE"\nnegotiated = "100 Mbit/s"\nduplex = "half"\np99 = "9 ms"\nlatency = "2 ms"'
    )
    link = known(one.link)
    assert link.rate_bit_s == 1e8 and link.is_half and known(one.latency).mid == 2e-3
    first, _ = claim('link = "1 GbE"\n[[figure]]\nduplex = "half"\n[[figure]]\nMB_s = 6\n')
    assert known(first.link).rate_bit_s == 1e9 and known(first.link).is_half

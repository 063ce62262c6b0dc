"""Verdicts on figures of others: each kind of answer, from little that was told; and on published figures
those that were fixed, with the documented score."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from bench import figures as bench
from harness.cli import explain
from harness.explain.verdict import Confidence
from harness.questions.figures import answer, reported
from harness.questions.figures.answer import AnswerKind, Judged
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness


def judged(**keys: Any) -> Judged:
    claim = dict(reported.entry(key, value) for key, value in keys.items())
    (found,) = answer.judge_all([reported.Reported(**claim)])
    return found


TEN = {"link": "10GbE", "protection": "ESP AES-GCM"}
READ_4K = {"link": "gigabit", "transport": "iSCSI", "workload": "rand-read-4k"}
WG_4K = READ_4K | {"protection": "wg"}
VETH = {"link": "veth, two network namespaces", "protection": "wg"}
LUKS = {"protection": "LUKS", "workload": "fio"}
WRITE_1M = {"link": "25GbE", "workload": "fio write 1M"}
CANNOT_BE, NOT_SAID = "impossible: unknown, high", "needs more data: unknown, none"


@pytest.mark.parametrize(
    ("claim", "answer"),
    [
        (TEN | {"speed": "2.1 Gbps", "busiest_core": "100%"}, "cpu, high"),
        (TEN | {"speed": "260 MB/s", "target_busiest_core": 99}, "cpu, high"),
        (TEN | {"speed": "2 Gbps", "core": 1.0, "cipher": "300 MB/s"}, "crypto, high"),
        (TEN | {"speed": "2 Gbps", "core": 1.0, "cipher": "3 GB/s"}, "cpu, high"),
        (TEN | {"core": "99 %"}, "cpu, medium"),  # A core is full, whatever came of it.
        # Nearly full both: who waits for a link is not busy all the time.
        ({"link": "1G", "protection": "ipsec", "mbit_s": 881, "core": "100%"}, "cpu, medium"),
        (VETH | {"speed": "3 Gbps"}, "cpu, medium"),  # A path within one machine is work.
        # Streams in one tunnel, and several tunnels.
        (TEN | {"speed": "1.5 Gbps", "in_parallel": "1.53 Gbps"}, "cpu, low"),
        ({"protection": "wg", "speed": "1.5 Gbps", "in_parallel": "1.53 Gbps"}, NOT_SAID),
        # TCP in clear fills such a link, as far as nothing else was told.
        (TEN | {"speed": "5 Gbps"}, "cpu, low"),
        (TEN | {"speed": "0.2 Gbps"}, NOT_SAID),
        (TEN | {"speed": "5 Gbps", "core": "20 %"}, NOT_SAID),
        (TEN | {"speed": "5 Gbps", "offload": "crypto"}, NOT_SAID),
        # The link is not known, so it may be full as well.
        ({"protection": "wg", "speed": "900 Mbps", "core": "100 %"}, "cpu, medium"),
        # Of eight cores an eighth is busy: one full core has that load.
        (TEN | {"speed": "2 Gbps", "cpu": "12.5 %", "cores": 8}, "cpu, medium"),
        (TEN | {"speed": "2 Gbps", "cpu": "3 %", "cores": 8}, NOT_SAID),
        # A core that polls is always busy.
        (TEN | {"speed": "2 Gbps", "core": 1.0, "machine": "SPDK target"}, "cpu, low"),
        ({"speed": "2 Gbps", "core": 1.0, "machine": "SPDK target"}, NOT_SAID),
        (TEN | {"speed": "3 Gbps", "clear": "9.4 Gbps"}, "cpu, medium"),
        ({"protection": "wireguard", "mbit_s": 300, "clear": "940 Mbps"}, "cpu, low"),
        (TEN | {"speed": "3 Gbps", "clear": "9.4 Gbps", "core": "30 %"}, NOT_SAID),
        (TEN | {"speed": "0.1 Gbps", "clear": "9.4 Gbps"}, NOT_SAID),
        (TEN | {"speed": "2 Gbps", "in_parallel": "7 Gbps", "streams": 1}, "cpu, medium"),
        ({"link": "gigabit", "protection": "off", "mbit_s": 941}, "link, high"),
        ({"link": "1G", "protection": "wireguard", "mbit_s": 895}, "masked: link, high"),
        ({"link": "1G", "protection": "macsec", "MB/s": 110, "mtu": 9000}, "masked: link, medium"),
        ({"protection": "tls", "speed": "5.0 Gbps", "plain": "5.1 Gbps"}, "masked: unknown, medium"),
        ({"link": "WiFi 866 Mbit/s", "protection": "off", "mbit_s": 600}, "link, medium"),
        (READ_4K | {"MiB/s": 108, "depth": 32}, "link, high"),
        (READ_4K | {"iops": 5000, "depth": 1, "rtt": "180 us", "core": "20 %"}, "round-trip, high"),
        (READ_4K | {"iops": 5000, "depth": 1, "rtt": "120 us"}, "round-trip, medium"),
        (READ_4K | {"iops": 5000, "depth": 1}, "latency, medium"),
        (READ_4K | {"iops": 500, "depth": 1, "local": "600 IOPS"}, "device, medium"),
        ({"link": "10G", "speed": "17 Mbps", "rtt": "30 ms", "window": "64k", "core": "2%"}, "window, high"),
        (
            {"link": "1G", "speed": "6 Mbps", "rtt": "80 ms", "loss": "0.1 %", "core": "2%"},
            "lost-packets, medium",
        ),
        ({"link": "10G", "speed": "1 Gbps", "rtt": "40 ms", "in_parallel": "8 Gbps"}, "window, low"),
        ({"link": "1G", "speed": "60 Mbps", "rtt": "80 ms"}, "window, low"),
        ({"link": "10GbE, MTU 9000", "speed": "9.6 Gbps"}, "link, high"),
        ({"link": "10GbE, MTU 1500", "speed": "9.8 Gbps"}, CANNOT_BE),
        ({"link": "10GbE jumbo frames", "speed": "9.2 Gbps"}, "link, medium"),
        ({"workload": "volume", "iops": 5000, "local": "5200 IOPS"}, "device, medium"),
        ({"protection": "dm-crypt", "iops": 70000, "clear": "71k IOPS"}, "masked: unknown, medium"),
        (LUKS | {"MB/s": 900, "clear": "2.4 GB/s", "cipher": "1.1 GB/s"}, "crypto, medium"),
        ({"protection": "dm-crypt", "iops": 150000, "clear": "300k IOPS"}, "cpu, low"),
        (WRITE_1M | {"MB/s": 200, "local": "205 MB/s", "core": "10%"}, "device, high"),
        (READ_4K | {"iops": 150, "depth": 32, "disk": "HDD 7200 rpm"}, "device, medium"),
        (WG_4K | {"MB/s": 20, "local": "20 MB/s", "depth": 16}, "masked: device, medium"),
        ({"link": "gigabit", "mtu": 1500, "mbit_s": 975}, CANNOT_BE),
        ({"link": "10G", "GB_s": 1.4}, CANNOT_BE),
        (READ_4K | {"iops": 20000, "depth": 1, "rtt": "500 us"}, CANNOT_BE),
        (READ_4K | {"iops": 9000, "depth": 4, "latency": "2 ms"}, CANNOT_BE),
        ({"block": "4k", "iops": 1000, "speed": "40 MB/s"}, CANNOT_BE),
        (TEN | {"speed": "2 Gbps", "core": "900 %", "cores": 4}, CANNOT_BE),
        ({"speed": "2 Gbps", "cpu": "300 %"}, CANNOT_BE),
        ({}, NOT_SAID),
        ({"speed": "2 Gbps"}, NOT_SAID),
        ({"iops": 1000}, NOT_SAID),
        ({"iops": 1e17, "block": "1T", "depth": 1000000}, NOT_SAID),
        ({"speed": "1e17 GB/s", "rtt": "1 ns", "window": 1, "block": 1, "depth": 1}, None),
    ],
)
def test_answers(claim: dict[str, Any], answer: str | None) -> None:
    found = judged(**claim)
    kind = "" if found.answer is AnswerKind.LIMITED else f"{found.answer}: "
    assert answer is None or f"{kind}{found.limited_by}, {found.confidence}" == answer
    assert found.sentence and "\n" not in found.sentence
    assert found.decides or found.confidence is Confidence.HIGH


def judged_rows(*rows: dict[str, Any]) -> list[Judged]:
    claims = [dict(reported.entry(key, value) for key, value in row.items()) for row in rows]
    return answer.judge_all([reported.Reported(**claim) for claim in claims])


GBE = {"link": "gigabit", "transport": "iSCSI"}
NAS = GBE | {"workload": "read", "block": "64k", "depth": 8, "MB/s": 41, "latency": "12.8 ms"}
HALF = {"link": "1 GbE (negotiated 100 Mbit/s, half duplex)", "workload": "iperf3"}
OF_90 = {"workload": "fio read", "local": "90 MB/s"}
WG_70 = {"link": "1G", "protection": "WireGuard", "mbit_s": 636.5, "clear": "912.4 Mbit/s"}
HDD_4K = {"workload": "fio randread 4k", "disk": "hard disk, 7200 rpm"}
IPERF = {"link": "gigabit", "workload": "iperf3", "mtu": 1500}


@pytest.mark.parametrize(
    ("claim", "answer", "words"),
    [
        # TCP carries 949.3 Mbit/s in frames of 1500 bytes; UDP 957.1.
        (GBE | {"MB/s": 118.9, "mtu": 1500}, CANNOT_BE, "118.7 MB/s (949.3 Mbit/s) of TCP"),
        (GBE | {"MB/s": 118.9}, NOT_SAID, "jumbo frames, a cache answered, or a figure is wrong"),
        (GBE | {"MB/s": 118.5}, "link, high", ""),
        (IPERF | {"mbit_s": 948}, "link, high", ""),
        (IPERF | {"mbit_s": 955}, CANNOT_BE, "949.3 Mbit/s"),
        (IPERF | {"workload": "iperf3 UDP", "mbit_s": 955}, "link, high", ""),
        (IPERF | {"workload": "iperf3 UDP", "mbit_s": 959}, CANNOT_BE, "957.1 Mbit/s"),
        # Above the disk's own rate.
        (OF_90 | {"MB/s": 150}, NOT_SAID, "the target's memory, or the page cache of this side"),
        (OF_90 | {"MB/s": 300, "workload": "fio read direct=1"}, NOT_SAID, "the target's memory answered"),
        (OF_90 | {"MB/s": 300, "note": "no cache"}, CANNOT_BE, "a cache was ruled out"),
        (OF_90 | GBE | {"MB/s": 117}, "link, high", ""),
        # What was negotiated counts, and half duplex is shared.
        (HALF | {"mbit_s": 70}, "link, medium", "100 Mbit/s is 70.61 Mbit/s of data in both directions"),
        (HALF | {"mbit_s": 50}, NOT_SAID, "link may be full"),
        (HALF | {"mbit_s": 300}, CANNOT_BE, "100 Mbit/s carries"),
        # 21 % of four cores are at most 84 % of one, and 25 % may be one that is full.
        (WG_70 | {"cpu": "21 %", "cores": 4}, NOT_SAID, "no core that was reported is more than 86% busy"),
        (WG_70 | {"cpu": "25 %", "cores": 4}, "cpu, medium", "as one full core would make them"),
        (WG_70 | {"cpu": "79 % idle"}, "cpu, medium", "0.70 of the clear figure"),
        # Little's law: the latency less the path is the target's.
        (NAS, "target, low", "the target, which takes 76% of an I/O's time (12.8 ms each, 8 at a time)"),
        (NAS | {"rtt": "0.3 ms", "core": "20 %"}, "target, medium", "the target"),
        (NAS | {"rtt": "8 ms"}, NOT_SAID, "round trip 63%"),
        (NAS | {"block": "4k", "depth": 32, "latency": "3.2 ms"}, NOT_SAID, "and the round trip the rest"),
        (GBE | {"workload": "dd oflag=dsync", "block": "4k", "iops": 20}, "device, low", "each write waits"),
        # As fast as in clear: whatever is full, that is no cost of the protection.
        (TEN | {"MB/s": 100, "clear": "100 MB/s", "core": "100 %"}, "masked: cpu, medium", "core 100%"),
        ({"MB/s": 500, "network": "100 MB/s"}, CANNOT_BE, "5.0 times TCP's (800 Mbit/s)"),
        (TEN | {"speed": "3 Gbps", "cpu": "100 %", "core": "10 %"}, CANNOT_BE, "the busiest only 10%"),
        (HDD_4K | {"iops": "200k"}, CANNOT_BE, "a cache answered"),
        (HDD_4K | {"iops": "200k", "disk": "RAID of hard disks"}, NOT_SAID, ""),
        (HDD_4K | {"iops": 5}, NOT_SAID, ""),
        # Packets, bonds, and what two may be full of.
        ({"link": "10G", "pps": "14.88 Mpps", "packet": 64}, "link, high", ""),
        ({"link": "10G", "pps": "16 Mpps", "packet": 64}, CANNOT_BE, ""),
        (GBE | {"link": "2 x 1G bond", "MB/s": 117}, "link, medium", "a connection has one link of 2"),
        (GBE | {"link": "2 x 1G bond", "MB/s": 117, "streams": 2}, NOT_SAID, ""),
        (IPERF | {"link": "2x1G LACP", "mbit_s": 1880, "workload": "iperf3 -P 8"}, "link, high", ""),
        (OF_90 | GBE | {"MB/s": 112, "local": "115 MB/s"}, NOT_SAID, "each of these may limit"),
        (IPERF | {"mbit_s": 941, "window": "64K", "rtt": "0.5 ms"}, NOT_SAID, "each of these may limit"),
        (READ_4K | {"iops": 2000, "depth": 1, "p99": "9 ms"}, "latency, medium", ""),
        (READ_4K | {"iops": 2000, "depth": 1, "p50": "9 ms"}, CANNOT_BE, "at least 4.25 ms"),
    ],
)
def test_intervals_decide(claim: dict[str, Any], answer: str, words: str) -> None:
    test_answers(claim, answer)
    assert words in judged(**claim).sentence


def test_figures_of_one_file_are_compared() -> None:
    clear = {"link": "10G", "workload": "iperf3", "protection": "off", "title": "plain", "gbit_s": 9.4}
    tunnel = clear | {"protection": "wg", "title": "tunnel"}
    _, found = judged_rows(clear, tunnel | {"mtu": 1420, "gbit_s": 3.0})
    assert "0.32 of the clear figure" in found.reason
    # An MTU of 9000 is another link's, and the answer says that it did not compare.
    _, found = judged_rows(clear | {"mtu": 9000}, tunnel | {"mtu": 1420, "gbit_s": 3.0})
    assert found.unused == ("the clear figure: it has an MTU of 9000",)
    del tunnel["gbit_s"]
    for part, words in (("70 % of clear", "0.70 of"), ("30 % of plain", "0.30 of")):
        assert words in judged_rows(clear, tunnel | {"speed": part})[1].reason
    (found,) = judged_rows(IPERF | {"speed": "100 % of the link"})
    assert found.limited_by == "link" and found.shares["link"].mid == 1
    _, found = judged_rows(clear, tunnel | {"speed": "70 % of another"})
    assert found.unused == ("throughput: a part of another, of which there is no figure",)
    assert "  not used: throughput: a part of another" in answer.lines([found])[1]


def test_what_is_impossible_says_which_figure_and_by_how_much() -> None:
    words = judged(link="gigabit", protection="wireguard", mbit_s=1011).sentence
    assert words.startswith("impossible: 1.011 Gbit/s is 2.5% more than the 123.3 MB/s (986 Mbit/s)")
    assert "even in frames of 9000 bytes" in words
    words = judged(**TEN, speed="2 Gbps", clear="12 Gbps").sentence
    assert words.startswith("impossible: the clear figure, 12 Gbit/s is ")
    # 1 Gbit/s may be 0.96 in one digit, and 118 MB/s at 1500 bytes 117.7.
    assert judged(link="gigabit", speed="1 Gbit/s").answer is AnswerKind.LIMITED
    assert judged(link="gigabit", mtu=1500, speed="118 MB/s").answer is AnswerKind.LIMITED
    # What would decide has its command.
    found = judged(link="100G", protection="ESP", speed="2 Gbps")
    assert found.answer is AnswerKind.NOT_ENOUGH
    assert [*found.decides.values()][:2] == ["mpstat -P ALL 1", "iperf3 -c HOST"]
    assert "the same without ESP" in found.decides
    storage = judged(**READ_4K, **{"MB/s": 20}, core="10 %", target_core="10 %")
    assert [each.split()[0] for each in storage.decides.values()] == ["fio", "iostat", "fio", "ping"]


def test_a_clear_figure_of_the_file_is_compared_with(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'link = "10G"\nworkload = "iperf3"\n'
        '[[figure]]\ntitle = "clear"\nprotection = "off"\ngbit_s = 9.4\n'
        '[[figure]]\ntitle = "sealed"\nprotection = "wireguard"\ngbit_s = 3\n',
        encoding="utf-8",
    )
    done = harness("explain", "--figures", str(file), cwd=tmp_path)
    assert done.returncode == 0 and "sealed: limited by the processors' work" in done.stdout
    assert (
        "\n  to find out, measure each core's load at both ends meanwhile: mpstat -P ALL 1\n" in done.stdout
    )
    as_json = harness("explain", "--figures", str(file), "--format", "json", cwd=tmp_path)
    first, second = json.loads(as_json.stdout)["figures"]
    assert (first["answer"], first["limited_by"], first["confidence"]) == ("limited", "link", "high")
    assert second["shares"]["link"]["mid"] == pytest.approx(0.329, abs=0.02)
    assert "mpstat -P ALL 1" in second["decides"].values()


def test_what_is_asked_and_answered_wrongly_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"throughput": ["5", "2.1 Gbps"], "link": ["10G"]}
    answers |= {"busiest_core": ["full"], "protection": ["wg"]}
    asked = {question: iter(answers.get(key, ())) for key, question in reported.QUESTIONS.items()}
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "prompt", lambda question, **_: next(asked[question], ""))
    explain.explain_command(ask=True)
    printed = capsys.readouterr()
    assert printed.out.startswith("limited by processor: packets and cipher of wg (busiest core 100% busy")
    told = printed.err.splitlines()
    assert told[0] == "what is not known stays empty" and len(told) == 2 and "MB/s, MiB/s" in told[1]


def test_what_is_no_file_of_figures_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for name, data in (("binary", b"\0\xff"), ("typo", b'thruput = "1 MB/s"'), ("nan", b"throughput = nan")):
        (tmp_path / name).write_bytes(data)
        assert_refused(harness("explain", "--figures", name, cwd=tmp_path), name)
    assert_refused(harness("explain", "--figures", ".", cwd=tmp_path), "a folder")
    assert_refused(harness("explain", "--ask", cwd=tmp_path), "there is no terminal", "--figures FILE.toml")
    assert_refused(harness("explain", "--figures", "missing", cwd=tmp_path), "nothing there")
    assert_refused(harness("explain", "--figures", "typo", "--ask", cwd=tmp_path), "--figures and --ask")
    assert_refused(harness("explain", "x", "--figures", "typo", cwd=tmp_path), "results or --figures")
    assert_refused(harness("explain", "--ask", cwd=tmp_path), "no terminal")


FOUND = list(bench.rows())


def test_verdicts_on_published_figures_are_as_they_were_fixed() -> None:
    for name, judged, _, _ in FOUND:
        answer = (bench.in_short(judged), str(judged.confidence))
        assert bench.fixed()[name][judged.title] == answer, (name, judged.title)
        assert judged.decides or judged.confidence is Confidence.HIGH, (name, judged.title)
    # Every one has a source, and what the authors found.
    figures = {(name, judged.title) for name, judged, _, _ in FOUND}
    for known in (bench.fixed(), bench.explanations()):
        assert {(name, title) for name, of in known.items() for title in of} == figures
    for file in bench.FOLDER.glob("*.toml"):
        if file.name not in (bench.VERDICTS, bench.EXPLANATIONS):
            assert all(each.source.startswith("https://") for each in reported.load(file))


def test_the_goals_are_met() -> None:
    words, is_met = bench.summary(FOUND)
    assert is_met and len(bench.table(FOUND)) == len(FOUND) + 2
    # A miss with confidence high is no pass.
    name, judged, _, said = next(row for row in FOUND if row[2] == "hit" and row[1].confidence == "high")
    words, is_met = bench.summary([*FOUND, (name, judged, "miss", said)])
    assert not is_met and "wrong with confidence high: 1" in words

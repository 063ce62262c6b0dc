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

from bench import third_party as bench
from harness.cli import explained
from harness.explain import third_party
from harness.explain.third_party import AnswerKind, Judged
from harness.explain.verdict import Confidence
from harness.parse import reported
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness


def judged(**keys: Any) -> Judged:
    claim = dict(reported.entry(key, value) for key, value in keys.items())
    (found,) = third_party.judge_all([reported.Reported(**claim)])
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


def test_what_is_impossible_says_which_figure_and_by_how_much() -> None:
    words = judged(link="gigabit", protection="wireguard", mbit_s=1011).sentence
    assert words.startswith("impossible: 1.011 Gbit/s is 2.5% more than the 986 Mbit/s")
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
    assert second["shares"] == {"link": pytest.approx(0.329, abs=0.01)}
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
    explained.explain_command(ask=True)
    printed = capsys.readouterr()
    assert printed.out.startswith("limited by processor: packets and cipher of wg (busiest core 100% busy")
    assert "MB/s, MiB/s" in printed.err


def test_what_is_no_file_of_figures_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for name, data in (("binary", b"\0\xff"), ("typo", b'thruput = "1 MB/s"'), ("nan", b"throughput = nan")):
        (tmp_path / name).write_bytes(data)
        assert_refused(harness("explain", "--figures", name, cwd=tmp_path), name)
    assert_refused(harness("explain", "--figures", ".", cwd=tmp_path), "a folder")
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

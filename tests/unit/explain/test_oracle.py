"""Verdicts on figures of others: each kind of answer, from little that was told."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.cli import explained
from harness.explain import oracle
from harness.explain.oracle import AnswerKind, Cause, Judged
from harness.explain.verdict import Confidence
from harness.parse import reported
from tests.unit.cli.test_cli import assert_refused
from tests.unit.command import harness

LIMITED, IMPOSSIBLE, MASKED, NOT_ENOUGH = AnswerKind
HIGH, MEDIUM, LOW, NONE = Confidence


def judged(**keys: Any) -> Judged:
    told = dict(reported.entry(key, value) for key, value in keys.items())
    (found,) = oracle.judge_all([reported.Reported(**told)])
    return found


TEN = {"link": "10GbE", "protection": "ESP AES-GCM"}
READ_4K = {"link": "gigabit", "transport": "iSCSI", "workload": "rand-read-4k"}


@pytest.mark.parametrize(
    ("told", "answer", "cause", "sure"),
    [
        # One core, watched.
        (TEN | {"speed": "2.1 Gbps", "busiest_core": "100%"}, LIMITED, "cpu", HIGH),
        (TEN | {"speed": "260 MB/s", "target_busiest_core": 99}, LIMITED, "cpu", HIGH),
        (TEN | {"speed": "2 Gbps", "core": 1.0, "cipher": "300 MB/s"}, LIMITED, "crypto", HIGH),
        (TEN | {"speed": "2 Gbps", "core": 1.0, "cipher": "3 GB/s"}, LIMITED, "cpu", HIGH),
        # A core is full, whatever came of it.
        (TEN | {"core": "99 %"}, LIMITED, "cpu", MEDIUM),
        # Nearly full both: who waits for a link is not busy all the time.
        ({"link": "1G", "protection": "ipsec", "mbit_s": 881, "core": "100%"}, LIMITED, "cpu", MEDIUM),
        # A path within one machine is work.
        (
            {"link": "veth, two network namespaces", "protection": "wg", "speed": "3 Gbps"},
            LIMITED,
            "cpu",
            MEDIUM,
        ),
        # Streams in one tunnel, and several tunnels.
        (TEN | {"speed": "1.5 Gbps", "in_parallel": "1.53 Gbps"}, LIMITED, "cpu", LOW),
        ({"protection": "wg", "speed": "1.5 Gbps", "in_parallel": "1.53 Gbps"}, NOT_ENOUGH, "unknown", NONE),
        # TCP in clear fills such a link, as far as nothing else was told.
        (TEN | {"speed": "5 Gbps"}, LIMITED, "cpu", LOW),
        (TEN | {"speed": "0.2 Gbps"}, NOT_ENOUGH, "unknown", NONE),
        (TEN | {"speed": "5 Gbps", "core": "20 %"}, NOT_ENOUGH, "unknown", NONE),
        (TEN | {"speed": "5 Gbps", "offload": "crypto"}, NOT_ENOUGH, "unknown", NONE),
        # The link is not known, so it may be full as well.
        ({"protection": "wg", "speed": "900 Mbps", "core": "100 %"}, LIMITED, "cpu", MEDIUM),
        # Of eight cores an eighth is busy: one full core has that load.
        (TEN | {"speed": "2 Gbps", "cpu": "12.5 %", "cores": 8}, LIMITED, "cpu", MEDIUM),
        (TEN | {"speed": "2 Gbps", "cpu": "3 %", "cores": 8}, NOT_ENOUGH, "unknown", NONE),
        # A core that polls is always busy.
        (TEN | {"speed": "2 Gbps", "core": 1.0, "machine": "SPDK target"}, LIMITED, "cpu", LOW),
        ({"speed": "2 Gbps", "core": 1.0, "machine": "SPDK target"}, NOT_ENOUGH, "unknown", NONE),
        # The clear figure, and nothing else.
        (TEN | {"speed": "3 Gbps", "clear": "9.4 Gbps"}, LIMITED, "cpu", MEDIUM),
        ({"protection": "wireguard", "mbit_s": 300, "clear": "940 Mbps"}, LIMITED, "cpu", LOW),
        (TEN | {"speed": "3 Gbps", "clear": "9.4 Gbps", "core": "30 %"}, NOT_ENOUGH, "unknown", NONE),
        (TEN | {"speed": "0.1 Gbps", "clear": "9.4 Gbps"}, NOT_ENOUGH, "unknown", NONE),
        (TEN | {"speed": "2 Gbps", "in_parallel": "7 Gbps", "streams": 1}, LIMITED, "cpu", MEDIUM),
        # Full links.
        ({"link": "gigabit", "protection": "off", "mbit_s": 941}, LIMITED, "link", HIGH),
        ({"link": "1G", "protection": "wireguard", "mbit_s": 895}, MASKED, "link", HIGH),
        ({"link": "1G", "protection": "macsec", "MB/s": 110, "mtu": 9000}, MASKED, "link", MEDIUM),
        ({"protection": "tls", "speed": "5.0 Gbps", "plain": "5.1 Gbps"}, MASKED, "unknown", MEDIUM),
        ({"link": "WiFi 866 Mbit/s", "protection": "off", "mbit_s": 600}, LIMITED, "link", MEDIUM),
        (READ_4K | {"MiB/s": 108, "depth": 32}, LIMITED, "link", HIGH),
        # Round trips, windows, losses.
        (READ_4K | {"iops": 5000, "depth": 1, "rtt": "180 us", "core": "20 %"}, LIMITED, "round-trip", HIGH),
        (READ_4K | {"iops": 5000, "depth": 1, "rtt": "120 us"}, LIMITED, "round-trip", MEDIUM),
        (READ_4K | {"iops": 5000, "depth": 1}, LIMITED, "one-at-a-time", MEDIUM),
        (READ_4K | {"iops": 500, "depth": 1, "local": "600 IOPS"}, LIMITED, "device", MEDIUM),
        (
            {"link": "10G", "speed": "17 Mbps", "rtt": "30 ms", "window": "64k", "core": "2%"},
            *(LIMITED, "window", HIGH),
        ),
        (
            {"link": "1G", "speed": "6 Mbps", "rtt": "80 ms", "loss": "0.1 %", "core": "2%"},
            *(LIMITED, "loss", MEDIUM),
        ),
        (
            {"link": "10G", "speed": "1 Gbps", "rtt": "40 ms", "in_parallel": "8 Gbps"},
            *(LIMITED, "window", LOW),
        ),
        ({"link": "1G", "speed": "60 Mbps", "rtt": "80 ms"}, LIMITED, "window", LOW),
        ({"link": "10GbE, MTU 9000", "speed": "9.6 Gbps"}, LIMITED, "link", HIGH),
        ({"link": "10GbE, MTU 1500", "speed": "9.8 Gbps"}, IMPOSSIBLE, "unknown", HIGH),
        ({"link": "10GbE jumbo frames", "speed": "9.2 Gbps"}, LIMITED, "link", MEDIUM),
        # Disks.
        ({"workload": "volume", "iops": 5000, "local": "5200 IOPS"}, LIMITED, "device", MEDIUM),
        ({"protection": "dm-crypt", "iops": 70000, "clear": "71k IOPS"}, MASKED, "unknown", MEDIUM),
        (
            {"protection": "LUKS", "MB/s": 900, "clear": "2.4 GB/s", "cipher": "1.1 GB/s", "workload": "fio"},
            *(LIMITED, "crypto", MEDIUM),
        ),
        ({"protection": "dm-crypt", "iops": 150000, "clear": "300k IOPS"}, LIMITED, "cpu", LOW),
        (
            {"link": "25GbE", "workload": "fio write 1M", "MB/s": 200, "local": "205 MB/s", "core": "10%"},
            *(LIMITED, "device", HIGH),
        ),
        (READ_4K | {"iops": 150, "depth": 32, "disk": "HDD 7200 rpm"}, LIMITED, "device", MEDIUM),
        (
            READ_4K | {"protection": "wg", "MB/s": 20, "local": "20 MB/s", "depth": 16},
            *(MASKED, "device", MEDIUM),
        ),
        # What cannot be.
        ({"link": "gigabit", "protection": "wireguard", "mbit_s": 1011}, IMPOSSIBLE, "unknown", HIGH),
        ({"link": "gigabit", "mtu": 1500, "mbit_s": 975}, IMPOSSIBLE, "unknown", HIGH),
        ({"link": "10G", "GB_s": 1.4}, IMPOSSIBLE, "unknown", HIGH),
        (READ_4K | {"iops": 20000, "depth": 1, "rtt": "500 us"}, IMPOSSIBLE, "unknown", HIGH),
        (READ_4K | {"iops": 9000, "depth": 4, "latency": "2 ms"}, IMPOSSIBLE, "unknown", HIGH),
        ({"block": "4k", "iops": 1000, "speed": "40 MB/s"}, IMPOSSIBLE, "unknown", HIGH),
        (TEN | {"speed": "2 Gbps", "core": "900 %", "cores": 4}, IMPOSSIBLE, "unknown", HIGH),
        ({"speed": "2 Gbps", "cpu": "300 %"}, IMPOSSIBLE, "unknown", HIGH),
        (TEN | {"speed": "2 Gbps", "clear": "12 Gbps"}, IMPOSSIBLE, "unknown", HIGH),
        # Nearly nothing.
        ({}, NOT_ENOUGH, "unknown", NONE),
        ({"link": "10G"}, NOT_ENOUGH, "unknown", NONE),
        ({"speed": "2 Gbps"}, NOT_ENOUGH, "unknown", NONE),
        ({"iops": 1000}, NOT_ENOUGH, "unknown", NONE),
        ({"iops": 1e17, "block": "1T", "depth": 1000000}, NOT_ENOUGH, "unknown", NONE),
        ({"speed": "1e17 GB/s", "rtt": "1 ns", "window": 1, "block": 1, "depth": 1}, None, None, None),
    ],
)
def test_answers(
    told: dict[str, Any], answer: AnswerKind | None, cause: str | None, sure: Confidence
) -> None:
    found = judged(**told)
    if answer is not None and cause is not None:
        assert (found.answer, found.limited_by, found.confidence) == (answer, Cause(cause), sure)
    assert found.sentence and "\n" not in found.sentence
    assert found.decides or found.confidence is HIGH


def test_what_is_impossible_says_which_figure_and_by_how_much() -> None:
    words = judged(link="gigabit", protection="wireguard", mbit_s=1011).sentence
    assert words.startswith("impossible: 1.011 Gbit/s is 2.5% more than the 986 Mbit/s")
    assert "even in frames of 9000 bytes" in words
    words = judged(**TEN, speed="2 Gbps", clear="12 Gbps").sentence
    assert words.startswith("impossible: the clear figure, 12 Gbit/s is ")


def test_the_last_digit_is_not_taken_for_more_than_it_says() -> None:
    # 1 Gbit/s may be 0.96 in one digit, and 118 MB/s at 1500 bytes 117.7.
    assert judged(link="gigabit", speed="1 Gbit/s").answer is LIMITED
    assert judged(link="gigabit", mtu=1500, speed="118 MB/s").answer is LIMITED
    assert judged(link="gigabit", mtu=1500, speed="125 MB/s").answer is IMPOSSIBLE


def test_what_would_decide_has_its_command() -> None:
    found = judged(link="100G", protection="ESP", speed="2 Gbps")
    assert found.answer is NOT_ENOUGH
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
    assert "\n  would tell more: each core's load at both ends meanwhile: mpstat -P ALL 1\n" in done.stdout
    as_json = harness("explain", "--figures", str(file), "--format", "json", cwd=tmp_path)
    first, second = json.loads(as_json.stdout)["figures"]
    assert (first["answer"], first["limited_by"], first["confidence"]) == ("limited", "link", "high")
    assert (
        second["shares"] == {"link": pytest.approx(0.329, abs=0.01)}
        and "mpstat -P ALL 1" in second["decides"].values()
    )


def test_what_is_asked_and_answered_wrongly_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {
        "throughput": ["5", "2.1 Gbps"],
        "link": ["10G"],
        "busiest_core": ["full"],
        "protection": ["wg"],
    }
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

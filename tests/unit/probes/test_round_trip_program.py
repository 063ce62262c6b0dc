"""The program that measures a datagram's round trip, built and run on the loopback."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from harness.hosts.runner import await_condition
from harness.model.probing import SocketUse, UdpLatency, UdpLatencyFigures
from harness.probes import datagrams

pytestmark = pytest.mark.thorough


def free_port() -> str:
    """One that nobody listens on, nor another of these tests meanwhile."""
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        return str(taken.getsockname()[1])


def is_bound(port: str) -> bool:
    """Whether somebody has this UDP port (proc(5), net/udp)."""
    return f":{int(port):04X} " in Path("/proc/net/udp").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("socket", list(SocketUse))
def test_the_c_program_measures_on_the_loopback(tmp_path: Path, socket: SocketUse) -> None:
    program = str(tmp_path / "round_trip")
    subprocess.run(["cc", "-O2", "-Wall", "-Werror", "-o", program, str(datagrams.SOURCE)], check=True)
    port = free_port()
    argv = [program, "measure", "127.0.0.1", port, "-", "1024", "500", socket, "60"]
    echoing = subprocess.Popen([program, "echo", "127.0.0.1", port])
    try:
        await_condition(lambda: is_bound(port), deadline_s=60, what="the far side")
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
    finally:
        echoing.kill()
        echoing.wait()
    outcome = datagrams.understand(done.stdout, done.stderr, UdpLatency(count=500, socket=socket))
    figures = outcome.figures
    assert isinstance(figures, UdpLatencyFigures) and outcome.reasons == []
    assert figures.round_trips + figures.lost == 500 and figures.round_trips > 490
    assert figures.min_ns is not None and figures.mean_ns is not None and figures.max_ns is not None
    assert 0 < figures.min_ns <= figures.mean_ns <= figures.max_ns
    assert figures.p50_ns is not None and figures.histogram.count == figures.round_trips
    # The bins' middles are within 1/128 of what was measured.
    mean_ns = sum(ns * count for ns, count in figures.histogram.bins.items()) / figures.histogram.count
    assert mean_ns == pytest.approx(figures.mean_ns, rel=1 / 64)
    alone = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert datagrams.understand(alone.stdout, "", UdpLatency()).reasons == ["no datagram came back"]

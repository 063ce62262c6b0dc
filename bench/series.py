"""Kernels of which CPU costs and then cells are measured, a series each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.machines.runs import TOGETHER

PROJECT = Path(__file__).parents[1]
UNSHAPED = "wired:unshaped"


PROTECTIONS = ("off", "aes128gcm16", "aes256gcm16", "wireguard", "macsec")
"""Of the stock machines: five times ten are 50 cells."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """``words`` are for the CPU cost file and the run, ``protect`` as well; ``links`` are the run's.

    ``suite`` is the Debian release of two stock machines, whose wire nothing shapes; "" is the lab. Over ssh
    their counters are read for seconds around a cell, so theirs are long.
    """

    name: str
    title: str
    words: Sequence[str]
    protect: Sequence[str] = ("off", "aes128gcm16")
    transport: str = "iscsi"
    links: Sequence[str] = (UNSHAPED, "wired", "2.5g")
    suite: str = ""

    @property
    def of_both(self) -> list[str]:
        return [f"--transport={self.transport}", *(f"--protect={name}" for name in self.protect)]


SERIES = (
    Series(
        name="debian",
        title="Debian's kernel",
        words=("--lab-kernel=debian",),
        links=(UNSHAPED, "wired", "wired:rtt=2ms"),
    ),
    Series(
        name="custom",
        title="custom kernel",
        words=("--lab-kernel=custom",),
        protect=("off", "aes128gcm16", "wireguard"),
        links=(UNSHAPED, "wired"),
    ),
    Series(
        name="custom-generic",
        title="custom kernel, generic ciphers",
        words=("--lab-kernel=custom", "--cipher-driver=generic"),
    ),
    Series(
        name="custom-nvme",
        title="custom kernel, NVMe/TCP",
        words=("--lab-kernel=custom",),
        transport="nvme-tcp",
        links=(UNSHAPED, "wired", "10g"),
    ),
    Series(
        name="trixie",
        title="two stock machines",
        words=(*TOGETHER, "--runtime=3s"),
        protect=PROTECTIONS,
        links=(UNSHAPED,),
        suite="trixie",
    ),
)


def cpu_costs_of(series: Series, folder: Path) -> Path:
    """Where a series has the CPU costs that it began with."""
    return folder / series.name / f"lab-{series.name}.toml"

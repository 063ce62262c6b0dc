"""The facts about a run's hosts: kernel, processor, memory, tool versions; stored with the results."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.hosts import Host, ReadableHost, of_each
from harness.model.errors import HopLost
from harness.observe.counters import USER_MODE

if TYPE_CHECKING:
    from harness.observe.hops import AskedHop, Hop

TOOLS: dict[str, list[str]] = {
    "fio": ["fio", "--version"],
    # swanctl(8) needs a charon to print its version, but its help begins with the version.
    "strongswan": ["sh", "-c", "swanctl --help 2>/dev/null"],
    "iproute2": ["ip", "-V"],
    "tcpdump": ["tcpdump", "--version"],
}
"""The command that prints the version of each; transports have more (``storage.transports.versions``)."""

FILES: dict[str, str] = {
    "kernel": "/proc/version",
    "kernel_command_line": "/proc/cmdline",
    "uptime": "/proc/uptime",
    "clocksource": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "frequency_max_khz": "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
    "congestion_control": "/proc/sys/net/ipv4/tcp_congestion_control",
}


def describe(
    hosts: Iterable[Host],
    hops: Iterable[Hop | AskedHop] = (),
    *,
    tools: Mapping[str, str] | None = None,
    more: Mapping[str, Sequence[str]] = {},
) -> dict[str, object]:
    """``{"hosts": {name: {…}}}``: what each host reports about itself; absent files and tools are left
    out. ``tools`` are their versions, where these are known already; ``more`` is as for ``versions``."""
    hosts = tuple(hosts)

    def report(host: Host) -> dict[str, object]:
        reported = versions(host, more) if tools is None else dict(tools)
        return {**describe_kernel(host), "tools": reported}

    # Hosts in one namespace of one kernel would report the same.
    different = {(host.kernel, host.netns): host for host in reversed(hosts)}
    known = dict(zip(different, of_each([*different.values()], report), strict=True))
    return {
        "hosts": {
            **{host.name: known[host.kernel, host.netns] for host in hosts},
            **{hop.name: describe_hop(hop) for hop in hops},
        }
    }


def describe_hop(hop: Hop | AskedHop) -> dict[str, object]:
    """Where a hop is, its kernel, processor and memory; or why that is unknown."""
    if not isinstance(hop, ReadableHost):
        return {"address": hop.address, **hop.facts}
    try:
        return {"address": hop.address, **describe_kernel(hop)}
    except HopLost as lost:
        return {"address": hop.address, "lost": lost.message}


def describe_machine(machine: ReadableHost) -> dict[str, object]:
    """The machine that a lab runs on, which the lab cannot see; without facts that say more about its owner
    than about figures."""
    found = describe_kernel(machine)
    return {name: fact for name, fact in found.items() if name not in ("kernel_command_line", "uptime")}


def describe_kernel(host: ReadableHost) -> dict[str, object]:
    """Kernel, processor and memory of one host, as it reports them."""
    more = ("/proc/cpuinfo", "/proc/meminfo", "/proc/loadavg", "/etc/os-release")
    values = host.read_files([*FILES.values(), *more])
    cpuinfo, meminfo, load, release = values[len(FILES) :]
    facts: dict[str, object] = {
        name: text.strip() for name, text in zip(FILES, values, strict=False) if text.strip()
    }
    # A user-mode kernel has no real processor, and each program that is started there takes its time.
    seen = host.run(["lscpu"], check=False).stdout if USER_MODE not in cpuinfo else ""
    mhz = [float(value) for value in re.findall(r"\ncpu MHz\s*: ([0-9]+(?:\.[0-9]+)?)\n", cpuinfo)]
    found: dict[str, object] = {
        "frequency_mhz": round(sum(mhz) / len(mhz), 1) if mhz else "",
        "hypervisor": _field(seen, "Hypervisor vendor") or ("none" if seen else ""),
        "load": load.partition(" ")[0],
        # os-release(5)
        "distribution": _field(release, "PRETTY_NAME", "=").strip("\"'"),
    }
    return {
        **facts,
        **{name: value for name, value in found.items() if value != ""},
        "cpu": _field(cpuinfo, "model name") or _field(seen, "Model name"),
        "cpus": cpuinfo.count("processor\t:"),
        "memory": _field(meminfo, "MemTotal"),
    }


def _field(text: str, name: str, separator: str = ":") -> str:
    """The value of the first line of this name, "" if there is none."""
    parts = (line.partition(separator) for line in text.splitlines())
    return next((value.strip() for key, _, value in parts if key.strip() == name), "")


VERSIONS = r"""
newline='
'
for line; do
    said=$(eval "$line" 2>&1) || said=
    printf '%s\n' "${said%%"$newline"*}"
done
"""
"""For sh(1): prints a line for each argument, the first that this command prints; an empty one if it fails.

One shell for all, so that an absent tool is no error, and because each program takes its time.
"""


def versions(
    host: Host, more: Mapping[str, Sequence[str]], env: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The versions of a host's tools, by their names; absent ones are left out. ``more`` are such commands as
    in ``TOOLS``."""
    asked = {**TOOLS, **more}
    argv = ["sh", "-c", VERSIONS, "sh", *map(shlex.join, asked.values())]
    lines = host.run(argv, check=False, env=env).stdout
    return {name: line.strip() for name, line in zip(asked, lines.split("\n"), strict=False) if line.strip()}

"""What the hosts of a run are: kernel, processor, memory, tool versions; stored beside the results."""

from __future__ import annotations

from collections.abc import Iterable

from harness.errors import HopLost
from harness.hops import Hop
from harness.hosts import Host, Watched

TOOLS: dict[str, list[str]] = {
    "fio": ["fio", "--version"],
    "open-iscsi": ["iscsiadm", "--version"],
    # swanctl(8) wants a charon before it tells its version; its help begins with it.
    "strongswan": ["sh", "-c", "swanctl --help 2>/dev/null"],
    "iproute2": ["ip", "-V"],
    "tcpdump": ["tcpdump", "--version"],
    "python3-rtslib-fb": ["dpkg-query", "-W", "-f=${Version}", "python3-rtslib-fb"],
}

FILES: dict[str, str] = {
    "kernel": "/proc/version",
    "kernel_command_line": "/proc/cmdline",
    "uptime": "/proc/uptime",
    "clocksource": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "congestion_control": "/proc/sys/net/ipv4/tcp_congestion_control",
}


def describe(hosts: Iterable[Host], hops: Iterable[Hop] = ()) -> dict[str, object]:
    """``{"hosts": {name: {…}}}``: what each host says of itself; an absent file or tool is left out."""
    return {
        "hosts": {
            **{host.name: describe_host(host) for host in hosts},
            **{hop.name: describe_hop(hop) for hop in hops},
        }
    }


def describe_host(host: Host) -> dict[str, object]:
    """Kernel, processor, memory and tool versions of one host, as it reports them."""
    versions = {name: version for name, argv in TOOLS.items() if (version := _version(host, argv))}
    return {**_describe_kernel(host), "tools": versions}


def describe_hop(hop: Hop) -> dict[str, object]:
    """Where a hop is, its kernel, processor and memory; or why that is not known."""
    try:
        return {"address": hop.address, **_describe_kernel(hop)}
    except HopLost as lost:
        return {"address": hop.address, "unseen": lost.message}


def _describe_kernel(host: Watched) -> dict[str, object]:
    values = host.read_files([*FILES.values(), "/proc/cpuinfo", "/proc/meminfo"])
    facts = {name: text.strip() for name, text in zip(FILES, values, strict=False) if text.strip()}
    return {
        **facts,
        "cpu": _field(values[-2], "model name"),
        "cpus": values[-2].count("processor\t:"),
        "memory": _field(values[-1], "MemTotal"),
    }


def _field(text: str, name: str) -> str:
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _version(host: Host, argv: list[str]) -> str:
    # Through sh, so that an absent tool is an exit status and not an error of ours.
    done = host.run(["sh", "-c", '"$@" 2>&1', "sh", *argv], check=False)
    return done.stdout.strip().splitlines()[0] if done.status == 0 and done.stdout.strip() else ""

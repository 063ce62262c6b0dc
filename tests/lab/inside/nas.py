"""A machine beside this one: a network namespace with its own sshd, reached by name with a key.

``nas`` is it over the very network that is measured, ``nas-apart`` over another one. Both ends' interfaces
are "real": they are there before a run, with addresses, and stay.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.lab.inside.kernel import sh, wait_for

NIC, APART = "nic0", "apart0"
NETWORK = """\
netns add nas
link add nic0 type veth peer name nas0 netns nas
link add apart0 type veth peer name nas1 netns nas
address add 192.0.2.1/25 dev nic0
address add 192.0.2.129/25 dev apart0
link set nic0 up
link set apart0 up
"""
FAR_NETWORK = """\
address add 192.0.2.2/25 dev nas0
address add 192.0.2.130/25 dev nas1
link set lo up
link set nas0 up
link set nas1 up
"""
SSHD_CONFIG = """\
HostKey /root/nas/host_key
AuthorizedKeysFile /root/nas/authorized_keys
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
"""
CLIENT_CONFIG = """\
Host nas
    HostName 192.0.2.2
    User root
Host nas-apart
    HostName 192.0.2.130
    User root
"""


def make_network() -> None:
    """Two cables to a namespace that stands for another machine; addresses are RFC 5737's for documents."""
    sh("modprobe", "veth")
    sh("ip", "-batch", "-", input=NETWORK)
    sh("ip", "-n", "nas", "-batch", "-", input=FAR_NETWORK)


def shape(netem: str) -> None:
    """The same on both ends of the cable that is measured."""
    sh("modprobe", "sch_netem")
    for namespace, iface in ((), NIC), (("-n", "nas"), "nas0"):
        sh("tc", *namespace, "qdisc", "add", "dev", iface, "root", "netem", *netem.split())


def make_keys() -> None:
    """A host key that is known, and a user's key that is accepted."""
    place, mine = Path("/root/nas"), Path("/root/.ssh")
    for folder in (place, mine):
        folder.mkdir(mode=0o700, exist_ok=True)
    for file in (place / "host_key", mine / "id_ed25519"):
        file.unlink(missing_ok=True)
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file))
    public = (mine / "id_ed25519.pub").read_text(encoding="utf-8")
    (place / "authorized_keys").write_text(public, encoding="utf-8")
    key = " ".join((place / "host_key.pub").read_text(encoding="utf-8").split()[:2])
    (mine / "known_hosts").write_text(f"192.0.2.2 {key}\n192.0.2.130 {key}\n", encoding="utf-8")
    (mine / "config").write_text(CLIENT_CONFIG, encoding="utf-8")
    (place / "sshd_config").write_text(SSHD_CONFIG, encoding="utf-8")


@contextlib.contextmanager
def sshd() -> Iterator[subprocess.Popen[bytes]]:
    """OpenSSH's server in the namespace, which is then a machine that can be logged in to."""
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    argv = [
        "nsenter",
        "--net=/run/netns/nas",
        "--",
        "/usr/sbin/sshd",
        "-D",
        "-e",
        "-f",
        "/root/nas/sshd_config",
    ]
    with Path("/root/nas/log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(
            lambda: "nas says so" in sh("ssh", "nas", "echo", "nas says so", check=False),
            "sshd",
            deadline_s=20,
        )
        yield process
    finally:
        process.terminate()
        process.wait()

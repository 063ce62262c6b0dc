"""The management network of kernels per host: addresses, and OpenSSH with keys made for one boot.

Commands come from the first initiator's kernel. Every other kernel runs an sshd(8), whose configuration, host
key and authorised key are its own and end with it. Nothing of the machine's SSH is used or changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from harness.hosts import runner
from harness.hosts.programs.local_operations import environment
from harness.model.errors import RequirementError

TARGET = "target"
NETWORK = "198.19"
"""First half of the addresses: the part of RFC 2544's block that ``links`` leaves free."""

SSHD = "sshd"
"""Part of openssh-server, which `make run` does not install: it would open a service on the user's
machine."""

LOOPBACK = "link set dev lo up\n"


def trunk_name(vec: int) -> str:
    """The user-mode kernel's name for its ``vec``-th network interface, from 0."""
    return f"vec{vec}"


def require_ssh() -> None:
    """RequirementError unless this machine has the programs with which kernels per host communicate."""
    path = environment()["PATH"]
    missing = [name for name in (SSHD, "ssh", "ssh-keygen") if shutil.which(name, path=path) is None]
    if missing:
        raise RequirementError(
            f"kernels per host communicate over SSH, but {', '.join(missing)} of OpenSSH was not found here",
            hint="apt-get install --no-install-recommends openssh-server openssh-client",
        )


def target_network(initiators: int) -> str:
    """An ip(8) batch for the target's kernel: its end of each initiator's network."""
    ends = (_interface(trunk_name(n - 1), f"{NETWORK}.{n}.1") for n in range(1, initiators + 1))
    return "".join((LOOPBACK, *ends))


def initiator_network(number: int) -> str:
    """An ip(8) batch for the ``number``-th initiator's kernel: the route to the others through the
    target's."""
    return (
        LOOPBACK
        + _interface(trunk_name(0), f"{NETWORK}.{number}.2")
        + f"route add {NETWORK}.0.0/16 via {NETWORK}.{number}.1\n"
    )


def _interface(name: str, address: str) -> str:
    return f"link set dev {name} up\naddress add {address}/30 dev {name}\n"


def _address(peer: str) -> str:
    return f"{NETWORK}.1.1" if peer == TARGET else f"{NETWORK}.{peer.removeprefix('initiator')}.2"


def serve(folder: Path, client: Path) -> list[str]:
    """Make an sshd's files in ``folder``, for the one client with its files in ``client``; returns its
    command.

    Both folders stay private to the user who boots the kernels; root in the kernels reads them.
    """
    folder.mkdir(mode=0o700)
    _make_key(folder / "host_key")
    settings = {
        "HostKey": folder / "host_key",
        "AuthorizedKeysFile": client / "id.pub",
        # The folder is private, but /tmp above it is everybody's.
        "StrictModes": "no",
        "AuthenticationMethods": "publickey",
        "PermitRootLogin": "prohibit-password",
        "UsePAM": "no",
        "UseDNS": "no",
        "PidFile": "none",
    }
    _write(folder / "config", (f"{name} {value}" for name, value in settings.items()))
    # It must be started by its full path, because it executes itself again.
    program = shutil.which(SSHD, path=environment()["PATH"]) or SSHD
    return [program, "-D", "-e", "-f", str(folder / "config")]


def make_client(folder: Path) -> None:
    """Make the key that all sshds accept, in ``folder``, which becomes root's ~/.ssh."""
    folder.mkdir(mode=0o700)
    _make_key(folder / "id")


def introduce(client: Path, servers: dict[str, Path]) -> None:
    """Tell the client where each server is, by its kernel's name, and what its host key is."""
    known = (f"{peer} {(folder / 'host_key.pub').read_text()}" for peer, folder in servers.items())
    _write(client / "known_hosts", known)
    hosts = (f"Host {peer}\n  HostName {_address(peer)}\n  HostKeyAlias {peer}" for peer in servers)
    everywhere = (
        "Host *",
        "  User root",
        "  IdentityFile ~/.ssh/id",
        "  IdentitiesOnly yes",
        "  UserKnownHostsFile ~/.ssh/known_hosts",
        "  StrictHostKeyChecking yes",
        "  BatchMode yes",
    )
    _write(client / "config", (*hosts, *everywhere))


def _make_key(path: Path) -> None:
    runner.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)])


def _write(path: Path, lines: Iterator[str] | tuple[str, ...]) -> None:
    path.write_text("".join(f"{line.rstrip()}\n" for line in lines), encoding="utf-8")
    path.chmod(0o600)

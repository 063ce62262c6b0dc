"""MKA (IEEE Std 802.1X-2020, clause 9): the ends of a MACsec channel agree on its keys.

wpa_supplicant does that at both ends, from a key that both have (wpa_supplicant.conf(5): ``mka_cak``). The
end whose priority is the lower number makes the channel's keys and sends them to the other.

wpa_supplicant takes the MACsec interface that is already there if its channel identifier is the same: the
address of the interface below, and ``macsec_port`` (``macsec_drv_create_transmit_sc()`` in
driver_macsec_linux.c). So the run's journal knows the interface and removes it. A killed run leaves nothing
more than that.

MKA's frames go to an address that bridges do not pass on (802.1Q-2018, table 8-1), so the ends must be on one
cable.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.hosts import Daemon, Host, runner
from harness.model import ENDS
from harness.model.errors import CommandFailed, RequirementError
from harness.network import links
from harness.network.links import LinkPath

ETHERTYPE = 0x888E
"""EAPOL (802.1X-2020, table 11-1)."""

PROGRAM = "wpa_supplicant"

DEADLINE_S = 20.0
"""Two hellos, which are 2 s apart, make two ends live to each other (802.1X-2020, table 9-3)."""


@dataclass(frozen=True, kw_only=True)
class Secret:
    """What both ends have before they agree on keys, hexadecimal: in memory and in a private file alone."""

    key: str = field(repr=False, default_factory=lambda: secrets.token_hex(16))
    name: str = field(default_factory=lambda: secrets.token_hex(16))


def configuration(secret: Secret, *, priority: int, port: int, socket: Path) -> str:
    """wpa_supplicant.conf(5)."""
    return (
        f"ctrl_interface={socket}\nap_scan=0\neapol_version=3\n"
        f"network={{\nkey_mgmt=NONE\neapol_flags=0\nmacsec_policy=1\nmacsec_port={port}\n"
        f"macsec_replay_protect=0\nmka_cak={secret.key}\nmka_ckn={secret.name}\nmka_priority={priority}\n}}\n"
    )


@contextlib.contextmanager
def agreement(path: LinkPath, *, port: int, private: Path, logs: Path) -> Iterator[Daemon]:
    """Keep wpa_supplicant at both ends of ``path``, whose MACsec interfaces have the keys agreed on, and
    channels of ``port``; yields the key server's, which is the initiator's.

    RequirementError where it is not installed or its frames do not pass; CommandFailed if the ends do not
    agree in time.
    """
    if path.profile.hops is not None or path.profile.radio is not None:
        raise RequirementError(
            f"MKA needs one cable between the ends, and {path.profile.name} is not one",
            hint="use --protect macsec, which has static keys",
        )
    secret = Secret()
    with contextlib.ExitStack() as stack:
        ends = [
            stack.enter_context(_participant(host, iface, port, secret, number, private / end, logs))
            for number, (end, host, iface, _, _) in enumerate(links.ends(path), start=1)
        ]
        until = time.monotonic() + DEADLINE_S
        while not all(is_secured() for _, is_secured in ends):
            if time.monotonic() > until:
                raise CommandFailed(
                    f"expected the ends of {path.initiator_iface} to agree on keys within {DEADLINE_S:.0f} s "
                    f"(MKA): {runner.tail(logs / _log(ENDS[0]))}",
                )
            time.sleep(0.1)
        ((server, _), _) = ends
        yield server


def _log(end: str) -> str:
    return f"mka-{end}.log"


@contextlib.contextmanager
def _participant(
    host: Host, iface: str, port: int, secret: Secret, priority: int, private: Path, logs: Path
) -> Iterator[tuple[Daemon, Callable[[], bool]]]:
    """Keep wpa_supplicant on an interface; yields it, and whether its channel has keys."""
    host.run([PROGRAM, "-v"])  # RequirementError if there is none
    socket, file = private / PROGRAM, private / f"{PROGRAM}.conf"
    host.write_secret(file, configuration(secret, priority=priority, port=port, socket=socket))
    ask = ["wpa_cli", "-p", str(socket), "-i", iface, "status"]
    argv = [PROGRAM, "-t", "-D", "macsec_linux", "-i", iface, "-c", str(file)]
    log = logs / _log(private.name)

    def answers() -> bool:
        return host.run(ask, check=False).status == 0

    def is_secured() -> bool:
        return "Secured=Yes" in host.run(ask, check=False).stdout.splitlines()

    with host.daemon(argv, log=log, ready=answers, deadline_s=DEADLINE_S) as daemon:
        yield daemon, is_secured

"""Each transport under each kind of protection, on the kernels that these machines have; and without D-Bus.

`tox -e machines -- -m short` has them on Debian's own kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from harness.model import TRANSPORTS
from tests.machines.conftest import install
from tests.machines.runs import TOGETHER, as_before, meanwhile, measured, snapshot
from tests.machines.site import Site

pytestmark = pytest.mark.short
PROTECTIONS = ("off", "aes128gcm16", "wireguard")

OWN = "/sys/kernel/config/nvmet"
OWN_NVMET = f"""
modprobe nvmet
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
mkdir {OWN}/subsystems/nqn.2003-01.org.example:own {OWN}/ports/1
echo 192.0.2.99 >{OWN}/ports/1/addr_traddr
"""
NO_NVMET = f"rmdir {OWN}/subsystems/nqn.2003-01.org.example:own {OWN}/ports/1"
"""An export of the user's own, which nobody listens for."""

BUS = "/run/dbus/system_bus_socket"
NO_BUS, BUS_AGAIN = f"mv {BUS} {BUS}.away", f"mv {BUS}.away {BUS}"
"""As where no dbus is installed: who asks for the bus finds none. Who has it keeps it."""


def each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


@pytest.mark.on_ci("trixie")
def test_each_transport_and_protection(installed: Site) -> None:
    nas, client = installed.machines["server"], installed.machines["client"]
    words = (*each("--transport", TRANSPORTS), *each("--protect", PROTECTIONS))
    install(installed, *TOGETHER, *words)  # what a target of NBD takes besides
    with meanwhile(nas, OWN_NVMET, NO_NVMET):
        before = snapshot(nas)
        assert any("192.0.2.99" in line for line in before["nvmet"]), before["nvmet"]
        assert any(line.startswith("net.ipv6.conf.all.") for line in before["sysctls"])
        assert "iscsid.service inactive dead" in snapshot(client)["units"]
        with as_before(installed):
            doctor = installed.harness("doctor", *TOGETHER, *words)
            assert doctor.status == 0, doctor.text
            for tried in ("an NVMe/TCP connection to itself", "an ESP packet", "an interface of WireGuard"):
                assert tried in doctor.out, doctor.text
            found = measured(installed, *words)
    columns = [cell["column"] for cell in found.values()]
    pairs = {(column["transport"], "+".join(column["protection"]) or "off") for column in columns}
    assert pairs == {*itertools.product(TRANSPORTS, PROTECTIONS)}


@pytest.mark.on_ci("bookworm")
def test_without_d_bus(installed: Site) -> None:
    """systemd cannot be asked: its socket starts iscsid all the same, and nothing of that stays."""
    client = installed.machines["client"]
    with meanwhile(client, NO_BUS, BUS_AGAIN):
        refused = client.run("SYSTEMCTL_FORCE_BUS=1 systemctl show iscsid.service")
        assert "connect to" in refused.err, refused.text
        with as_before(installed):
            doctor = installed.harness("doctor", *TOGETHER)
            assert doctor.status == 0, doctor.text
            found = measured(installed, *each("--protect", PROTECTIONS))
    assert len(found) == len(PROTECTIONS)
